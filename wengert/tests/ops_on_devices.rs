//! Every op × sample × float dtype through the whole compiler, on every device: bit for bit with the interpreter of plans (which runs nests
//! by the nest interpreter) where there is no call, within the call's bound where there is one; and near the graph interpreter.
//!
//! Devices are the CPU, the emulated GPU with all its sanitizers, and the one that `WENGERT_TEST_DEVICE` names, such as `cuda:0`.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use wengert::check::{self, Finding};
use wengert::core::graph::Program;
use wengert::core::op::COMPOSITES;
use wengert::core::plan::{Plan, Step, interpret};
use wengert::core::{DType, Literal, Op, Scalar, Target};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, Device, Session};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Equal bits; a NaN equals any NaN, whose bits arithmetic leaves open.
fn same(a: &Literal, b: &Literal) -> bool {
    let nan = |s: Scalar| s.dtype().is_float() && s.to_f64().is_nan();
    a.ty() == b.ty() && a.scalars().zip(b.scalars()).all(|(x, y)| x == y || (nan(x) && nan(y)))
}

fn has_calls(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Call { .. }))
}

/// What the device's plans are compiled for.
fn target(device: Device) -> Target {
    match device {
        Device::Cpu | Device::Interpreter => Target::cpu(),
        Device::Emulator => Target::cuda("sm_90"),
        Device::Cuda(_) => Session::open(device).unwrap().target().clone(),
    }
}

fn every_op_and_sample_in_every_float_dtype(device: Device) {
    let target = target(device);
    let (mut nests, mut calls) = (0, 0);
    for entry in Op::catalogue() {
        for (number, sample) in entry.samples.iter().enumerate() {
            for dtype in FLOATS {
                let operands = sample.literals(dtype, number as u64 + 1);
                let Some(function) = sample.function(&operands) else { continue };
                let name = format!("{} sample {number} in {dtype} on {device}", entry.name);
                let mut program = Program::new();
                program.add(function.clone()).unwrap();
                let plan = compile(&program, "f", &Binding::new(), &target, &Options::default()).unwrap();
                let mut session = Session::open(device).unwrap();
                let mut compiled =
                    session.load_plan(plan.clone()).unwrap_or_else(|e| panic!("{name}: {e}\n{plan}"));
                let inputs: Vec<(String, &Literal)> =
                    plan.inputs.iter().zip(&operands).map(|(i, l)| (i.name.clone(), l)).collect();
                let inputs: Vec<(&str, &Literal)> = inputs.iter().map(|(n, l)| (n.as_str(), *l)).collect();
                let found = compiled.run(&inputs).unwrap_or_else(|e| panic!("{name}: {e}\n{plan}"));
                if has_calls(&plan) {
                    calls += 1;
                } else {
                    let expected = interpret(&plan, &operands, &[]).unwrap();
                    for ((output, found), expected) in found.iter().zip(&expected.outputs) {
                        assert!(same(found, expected), "{name}, {output}: {found}\nexpected {expected}");
                    }
                    nests += 1;
                }
                let near = check::device(device, &program, "f", &Binding::new(), &operands).unwrap();
                assert!(!matches!(near, Finding::Bad(_)), "{name}: {near:?}");
            }
        }
    }
    assert!(nests > 500 && calls > 40, "{nests} plans of nests and {calls} with calls compared");
}

/// Each composite's example, which has no call: bit for bit with the interpreter of plans, and near the graph interpreter.
fn every_composite_in_every_float_dtype(device: Device) {
    let target = target(device);
    let key = [Literal::from_vec(&[2], vec![31u32, 7]).unwrap()];
    for composite in COMPOSITES {
        for dtype in FLOATS {
            let name = format!("{} in {dtype} on {device}", composite.name);
            let mut program = Program::new();
            program.add(composite.function(dtype)).unwrap();
            let plan = compile(&program, "f", &Binding::new(), &target, &Options::default()).unwrap();
            if !has_calls(&plan) {
                let expected = interpret(&plan, &key, &[]).unwrap();
                let mut session = Session::open(device).unwrap();
                let mut compiled = session.load_plan(plan).unwrap();
                let found = compiled.run(&[("key", &key[0])]).unwrap();
                let found = found.get("y").unwrap();
                assert!(
                    same(found, &expected.outputs[0]),
                    "{name}: {found}\nexpected {}",
                    expected.outputs[0]
                );
            }
            let near = check::device(device, &program, "f", &Binding::new(), &key).unwrap();
            assert!(!matches!(near, Finding::Bad(_)), "{name}: {near:?}");
        }
    }
}

#[test]
fn on_the_cpu() {
    every_op_and_sample_in_every_float_dtype(Device::Cpu);
    every_composite_in_every_float_dtype(Device::Cpu);
}

#[test]
fn on_the_emulator() {
    every_op_and_sample_in_every_float_dtype(Device::Emulator);
    every_composite_in_every_float_dtype(Device::Emulator);
}

#[test]
fn on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        every_op_and_sample_in_every_float_dtype(name.parse().unwrap());
    }
}
