//! D: modular differentiation with higher-order functions.

use super::{at, build, count};
use wengert::prelude::*;

#[test]
fn d1_a_function_is_a_bundle_of_value_and_two_linear_maps() {
    let results = at([3.0, 2.0, 10.0], |v| {
        let (y, d) = linearize(&v[0], |x: &Tensor| x * x);
        vec![y, d.push_forward(&v[1]), d.pull_back(&v[2])]
    });
    assert_eq!(results, [9.0, 12.0, 60.0]);
    // Linearity is checked.
    let error = FunctionBuilder::build("f", |b| {
        let x = b.input("x", f64(""));
        b.output("y", transpose(&x, |x: &Tensor| x * x)(&x));
    });
    assert!(error.unwrap_err().to_string().contains("`mul` is not linear here"));
}

#[test]
fn d2_pullbacks_compose_in_reverse_and_duplication_adds() {
    let results = at([0.5, 2.0], |v| {
        let (y, f) = vjp(&v[0], |x: &Tensor| x.tanh());
        let (_, g) = vjp(&y, |y: &Tensor| y.exp());
        let (_, both) = vjp(&v[0], |x: &Tensor| x.tanh().exp());
        let (_, copy) = vjp(&v[0], |x: &Tensor| (x.clone(), x.clone()));
        vec![f(&g(&v[1])) - both(&v[1]), copy(&(v[0].clone(), v[1].clone()))]
    });
    assert_eq!(results, [0.0, 2.5]);
}

#[test]
fn d3_the_pullback_of_a_partial_application_returns_the_cotangent_of_its_environment() {
    let results = at([3.0, 5.0, 2.0], |v| {
        // A function that has captured `a` is the pair of `a` and code; as such it is differentiable.
        let environment = v[0].clone();
        let apply = |a: &Tensor, x: &Tensor| a * x;
        let (_, pullback) = vjp(&(environment, v[1].clone()), |(a, x): &(Tensor, Tensor)| apply(a, x));
        let (a, x) = pullback(&v[2]);
        vec![a, x]
    });
    assert_eq!(results, [10.0, 6.0]);
}

#[test]
fn d4_functions_as_arguments() {
    let map = |f: &dyn Fn(&Tensor) -> Tensor, xs: &[Tensor]| xs.iter().map(f).collect::<Vec<_>>();
    let results = at([2.0, 3.0, 5.0], |v| {
        let point = (v[0].clone(), v[1..].to_vec());
        let (scale, xs) = grad(&point, |(scale, xs): &(Tensor, Vec<Tensor>)| {
            let squares = map(&|x| scale * x * x, xs);
            &squares[0] + &squares[1]
        });
        vec![scale, xs[0].clone(), xs[1].clone()]
    });
    assert_eq!(results, [34.0, 12.0, 20.0]);
}

#[test]
fn d5_functions_as_results_applied_later_and_more_than_once() {
    let multiply = |a: &Tensor| {
        let a = a.clone();
        move |x: &Tensor| x * &a
    };
    // a²x: by a, 2ax.
    assert_eq!(
        at([3.0, 5.0], |v| vec![grad(&v[0], |a: &Tensor| {
            let f = multiply(a);
            f(&f(&v[1]))
        })]),
        [30.0]
    );
}

#[test]
fn d6_a_pullback_does_not_compute_the_value_again() {
    let f = build(2, |v| {
        let (y, pullback) = vjp(&v[0], |x: &Tensor| x.exp() * &v[1]);
        vec![y, pullback(&v[1]), pullback(&v[0])]
    });
    assert_eq!(count(&f, "exp"), 1);
}

#[test]
fn d7_laws_of_abstraction_and_application() {
    let f = |x: &Tensor| x.tanh() * x;
    let bundle = |v: &[Tensor], f: &dyn Fn(&Tensor) -> Tensor| {
        let (y, d) = linearize(&v[0], f);
        vec![y, d.push_forward(&v[1]), d.pull_back(&v[1])]
    };
    let plain = at([0.7, 2.0], |v| bundle(v, &f));
    // η: x ↦ f(x) is f. β: (g ↦ x ↦ g(x)) f is f.
    let eta = at([0.7, 2.0], |v| bundle(v, &|x| f(x)));
    let apply = |g: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| g(x);
    let beta = at([0.7, 2.0], |v| bundle(v, &|x| apply(&f, x)));
    // Projections of a pair are its components.
    let pair = at([0.7, 2.0], |v| bundle(v, &|x| (f(x), x.exp()).0));
    assert_eq!((&eta, &beta, &pair), (&plain, &plain, &plain));
}
