//! Derivatives at ties, and of products with zeros. They are those that the ops document, at first
//! and second order.

use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_core::build::Padding;
use wengert_core::op::{Reduce, ReduceKind, WindowKind, Windows};
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType};
use wengert_testing::derivative::*;

fn vector(values: &[f64]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

fn ty(n: usize) -> TensorType {
    TensorType::new(DType::F64, [n])
}

/// ∇f at x.
fn gradient(x: &[f64], f: impl Fn(&Tensor) -> Tensor) -> Vec<f64> {
    let function = build(&[ty(x.len())], |inputs| vec![grad(&inputs[0], |x: &Tensor| f(x))]);
    flat(&run(&function, &[vector(x)]))
}

/// ∇²f·t at x, forward over reverse and reverse over reverse, which must agree.
fn curvature(x: &[f64], t: &[f64], f: impl Fn(&Tensor) -> Tensor) -> Vec<f64> {
    let function = build(&[ty(x.len()), ty(x.len())], |inputs| {
        let (x, t) = (&inputs[0], &inputs[1]);
        let forward = jvp(x, t, |x: &Tensor| grad(x, |x: &Tensor| f(x))).1;
        let reverse = grad(x, |x: &Tensor| (grad(x, |x: &Tensor| f(x)) * t).sum());
        vec![forward, reverse]
    });
    let both = run(&function, &[vector(x), vector(t)]);
    assert_close(&flat(&both[..1]), &flat(&both[1..]), 1e-15, "forward and reverse");
    flat(&both[..1])
}

fn product(x: &Tensor) -> Tensor {
    Tensor::apply(Reduce::new(ReduceKind::Prod, [0]), &[x])
}

fn product_by_a_region(x: &Tensor) -> Tensor {
    Tensor::reduce_with(&[x], &[Scalar::of(1.0f64)], &[0], |a, b| vec![&a[0] * &b[0]])
        .swap_remove(0)
}

#[test]
fn products_with_zeros_are_exact_to_the_second_order() {
    for f in [product as fn(&Tensor) -> Tensor, product_by_a_region] {
        assert_eq!(gradient(&[0.0, 2.0, 5.0], f), [10.0, 0.0, 0.0]);
        assert_eq!(gradient(&[0.0, 0.0, 3.0], f), [0.0; 3]);
        // For xyz at (0, 0, 3), ∂²/∂x∂y is 3 and the rest is 0.
        assert_eq!(curvature(&[0.0, 0.0, 3.0], &[1.0, 2.0, 7.0], f), [6.0, 3.0, 0.0]);
    }
    // x + xy + xyz
    let running = |x: &Tensor| x.cumprod(0).sum();
    assert_eq!(gradient(&[0.0, 0.0, 3.0], running), [1.0, 0.0, 0.0]);
    assert_eq!(curvature(&[0.0, 0.0, 3.0], &[1.0, 2.0, 7.0], running), [8.0, 4.0, 0.0]);
}

#[test]
fn the_gradient_of_a_window_goes_to_the_first_of_equals() {
    let pool = |kind| {
        move |x: &Tensor| {
            x.reduce_window(kind, Windows::new(&[2], &[1]), &Padding::Valid).square().sum()
        }
    };
    assert_eq!(gradient(&[1.0, 1.0, 1.0, 0.0], pool(WindowKind::Max)), [2.0, 2.0, 2.0, 0.0]);
    assert_eq!(gradient(&[1.0, 1.0, 1.0, 2.0], pool(WindowKind::Min)), [2.0, 2.0, 2.0, 0.0]);
    assert_eq!(
        curvature(&[1.0, 1.0, 1.0, 0.0], &[1.0, 5.0, 9.0, 13.0], pool(WindowKind::Max)),
        [2.0, 10.0, 18.0, 0.0]
    );
    // An element that is −∞ still counts as an element. Padding gets no gradient.
    let padded = |x: &Tensor| {
        let padding = Padding::Explicit(vec![(2, 0)]);
        let y = x.reduce_window(WindowKind::Max, Windows::new(&[2], &[1]), &padding);
        (&y.zeros_like() + Tensor::constant(vector(&[1.0, 2.0, 4.0, 8.0])) * y).sum()
    };
    let found = gradient(&[f64::NEG_INFINITY, 3.0, 1.0], padded);
    assert_eq!(found, [2.0, 12.0, 0.0]);
}

#[test]
fn equal_elements_keep_their_order_and_their_gradients() {
    let weights = |n: usize| Tensor::constant(vector(&[1.0, 2.0, 3.0][..n]));
    let sorted = |x: &Tensor| (x.sort(0) * weights(3)).sum();
    assert_eq!(gradient(&[1.0, 1.0, 0.0], sorted), [2.0, 3.0, 1.0]);
    let squares = |x: &Tensor| (x.sort(0).square() * weights(3)).sum();
    assert_eq!(curvature(&[1.0, 1.0, 0.0], &[1.0, 10.0, 100.0], squares), [4.0, 60.0, 200.0]);
    let top = |x: &Tensor| (x.top_k(2, 0).0 * weights(2)).sum();
    assert_eq!(gradient(&[4.0, 7.0, 7.0, 7.0], top), [0.0, 1.0, 2.0, 0.0]);
}

#[test]
fn running_sums_of_exponentials_are_smooth_where_elements_are_equal() {
    let last = |x: &Tensor| x.cumlogsumexp(0).slice_axis(0, 1, 2).sum();
    assert_close(&gradient(&[0.0, 0.0], last), &[0.5, 0.5], 1e-15, "logsumexp");
    assert_close(&curvature(&[0.0, 0.0], &[1.0, 0.0], last), &[0.25, -0.25], 1e-15, "logsumexp");
    // log(eˣ + 1) at 0: 1/2, 1/4, 0, −1/8.
    let softplus = |x: &Tensor| {
        let pair =
            Tensor::concatenate(&[&x.reshape([1usize]), &x.zeros_like().reshape([1usize])], 0);
        last(&pair)
    };
    let d = |x: &Tensor| grad(x, softplus);
    let d2 = |x: &Tensor| grad(x, d);
    let d3 = |x: &Tensor| grad(x, d2);
    assert_close(&[at(0.0, d3), at(0.0, |x| grad(x, d3))], &[0.0, -0.125], 1e-14, "softplus");
    // Masked elements have a zero share. Equal infinities have equal shares.
    let masked = [f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0];
    assert_close(
        &gradient(&masked, |x| x.cumlogsumexp(0).slice_axis(0, 2, 3).sum()),
        &[0.0, 0.0, 1.0],
        0.0,
        "masked",
    );
    assert_eq!(gradient(&masked, |x| x.cumlogsumexp(0).slice_axis(0, 1, 2).sum()), [0.5, 0.5, 0.0]);
}

#[test]
fn means_of_windows_count_elements_only() {
    let x = Literal::from_vec(&[1, 3, 1], vec![3.0f64, 6.0, 9.0]).unwrap();
    let pool = |x: &Tensor| x.avg_pool(&[2], &[2], &Padding::Same);
    let function = build(&[TensorType::new(DType::F64, [1usize, 3, 1])], |x| {
        vec![pool(&x[0]), grad(&x[0], |x: &Tensor| pool(x).sum())]
    });
    assert_eq!(flat(&run(&function, &[x])), [4.5, 9.0, 0.5, 0.5, 1.0]);
}
