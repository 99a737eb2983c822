//! Control flow from the graph to the plan: loops and branches of every kind, also nested, against
//! the graph interpreter.

#![allow(clippy::unwrap_used)] // Tests and their helpers.

mod indices;
mod passes;
mod plans;
mod repeated;
mod samples;

use wengert_compiler::kernels::interpret;
use wengert_compiler::pipeline::{Options, compile, compile_kernels};
use wengert_core::Verified;
use wengert_core::call::Call;
use wengert_core::graph::{Function, Program};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, DType, Literal, Result, Target};
use wengert_testing::nested;
use wengert_testing::targets::gpu;

fn execute(call: &Call, operands: &[Literal]) -> Result<Vec<Literal>> {
    Ok(call.references(operands)?.iter().map(|r| r.literal()).collect())
}

/// The verified plan of a function.
fn planned(function: &Function, target: &Target, options: &Options) -> Verified<Plan> {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    compile(&program, &function.name, &Binding::new(), target, options)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn near(found: &Literal, wanted: &Literal, what: &str) {
    assert_eq!(found.ty(), wanted.ty(), "{what}");
    let tolerance = match wanted.dtype() {
        DType::F64 => 1e-11,
        DType::F32 => 2e-5,
        DType::F16 => 8e-3,
        DType::BF16 => 6e-2,
        _ => 0.0,
    };
    for (n, (x, y)) in found.scalars().zip(wanted.scalars()).enumerate() {
        let (p, q) = (x.to_f64(), y.to_f64());
        let same = p == q
            || (p.is_nan() && q.is_nan())
            || (p - q).abs() <= tolerance * (1.0 + p.abs().max(q.abs()));
        assert!(same, "{what}: element {n} is {x}, expected {y}");
    }
}

#[test]
fn every_program() {
    for case in nested::cases() {
        for inputs in &case.runs {
            check(&case.function, inputs, case.name);
        }
    }
}

/// Runs a function of inputs in every executor and compares the results: the graph interpreter,
/// kernels with and without fusion, and the plans for CPU and GPU.
fn check(function: &Function, inputs: &[Literal], what: &str) {
    check_with(function, inputs, what, &Options::default());
}

/// [`check`] with options.
fn check_with(function: &Function, inputs: &[Literal], what: &str, options: &Options) {
    let wanted =
        wengert_core::interpret::run(function, inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut bits: Vec<Vec<Literal>> = Vec::new();
    for fuse in [false, true] {
        let options = Options { fuse, ..options.clone() };
        let kernels = compile_kernels(function, &Target::cpu(), &options)
            .unwrap_or_else(|e| panic!("{what}: {e}"))
            .kernels;
        let found = interpret::interpret(&kernels, inputs, &mut execute)
            .unwrap_or_else(|e| panic!("{what}: {e}\n{kernels}"));
        for (found, wanted) in found.iter().zip(&wanted) {
            near(found, wanted, &format!("{what}, kernels, fuse={fuse}"));
        }
        let plan = planned(function, &Target::cpu(), &options);
        let run =
            plan::interpret(&plan, inputs, &[]).unwrap_or_else(|e| panic!("{what}: {e}\n{plan}"));
        assert_eq!(run.outputs, found, "{what}: plan and kernels, fuse={fuse}\n{plan}");
        let text = plan.to_string();
        let (back, _) =
            plan::parse_plan("plan", &text).unwrap_or_else(|e| panic!("{what}: {e}\n{text}"));
        assert_eq!(back, *plan, "{what}: the plan reads back");
        bits.push(found);
    }
    assert_eq!(bits[0], bits[1], "{what}: fusion changes no bit");
    let plan = planned(function, &gpu(), options);
    let run = plan::interpret(&plan, inputs, &[]).unwrap_or_else(|e| panic!("{what}: {e}\n{plan}"));
    for (found, wanted) in run.outputs.iter().zip(&wanted) {
        near(found, wanted, &format!("{what}, plan for a GPU"));
    }
}
