//! The commands that find the part of a program at fault.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod page;

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const LOG: &str = "func @f(%x: f32[3], %y: f32[3]) -> (f32[]) {
  %0: f32[3] = sub %x, %y
  %1: f32[3] = log %0
  %2: f32[] = reduce_sum %1 {axes=[0]}
  return %2
}
";

const STEPS: &str = "func @f(%x: f32[4], %w: f32[4,4]) -> (f32[]) {
  %0: f32[4] = dot_general %x, %w {contract=[[0],[0]]}
  %1: f32[4] = tanh %0
  %2: f32[4] = floor %x
  %3: f32[4] = mul %1, %2
  %4: f32[4] = exp %3
  %5: f32[] = reduce_sum %4 {axes=[0]}
  return %5
}
";

fn graphrun(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    command.args(arguments).current_dir(folder).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn nan_names_the_line_the_element_and_the_operands() {
    let folder = folder(&[("f.ir", LOG)]);
    let given = ["nan", "f.ir", "--input", "x=3xf32=3 2 1", "--input", "y=3xf32=1 1 1"];
    let ran = graphrun(folder.path(), &given);
    assert_eq!(ran.status.code(), Some(1), "{}", error(&ran));
    assert_eq!(
        out(&ran),
        "@f: `log` at f.ir:3:16 makes -inf\n  element [2] of the result, f32[3], in which 1 of 3 \
         elements are not finite\n  operand 0: f32[3], element [2] is 0.0, made by `sub` at \
         f.ir:2:16\n"
    );
    let ran = graphrun(folder.path(), &[&given[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&out(&ran)).unwrap();
    assert_eq!(json["finding"]["source"], "f.ir:3:16");
    assert_eq!(json["finding"]["index"][0], 2);
    let right = ["nan", "f.ir", "--input", "x=3xf32=3 2 4", "--input", "y=3xf32=1 1 1"];
    let ran = graphrun(folder.path(), &right);
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(out(&ran), "@f: no equation makes a NaN or an infinity\n");
    let input = ["nan", "f.ir", "--input", "x=3xf32=3 nan 4"];
    let ran = graphrun(folder.path(), &input);
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(out(&ran), "@f: element [1] of the input `x` is nan\n");
}

#[test]
fn a_check_that_fails_is_narrowed_down_to_the_equation() {
    let folder = folder(&[("f.ir", STEPS)]);
    let at = ["check", "f.ir", "--bisect", "--input", "x=4xf32=0.5 1 1.5 2"];
    let ran = graphrun(folder.path(), &at);
    assert_eq!(ran.status.code(), Some(1), "{}", error(&ran));
    let text = out(&ran);
    assert!(text.contains("    the derivative of `floor` at f.ir:4:16 is wrong"), "{text}");
    let ran = graphrun(folder.path(), &[&at[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&out(&ran)).unwrap();
    let checks = json[0]["checks"].as_array().unwrap();
    let fault = checks.iter().find_map(|check| check["fault"].as_str()).unwrap();
    assert!(fault.contains("f.ir:4:16"), "{fault}");
}

#[test]
fn a_precision_policy_is_narrowed_down_to_the_product() {
    let folder = folder(&[("f.ir", STEPS)]);
    let ran = graphrun(folder.path(), &["check", "f.ir", "--bisect", "--precision", "bf16"]);
    let text = out(&ran);
    assert!(
        text.contains("the policy first changes the value of `dot_general` at f.ir:2"),
        "{text}"
    );
}

#[test]
fn a_failing_function_is_shrunk_and_the_printed_command_shows_the_failure() {
    let folder = folder(&[("f.ir", STEPS)]);
    let reduce = ["reduce", "f.ir", "--check", "-o", "small.ir", "--input", "x=4xf32=0.5 1 1.5 2"];
    let ran = graphrun(folder.path(), &reduce);
    assert_eq!(ran.status.code(), Some(0), "{}", error(&ran));
    let small = std::fs::read_to_string(folder.path().join("small.ir")).unwrap();
    assert_eq!(small.matches(" = ").count(), 1, "{small}");
    assert!(small.contains("floor"), "{small}");
    let printed = out(&ran);
    let command = printed.lines().find_map(|line| line.strip_prefix("reproduce: graphrun "));
    let command = format!("{} {}", env!("CARGO_BIN_EXE_graphrun"), command.unwrap());
    let again = Command::new("sh").args(["-c", &command]).current_dir(folder.path()).output();
    let again = again.unwrap();
    assert_eq!(again.status.code(), Some(1), "{command}: {}", error(&again));
    assert!(out(&again).contains("BAD: the derivative differs from differences"));
}

#[test]
fn a_command_says_what_fails() {
    let folder = folder(&[("f.ir", STEPS)]);
    let reduce = ["reduce", "f.ir", "--cmd", "! grep tanh {}", "-o", "small.ir"];
    let ran = graphrun(folder.path(), &reduce);
    assert_eq!(ran.status.code(), Some(0), "{}", error(&ran));
    let small = std::fs::read_to_string(folder.path().join("small.ir")).unwrap();
    assert!(small.contains("tanh") && small.matches(" = ").count() == 1, "{small}");
    // The command runs with the values of each case.
    let run = format!("! {} run {{}} {{inputs}} --json", env!("CARGO_BIN_EXE_graphrun"));
    let reduce = ["reduce", "f.ir", "--cmd", &run, "--fails-with", "values", "-o", "run.ir"];
    let ran = graphrun(folder.path(), &reduce);
    assert_eq!(ran.status.code(), Some(0), "{}", error(&ran));
    assert!(out(&ran).contains("fails: values"), "{}", out(&ran));
    // A command that does not end is stopped.
    let slow = [
        "reduce",
        "f.ir",
        "--cmd",
        "exec sleep 60 # {}",
        "--timeout",
        "1",
        "--attempts",
        "2",
        "-o",
        "slow.ir",
    ];
    let ran = graphrun(folder.path(), &slow);
    assert!(out(&ran).contains("the command does not end in time"), "{}", error(&ran));
}

#[test]
fn bad_requests_are_refused() {
    let folder = folder(&[("f.ir", STEPS)]);
    for (arguments, message) in [
        (vec!["reduce", "f.ir", "-o", "s.ir"], "--fails-with"),
        (vec!["reduce", "f.ir", "--cmd", "true", "-o", "s.ir"], "does not name the file"),
        (vec!["reduce", "f.ir", "--cmd", "true {}", "-o", "s.ir"], "does not fail"),
        (vec!["reduce", "f.ir", "--fails-with", "x", "--device", "gpu", "-o", "s.ir"], "gpu"),
        (vec!["diff", "f.ir", "missing.ir"], "missing.ir"),
        (vec!["nan", "f.ir@g"], "there is no function `@g`"),
    ] {
        let ran = graphrun(folder.path(), &arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {}", error(&ran));
        assert!(error(&ran).contains(message), "{arguments:?}: {}", error(&ran));
    }
    assert!(!folder.path().join("s.ir").exists());
}

#[test]
fn programs_and_plans_are_compared() {
    let other = LOG.replace("sub %x, %y", "sub %y, %x");
    let folder = folder(&[("a.ir", LOG), ("b.ir", &other)]);
    let path = folder.path();
    let same = graphrun(path, &["diff", "a.ir", "a.ir"]);
    assert_eq!((same.status.code(), out(&same).as_str()), (Some(0), "no difference\n"));
    let differ = graphrun(path, &["diff", "a.ir@f", "b.ir@f"]);
    assert_eq!(differ.status.code(), Some(1));
    assert_eq!(
        out(&differ),
        "@f\n  ~ sub (f32[3], f32[3]) -> f32[3]: operands 0 and 1 are other values  [a.ir:2:16] \
         ->  [b.ir:2:16]\n"
    );
    let json = graphrun(path, &["diff", "a.ir", "b.ir", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(json[0]["changes"][0]["kind"], "changed");
    for (file, plan) in [("a.ir", "a.plan"), ("b.ir", "b.plan")] {
        let compiled = graphrun(path, &["compile", file, "-o", plan]);
        assert!(compiled.status.success(), "{}", error(&compiled));
    }
    let plans = graphrun(path, &["diff", "a.plan", "b.plan"]);
    assert_eq!(plans.status.code(), Some(1), "{}", error(&plans));
    assert!(out(&plans).contains("- nest"), "{}", out(&plans));
    assert_eq!(graphrun(path, &["diff", "a.plan", "a.plan"]).status.code(), Some(0));
    let mixed = graphrun(path, &["diff", "a.ir", "a.plan"]);
    assert_eq!(mixed.status.code(), Some(2));
    assert!(error(&mixed).contains("are a program and a plan"), "{}", error(&mixed));
}
