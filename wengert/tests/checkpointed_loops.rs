//! A loop whose length is known only at run time, differentiated in reverse mode from a few
//! checkpoints. Tests compare the steps that the executor runs, and the memory that the plan
//! reserves, with the formulas.

#![allow(clippy::unwrap_used)]

use wengert::core::Verified;
use wengert::core::plan::Plan;
use wengert::core::{Binding, Target};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_cpu::{Buffer, CpuExecutable, RunMemory};

const ELEMENTS: usize = 4096;

/// The gradient by k of Σ x at the end of `while i < n { x ← sin(k·x) }`. If `watches`, the
/// condition also reads x.
fn program(checkpoints: usize, watches: bool) -> Program {
    let mut program = Program::new();
    program
        .function("slope", |f| {
            let x = f.input("x", f64(format!("{ELEMENTS}").as_str()));
            let k = f.input("k", f64(""));
            let n = f.input("n", i32(""));
            let gradient = grad(&k, |k| {
                let init = (Tensor::constant(0i32), x.clone());
                let goes_on = |c: &(Tensor, Tensor)| match watches {
                    true => c.0.lt(&n).and(c.1.max_axes(&[0]).lt(9.0)),
                    false => c.0.lt(&n),
                };
                let step = |c: &(Tensor, Tensor)| (&c.0 + 1i32, (&c.1 * k).sin());
                control::while_checkpointed(checkpoints, &init, goes_on, step).1.sum()
            });
            f.output("slope", gradient);
        })
        .unwrap();
    program
}

fn plan(checkpoints: usize, watches: bool) -> Verified<Plan> {
    let program = program(checkpoints, watches);
    compile(&program, "slope", &Binding::new(), &Target::cpu(), &Options::default()).unwrap()
}

fn run(executable: &mut CpuExecutable, steps: i32) -> f64 {
    let x: Vec<f64> = (0..ELEMENTS).map(|i| 0.1 + i as f64 / ELEMENTS as f64).collect();
    let (k, n, mut slope) = ([1.01f64], [steps], [0.0f64]);
    let inputs: Vec<Buffer<'_>> = executable
        .plan()
        .inputs
        .iter()
        .map(|input| match input.name.as_str() {
            "x" => Buffer::reading(&x),
            "k" => Buffer::reading(&k),
            _ => Buffer::reading(&n),
        })
        .collect();
    let mut outputs = [Buffer::writing(&mut slope)];
    executable
        .run(RunMemory { inputs: &inputs, outputs: &mut outputs, variables: &mut [] })
        .unwrap();
    slope[0]
}

/// dx/dk by the product rule, step by step.
fn expected(steps: i32) -> f64 {
    let one = |i: usize| {
        let (mut x, mut dx) = (0.1 + i as f64 / ELEMENTS as f64, 0.0);
        for _ in 0..steps {
            let c = (1.01 * x).cos();
            (x, dx) = ((1.01 * x).sin(), c * (x + 1.01 * dx));
        }
        dx
    };
    (0..ELEMENTS).map(one).sum()
}

/// The number of launches of nests whose names begin with `name`.
fn launches(executable: &CpuExecutable, name: &str) -> u64 {
    let nests = executable.plan().nests.as_slice().iter().zip(executable.launches());
    nests.filter(|(nest, _)| nest.name.starts_with(name)).map(|(_, count)| count).sum()
}

#[test]
fn the_executor_takes_the_steps_that_the_formula_says() {
    // (steps, checkpoints, steps that are rerun): Griewank and Walther's t(l, s).
    for (l, s, again) in [(1000, 10, 3636), (100, 10, 222), (10, 3, 15)] {
        for watches in [false, true] {
            let mut executable = CpuExecutable::new(&plan(s, watches)).unwrap();
            let found = run(&mut executable, l);
            let expected = expected(l);
            assert!(
                (found - expected).abs() < 1e-9 * expected.abs(),
                "{l} steps: {found}, not {expected}"
            );
            // Forward steps: t(l, s) reruns. If the condition reads x, one more pass counts the
            // steps.
            let learning = if watches { l as u64 } else { 0 };
            let forwards = launches(&executable, "mul_sin");
            assert_eq!(
                forwards,
                again + learning,
                "{l} steps, {s} checkpoints\n{}",
                executable.plan()
            );
            // Backward steps: one for each step.
            assert_eq!(
                launches(&executable, "mul_cos"),
                l as u64,
                "{l} steps, {s} checkpoints\n{}",
                executable.plan()
            );
        }
    }
}

#[test]
fn the_arena_holds_the_checkpoints_and_four_more() {
    // Besides the checkpoints, the arena holds four buffers of the carry's size: the carry of the
    // forward steps, the carry that is being differentiated, its cotangent, and the elementwise
    // cotangent of k, which is accumulated over the steps and summed once at the end.
    let carry = 8 * ELEMENTS as u64;
    for (s, slack) in [(3, 2048), (10, 2048), (40, 2048)] {
        let arena = plan(s, false).arena;
        let needed = (s as u64 + 4) * carry;
        assert!(
            (needed..needed + slack).contains(&arena),
            "{s} checkpoints: {arena} bytes, {needed} needed"
        );
    }
}
