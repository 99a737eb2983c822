//! `graphrun memory` as a process: tables in, offsets out. A check that shares no code with the
//! planner verifies the offsets.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Exit status, standard output and standard error.
fn graphrun(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn instance(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph-compiler/tests/data/minimalloc").join(name)
}

/// The numbers of a table whose lines are id,lower,upper,size,…,offset.
fn rows(text: &str) -> Vec<[u64; 4]> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |n: usize| fields[n].parse::<u64>().unwrap();
        [number(1), number(2), number(3), number(fields.len() - 1)]
    };
    text.lines().skip(1).map(row).collect()
}

/// Asserts for all pairs that no two buffers overlap in both time and bytes. Returns the end of the
/// highest buffer.
fn height(rows: &[[u64; 4]]) -> u64 {
    for (n, [lower, upper, size, offset]) in rows.iter().enumerate() {
        for [l, u, s, o] in &rows[..n] {
            let apart = upper <= l || u <= lower || offset + size <= *o || o + s <= *offset;
            assert!(apart, "lines {} and another overlap", n + 2);
        }
    }
    rows.iter().map(|row| row[3] + row[2]).max().unwrap_or(0)
}

#[test]
fn hard_instances_fit_into_their_capacity() {
    let folder = TempDir::new().unwrap();
    for (name, capacity) in [("A.csv", "1MiB"), ("C.csv", "1039360"), ("F.csv", "1048576")] {
        let path = instance(name);
        let arguments = [
            "memory",
            path.to_str().unwrap(),
            "--capacity",
            capacity,
            "-o",
            "s.csv",
            "--svg",
            "s.svg",
        ];
        let (status, out, err) = graphrun(folder.path(), &arguments);
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        let solution = std::fs::read_to_string(folder.path().join("s.csv")).unwrap();
        let rows = rows(&solution);
        assert_eq!(rows.len(), std::fs::read_to_string(&path).unwrap().lines().count() - 1);
        assert!(height(&rows) <= 1 << 20 && out.contains("they fit into"), "{out}");
        let picture = std::fs::read_to_string(folder.path().join("s.svg")).unwrap();
        assert_eq!(picture.matches("<title>").count(), rows.len());
        // A solution can be read as a problem.
        let (status, out, _) =
            graphrun(folder.path(), &["memory", "s.csv", "--minimize", "--effort", "0"]);
        assert_eq!(status, 0, "{out}");
        assert!(out.contains(&format!("they fit into {} bytes", height(&rows))), "{out}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let folder = TempDir::new().unwrap();
    let path = instance("C.csv");
    let (status, out, err) = graphrun(
        folder.path(),
        &["memory", path.to_str().unwrap(), "--capacity", "1039359", "-o", "s.csv"],
    );
    assert_eq!((status, err.as_str()), (1, ""));
    assert!(
        out.contains("they do not fit into 1039359 bytes: 1039360 are needed at least"),
        "{out}"
    );
    assert!(!folder.path().join("s.csv").exists());
    let path = instance("B.csv");
    let few = ["memory", path.to_str().unwrap(), "--capacity", "1MiB", "--effort", "10"];
    let (status, out, _) = graphrun(folder.path(), &few);
    assert_eq!(status, 1);
    assert!(
        out.contains("was found at 10 states") && out.contains("help: raise --effort"),
        "{out}"
    );
}

#[test]
fn the_least_height_is_found_and_printed_as_json() {
    let folder = TempDir::new().unwrap();
    let table = "id,lower,upper,size,alignment,alias,offset\n\
        a,0,4,10,,,\n\
        b,2,6,5,8,,\n\
        c,4,9,10,,a,\n\
        d,3,5,4,,,16\n";
    std::fs::write(folder.path().join("p.csv"), table).unwrap();
    let (status, out, err) =
        graphrun(folder.path(), &["memory", "p.csv", "--minimize", "--json", "-o", "s.csv"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    // d is at 16. b, a multiple of 8, is above or below it. a and c are one buffer.
    assert!(out.contains("\"height\":20") || out.contains("\"height\": 20"), "{out}");
    let solution = std::fs::read_to_string(folder.path().join("s.csv")).unwrap();
    let offsets: Vec<u64> = rows(&solution).iter().map(|row| row[3]).collect();
    assert_eq!((offsets[0], offsets[3]), (offsets[2], 16), "{solution}");
    assert_eq!(offsets[1] % 8, 0, "{solution}");
}

#[test]
fn bad_tables_and_flags_are_named() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("p.csv"), "id,lower,upper,size\na,0,2,4\nb,2,1,4\n").unwrap();
    let refused = |arguments: &[&str], says: &[&str]| {
        let (status, out, err) = graphrun(folder.path(), arguments);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        says.iter().for_each(|text| assert!(err.contains(text), "`{text}` is not said: {err}"));
    };
    refused(
        &["memory", "p.csv", "--minimize"],
        &["`p.csv`, line 3: `b` lives at no moment", "help: "],
    );
    refused(&["memory", "none.csv", "--minimize"], &["none.csv"]);
    refused(&["memory", "p.csv"], &["--capacity", "--minimize"]);
    refused(&["memory", "p.csv", "--minimize", "--capacity", "1MiB"], &["cannot be used with"]);
    refused(
        &["memory", "p.csv", "--capacity", "much"],
        &["`much` is not a number of bytes", "1.5MiB"],
    );
    refused(&["memory", "p.csv", "--capacity", "1.5"], &["is not a number of bytes"]);
}

/// A perceptron of eight layers, and the gradient of its loss.
fn perceptron(folder: &Path) {
    let mut text = String::from("func @loss(%x: f32[B,32]");
    (0..8).for_each(|n| text += &format!(", %w{n}: f32[32,32]"));
    text += ") -> (f32[]) {\n    %h0: f32[B,32] = tanh %x\n";
    for n in 0..8 {
        let next = n + 1;
        text += &format!(
            "    %p{n}: f32[B,32] = dot_general %h{n}, %w{n} {{contract=[[1],[0]]}}\n    \
             %h{next}: f32[B,32] = tanh %p{n}\n"
        );
    }
    text += "    %y: f32[] = reduce_sum %h8 {axes=[0,1]}\n    return %y\n}\n";
    std::fs::write(folder.join("loss.ir"), text).unwrap();
    let wrt: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
    let arguments = ["grad", "loss.ir", "--value", "--wrt", &wrt.join(","), "-o", "step.ir"];
    let (status, out, err) = graphrun(folder, &arguments);
    assert_eq!(status, 0, "{out}{err}");
}

#[test]
fn a_function_runs_in_less_memory_with_the_same_bits() {
    let folder = TempDir::new().unwrap();
    perceptron(folder.path());
    let good = |arguments: &[&str]| {
        let (status, out, err) = graphrun(folder.path(), arguments);
        assert_eq!(status, 0, "{arguments:?}: {out}{err}");
        out
    };
    let frontier = [
        "memory",
        "step.ir",
        "--frontier",
        "--bind",
        "B=512",
        "--json",
        "--svg",
        "f.svg",
        "-o",
        "f.plan",
    ];
    let report: serde_json::Value = serde_json::from_str(&good(&frontier)).unwrap();
    let points = report["points"].as_array().unwrap();
    let of = |n: usize, what: &str| points[n][what].as_u64().unwrap();
    assert!(points.len() > 3, "{report}");
    let last = points.len() - 1;
    assert_eq!(of(last, "kernels_again"), 0);
    assert!(of(0, "arena") * 3 < of(last, "arena") * 2, "two thirds are enough: {report}");
    for n in 1..points.len() {
        assert!(
            of(n, "bytes") > of(n - 1, "bytes") && of(n, "operations") < of(n - 1, "operations")
        );
    }
    let picture = std::fs::read_to_string(folder.path().join("f.svg")).unwrap();
    assert_eq!(picture.matches("<title>").count(), points.len());

    let many =
        ["memory", "step.ir", "--frontier", "--points", "16", "--bind", "B=512", "-o", "f.plan"];
    let (status, _, err) = graphrun(folder.path(), &many);
    assert!(
        status == 2 && err.contains("16 plans at most") && err.contains("--points 15"),
        "{err}"
    );

    // A run within each budget gives the same bits.
    let inputs: Vec<String> = (0..8).map(|n| format!("w{n}=random:{n}")).collect();
    let run = |file: &str, more: &[&str], out: &str| {
        let mut arguments = vec!["run", file, "--input", "x=random:9", "--json"];
        inputs.iter().for_each(|input| arguments.extend(["--input", input]));
        arguments.extend(more);
        std::fs::write(folder.path().join(out), good(&arguments)).unwrap();
        std::fs::read_to_string(folder.path().join(out)).unwrap()
    };
    let bind = ["--bind", "B=512"];
    let wanted = run("step.ir", &bind, "wanted.json");
    for n in [0, last / 2] {
        let budget = of(n, "bytes").to_string();
        let with = [&bind[..], &["--memory-budget", &budget]].concat();
        assert_eq!(run("step.ir", &with, "found.json"), wanted, "{budget} bytes");
    }
    let budgets = format!("none,{}", of(0, "bytes"));
    let compiled = good(&[
        "compile",
        "step.ir",
        "--bind",
        "B=512",
        "--memory-budget",
        &budgets,
        "-o",
        "step.plan",
    ]);
    assert_eq!(compiled.lines().count(), 2, "{compiled}");
    assert_eq!(run("step.plan", &[], "found.json"), wanted);
    // The work limit applies to a plan from a file, and not to a function that is compiled here.
    let mut arguments = vec!["run", "step.plan", "--input", "x=random:9", "--work-limit", "100000"];
    inputs.iter().for_each(|input| arguments.extend(["--input", input]));
    let (status, _, err) = graphrun(folder.path(), &arguments);
    assert!(status == 2 && err.contains("more than the 100000 operations"), "{status}: {err}");
    assert_eq!(
        run("step.ir", &[&bind[..], &["--work-limit", "100000"]].concat(), "found.json"),
        wanted
    );
    // The fastest plan that fits is chosen.
    let logged = |budget: &str| {
        let mut arguments =
            vec!["-v", "run", "step.plan", "--input", "x=random:9", "--memory-budget", budget];
        inputs.iter().for_each(|input| arguments.extend(["--input", input]));
        graphrun(folder.path(), &arguments)
    };
    assert!(logged(&of(last, "bytes").to_string()).2.contains("plan 1 of 2"));
    assert!(logged(&of(0, "bytes").to_string()).2.contains("plan 2 of 2"));
    let (status, _, err) = logged("64KiB");
    assert!(
        status == 3 && err.contains("fits into the memory budget of 64.00 KiB"),
        "{status}: {err}"
    );
    let impossible =
        ["run", "step.ir", "--bind", "B=512", "--memory-budget", "256KiB", "--input", "x=zeros"];
    let zeros: Vec<String> = (0..8).map(|n| format!("w{n}=zeros")).collect();
    let impossible =
        [&impossible[..], &zeros.iter().flat_map(|z| ["--input", z]).collect::<Vec<_>>()].concat();
    let (status, _, err) = graphrun(folder.path(), &impossible);
    assert!(
        status == 2 && err.contains("no way was found to run it in less than"),
        "{status}: {err}"
    );

    // The step's buffers are a placement problem, too.
    let out = good(&["memory", "step.ir", "--minimize", "--bind", "B=512", "-o", "s.csv"]);
    let rows = rows(&std::fs::read_to_string(folder.path().join("s.csv")).unwrap());
    assert!(
        rows.len() > 8 && out.contains(&format!("they fit into {} bytes", height(&rows))),
        "{out}"
    );
    let measured = good(&[
        "memory",
        "step.ir",
        "--frontier",
        "--points",
        "2",
        "--bind",
        "B=64",
        "--measure",
        "2",
    ]);
    assert!(measured.contains("measured ms") && measured.lines().count() >= 2, "{measured}");
}
