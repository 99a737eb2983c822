//! Runs every case at small extents on the CPU. The result must be right, and a wrong result must
//! be detected.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use wengert::{DType, Device, DeviceOptions, Literal};
use wengert_bench::case::{
    Case, Kind, catalogue, catalogue_of_cpu, catalogue_of_memory, random_chains,
};
use wengert_bench::cli::cases_json;
use wengert_bench::harness::Contender;
use wengert_bench::record::Record;
use wengert_bench::resident::{Local, Resident};

/// Every case of both catalogues, once.
fn both(small: bool) -> Vec<Case> {
    let mut cases = catalogue(small);
    for case in catalogue_of_cpu(small) {
        if !cases.iter().any(|c| c.id == case.id) {
            cases.push(case);
        }
    }
    cases.extend(random_chains(7, small));
    cases
}

#[test]
fn every_case_runs_on_the_cpu_and_is_right() {
    let mut local = Local::new("wengert", Device::Cpu, DeviceOptions::default());
    for case in both(true) {
        let parity = local.prepare(&case).unwrap_or_else(|e| panic!("{}: {e}", case.id));
        assert!(parity.compared > 0 && parity.worst <= parity.bound, "{}: {parity:?}", case.id);
        // Runs again, more than once: the data of a case must not change.
        assert!(local.time(&case, 2).unwrap() > 0.0, "{}", case.id);
        local.release(&case);
        assert!(local.time(&case, 1).is_err(), "{} is gone", case.id);
    }
}

/// The check gets other data than the run.
#[test]
fn a_wrong_result_is_found_out() {
    for case in both(true) {
        let made = case.make().unwrap();
        let mut other = made.variables.clone();
        for (_, value) in other.iter_mut().filter(|(_, v)| v.dtype().is_float()) {
            let larger: Vec<f32> = value.scalars().map(|s| 3.0 * s.to_f64() as f32).collect();
            *value = Literal::from_vec(value.shape(), larger).unwrap().convert(value.dtype());
        }
        let mut resident = Resident::open(Device::Cpu, &DeviceOptions::default(), &made).unwrap();
        let verdict = (made.check)(&mut resident, &case, &other);
        assert!(verdict.unwrap_err().message.contains("the result is wrong"), "{}", case.id);
    }
}

#[test]
fn names_are_different_and_references_exist() {
    for small in [false, true] {
        let cases = catalogue(small);
        let names: BTreeSet<&str> = cases.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(case.work.elements > 0 && case.work.bytes > 0, "{}", case.id);
            let reference = case.reference.as_deref();
            assert!(reference.is_none_or(|r| names.contains(r)), "{}: {reference:?}", case.id);
            assert_eq!(reference.is_some(), case.group == "memory", "{}", case.id);
        }
    }
    for small in [false, true] {
        let mut seen = Vec::new();
        for kind in both(small).iter().map(|c| std::mem::discriminant(&c.kind)) {
            if !seen.contains(&kind) {
                seen.push(kind);
            }
        }
        // Imported models have no small extents.
        assert_eq!(seen.len(), if small { 16 } else { 17 }, "every kind has a case");
        let groups: BTreeSet<String> =
            catalogue_of_cpu(small).into_iter().map(|c| c.group).collect();
        let numbered = groups.iter().filter_map(|g| g.split(' ').next()).collect::<BTreeSet<_>>();
        let [c4, c13] = if small { [""; 2] } else { [" C4", " C13"] };
        let wanted = format!("C1 C10 C11 C12{c13} C15 C16 C2 C3{c4} C5 C6 steps");
        assert_eq!(numbered.into_iter().collect::<Vec<_>>().join(" "), wanted);
    }
    let dtypes: Vec<DType> = catalogue(false).iter().map(|c| c.dtype.dtype()).collect();
    assert!(dtypes.contains(&DType::F32) && dtypes.contains(&DType::BF16));
}

/// The list for the scripts of other systems equals the catalogue. `WENGERT_BLESS=1` rewrites it.
#[test]
fn peers_measure_the_same_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/cases.json");
    let wanted = cases_json();
    if std::env::var_os("WENGERT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(
        found == wanted,
        "peers/cases.json is not the catalogue: run with WENGERT_BLESS=1 and look at the difference"
    );
    let read: serde_json::Value = serde_json::from_str(&found).unwrap();
    let cases: Vec<Case> = serde_json::from_value(read["full"].clone()).unwrap();
    assert_eq!(cases, catalogue(false));
    let cases_of_cpu: Vec<Case> = serde_json::from_value(read["cpu"].clone()).unwrap();
    assert_eq!(cases_of_cpu, catalogue_of_cpu(false));
    let cases_of_memory: Vec<Case> = serde_json::from_value(read["memory"].clone()).unwrap();
    assert_eq!(cases_of_memory, catalogue_of_memory(false));
    assert!(matches!(cases[0].kind, Kind::Empty));
}

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_wengert-bench"))
}

/// A record on the CPU, with this program in another process as its own peer, and the table of the
/// record.
#[test]
fn the_command_leaves_a_record_and_merges_it() {
    let path =
        std::env::temp_dir().join(format!("wengert-bench-command-{}.json", std::process::id()));
    let binary = env!("CARGO_BIN_EXE_wengert-bench");
    let mut command = bench();
    command.args([
        "gpu",
        "--device",
        "cpu",
        "--small",
        "--only",
        "copy",
        "--only",
        "softmax bf16",
        "--date",
        "2026-01-02",
    ]);
    command
        .args(["--rounds", "2", "--json"])
        .arg(&path)
        .args(["--peer", &format!("{binary} serve")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = Record::read(&path).unwrap();
    assert_eq!(record.date.as_deref(), Some("2026-01-02"));
    // Eight copies and three softmaxes, for two contenders.
    assert_eq!(record.measurements.len(), 22);
    assert!(record.failed.is_empty() && record.absent.is_empty());
    for m in &record.measurements {
        assert_eq!((m.time.samples, m.latency.samples, m.device.as_str()), (2, 2, "cpu"));
        assert!(m.time.min > 0.0 && m.time.min <= m.time.median, "{m:?}");
    }
    let table = bench().arg("table").arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(table.status.success());
    // The measuring command prints the same table at its end as `table`.
    assert_eq!(table.stdout, output.stdout);
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(
        text.lines().filter(|l| l.starts_with("| copy ") || l.starts_with("| softmax ")).count(),
        11,
        "{text}"
    );
}

#[test]
fn wrong_usage_is_told() {
    let fails = |arguments: &[&str], status: i32, message: &str| {
        let output = bench().args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(message), "{text}");
    };
    fails(
        &["gpu", "--device", "cpu", "--only", "no such case"],
        2,
        "no case has a name with [\"no such case\"]",
    );
    fails(&["gpu", "--device", "abacus"], 2, "unknown device `abacus`");
    fails(&["gpu", "--device", "cpu", "--rounds", "0"], 2, "0 is not in 1..");
    fails(
        &["gpu", "--device", "cpu", "--small", "--peer", "/no/such/peer"],
        2,
        "cannot start `/no/such/peer`",
    );
    fails(&["table", "/no/such/record.json"], 2, "cannot read /no/such/record.json");
    // Options are checked before anything is measured.
    for option in ["--json", "--csv", "--svg"] {
        let arguments = ["cpu", option, "/no/such/file", "--peer", "/no/such/peer"];
        fails(&arguments, 2, "cannot write `/no/such/file`");
    }
    fails(&["memory", "--json", "/no/such/file"], 2, "cannot write `/no/such/file`");
}

/// A reader may close the pipe early, as in `wengert-bench cases | head`. That is not an error.
#[test]
fn an_output_that_nobody_reads_is_no_failure() {
    let mut child =
        bench().arg("cases").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// A run that is interrupted keeps the finished groups.
#[cfg(unix)]
#[test]
fn what_was_measured_stays() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (peer, path) = (folder.path().join("peer"), folder.path().join("record.json"));
    let binary = env!("CARGO_BIN_EXE_wengert-bench");
    // The peer deletes itself after its first start, so the second group cannot start it.
    std::fs::write(&peer, format!("#!/bin/sh\nrm \"$0\"\nexec \"{binary}\" serve \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&peer, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = bench()
        .args([
            "gpu", "--device", "cpu", "--small", "--rounds", "1", "--only", "copy", "--only",
            "empty",
        ])
        .arg("--json")
        .arg(&path)
        .arg("--peer")
        .arg(&peer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("cannot start"), "{said}");
    let record = Record::read(&path).unwrap();
    // The empty step comes first, before the copies.
    let measured: Vec<&str> = record.measurements.iter().map(|m| m.case.as_str()).collect();
    assert_eq!(measured, ["empty", "empty"]);
}

/// On the CPU, plain loops are contenders in the cases that have them.
#[test]
fn the_cpu_is_measured_beside_plain_loops() {
    let path = std::env::temp_dir().join(format!("wengert-bench-cpu-{}.json", std::process::id()));
    let output =
        bench().args(["cpu", "--small", "--rounds", "1", "--json"]).arg(&path).output().unwrap();
    let record = Record::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success() && record.failed.is_empty(), "{:?}", record.failed);
    let of =
        |contender: &str| record.measurements.iter().filter(|m| m.contender == contender).count();
    assert_eq!((of("wengert"), of("rust loop")), (catalogue_of_cpu(true).len(), 6));
    // Each group of networks has a product and a copy as yardsticks. The table has no rows for
    // them.
    let groups = ["C3 GPT", "C5 MLPs", "C5 convnet", "C5 LSTM", "C6 MLP", "C6 BERT", "C6 GPT-2"];
    let mixed = ["C15 GPT", "C16 MLPs", "C16 convnet", "C16 LSTM"].map(str::to_owned);
    let inferred = ["MLP", "BERT", "GPT-2"].map(|of| format!("C16 inference of {of}"));
    let groups: Vec<String> =
        groups.map(str::to_owned).into_iter().chain(mixed).chain(inferred).collect();
    for group in &groups {
        let beside =
            record.measurements.iter().filter(|m| m.group == *group && m.contender == "yardstick");
        assert_eq!(beside.count(), 2, "{group}");
    }
    // Each group of cases that read has a sum.
    let groups_that_read = ["products of f32", "products of bf16", "decoding f32", "decoding bf16"]
        .map(|of| format!("C12 {of}"));
    for group in &groups_that_read {
        let beside =
            record.measurements.iter().find(|m| m.group == *group && m.contender == "yardstick");
        assert_eq!(beside.unwrap().case, "sum f32 64K");
    }
    assert_eq!(of("yardstick"), 2 * groups.len() + groups_that_read.len());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("yardstick"));
    // Cases in mixed precision are measured in f32, too.
    assert_eq!(of("wengert (f32)"), 8);
    assert!(text.contains("Geometric mean of 8 ratios to f32: "), "{text}");
}

/// The record and the table of one round of small cases on the CPU.
fn measured(arguments: &[&str]) -> (Record, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    let mut command = bench();
    command.args(["cpu", "--small", "--rounds", "1"]).args(arguments).arg("--json").arg(&path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (Record::read(&path).unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// This library on one thread is a further contender, and other processes spin.
#[test]
fn one_thread_is_measured_beside_a_process_that_spins() {
    let (record, text) =
        measured(&["--only", "decode llama f32", "--one-thread", "--spinning", "1"]);
    assert_eq!(record.settings.spinning, 1);
    let of =
        |contender: &str| record.measurements.iter().filter(|m| m.contender == contender).count();
    assert_eq!((of("wengert"), of("wengert (1 thread)"), of("yardstick")), (2, 2, 1));
    assert!(text.contains("**beside a process that spins**"), "{text}");
    assert!(text.contains("Geometric mean of 2 ratios to one thread: "), "{text}");
}

/// Two ranks of this library are a further contender. Their losses agree with those of one.
#[test]
fn two_ranks_are_measured() {
    let (record, text) = measured(&["--suite", "C3", "--two-ranks"]);
    assert!(record.failed.is_empty() && record.absent.is_empty(), "{:?}", record.failed);
    let losses = |contender: &str| {
        let of = record.measurements.iter().find(|m| m.contender == contender);
        of.unwrap().parity.losses.unwrap()
    };
    let [one, two] = [losses("wengert"), losses("wengert (2 ranks)")];
    // Sums over two microbatches have another order.
    assert!(one.iter().zip(two).all(|(a, b)| (a - b).abs() < 1e-5 * a.abs()), "{one:?}, {two:?}");
    assert!(text.contains("Geometric mean of 1 ratios to two ranks: "), "{text}");
}

/// Compiles every step of the memory benchmark. The table of the record has a row for each.
#[test]
fn memory_is_planned_for_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.json");
    let output = bench()
        .args(["memory", "--small", "--date", "2026-01-02", "--save"])
        .arg(folder.path())
        .arg("--json")
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (record, cases) = (Record::read(&path).unwrap(), catalogue_of_memory(true));
    let text = String::from_utf8(output.stdout).unwrap();
    let find = |id: &str| record.footprints.iter().find(|f| f.case == id).unwrap();
    for case in &cases {
        let found = find(&case.id);
        let (bound, naive) = (found.bound_bytes.unwrap(), found.naive_bytes.unwrap());
        assert!(0 < bound && bound <= found.arena_bytes && naive > 0, "{found:?}");
        assert!(found.planning.is_some_and(|share| 0.0 < share && share < 1.0), "{found:?}");
        // Besides the state the only result is the loss.
        assert_eq!(found.result_bytes, 4, "{}", case.id);
        assert!(folder.path().join(format!("{}.graph", case.file_name())).exists(), "{}", case.id);
        let row = text.lines().find(|line| line.starts_with(&format!("| {} |", case.id))).unwrap();
        assert_eq!(row.matches('|').count(), 11, "{row}");
    }
    assert_eq!((record.footprints.len(), cases.len(), record.failed.len()), (5, 5, 0));
    // Parameters and moments with a counter; parameters, velocities and running statistics.
    let (unet, resnet) = (find(&cases[3].id), find(&cases[4].id));
    assert_eq!(unet.state_bytes, 12 * unet.parameters + 4);
    let norms = resnet.state_bytes - 8 * resnet.parameters;
    assert!(norms > 0 && norms < resnet.parameters, "{resnet:?}");
    let table = bench().arg("table").arg(&path).output().unwrap();
    assert_eq!(String::from_utf8(table.stdout).unwrap(), text);
    let wrong = bench().args(["memory", "--only", "no such step"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// A case that is only compiled is marked as such.
#[test]
fn steps_without_a_plain_loop_are_not_run() {
    for case in catalogue_of_memory(true) {
        let is_run = !matches!(case.kind, Kind::UNet { .. } | Kind::ResNet { .. });
        assert_eq!(case.make().is_ok(), is_run, "{}", case.id);
        assert!(case.program().is_ok() && case.work.flops > 0, "{}", case.id);
    }
}

/// A profile names a kernel for every entry with time. Steps of products have rates.
#[test]
fn a_profile_names_kernels() {
    let output = bench()
        .args(["profile", "--small", "--suite", "C5", "--only", "convnet", "--runs", "2"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    for wanted in ["## step convnet", "µs a run", "| convolution filter_gradient ", "| gemm "] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    let output = bench().args(["profile", "--suite", "C13"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
