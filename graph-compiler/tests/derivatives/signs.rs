//! Signs of cotangents. A cotangent that is subtracted is not negated first, no negation happens
//! twice, and rules that are not linear get cotangents with the right sign.

use wengert_compiler::autodiff::operators::{grad, hvp};
use wengert_compiler::autodiff::rules::with_derivative;
use wengert_core::graph::Function;
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

fn vector() -> TensorType {
    TensorType::new(DType::F64, [4usize])
}

fn negations(f: &Function) -> usize {
    f.body.equations.iter().filter(|e| e.op.name() == "neg").count()
}

/// Checks the gradients in all inputs by finite differences. Returns the number of negations that
/// they have in addition to the loss's.
fn gradient(inputs: usize, loss: impl Fn(&[Tensor]) -> Tensor) -> usize {
    let types = vec![vector(); inputs];
    let value = build(&types, |x| vec![loss(x)]);
    let derived = build(&types, |x| grad(&x.to_vec(), |x: &Vec<Tensor>| loss(x)));
    let mut random = Random(0x5197);
    let mut literals = || types.iter().map(|ty| random.literal(ty)).collect::<Vec<_>>();
    let (at, along) = (literals(), literals());
    let (along_gradient, _) = inner(&flat(&run(&derived, &at)), &flat(&along));
    assert_derivative(&[along_gradient], &value, &at, &along, 1e-8, "gradient");
    negations(&derived) - negations(&value)
}

#[test]
fn a_difference_stands_for_a_sum_of_negatives() {
    // The sign is propagated until the value has another use, before or after it.
    let mean = |x: &Tensor| x.mean_axes(&[0]).broadcast_in_dim(x.shape().to_vec(), &[]);
    assert_eq!(gradient(2, |x| ((&x[0] - mean(&x[0])) * &x[1]).sum()), 0);
    assert_eq!(gradient(2, |x| (x[0].softmax(0) * &x[1]).sum()), 0);
    assert_eq!(gradient(2, |x| (x[0].log_softmax(0) * &x[1]).sum()), 0);
    assert_eq!(gradient(2, |x| (x[0].standardize(0, 1e-2) * &x[1]).sum()), 0);
    assert_eq!(gradient(2, |x| (x[0].rms_normalize(0, 1e-2) * &x[1]).sum()), 0);
    // Minus minus is no negation.
    assert_eq!(gradient(2, |x| -((-(&x[0] * &x[1])).sum())), 0);
}

#[test]
fn a_sign_that_nothing_takes_up_is_one_negation() {
    // The scalar is negated, not each input's cotangent.
    assert_eq!(gradient(3, |x| -((&x[0] * &x[1] + &x[1] * &x[2]).tanh().sum())), 1);
    // Two negative cotangents that are summed need one negation. `tanh` expands to a difference,
    // which is not a negation.
    assert_eq!(gradient(2, |x| (&x[1] - x[0].sin() - x[0].tanh()).sum()), 1);
}

#[test]
fn second_derivatives_have_signs_too() {
    let loss = |x: &Tensor| (x.softmax(0) * x.standardize(0, 1e-2) - x.tanh()).square().sum();
    let slope = build(&[vector()], |x| vec![grad(&x[0], loss)]);
    let product = build(&[vector(), vector()], |x| vec![hvp(&x[0], &x[1], loss)]);
    let mut random = Random(0x2d51);
    let (at, along) = (random.literal(&vector()), random.literal(&vector()));
    let second = flat(&run(&product, &[at.clone(), along.clone()]));
    assert_derivative(&second, &slope, &[at], &[along], 1e-7, "Hessian times vector");
}

#[test]
fn a_change_of_a_cotangent_sees_its_sign() {
    // A clip that is not symmetric, beside another use of the same value that could absorb a sign.
    let clipped = |x: &Tensor| with_derivative(x, |ct: &Tensor| ct.clamp(-0.25, 1.0));
    assert_eq!(at(0.5, |x| grad(x, |x| x * 3.0 - clipped(x))), 2.75);
    assert_eq!(at(0.5, |x| grad(x, |x| x * 3.0 - clipped(&-x))), 3.25);
    assert_eq!(at(0.5, |x| grad(x, |x| -clipped(x))), -0.25);
}

#[test]
fn the_derivative_of_rsqrt_is_there_as_long_as_it_is_a_number() {
    for (dtype, points) in [
        (DType::F16, vec![6e-8, 1e-4, 5e-4, 1.0, 65504.0]),
        (DType::F32, vec![1e-44, 1e-38, 1.5e-26, 1e-20, 3.0, 1e20, 3e25, 3e38]),
        (DType::F64, vec![1e-300, 1e-206, 1e-200, 7.0, 1e200, 1e300]),
    ] {
        let slope = build(&[TensorType::scalar(dtype)], |x| vec![grad(&x[0], |x| x.rsqrt())]);
        for point in points {
            let x = Scalar::from_f64(dtype, point);
            let found = run(&slope, &[Literal::full(&[], x)])[0].get(0).to_f64();
            let (x, root) = (x.to_f64(), x.to_f64().sqrt());
            let wanted = Scalar::from_f64(dtype, -0.5 / root / x).to_f64();
            let (bits, least) = match dtype {
                DType::F16 => (10, 2f64.powi(-24)),
                DType::F32 => (23, 2f64.powi(-149)),
                _ => (52, 5e-324),
            };
            let bound = 8.0 * (wanted.abs() * 2f64.powi(-bits)).max(least);
            assert!(
                found == wanted || (found - wanted).abs() <= bound,
                "{dtype} {x}: {found}, not {wanted}"
            );
        }
    }
}
