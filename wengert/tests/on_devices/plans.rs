//! The plans of `core`'s filetests (loops, branches, work in place, donated state) on every device,
//! bit for bit with the plan interpreter.
//!
//! Inputs are small integers, so that calls are exact as well.

use wengert::core::Literal;
use wengert::core::Verified;
use wengert::core::plan::{Plan, interpret, parse_plan};
use wengert::{Device, Session};
use wengert_testing::Random;

/// The files with valid plans. They are included in the binary, which also runs on machines without
/// the source tree.
const CORPUS: [&str; 7] = [
    include_str!("../../../core/tests/plan/account.plan"),
    include_str!("../../../core/tests/plan/control.plan"),
    include_str!("../../../core/tests/plan/loops.plan"),
    include_str!("../../../core/tests/plan/pitch.plan"),
    include_str!("../../../core/tests/plan/rare.plan"),
    include_str!("../../../core/tests/plan/sort.plan"),
    include_str!("../../../core/tests/plan/straight.plan"),
];

/// The plans of these files for a target of that name.
fn corpus(target: &str) -> Vec<Verified<Plan>> {
    let mut plans = Vec::new();
    for text in CORPUS {
        let lines: Vec<&str> = text.lines().collect();
        let starts: Vec<usize> =
            (0..lines.len()).filter(|i| lines[*i].starts_with("plan ")).collect();
        for (i, start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(lines.len());
            let case = lines[*start..end].join("\n");
            if case.contains("// error:") {
                continue;
            }
            let mut plan = parse_plan("file", &case).unwrap().0;
            plan.target.name = target.into();
            plans.push(Verified::new(plan).unwrap());
        }
    }
    plans
}

fn every_plan(device: Device) {
    let target = Session::open(device).unwrap().target().name.clone();
    let mut compared = 0;
    for plan in corpus(&target) {
        let mut session = Session::open(device).unwrap();
        let mut compiled =
            session.load_plan(plan.clone()).unwrap_or_else(|e| panic!("{e}\n{plan}"));
        for seed in 1..5 {
            let mut random = Random(seed);
            let values = plan.inputs.iter().map(|i| &plan.values[i.value]);
            let inputs: Vec<Literal> = values.map(|v| random.integers(v.dtype, &v.shape)).collect();
            let variables: Vec<Option<Literal>> = plan
                .variables
                .iter()
                .map(|v| v.before.map(|_| random.integers(v.dtype, &v.shape)))
                .collect();
            let expected = interpret(&plan, &inputs, &variables).unwrap();
            for (variable, value) in plan.variables.iter().zip(&variables) {
                if let Some(value) = value {
                    session.set_variable(&variable.name, value).unwrap();
                }
            }
            let given: Vec<(&str, &Literal)> =
                plan.inputs.iter().map(|i| i.name.as_str()).zip(&inputs).collect();
            let found = compiled.run(&given).unwrap_or_else(|e| panic!("{e}\n{plan}"));
            for ((name, found), expected) in found.iter().unwrap().zip(&expected.outputs) {
                assert_eq!(found, expected, "{device}, {name}\n{plan}");
            }
            for (variable, expected) in plan.variables.iter().zip(&expected.variables) {
                let found = session.variable(&variable.name).unwrap();
                assert_eq!(&found, expected, "{device}, {}\n{plan}", variable.name);
            }
            compared += 1;
        }
    }
    assert!(compared >= 40, "{compared} runs compared");
}

#[test]
fn on_the_cpu() {
    every_plan(Device::Cpu);
}

#[test]
fn on_the_emulator() {
    every_plan(Device::Emulator);
}

#[test]
fn on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        every_plan(name.parse().unwrap());
    }
}
