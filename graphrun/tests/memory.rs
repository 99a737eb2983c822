//! `graphrun memory` as a process: tables in, offsets out, looked at by a check that shares nothing with the planner.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Exit status, standard output and standard error.
fn graphrun(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_graphrun")).current_dir(folder).args(arguments).output().unwrap();
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

/// Asserts that no two share a byte at a moment, by looking at all pairs, and returns where they end.
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
        let arguments =
            ["memory", path.to_str().unwrap(), "--capacity", capacity, "-o", "s.csv", "--svg", "s.svg"];
        let (status, out, err) = graphrun(folder.path(), &arguments);
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        let solution = std::fs::read_to_string(folder.path().join("s.csv")).unwrap();
        let rows = rows(&solution);
        assert_eq!(rows.len(), std::fs::read_to_string(&path).unwrap().lines().count() - 1);
        assert!(height(&rows) <= 1 << 20 && out.contains("they fit into"), "{out}");
        let picture = std::fs::read_to_string(folder.path().join("s.svg")).unwrap();
        assert_eq!(picture.matches("<title>").count(), rows.len());
        // A solution is a problem that is solved.
        let (status, out, _) = graphrun(folder.path(), &["memory", "s.csv", "--minimize", "--effort", "0"]);
        assert_eq!(status, 0, "{out}");
        assert!(out.contains(&format!("they fit into {} bytes", height(&rows))), "{out}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let folder = TempDir::new().unwrap();
    let path = instance("C.csv");
    let (status, out, err) =
        graphrun(folder.path(), &["memory", path.to_str().unwrap(), "--capacity", "1039359", "-o", "s.csv"]);
    assert_eq!((status, err.as_str()), (1, ""));
    assert!(out.contains("they do not fit into 1039359 bytes: 1039360 are needed at least"), "{out}");
    assert!(!folder.path().join("s.csv").exists());
    let path = instance("B.csv");
    let few = ["memory", path.to_str().unwrap(), "--capacity", "1MiB", "--effort", "10"];
    let (status, out, _) = graphrun(folder.path(), &few);
    assert_eq!(status, 1);
    assert!(out.contains("was found at 10 states") && out.contains("help: raise --effort"), "{out}");
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
    // d is at 16; b, a multiple of 8, above it or below; a and c are one.
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
    refused(&["memory", "p.csv", "--minimize"], &["`p.csv`, line 3: `b` lives at no moment", "help: "]);
    refused(&["memory", "none.csv", "--minimize"], &["none.csv"]);
    refused(&["memory", "p.csv"], &["--capacity", "--minimize"]);
    refused(&["memory", "p.csv", "--minimize", "--capacity", "1MiB"], &["cannot be used with"]);
    refused(&["memory", "p.csv", "--capacity", "much"], &["`much` is no number of bytes", "1.5MiB"]);
    refused(&["memory", "p.csv", "--capacity", "1.5"], &["is no number of bytes"]);
}
