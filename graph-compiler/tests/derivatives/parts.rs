//! Cotangents of values that are sliced into parts.

use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_core::{DType, Dim, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;

/// ∇f at 0, 1, 2, … in f64[2,6], and the ops that compute it.
fn gradient(f: impl Fn(&Tensor) -> Tensor) -> (Vec<f64>, Vec<&'static str>) {
    let function = build(&[TensorType::new(DType::F64, [2, 6])], |inputs| {
        vec![grad(&inputs[0], |x: &Tensor| f(x))]
    });
    let x = Literal::from_vec(&[2, 6], (0..12).map(f64::from).collect()).unwrap();
    let ops = function.body.equations.iter().map(|e| e.op.name()).collect();
    (flat(&run(&function, &[x])), ops)
}

fn part(x: &Tensor, from: i64, to: i64) -> Tensor {
    x.slice_axis(1, from, to)
}

#[test]
fn parts_that_make_up_a_value_are_put_one_behind_the_other() {
    // In another order than in memory, and with one use of the whole.
    let (found, ops) = gradient(|x| {
        let (a, b, c) = (part(x, 4, 6), part(x, 0, 1), part(x, 1, 4));
        (&a * &a).sum() + (b * 3.0).sum() + (&c * &c * &c).sum() + x.sum()
    });
    let of = |i: usize| match i % 6 {
        0 => 3.0,
        1..4 => 3.0 * (i * i) as f64,
        _ => 2.0 * i as f64,
    };
    assert_eq!(found, (0..12).map(|i| of(i) + 1.0).collect::<Vec<_>>());
    assert!(ops.contains(&"concatenate") && !ops.contains(&"pad"), "{ops:?}");
}

#[test]
fn parts_that_overlap_or_leave_something_out_are_added() {
    let squares = |x: &Tensor| (x * x).sum();
    let overlapping = gradient(|x| squares(&part(x, 0, 4)) + squares(&part(x, 3, 6)));
    let gap = gradient(|x| squares(&part(x, 0, 2)) + squares(&part(x, 3, 6)));
    let corners = gradient(|x| squares(&part(x, 0, 3)) + squares(&x.slice_axis(0, 0, 1)));
    // The third part has no cotangent.
    let unused = gradient(|x| {
        squares(&part(x, 0, 2)) + squares(&part(x, 2, 3)) + part(x, 3, 6).floor().sum()
    });
    for (name, (found, ops), weight) in [
        (
            "overlapping",
            overlapping,
            Box::new(|i: usize| if i % 6 == 3 { 4.0 } else { 2.0 }) as Box<dyn Fn(usize) -> f64>,
        ),
        ("gap", gap, Box::new(|i| if i % 6 == 2 { 0.0 } else { 2.0 })),
        (
            "corners",
            corners,
            Box::new(|i| f64::from(u8::from(i % 6 < 3)) * 2.0 + f64::from(u8::from(i < 6)) * 2.0),
        ),
        ("unused", unused, Box::new(|i| if i % 6 < 3 { 2.0 } else { 0.0 })),
    ] {
        assert_eq!(found, (0..12).map(|i| weight(i) * i as f64).collect::<Vec<_>>(), "{name}");
        assert!(ops.contains(&"pad") && !ops.contains(&"concatenate"), "{name}: {ops:?}");
    }
}

#[test]
fn dimensions_of_parts_may_be_variables() {
    let b = || Dim::variable("B");
    let twice = b().checked_scale(2).unwrap();
    let function = build(&[TensorType::new(DType::F64, [twice.clone()])], |inputs| {
        let f = |x: &Tensor| {
            let (low, high) = (x.slice_axis(0, 0, b()), x.slice_axis(0, b(), twice.clone()));
            (&low * &high).sum()
        };
        let gradient = grad(&inputs[0], |x: &Tensor| f(x));
        // Differentiated again in forward mode. The product of the Hessian with ones gives, in each
        // half, the ones of the other half.
        let second =
            jvp(&inputs[0], &inputs[0].ones_like(), |x: &Tensor| grad(x, |x: &Tensor| f(x))).1;
        vec![gradient, second]
    });
    let ops: Vec<&str> = function.body.equations.iter().map(|e| e.op.name()).collect();
    assert!(ops.contains(&"concatenate") && !ops.contains(&"pad"), "{ops:?}");
    let bound = function.bind(&wengert_core::Binding::new().with("B", 2)).unwrap();
    let found = run(&bound, &[Literal::from_vec(&[4], vec![1.0, 2.0, 3.0, 4.0]).unwrap()]);
    assert_eq!(flat(&found[..1]), [3.0, 4.0, 1.0, 2.0]);
    assert_eq!(flat(&found[1..]), [1.0; 4]);
}
