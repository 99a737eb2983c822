//! `ci/gpu/run` tells what passed and what failed, on machines that a test makes up: its pack holds shell scripts for the executables, and
//! its driver and libraries are empty files.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use wengert_ci::sources::root;

/// A pack in a folder, on a machine with a driver and cuBLASLt.
struct Machine {
    folder: tempfile::TempDir,
}

/// Trains the same weights each time, and prints what `graphrun train` does.
const GRAPHRUN: &str = "while [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\n\
                        mkdir -p $out; echo bits > $out/weights.safetensors\n\
                        echo '900 steps done: loss 0.0912, accuracy 0.9750'\n";
/// Writes a record, and prints a table and what it was asked.
const BENCH: &str = "echo \"$@\"; while [ $# -gt 0 ]; do [ \"$1\" = --json ] && out=$2; shift; done\n\
                     echo '{\"format\": 1}' > $out; echo '| copy | 1 us |'\n";
const TESTS: &str = "echo 'test result: ok. 12 passed; 0 failed; 0 ignored'\n";

impl Machine {
    fn new() -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.path("bin")).unwrap();
        fs::create_dir_all(machine.path("data")).unwrap();
        fs::create_dir_all(machine.path("lib")).unwrap();
        for library in ["libcuda.so.1", "libcublasLt.so.12", "libcublas.so.12"] {
            fs::write(machine.path("lib").join(library), "").unwrap();
        }
        fs::copy(root().join("ci/gpu/run"), machine.path("run")).unwrap();
        fs::write(machine.path("MANIFEST"), "commit \"1234\"\n").unwrap();
        fs::write(machine.path("data/digits.accuracy"), "0.9778\n").unwrap();
        fs::write(
            machine.path("contents"),
            "# A comment\nbin p graphrun -\ntest p one plain\nlib p two sanitize a_filter\n",
        )
        .unwrap();
        machine.program("nvidia-smi", "echo 'Some GPU, 570.1, 100 MiB, 9.0'\n");
        // Neither PyTorch nor JAX.
        machine.program("python3", "case \"$2\" in 'import torch'|'import jax') exit 1;; esac\n");
        machine.program("graphrun", GRAPHRUN);
        machine.program("wengert-bench", BENCH);
        machine.program("one", TESTS);
        let only = "[ \"$WENGERT_TEST_DEVICE $2\" = 'cuda:0 a_filter' ] || exit 1";
        machine.program("two", &format!("{only}\n{TESTS}"));
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = Command::new(self.path("run"));
        command.env("PATH", path).env("LD_LIBRARY_PATH", self.path("lib")).output().unwrap()
    }

    fn results(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("results/results.json")).unwrap()).unwrap()
    }

    fn outcome(&self, step: &str) -> String {
        let results = self.results();
        let steps = results["steps"].as_array().unwrap();
        let found =
            steps.iter().find(|s| s["name"] == step).unwrap_or_else(|| panic!("no {step}: {results}"));
        found["outcome"].as_str().unwrap().to_string()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_good_pack_passes_and_absent_peers_are_told() {
    let machine = Machine::new();
    let output = machine.run();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for step in ["tests of one", "tests of two", "digits on the GPU", "digits, two runs to the same bits"] {
        assert_eq!(machine.outcome(step), "passed", "{step}");
    }
    for step in ["compute-sanitizer on two", "measures of torch.compile", "measures of jax"] {
        assert_eq!(machine.outcome(step), "not installed", "{step}");
    }
    let results = machine.results();
    assert_eq!(results["passed"], true);
    assert_eq!(results["machine"], "Some GPU, 570.1, 100 MiB, 9.0");
    let table = text(&output.stdout);
    assert!(table.contains("tests of one") && table.contains("12 tests"), "{table}");
}

#[test]
fn what_fails_is_told_and_the_rest_still_runs() {
    let machine = Machine::new();
    machine.program("one", "echo 'test result: FAILED. 11 passed; 1 failed'; exit 101\n");
    // No test ran: that proves nothing.
    machine.program("two", "echo 'test result: ok. 0 passed; 0 failed'\n");
    machine.program("graphrun", &GRAPHRUN.replace("echo bits", "date +%N").replace("0.9750", "0.9000"));
    assert_eq!(machine.run().status.code(), Some(1));
    let failed = [
        "tests of one",
        "tests of two",
        "digits, accuracy as on the CPU",
        "digits, two runs to the same bits",
    ];
    for step in failed {
        assert_eq!(machine.outcome(step), "failed", "{step}");
    }
    assert_eq!(machine.outcome("digits on the GPU"), "passed");
    assert_eq!(machine.results()["passed"], false);
}

#[test]
fn the_sanitizer_runs_what_is_meant_for_it() {
    let machine = Machine::new();
    machine.program("compute-sanitizer", "[ \"$2\" = racecheck ] && exit 86\nshift 4; exec \"$@\"\n");
    assert_eq!(machine.run().status.code(), Some(1));
    assert_eq!(machine.outcome("memcheck on two"), "passed");
    assert_eq!(machine.outcome("racecheck on two"), "failed");
}

#[test]
fn measures_are_taken_in_turns_with_the_peers_that_are_there() {
    let machine = Machine::new();
    machine.program("python3", "[ \"$2\" = 'import jax' ] && exit 1\nexit 0\n");
    assert_eq!(machine.run().status.code(), Some(0));
    assert_eq!(machine.outcome("measures of jax"), "not installed");
    let asked = fs::read_to_string(machine.path("results/measures.log")).unwrap();
    assert!(asked.contains("--serve torch.compile") && !asked.contains("jax"), "{asked}");
    // The record is part of the results, and the table is printed.
    assert_eq!(machine.results()["measures"]["format"], 1);
    machine.program("wengert-bench", "echo '| case | time |'; exit 1\n");
    let output = machine.run();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(machine.outcome("measures"), "failed");
    assert!(machine.results()["measures"].is_null());
    assert!(text(&output.stdout).ends_with("| case | time |\n"), "{}", text(&output.stdout));
}

#[test]
fn a_machine_without_libraries_gives_one_line_and_status_3() {
    let machine = Machine::new();
    let wanted = machine.path("lib").join("libcublasLt.so.12");
    let elsewhere = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64"];
    if elsewhere.iter().any(|f| Path::new(f).join("libcublasLt.so").exists()) {
        // This machine has CUDA itself; the script is right to find it.
        return;
    }
    fs::remove_file(wanted).unwrap();
    let output = machine.run();
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert!(told.lines().count() == 1 && told.contains("libcublasLt.so is not installed"), "{told}");
}

#[test]
fn scripts_are_well_formed() {
    for name in ["ci/gpu/pack", "ci/gpu/run", ".ci/run"] {
        let output = Command::new("bash").arg("-n").arg(root().join(name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let script = fs::read_to_string(root().join(name)).unwrap();
        assert!(script.contains("\nset -euo pipefail\n"), "{name}: errors must stop it");
    }
}
