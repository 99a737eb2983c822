//! Operators on closures: nesting, captures, strong zeros, mistakes.

use wengert_compiler::autodiff::operators::{
    grad, jvp, linearize, transpose, value_and_grad, value_aux_and_grad, vjp,
};
use wengert_core::build::FunctionBuilder;
use wengert_core::op::{Binary, Compare, Unary};
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;

fn tanh(x: &Tensor) -> Tensor {
    x.unary(Unary::Tanh)
}

/// D f at x, by reverse mode.
fn d(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    grad(x, f)
}

/// D f at x, by forward mode.
fn e(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    jvp(x, &x.ones_like(), f).1
}

#[test]
fn perturbations_are_not_confused() {
    // D(x ↦ x · D(y ↦ x + y)(1))(1) = 1, in all four combinations of modes.
    let one = || Tensor::constant(1.0f64);
    assert_eq!(at(1.0, |x| d(x, |x| x * d(&one(), |y| x + y))), 1.0);
    assert_eq!(at(1.0, |x| d(x, |x| x * e(&one(), |y| x + y))), 1.0);
    assert_eq!(at(1.0, |x| e(x, |x| x * d(&one(), |y| x + y))), 1.0);
    assert_eq!(at(1.0, |x| e(x, |x| x * e(&one(), |y| x + y))), 1.0);
    // D(x ↦ x · D(y ↦ x · y)(2))(3) = 2x = 6. Here the inner derivative depends on x.
    let two = || Tensor::constant(2.0f64);
    assert_eq!(at(3.0, |x| d(x, |x| x * e(&two(), |y| x * y))), 6.0);
    assert_eq!(at(3.0, |x| e(x, |x| x * d(&two(), |y| x * y))), 6.0);
}

#[test]
fn derivatives_nest() {
    // tanh‴ = −2(1 − t²)(1 − 3t²)
    let x = 0.3f64;
    let t = x.tanh();
    let third = -2.0 * (1.0 - t * t) * (1.0 - 3.0 * t * t);
    assert_close(&[at(x, |x| d(x, |x| d(x, |x| d(x, tanh))))], &[third], 1e-14, "reverse thrice");
    assert_close(&[at(x, |x| e(x, |x| e(x, |x| e(x, tanh))))], &[third], 1e-14, "forward thrice");
    assert_close(&[at(x, |x| e(x, |x| d(x, |x| e(x, tanh))))], &[third], 1e-14, "mixed");
    assert_close(&[at(x, |x| d(x, |x| e(x, |x| d(x, tanh))))], &[third], 1e-14, "mixed");
    // The fifth derivative of x⁵ is 5!.
    assert_eq!(
        at(1.7, |x| d(x, |x| d(x, |x| d(x, |x| d(x, |x| d(x, |x| x * x * x * x * x)))))),
        120.0
    );
}

#[test]
fn a_zero_tangent_annihilates_an_infinite_coefficient() {
    let log_or_zero = |x: &Tensor| {
        let positive = x.compare(Compare::Gt, &x.zeros_like());
        positive.select(&x.unary(Unary::Log), &x.zeros_like())
    };
    assert_eq!(at(0.0, |x| d(x, log_or_zero)), 0.0);
    assert_eq!(at(0.0, |x| e(x, log_or_zero)), 0.0);
    assert_eq!(at(0.0, |x| d(x, |x| d(x, log_or_zero))), 0.0);
    assert_eq!(at(0.0, |x| e(x, |x| d(x, log_or_zero))), 0.0);
    assert_eq!(at(0.0, |x| d(x, |x| e(x, log_or_zero))), 0.0);
    assert_eq!(at(0.0, |x| e(x, |x| e(x, log_or_zero))), 0.0);
    assert_eq!(at(2.0, |x| d(x, log_or_zero)), 0.5);
    assert_eq!(at(2.0, |x| d(x, |x| d(x, log_or_zero))), -0.25);
}

#[test]
fn a_function_is_a_bundle_of_value_pushforward_and_pullback() {
    let ty = TensorType::new(DType::F64, [3usize]);
    let f = build(&[ty.clone(), ty.clone()], |x| {
        let (y, differential) = linearize(&x[0], |a: &Tensor| tanh(a) * a);
        let push = differential.push_forward(&x[1]);
        let pull = differential.pull_back(&x[1]);
        // The Jacobian is diagonal, so the tangent and the cotangent are equal.
        vec![y, push - pull]
    });
    let x = Literal::from_vec(&[3], vec![0.1, -0.5, 2.0]).unwrap();
    let outputs = run(&f, &[x.clone(), x]);
    assert_close(&flat(&outputs[1..]), &[0.0; 3], 1e-15, "push − pull");
}

#[test]
fn a_pullback_does_not_compute_the_value_again() {
    let scalar = TensorType::scalar(DType::F64);
    let f = build(&[scalar], |x| {
        let (y, pullback) = vjp(&x[0], |x: &Tensor| tanh(x));
        let (a, b) = (pullback(&y), pullback(&x[0]));
        vec![y, a, b]
    });
    let count = f.body.equations.iter().filter(|e| e.op.name() == "tanh").count();
    assert_eq!(count, 1);
}

#[test]
fn gradients_have_the_type_of_what_they_are_of_and_integers_have_none() {
    let types = [TensorType::new(DType::F64, [2usize]), TensorType::new(DType::I32, [2usize])];
    let f = build(&types, |x| {
        let model = (x[0].clone(), vec![x[1].clone()], Some(x[0].clone()));
        let (value, aux, gradient) =
            value_aux_and_grad(&model, |(a, i, b)| ((a * b.as_ref().unwrap()).sum(), i[0].clone()));
        assert_eq!(gradient.1[0].dtype(), DType::I32);
        vec![value, aux, gradient.0, gradient.1[0].clone(), gradient.2.unwrap()]
    });
    let x = Literal::from_vec(&[2], vec![3.0, 4.0]).unwrap();
    let i = Literal::from_vec(&[2], vec![5i32, 6]).unwrap();
    let outputs = run(&f, &[x.clone(), i.clone()]);
    assert_eq!(flat(&outputs[..1]), [25.0]);
    assert_eq!(outputs[1], i);
    assert_eq!(outputs[2], x);
    assert_eq!(outputs[3].as_slice::<i32>().unwrap(), [0, 0]);
    assert_eq!(outputs[4], x);
}

#[test]
fn nothing_is_emitted_for_what_does_not_depend_on_the_input() {
    let scalar = TensorType::scalar(DType::F64);
    let f = build(&[scalar.clone(), scalar], |x| {
        // Only one of the three products is on the path. The sum needs no zeros, and the fan-in
        // needs no additions.
        let (value, gradient) = value_and_grad(&x[0], |a: &Tensor| {
            let constant = tanh(&x[1]) * &x[1];
            let unused = tanh(a);
            let _ = unused * a;
            a * &constant + tanh(&x[1])
        });
        vec![value, gradient]
    });
    let names: Vec<&str> = f.body.equations.iter().map(|e| e.op.name()).collect();
    let count = |name: &str| names.iter().filter(|n| **n == name).count();
    assert_eq!(count("mul_zero"), 1, "{names:?}");
    assert_eq!(count("add"), 1, "{names:?}");
    assert_eq!(count("broadcast_in_dim"), 0, "{names:?}");
}

#[test]
fn every_derivative_equation_names_its_rule_and_its_origin() {
    let scalar = TensorType::scalar(DType::F64);
    let f = build(&[scalar], |x| vec![grad(&x[0], |x: &Tensor| tanh(x) * x)]);
    let texts: Vec<String> =
        f.body.equations.iter().map(|e| f.locations.describe(e.location)).collect();
    assert!(texts.iter().any(|t| t.starts_with("jvp(tanh) of ")), "{texts:?}");
    assert!(
        texts.iter().any(|t| t.starts_with("transpose(mul_zero) of jvp(mul) of ")),
        "{texts:?}"
    );
    for (text, equation) in texts.iter().zip(&f.body.equations) {
        let named = text.contains("closures.rs:") || equation.op.name() == "constant";
        assert!(named, "{}: {text}", equation.op.name());
    }
}

#[test]
fn shared_values_stay_shared() {
    // x ↦ x², thirty times. Without sharing it has 2³⁰ equations.
    let scalar = TensorType::scalar(DType::F64);
    let f = build(&[scalar], |x| {
        vec![grad(&x[0], |x: &Tensor| (0..30).fold(x.clone(), |y, _| &y * &y))]
    });
    assert!(f.body.equations.len() < 30 * 8, "{}", f.body.equations.len());
}

#[test]
fn mistakes_are_explained() {
    let vector = TensorType::new(DType::F32, [3usize]);
    let message = |f: &dyn Fn(&Tensor) -> Tensor| {
        let error = FunctionBuilder::build("loss", |b| {
            let x = b.input("x", vector.clone());
            let y = f(&x);
            b.output("y", y);
        });
        error.unwrap_err().to_string()
    };
    let text = message(&|x| grad(x, tanh));
    assert!(text.contains("grad needs a scalar output; the closure's has shape f32[3]"), "{text}");
    assert!(text.contains(".sum()") && text.contains("closures.rs:"), "{text}");
    let text = message(&|x| {
        let i = x.compare(Compare::Lt, x).convert(DType::I32);
        grad(&i, |i: &Tensor| i.convert(DType::F32).sum())
    });
    assert!(text.contains("no floats to differentiate"), "{text}");
    let text = message(&|x| vjp(x, tanh).1(&x.sum()));
    assert!(text.contains("the cotangent has type f32[], the value has f32[3]"), "{text}");
    let text =
        message(&|x| grad(x, |x: &Tensor| x.binary(Binary::Add, &Tensor::constant(1.0f64)).sum()));
    assert!(text.contains("operands have dtypes f32 and f64"), "{text}");
    // A tensor that escapes from its closure.
    let text = message(&|x| {
        let mut escaped = None;
        let _ = grad(x, |x: &Tensor| {
            escaped = Some(x * 2.0);
            x.sum()
        });
        escaped.unwrap() + x
    });
    assert!(text.contains("is used outside of the closure that made it"), "{text}");
}

#[test]
fn without_a_function_there_is_an_error_not_a_panic() {
    let gradient = grad(&Tensor::constant(1.0f64), |x: &Tensor| x * x);
    assert!(gradient.error().unwrap().to_string().contains("no function to put derivatives in"));
}

#[test]
fn linear_functions_are_transposed_and_others_refused() {
    let ty = TensorType::new(DType::F64, [3usize]);
    let f = build(&[ty.clone(), ty.clone()], |x| {
        // x ↦ a·x minus a broadcast sum, plus zeros. The transpose is applied to y.
        let linear = |t: &Tensor| t * &x[0] - t.sum().broadcast_to(t.shape()) + t.zeros_like();
        vec![transpose(&x[1], linear)(&x[1])]
    });
    let literal = |v: [f64; 3]| Literal::from_vec(&[3], v.to_vec()).unwrap();
    let result = run(&f, &[literal([1.0, 2.0, 3.0]), literal([10.0, 20.0, 30.0])]);
    assert_eq!(flat(&result), [10.0 - 60.0, 40.0 - 60.0, 90.0 - 60.0]);

    let refused = |f: &dyn Fn(&Tensor, &Tensor) -> Tensor| {
        let error = FunctionBuilder::build("g", |b| {
            let (x, a) = (b.input("x", ty.clone()), b.input("a", ty.clone()));
            b.output("y", transpose(&x, |t: &Tensor| f(t, &a))(&x));
        });
        error.unwrap_err().to_string()
    };
    type Case<'a> = (&'a dyn Fn(&Tensor, &Tensor) -> Tensor, &'a str);
    let cases: [Case<'_>; 7] = [
        (&|t, _| t * t, "`mul` is not linear here"),
        (&|t, _| t.tanh(), "`tanh` is not linear here"),
        (&|t, a| a / t, "`div` is not linear here"),
        (&|t, _| t + 1.0, "adds a constant is affine"),
        (&|t, a| t + a, "adds a constant is affine"),
        (&|_, a| a.clone(), "adds a constant is affine"),
        (&|t, _| t.lt(0.0).select(t, &t.zeros_like()), "`lt` is not linear here"),
    ];
    for (f, part) in cases {
        let text = refused(f);
        assert!(text.contains(part) && text.contains("closures.rs:"), "{part}: {text}");
    }
}
