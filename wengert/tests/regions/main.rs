//! Derivatives of functions with regions, from text, on the CPU and by the interpreter, against
//! values of JAX 0.10.2 in double precision.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::autodiff::function::{Hessian, Jvp, hessian, hvp, linearize, transpose};
use wengert::core::graph::{self, Function, parse_program};
use wengert::prelude::*;

fn parse(text: &str) -> graph::Program {
    parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}"))
}

fn doubles(shape: &[usize], values: &[f64]) -> Literal {
    Literal::from_vec(shape, values.to_vec()).unwrap()
}

/// The outputs of a function. The CPU and the interpreter must agree to 1e-12.
fn run(function: &Function, given: &[(&str, Literal)]) -> Vec<(String, Literal)> {
    let program = graph::Program::from_functions(vec![function.clone()]).unwrap();
    let names: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
    let given: Vec<(&str, &Literal)> = given
        .iter()
        .filter(|(name, _)| names.contains(name))
        .map(|(name, value)| (*name, value))
        .collect();
    let on = |device| {
        let mut compiled =
            Session::open(device).unwrap().compile(&program, &function.name, bind!()).unwrap();
        let outputs = compiled.run(&given).unwrap();
        let owned = outputs.iter().unwrap().map(|(name, value)| (name.to_owned(), value.clone()));
        owned.collect::<Vec<_>>()
    };
    let (wanted, found) = (on(Device::Interpreter), on(Device::Cpu));
    for ((name, wanted), (_, found)) in wanted.iter().zip(&found) {
        close(found, &numbers(wanted), name);
    }
    found
}

fn numbers(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(|s| s.to_f64()).collect()
}

fn close(found: &Literal, wanted: &[f64], what: &str) {
    let found = numbers(found);
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() <= 1e-12, "{what}: {found:?}, not {wanted:?}");
    }
}

const SHAPE: [usize; 4] = [1, 2, 1, 2];

fn attention() -> Vec<(&'static str, Literal)> {
    vec![
        ("q", doubles(&SHAPE, &[0.3, -0.7, 1.1, 0.4])),
        ("k", doubles(&SHAPE, &[0.5, -1.2, 0.9, 0.2])),
        ("v", doubles(&SHAPE, &[-0.4, 0.8, 1.3, -0.6])),
        ("t_q", doubles(&SHAPE, &[1.0, -0.5, 0.25, 2.0])),
        ("t_k", doubles(&SHAPE, &[0.5, 1.5, -1.0, 0.75])),
        ("t_v", doubles(&SHAPE, &[-2.0, 0.1, 0.6, 1.0])),
    ]
}

#[test]
fn attention_in_a_checkpoint_has_the_second_derivatives_of_jax() {
    let program = parse(include_str!("attention_second_order.ir"));
    for name in ["f", "plain"] {
        let wrt = ["q", "k", "v"];
        let product =
            hvp(&program, name, &Hessian { wrt: &wrt, ..Default::default() }).unwrap().function;
        let found = run(&product, &attention());
        let wanted = [
            [0.11308431167342038, 0.5569788581316125, 0.10998639464246623, 0.543579886984708],
            [-0.6176115619227244, 0.07646737359868322, 0.6176115619227244, -0.07646737359868311],
            [-0.08476280208331716, -0.08476280208331716, 0.08476280208331716, 0.08476280208331716],
        ];
        for ((output, found), wanted) in found.iter().zip(wanted) {
            close(found, &wanted, &format!("{output} of @{name}"));
        }
        let whole = hessian(&program, name, &Hessian { wrt: &["q"], ..Default::default() })
            .unwrap()
            .function;
        let [a, b, c] = [0.0006067597060628233, 0.0021236589712199513, 0.007432806399269792];
        let [d, e, f] = [-0.0006906815382278666, -0.002417385383797456, -0.008460848843291163];
        let wanted = [a, b, 0.0, 0.0, b, c, 0.0, 0.0, 0.0, 0.0, d, e, 0.0, 0.0, e, f];
        close(&run(&whole, &attention())[0].1, &wanted, &format!("Hessian of @{name}"));
    }
}

/// `transpose` accepts the output of `linearize` for each construct. The residuals are masks and
/// counts; there are no constants.
#[test]
fn what_is_linearized_in_regions_is_transposed() {
    let steps =
        [0.1, 0.05, -0.2, 0.05, -0.1, 0.15, 0.3, 0.02, 0.1, -0.2, 0.01, -0.3, 0.1, 0.02, 0.05];
    let given = |taken: bool| {
        vec![
            ("x", doubles(&[3], &[-0.5, 0.2, 0.9])),
            ("lo", doubles(&[3], &[-0.3, -0.1, -2.0])),
            ("hi", doubles(&[3], &[0.4, 0.3, 1.0])),
            ("s", doubles(&[5, 3], &steps)),
            ("p", Literal::from(taken)),
        ]
    };
    let (call, control) = (
        include_str!("linearize_transpose_call.ir"),
        include_str!("linearize_transpose_control.ir"),
    );
    let clamped = [0.0, -2.0, 3.0];
    let sine = [0.8775825618903728, -1.9601331556824833, 1.8648299048119932];
    // Function, predicate, bytes that the linear function reads besides its inputs, and the
    // cotangent of x.
    for (text, name, taken, bytes, wanted) in [
        (call, "f", true, "6", clamped),
        (control, "f", true, "30", clamped),
        (control, "c", true, "30", clamped),
        (control, "c", false, "30", sine),
        (control, "k", true, "0", clamped),
        (control, "w", true, "28", clamped),
    ] {
        let program = parse(text);
        let halves = linearize(&program, name, &Jvp { wrt: &["x"] }).unwrap();
        let stored = halves.residuals.stored_bytes().unwrap().to_string();
        assert_eq!(stored, bytes, "@{name}:\n{}", halves.residuals);
        let linear = graph::Program::from_functions(vec![halves.derivative.clone()]).unwrap();
        let transposed = transpose(&linear, &halves.derivative.name, &["t_x"]);
        let transposed =
            transposed.unwrap_or_else(|e| panic!("@{name}: {e}\n{}", halves.derivative)).function;
        let mut all = given(taken);
        let forward = run(&halves.forward, &all);
        all.extend(forward.iter().map(|(name, value)| (name.as_str(), value.clone())));
        all.push(("ct_t_y", doubles(&[3], &[1.0, -2.0, 3.0])));
        close(&run(&transposed, &all)[0].1, &wanted, &format!("@{name}"));
    }
}
