//! Mistakes from the literature, each as a test.

use wengert_compiler::autodiff::operators::{grad, jvp, vjp};
use wengert_core::op::Unary;
use wengert_core::{DType, Differentiable, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;

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
    assert_close(
        &[slope],
        &[(2.0 * x * (x + 1.0) - x * x) / ((x + 1.0) * (x + 1.0))],
        1e-15,
        "quotient",
    );
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
        // A fan-in of structured cotangents: a tree that is used twice.
        let gradient = grad(&tree, |t: &((Tensor, Tensor), Vec<Tensor>)| {
            let weigh = |t: &((Tensor, Tensor), Vec<Tensor>), w: [f64; 3]| {
                &t.0.0 * w[0] + &t.0.1 * w[1] + &t.1[0] * w[2]
            };
            weigh(t, [1.0, 2.0, 3.0]) + weigh(t, [10.0, 20.0, 30.0])
        });
        vec![
            moved.0.0,
            moved.0.1,
            moved.1[0].clone(),
            gradient.0.0,
            gradient.0.1,
            gradient.1[0].clone(),
        ]
    });
    assert_eq!(sums, [101.0, 1010.0, 1010.0, 11.0, 22.0, 33.0]);
}

#[test]
fn what_is_stopped_is_a_constant() {
    // d/dx x·c, where c = x² is stopped: x², not 3x².
    let slope = at(3.0, |x| grad(x, |x: &Tensor| x * &x.square().stop_gradient()));
    assert_eq!(slope, 9.0);
    // A function that is stopped entirely; and a stop inside another derivative. In u·stop(u·x) the
    // gradient in u stops the derivative in x too.
    assert_eq!(at(3.0, |x| grad(x, |x: &Tensor| x.exp().stop_gradient())), 0.0);
    let inner = |x: &Tensor| grad(x, |u: &Tensor| u * &(u * x).stop_gradient());
    assert_eq!(at(3.0, |x| inner(x)), 9.0);
    assert_eq!(at(3.0, |x| grad(x, inner)), 0.0);
}

#[test]
fn whole_powers_have_exact_derivatives_at_zero_and_below() {
    let cube = |x: &Tensor| x.integer_pow(3);
    assert_eq!(at(-2.0, |x| grad(x, cube)), 12.0);
    assert_eq!(at(-2.0, |x| grad(x, |x: &Tensor| grad(x, cube))), -12.0);
    assert_eq!(at(0.0, |x| grad(x, |x: &Tensor| grad(x, |x: &Tensor| grad(x, cube)))), 6.0);
    assert_eq!(at(0.0, |x| grad(x, |x: &Tensor| x.integer_pow(1))), 1.0);
    assert_eq!(at(0.0, |x| grad(x, |x: &Tensor| x.integer_pow(0))), 0.0);
    assert_eq!(at(-2.0, |x| grad(x, |x: &Tensor| x.integer_pow(-2))), 0.25);
    // The fourth derivative of a cube is zero, not 0·x⁻¹.
    let fourth = |x: &Tensor| {
        grad(x, |x: &Tensor| grad(x, |x: &Tensor| grad(x, |x: &Tensor| grad(x, cube))))
    };
    assert_eq!(at(0.0, fourth), 0.0);
}

#[test]
fn bounds_have_the_gradient_where_they_bind() {
    let of = |low: f64, x: f64, high: f64| {
        let scalar = || TensorType::scalar(DType::F64);
        let function = build(&[scalar(), scalar(), scalar()], |v| {
            let inputs = (v[0].clone(), v[1].clone(), v[2].clone());
            let (a, b, c) = grad(&inputs, |(a, b, c): &(Tensor, Tensor, Tensor)| b.clamp(a, c));
            vec![a, b, c]
        });
        flat(&run(&function, &[low, x, high].map(Literal::from)))
    };
    assert_eq!(of(-1.0, -2.0, 1.0), [1.0, 0.0, 0.0]);
    assert_eq!(of(-1.0, 0.5, 1.0), [0.0, 1.0, 0.0]);
    assert_eq!(of(-1.0, 2.0, 1.0), [0.0, 0.0, 1.0]);
    // At a bound lax gives no argument a gradient. Here x gets it, so that a parameter at its bound
    // keeps its gradient.
    assert_eq!(of(-1.0, -1.0, 1.0), [0.0, 1.0, 0.0]);
    assert_eq!(of(-1.0, 1.0, 1.0), [0.0, 1.0, 0.0]);
    // If the bounds cross, the result is the upper bound, and it gets the gradient.
    assert_eq!(of(2.0, 0.0, 1.0), [0.0, 0.0, 1.0]);
}

#[test]
fn derivatives_are_rounded_as_values_are() {
    let of = |x: f64, t: f64| {
        let scalar = TensorType::scalar(DType::F64);
        let function = build(&[scalar.clone(), scalar], |v| {
            let rounded = |x: &Tensor| x.reduce_precision(8, 2);
            let (y, tangent) = jvp(&v[0], &v[1], rounded);
            let pullback = vjp(&v[0], rounded).1;
            vec![y, tangent, pullback(&v[1])]
        });
        flat(&run(&function, &[Literal::from(x), Literal::from(t)]))
    };
    assert_eq!(of(1.2, 1.9), [1.25, 2.0, 2.0]);
    assert_eq!(of(3.3, -0.3), [3.5, -0.3125, -0.3125]);
}
