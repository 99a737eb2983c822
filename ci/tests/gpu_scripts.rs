//! `ci/gpu/run` does its steps, reports which passed and which failed, and resumes after an
//! interruption. The tests run it on simulated machines: the pack holds shell scripts instead of
//! executables, and the driver and libraries are empty files. The steps are the real ones.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use wengert_ci::sources::root;

const STAGES: [&str; 9] =
    ["probe", "smoke", "library", "ops", "training", "bench", "model", "peers", "sanitize"];

/// A line of `ci/gpu/steps`.
struct Step {
    stage: String,
    limit: u32,
    name: String,
    command: String,
}

fn steps() -> Vec<Step> {
    let text = fs::read_to_string(root().join("ci/gpu/steps")).unwrap();
    let step = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line}")).to_string();
        let (stage, limit, name, _needs) = (word(), word().parse().unwrap(), word(), word());
        Step { stage, limit, name, command: words.collect::<Vec<_>>().join(" ") }
    };
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(step).collect()
}

/// A pack in a folder, on a machine with a driver and cuBLASLt.
struct Machine {
    folder: tempfile::TempDir,
}

/// Imitates `graphrun`: trains the same weights each time, prints the output of `graphrun train`,
/// and lists devices.
const GRAPHRUN: &str = "[ \"$1\" = devices ] && echo 'cuda:0       Some GPU' && exit 0\n\
                        while [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\n\
                        mkdir -p $out; echo bits > $out/weights.safetensors\n\
                        echo '900 steps done: loss 0.0912, accuracy 0.9750'\n";
/// Imitates the benchmark: writes a record, and prints its arguments and a table.
const BENCH: &str = "echo \"$@\"; \
                     while [ $# -gt 0 ]; do [ \"$1\" = --json ] && out=$2; shift; done\n\
                     [ -z \"$out\" ] || echo '{\"format\": 1}' > \"$out\"; \
                     echo '| copy | 1 us |'\n";
const TESTS: &str = "echo \"$WENGERT_TEST_DEVICE $WENGERT_TEST_PART $@\" >> asked\n\
                     echo 'test result: ok. 12 passed; 0 failed; 0 ignored'\n";

impl Machine {
    fn new() -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        for folder in ["bin", "data", "lib", "tools"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for library in ["libcuda.so.1", "libcublasLt.so.12", "libcublas.so.12"] {
            fs::write(machine.path("lib").join(library), "").unwrap();
        }
        for name in ["run", "steps", "versions.py"] {
            fs::copy(root().join("ci/gpu").join(name), machine.path(name)).unwrap();
        }
        fs::write(machine.path("MANIFEST"), "commit \"1234\"\n").unwrap();
        fs::write(machine.path("data/digits.accuracy"), "0.9778\n").unwrap();
        machine.program(
            "tools/nvidia-smi",
            "case \"$1\" in --query-gpu=name*) echo 'Some GPU, 570.1';; *) echo '570.1';; esac\n",
        );
        // Python has neither PyTorch nor JAX.
        machine.program(
            "tools/python3",
            "case \"$2\" in 'import torch'|'import jax') exit 1;; esac; echo python 3\n",
        );
        machine.program("bin/graphrun", GRAPHRUN);
        machine.program("bin/wengert-bench", BENCH);
        let contents = fs::read_to_string(root().join("ci/gpu/contents")).unwrap();
        for line in contents.lines().filter(|l| l.starts_with("test") || l.starts_with("lib")) {
            machine.program(&format!("bin/{}", line.split_whitespace().nth(2).unwrap()), TESTS);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Replaces the steps.
    fn steps(&self, text: &str) {
        fs::write(self.path("steps"), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.path("tools").display());
        let mut command = Command::new(self.path("run"));
        command
            .args(arguments)
            .env("PATH", path)
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .output()
            .unwrap()
    }

    fn results(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("results/results.json")).unwrap())
            .unwrap()
    }

    /// Name and outcome of each finished step.
    fn outcomes(&self) -> BTreeMap<String, String> {
        let word = |value: &Value| value.as_str().unwrap().to_string();
        let results = self.results();
        results["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| (word(&s["name"]), word(&s["outcome"])))
            .collect()
    }

    /// The arguments of the tests, one line for each process.
    fn asked(&self) -> String {
        fs::read_to_string(self.path("asked")).unwrap_or_default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sum of the steps' limits, with the seconds for starting and for killing a step.
#[test]
fn every_stage_is_below_nine_minutes() {
    let steps = steps();
    for stage in STAGES {
        let seconds: u32 = steps.iter().filter(|s| s.stage == stage).map(|s| s.limit + 6).sum();
        assert!((60..540).contains(&seconds), "{stage}: {seconds} s");
    }
    assert!(steps.iter().all(|s| STAGES.contains(&s.stage.as_str())));
    let names: Vec<&str> = steps.iter().map(|s| s.stage.as_str()).collect();
    assert!(names.is_sorted_by_key(|stage| STAGES.iter().position(|s| s == stage)), "{names:?}");
}

/// Each kernel of `on_devices/smoke.rs` is a step, and its work fits the step's limit. The work is
/// a module for the function and one for its gradient, in each of three sessions, at 22 ms each.
/// Opening a device and running the modules takes at most a second, and under the sanitizer a
/// hundred times as long.
#[test]
fn every_kernel_is_a_step_that_fits() {
    const MODULES: f64 = 2.0 * 3.0;
    const MODULE: f64 = 0.022;
    let source = fs::read_to_string(root().join("wengert/tests/on_devices/smoke.rs")).unwrap();
    let cases = source.lines().filter_map(|line| {
        let line =
            line.strip_prefix("    case ").or_else(|| line.strip_prefix("    with_gradient "))?;
        line.split_once(" \"func").map(|(name, _)| name.to_string())
    });
    let cases: Vec<String> = cases.collect();
    let smoke = steps().into_iter().filter(|s| s.stage == "smoke").collect::<Vec<_>>();
    let names: Vec<&String> = smoke.iter().map(|s| &s.name).collect();
    assert_eq!(names, cases.iter().collect::<Vec<_>>());
    for step in &smoke {
        assert_eq!(step.command, format!("smoke {}", step.name));
        assert!(MODULES * MODULE + 1.0 < f64::from(step.limit));
    }
    for step in steps().iter().filter(|s| s.stage == "sanitize" && !s.name.ends_with("_samples")) {
        assert!(
            cases.len() as f64 * (MODULES * MODULE + 0.02 * 100.0) < f64::from(step.limit),
            "{}",
            step.name
        );
    }
}

#[test]
fn a_good_pack_passes_and_what_is_absent_is_told() {
    let machine = Machine::new();
    let output = machine.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let outcomes = machine.outcomes();
    assert_eq!(outcomes.len(), steps().len());
    for (step, outcome) in &outcomes {
        let absent = step.starts_with("sanitize ")
            || step.starts_with("peers ")
            || step.starts_with("model ")
            || step == "training gpt2_kernels";
        assert_eq!(outcome, if absent { "not installed" } else { "passed" }, "{step}");
    }
    let results = machine.results();
    assert_eq!(
        (&results["machine"], &results["driver"]),
        (&"Some GPU, 570.1".into(), &"570.1".into())
    );
    assert_eq!(results["libraries"], "python 3");
    assert_eq!(results["measures"][0]["format"], 1);
    let table = text(&output.stdout);
    assert!(table.contains("smoke softmax") && table.contains("12 tests"), "{table}");
    let clocks = fs::read_to_string(machine.path("results/clocks.csv")).unwrap();
    assert!(
        clocks.contains("before smoke.softmax, 570.1\nafter smoke.softmax, 570.1\n"),
        "{clocks}"
    );
    // Each test gets its device, and each part of the samples runs once.
    let asked = machine.asked();
    assert!(asked.lines().all(|line| line.starts_with("cuda:0 ")), "{asked}");
    assert!(
        asked.contains("cuda:0  --exact smoke::on_the_device_that_is_asked_for::softmax\n"),
        "{asked}"
    );
    for part in 1..=6 {
        assert_eq!(
            asked.matches(&format!("cuda:0 {part}/6 ops::on_the_device\n")).count(),
            1,
            "{asked}"
        );
    }
}

#[test]
fn what_fails_is_told_and_the_rest_still_runs() {
    let machine = Machine::new();
    machine.program("bin/on_a_gpu", "echo 'test result: FAILED. 11 passed; 1 failed'; exit 101\n");
    // No test ran, so the step must fail.
    let plans = format!(
        "[ $1 = plans::on_the_device ] && echo 'test result: ok. 0 passed; 0 failed' && exit\n\
         {TESTS}"
    );
    machine.program("bin/on_devices", &plans);
    machine.program(
        "bin/graphrun",
        &GRAPHRUN.replace("echo bits", "date +%N").replace("0.9750", "0.9000"),
    );
    let output = machine.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let outcomes = machine.outcomes();
    let failed: Vec<&str> =
        outcomes.iter().filter(|(_, o)| *o == "failed").map(|(name, _)| name.as_str()).collect();
    let expected = [
        "library driver",
        "ops plans",
        "probe first_kernel",
        "training digits_accuracy",
        "training digits_bits",
    ];
    assert_eq!(failed, expected);
    assert_eq!(outcomes.len(), steps().len());
}

#[test]
fn a_step_has_a_limit() {
    let machine = Machine::new();
    machine.steps("probe 1 hangs - echo started; sleep 60\nprobe 5 works - true\n");
    assert_eq!(machine.run(&["--stage", "probe"]).status.code(), Some(1));
    let outcomes = machine.outcomes();
    assert_eq!(
        (outcomes["probe hangs"].as_str(), outcomes["probe works"].as_str()),
        ("timed out", "passed")
    );
    assert!(machine.results()["steps"][0]["note"].as_str().unwrap().contains("started"));
}

/// Each of the two steps waits for the other one.
#[test]
fn steps_that_time_nothing_run_at_the_same_time_on_request() {
    let machine = Machine::new();
    let waits = |mine: &str, other: &str| {
        let path = |name: &str| machine.path(name).display().to_string();
        format!("touch {}; until [ -e {} ]; do sleep 0.1; done", path(mine), path(other))
    };
    machine.steps(&format!(
        "smoke 30 one - {}\nsmoke 30 two - {}\n",
        waits("one", "two"),
        waits("two", "one")
    ));
    let parallel = std::thread::available_parallelism().map_or(1, usize::from) > 1;
    if !parallel {
        wengert_testing::skipped("one CPU runs one step at a time");
        return;
    }
    let output = machine.run(&["--stage", "smoke", "--parallel"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(machine.outcomes().len(), 2);
}

#[test]
fn a_visit_goes_on_where_the_last_was_broken_off() {
    let machine = Machine::new();
    let count = |step: &str| format!("echo {step} >> {}", machine.path("did").display());
    let did = || fs::read_to_string(machine.path("did")).unwrap();
    machine.steps(&format!(
        "probe 5 one - {}\nprobe 5 two - {}; test -e fixed\nsmoke 5 three - {}\n",
        count("one"),
        count("two"),
        count("three")
    ));
    assert_eq!(machine.run(&["--stage", "probe"]).status.code(), Some(1));
    assert_eq!(did(), "one\ntwo\n");
    // On another machine, with the content of the archive.
    fs::remove_dir_all(machine.path("results")).unwrap();
    assert_eq!(machine.run(&[]).status.code(), Some(1), "what failed is still told");
    assert_eq!(did(), "one\ntwo\nthree\n");
    fs::write(machine.path("fixed"), "").unwrap();
    assert_eq!(machine.run(&["--again"]).status.code(), Some(0));
    assert_eq!(did(), "one\ntwo\nthree\ntwo\n");
    assert_eq!(machine.outcomes().len(), 3);
    // The archive has all files.
    let list =
        Command::new("tar").arg("-tzf").arg(machine.path("results.tar.gz")).output().unwrap();
    for name in [
        "results/results.json",
        "results/logs/probe.two.log",
        "results/clocks.csv",
        "results/done/smoke.three",
    ] {
        assert!(
            text(&list.stdout).lines().any(|line| line == name),
            "{name}: {}",
            text(&list.stdout)
        );
    }
}

#[test]
fn the_sanitizer_runs_kernels_and_samples() {
    let machine = Machine::new();
    machine.program(
        "tools/compute-sanitizer",
        "[ \"$2\" = racecheck ] && exit 86\nshift 4; exec \"$@\"\n",
    );
    assert_eq!(machine.run(&["--stage", "sanitize"]).status.code(), Some(1));
    let outcomes = machine.outcomes();
    assert_eq!(outcomes["sanitize memcheck"], "passed");
    assert_eq!(outcomes["sanitize racecheck"], "failed");
    assert_eq!(outcomes["sanitize memcheck_samples"], "passed");
    assert!(
        machine.asked().contains("cuda:0 1/12 --test-threads=1 ops::on_the_device\n"),
        "{}",
        machine.asked()
    );
}

#[test]
fn measures_are_taken_in_turns_with_the_peers_that_are_there() {
    let machine = Machine::new();
    machine.program("tools/python3", "[ \"$2\" = 'import jax' ] && exit 1\nexit 0\n");
    assert_eq!(machine.run(&["--stage", "bench", "--stage", "peers"]).status.code(), Some(0));
    let outcomes = machine.outcomes();
    for (peer, outcome) in [("torch", "passed"), ("jax", "not installed")] {
        assert_eq!(outcomes[&format!("peers steps_{peer}")], outcome);
        assert_eq!(outcomes[&format!("peers gpt2_{peer}")], outcome);
    }
    let asked =
        |step: &str| fs::read_to_string(machine.path(&format!("results/logs/{step}.log"))).unwrap();
    let peers = asked("peers.steps_torch");
    assert!(peers.contains("--group steps") && peers.contains("--serve torch.compile"));
    let products = asked("bench.gemm_bf16");
    assert!(products.contains("--group gemm bf16 --json") && !products.contains("--peer"));
    assert!(asked("bench.memory_f32").contains("--group memory --only f32 --json"));
}

#[test]
fn a_machine_without_libraries_gives_one_line_and_status_3() {
    let machine = Machine::new();
    assert_eq!(machine.run(&["--stage", "everything"]).status.code(), Some(2));
    let wanted = machine.path("lib").join("libcublasLt.so.12");
    let elsewhere = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/local/cuda/lib64",
        "/usr/local/nvidia/lib64",
    ];
    if elsewhere.iter().any(|f| Path::new(f).join("libcublasLt.so").exists()) {
        wengert_testing::skipped("CUDA is installed, and the script is right to find it");
        return;
    }
    fs::remove_file(wanted).unwrap();
    let output = machine.run(&[]);
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert!(
        told.lines().count() == 1 && told.contains("libcublasLt.so is not installed"),
        "{told}"
    );
}

#[test]
fn scripts_are_well_formed() {
    for name in ["ci/gpu/pack", "ci/gpu/run", ".ci/run"] {
        let output = Command::new("bash").arg("-n").arg(root().join(name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let script = fs::read_to_string(root().join(name)).unwrap();
        assert!(script.contains("\nset -euo pipefail\n"), "{name}: errors must stop it");
    }
    // Steps use only programs that the pack holds.
    let contents = fs::read_to_string(root().join("ci/gpu/contents")).unwrap();
    let script = fs::read_to_string(root().join("ci/gpu/run")).unwrap();
    let commands: String =
        steps().into_iter().map(|s| s.command + "\n").collect::<String>() + &script;
    for word in commands
        .split(|c: char| c.is_whitespace() || c == '"')
        .filter_map(|w| w.strip_prefix("bin/"))
    {
        let is_packed = |line: &str| line.split_whitespace().nth(2) == Some(word);
        assert!(
            contents.lines().filter(|l| !l.starts_with('#')).any(is_packed),
            "bin/{word} is not packed"
        );
    }
}
