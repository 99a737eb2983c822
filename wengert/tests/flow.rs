//! Control flow on devices: nested loops and branches on the CPU with several thread counts and on
//! the emulated GPU with its sanitizers, compared with the plan interpreter.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::Verified;
use wengert::core::graph::{Function, Program};
use wengert::core::plan::{Plan, Step, interpret};
use wengert::core::{DType, Literal, Target};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, Device, Session};
use wengert_testing::nested::{self, Case};
use wengert_testing::samples;

fn plan(function: &Function, target: &Target) -> Verified<Plan> {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    compile(&program, &function.name, &Binding::new(), target, &Options::default()).unwrap()
}

fn has_calls(steps: &[Step]) -> bool {
    let block = |step: &Step| step.blocks().into_iter().any(has_calls);
    steps.iter().any(|step| matches!(step, Step::Call { .. }) || block(step))
}

fn near(a: &Literal, b: &Literal, tolerance: f64) -> bool {
    let near = |(x, y): (f64, f64)| {
        x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * (1.0 + y.abs())
    };
    a.ty() == b.ty() && a.scalars().zip(b.scalars()).all(|(x, y)| near((x.to_f64(), y.to_f64())))
}

/// Runs each case twice: state left by the first run must not affect the second.
fn check(device: Device, case: &Case, tolerance: f64) {
    let target = match device {
        Device::Emulator => wengert::target("sm_90").unwrap(),
        _ => Session::open(device).unwrap().target().clone(),
    };
    let plan = plan(&case.function, &target);
    let mut session = Session::open(device).unwrap();
    let mut compiled =
        session.load_plan(plan.clone()).unwrap_or_else(|e| panic!("{}: {e}\n{plan}", case.name));
    for inputs in case.runs.iter().chain(&case.runs) {
        let expected = interpret(&plan, inputs, &[]).unwrap().outputs;
        let named: Vec<(&str, &Literal)> =
            plan.inputs.iter().zip(inputs).map(|(i, l)| (i.name.as_str(), l)).collect();
        let found = compiled.run(&named).unwrap_or_else(|e| panic!("{}: {e}\n{plan}", case.name));
        for ((output, found), expected) in found.iter().unwrap().zip(&expected) {
            let allowed = if has_calls(&plan.steps) { tolerance } else { 0.0 };
            assert!(
                near(found, expected, allowed),
                "{}, {output}: {found}\nexpected {expected}\n{plan}",
                case.name
            );
        }
    }
}

fn samples() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in samples::catalogue() {
        for (number, sample) in
            entry.samples.iter().enumerate().filter(|(_, s)| s.op.control().is_some())
        {
            for dtype in [DType::F32, DType::BF16] {
                let operands = sample.literals(dtype, number as u64 + 1);
                let Some(function) = sample.function(&operands) else { continue };
                cases.push(Case { name: entry.name, function, runs: vec![operands] });
            }
        }
    }
    cases
}

#[test]
fn every_program_and_sample_on_the_cpu() {
    nested::cases().iter().chain(&samples()).for_each(|case| check(Device::Cpu, case, 1e-5));
}

#[test]
fn every_program_and_sample_on_the_emulator() {
    nested::cases().iter().chain(&samples()).for_each(|case| check(Device::Emulator, case, 1e-5));
}

#[test]
fn the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        let device = name.parse().unwrap();
        nested::cases().iter().chain(&samples()).for_each(|case| check(device, case, 1e-4));
    }
}
