//! Mistakes that the literature has made, each as a test.

use super::support::*;
use wengert_compiler::autodiff::operators::{grad, vjp};
use wengert_core::op::Unary;
use wengert_core::{DType, Differentiable, Literal, Tensor, TensorType};

fn both(a: f64, b: f64, f: impl FnOnce(&Tensor, &Tensor) -> Vec<Tensor>) -> Vec<f64> {
    let scalar = TensorType::scalar(DType::F64);
    let function = build(&[scalar.clone(), scalar], |x| f(&x[0], &x[1]));
    flat(&run(&function, &[Literal::from(a), Literal::from(b)]))
}

#[test]
fn the_derivative_of_a_quotient_by_its_numerator_divides() {
    // ∂(a/b)/∂a = Δ/b, not Δ·b.
    let gradient = both(3.0, 4.0, |a, b| {
        let pullback = vjp(a, |a: &Tensor| a / b).1;
        vec![pullback(&Tensor::constant(10.0f64))]
    });
    assert_eq!(gradient, [2.5]);
}

#[test]
fn the_quotient_rule_has_its_parentheses() {
    // For u(x)/v(x) with u = x², v = x + 1: (v·u′ − u·v′)/v² = (2x(x + 1) − x²)/(x + 1)².
    let x = 3.0f64;
    let slope = at(x, |x| grad(x, |x: &Tensor| (x * x) / (x + 1.0)));
    assert_close(&[slope], &[(2.0 * x * (x + 1.0) - x * x) / ((x + 1.0) * (x + 1.0))], 1e-15, "quotient");
}

#[test]
fn the_derivative_of_a_power_of_ten_has_the_logarithm_of_ten() {
    // d 10ˣ = ln 10 · 10ˣ dx, not exp(10) · ….
    let ten = |x: &Tensor| (x * std::f64::consts::LN_10).unary(Unary::Exp);
    let slope = at(2.0, |x| grad(x, ten));
    assert_close(&[slope], &[std::f64::consts::LN_10 * 100.0], 1e-13, "exp10");
}

#[test]
fn adding_two_trees_adds_left_to_left_and_right_to_right() {
    let sums = both(1.0, 10.0, |a, b| {
        let tree = ((a.clone(), b.clone()), vec![b.clone()]);
        let step = ((a * 100.0, b * 100.0), vec![a * 1000.0]);
        let moved = tree.move_along(&step);
        // A fan-in of structured cotangents: a tree used twice.
        let gradient = grad(&tree, |t: &((Tensor, Tensor), Vec<Tensor>)| {
            let weigh = |t: &((Tensor, Tensor), Vec<Tensor>), w: [f64; 3]| {
                &t.0.0 * w[0] + &t.0.1 * w[1] + &t.1[0] * w[2]
            };
            weigh(t, [1.0, 2.0, 3.0]) + weigh(t, [10.0, 20.0, 30.0])
        });
        vec![moved.0.0, moved.0.1, moved.1[0].clone(), gradient.0.0, gradient.0.1, gradient.1[0].clone()]
    });
    assert_eq!(sums, [101.0, 1010.0, 1010.0, 11.0, 22.0, 33.0]);
}
