//! Functions with custom rules, in both modes and to the second order; changes of derivatives
//! inside a program; opaque functions.

use wengert_compiler::autodiff::function::{
    Grad, Jvp, grad as grad_of_function, jvp as jvp_of_function,
};
use wengert_compiler::autodiff::operators::{grad, jvp, linearize, vjp};
use wengert_compiler::autodiff::rules::{
    call, checkpoint, custom_jvp, custom_vjp, opaque, with_derivative,
};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{
    cond, fori, scan, scan_checkpointed, while_at_most, while_checkpointed,
};
use wengert_core::graph::{Function, Program, parse_program};
use wengert_core::op::Checkpoint;
use wengert_core::{DType, Diagnostic, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;

type Scalar = fn(&Tensor) -> Tensor;

fn forward(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    jvp(x, &x.ones_like(), f).1
}

/// tanh with a tangent rule, in terms of its result.
fn tanh_j(x: &Tensor) -> Tensor {
    custom_jvp(x, |x| x.tanh(), |_, y: &Tensor, t| t.scaled_by(&(1.0 - y.square())))
}

/// tanh with a forward and a backward half. The residual is the result.
fn tanh_v(x: &Tensor) -> Tensor {
    let forward = |x: &Tensor| {
        let y = x.tanh();
        (y.clone(), y)
    };
    custom_vjp(x, forward, |y: &Tensor, ct: &Tensor| ct.scaled_by(&(1.0 - y.square())))
}

fn count(f: &Function, op: &str) -> usize {
    f.body.equations.iter().filter(|e| e.op.name() == op).count()
}

fn error_of(f: impl FnOnce(&Tensor) -> Tensor) -> Diagnostic {
    FunctionBuilder::build("f", |b| {
        let x = b.input("x", scalar());
        let y = f(&x);
        b.output("y", y);
    })
    .unwrap_err()
}

#[test]
fn rules_hold_in_every_mode_and_order() {
    let x = 0.3f64;
    let y = x.tanh();
    let (first, second) = (1.0 - y * y, -2.0 * y * (1.0 - y * y));
    for (name, f) in [("jvp", tanh_j as Scalar), ("vjp", tanh_v as Scalar)] {
        let close = |got: f64, wanted: f64, what| {
            assert_close(&[got], &[wanted], 1e-14, &format!("{name}: {what}"))
        };
        close(at(x, f), y, "value");
        close(at(x, |x| grad(x, f)), first, "reverse");
        close(at(x, |x| forward(x, f)), first, "forward");
        close(at(x, |x| grad(x, |x| grad(x, f))), second, "reverse over reverse");
        close(at(x, |x| forward(x, |x| grad(x, f))), second, "forward over reverse");
        close(at(x, |x| grad(x, |x| forward(x, f))), second, "reverse over forward");
        close(at(x, |x| forward(x, |x| forward(x, f))), second, "forward over forward");
    }
}

#[test]
fn a_rule_replaces_the_derivative_at_every_order() {
    // The rule gives 3·y where the derivative is 1. The rule's own derivative is that of 3·y.
    let odd = |x: &Tensor| custom_jvp(x, |x| x * 1.0, |_, y: &Tensor, t| t * y * 3.0);
    assert_eq!(at(2.0, |x| grad(x, odd)), 6.0);
    assert_eq!(at(2.0, |x| forward(x, odd)), 6.0);
    // d(3·y)/dx is 3·(3·y), since y is again a value with that rule.
    assert_eq!(at(2.0, |x| grad(x, |x| grad(x, odd))), 18.0);
    let odd = |x: &Tensor| {
        let forward = |x: &Tensor| {
            let y = x * 1.0;
            (y.clone(), y)
        };
        custom_vjp(x, forward, |y: &Tensor, ct: &Tensor| ct * y * 3.0)
    };
    assert_eq!(at(2.0, |x| grad(x, odd)), 6.0);
    assert_eq!(at(2.0, |x| grad(x, |x| grad(x, odd))), 18.0);
    assert_eq!(at(2.0, |x| forward(x, |x| grad(x, odd))), 18.0);
}

#[test]
fn without_a_derivative_a_rule_costs_nothing() {
    for f in [tanh_j as Scalar, tanh_v as Scalar] {
        let function = build(&[scalar()], |x| vec![f(&x[0])]);
        assert_eq!(function.body.equations.len(), 1, "{function}");
        assert_eq!(run(&function, &[Literal::from(0.5f64)]), [Literal::from(0.5f64.tanh())]);
    }
}

#[test]
fn arguments_and_results_may_be_models_with_integers_among_them() {
    let floats = TensorType::new(DType::F64, [3usize]);
    let integers = TensorType::new(DType::I32, [3usize]);
    let f = build(&[floats.clone(), integers], |x| {
        let point = (x[0].clone(), x[1].clone());
        let g = |at: &(Tensor, Tensor)| {
            custom_vjp(
                at,
                |(x, n)| ((x * n.convert(DType::F64), n + n), (x.clone(), n.clone())),
                |(_, n): &(Tensor, Tensor), (ct, _): &(Tensor, Tensor)| {
                    (ct * n.convert(DType::F64) * 2.0, n.zeros_like())
                },
            )
        };
        let (value, pullback) = vjp(&point, g);
        let gradient = pullback(&(x[0].clone(), x[1].zeros_like()));
        let along = (x[0].clone(), x[1].zeros_like());
        let (_, tangent) = jvp(&point, &along, g);
        vec![value.0, value.1, gradient.0, gradient.1, tangent.0]
    });
    let x = Literal::from_vec(&[3], vec![1.0, 2.0, 3.0]).unwrap();
    let n = Literal::from_vec(&[3], vec![4i32, 5, 6]).unwrap();
    let got = run(&f, &[x, n]);
    assert_eq!(flat(&got[..1]), [4.0, 10.0, 18.0]);
    assert_eq!(got[1].as_slice::<i32>().unwrap(), [8, 10, 12]);
    assert_eq!(flat(&got[2..3]), [8.0, 20.0, 36.0]);
    assert_eq!(got[3].as_slice::<i32>().unwrap(), [0, 0, 0]);
    assert_eq!(flat(&got[4..]), [8.0, 20.0, 36.0]);
}

#[test]
fn captured_values_are_constants_of_the_rule() {
    // f(x) = c·x. Its rule gives 10·c.
    let f =
        |x: &Tensor, c: &Tensor| custom_vjp(x, |x| (x * c, ()), |(), ct: &Tensor| ct * c * 10.0);
    let g =
        |x: &Tensor, c: &Tensor| custom_jvp(x, |x| x * c, |_, _: &Tensor, t: &Tensor| t * c * 10.0);
    let values = build(&[scalar(), scalar()], |v| {
        let (x, c) = (&v[0], &v[1]);
        vec![
            f(x, c),
            grad(x, |x| f(x, c)),
            forward(x, |x| f(x, c)),
            grad(x, |x| g(x, c)),
            forward(x, |x| g(x, c)),
        ]
    });
    assert_eq!(flat(&run(&values, &[2.0f64.into(), 3.0f64.into()])), [6.0, 30.0, 30.0, 30.0, 30.0]);

    for error in [
        error_of(|x| grad(x, |x| f(&(x * 1.0), x))),
        error_of(|x| forward(x, |x| g(&(x * 1.0), x))),
    ] {
        let text = error.to_string();
        assert!(text.contains("captures a value that is differentiated"), "{text}");
        assert!(
            text.contains("stop_gradient") && text.matches("custom.rs:").count() >= 2,
            "{text}"
        );
    }
}

#[test]
fn forward_mode_of_a_rule_that_is_not_linear_is_an_error_with_its_line() {
    let clipped = |x: &Tensor| with_derivative(x, |ct| ct.clamp(-1.0, 1.0));
    assert_eq!(at(2.0, |x| grad(x, |x| clipped(x) * 5.0)), 1.0);
    assert_eq!(at(2.0, |x| grad(x, |x| clipped(x) * 0.5)), 0.5);
    let text = error_of(|x| forward(x, |x| clipped(x) * 5.0)).to_string();
    assert!(
        text.contains("forward mode of a `custom_vjp`") && text.contains("`clamp` is not linear"),
        "{text}"
    );
    assert!(text.contains("custom.rs:"), "{text}");
    // A linearized function with such a rule can be pulled back, but not pushed forward.
    let text = error_of(|x| linearize(x, clipped).1.push_forward(x)).to_string();
    assert!(text.contains("`clamp` is not linear"), "{text}");
    assert_eq!(at(2.0, |x| linearize(x, clipped).1.pull_back(&(x * 4.0))), 1.0);
}

#[test]
fn surgery_scales_replaces_and_clips_inside_an_unrolled_recurrence() {
    assert_eq!(at(2.0, |x| grad(x, |x| with_derivative(&x.square(), |ct| ct * 3.0))), 12.0);
    assert_eq!(at(2.0, |x| forward(x, |x| with_derivative(&x.square(), |ct| ct * 3.0))), 12.0);
    assert_eq!(
        at(2.0, |x| grad(x, |x| with_derivative(&x.square(), |ct| ct.ones_like() * 7.0))),
        28.0
    );
    // h ← 3h, ten times. Each backward step clips the cotangent to 2 and multiplies it by 3, so the
    // gradient is 6 instead of 3¹⁰.
    let recurrence = |x: &Tensor| {
        (0..10).fold(x.clone(), |h, _| with_derivative(&(h * 3.0), |ct| ct.clamp(-2.0, 2.0)))
    };
    assert_eq!(at(1.0, |x| grad(x, recurrence)), 6.0);
    assert_eq!(at(1.0, recurrence), 59049.0);
}

/// A construct that repeats a step ten times.
type Repeat = fn(&Tensor, &dyn Fn(&Tensor) -> Tensor) -> Tensor;

/// Each construct repeats the step h ← 3h ten times. A rule changes the cotangent of the step. The
/// gradient must contain the change once for each step.
#[test]
fn surgery_within_control_flow_is_that_of_the_unrolled_program() {
    let constructs: [(&str, Repeat); 8] = [
        ("scan", |x, step| {
            scan(x, &x.broadcast_in_dim(vec![10usize.into()], &[]), |h, _| {
                (step(h), Vec::<Tensor>::new())
            })
            .0
        }),
        ("scan_checkpointed", |x, step| {
            scan_checkpointed(2, x, &x.broadcast_in_dim(vec![10usize.into()], &[]), |h, _| {
                (step(h), Vec::<Tensor>::new())
            })
            .0
        }),
        ("fori", |x, step| fori(10usize, x, |_, h| step(h))),
        ("nested", |x, step| fori(5usize, x, |_, h| fori(2usize, h, |_, h| step(h)))),
        ("while_at_most", |x, step| while_at_most(10usize, x, |h| h.abs().lt(1e9), |h| step(h))),
        ("while_checkpointed", |x, step| {
            let numbered = (Tensor::constant(0i32), x.clone());
            while_checkpointed(
                3,
                &numbered,
                |(n, _)| n.lt(Tensor::constant(10i32)),
                |(n, h)| (n + 1, step(h)),
            )
            .1
        }),
        ("cond", |x, step| {
            (0..10).fold(x.clone(), |h, _| cond(&h.gt(0.0), || step(&h), || &h * 17.0))
        }),
        ("checkpoint", |x, step| {
            (0..10).fold(x.clone(), |h, _| checkpoint(Checkpoint::nothing(), &h, step))
        }),
    ];
    for (name, construct) in constructs {
        let clipped = |h: &Tensor| with_derivative(&(h * 3.0), |ct| ct.clamp(-2.0, 2.0));
        assert_eq!(at(1.0, |x| construct(x, &clipped)), 59049.0, "{name}");
        assert_eq!(at(1.0, |x| grad(x, |x| construct(x, &clipped))), 6.0, "{name}");
        assert_eq!(
            at(1.0, |x| linearize(x, |x| construct(x, &clipped)).1.pull_back(&(x * 0.0 + 0.5))),
            6.0,
            "{name}"
        );
        // Forward mode needs the transpose of the rule, which `clamp` does not have.
        for text in [
            error_of(|x| forward(x, |x| construct(x, &clipped))).to_string(),
            error_of(|x| linearize(x, |x| construct(x, &clipped)).1.push_forward(x)).to_string(),
        ] {
            assert!(text.contains("`clamp` is not linear"), "{name}: {text}");
        }
        let halved = |h: &Tensor| with_derivative(&(h * 3.0), |ct| ct * 0.5);
        let slope = 1.5f64.powi(10);
        assert_eq!(at(1.0, |x| grad(x, |x| construct(x, &halved))), slope, "{name}");
        assert_eq!(at(1.0, |x| forward(x, |x| construct(x, &halved))), slope, "{name}");
        assert_eq!(
            at(1.0, |x| linearize(x, |x| construct(x, &halved)).1.push_forward(x)),
            slope,
            "{name}"
        );
        // Second order: the step is not linear, and the derivative that its rule gives is
        // differentiated again.
        let bent = |h: &Tensor| with_derivative(&(h.sin() * 1.2), |ct| ct * 0.9);
        let unrolled = |x: &Tensor| (0..10).fold(x.clone(), |h, _| bent(&h));
        let second = |f: &dyn Fn(&Tensor) -> Tensor| {
            [
                at(1.5, |x| grad(x, |x| grad(x, f))),
                at(1.5, |x| forward(x, |x| grad(x, f))),
                at(1.5, |x| grad(x, |x| forward(x, f))),
            ]
        };
        for (found, wanted) in second(&|x| construct(x, &bent)).iter().zip(second(&unrolled)) {
            assert!((found - wanted).abs() <= 1e-12 * wanted.abs(), "{name}: {found}, {wanted}");
        }
    }
}

#[test]
fn a_cotangent_that_is_a_symbolic_zero_costs_nothing() {
    // Of the two results one is used. Only its half of the backward code remains.
    let both = |x: &Tensor| {
        custom_vjp(
            x,
            |x| ((x.sin(), x.exp()), (x.cos(), x.exp())),
            |(c, e): &(Tensor, Tensor), (a, b): &(Tensor, Tensor)| a * c + b * e,
        )
    };
    let function = build(&[scalar()], |x| vec![grad(&x[0], |x| both(x).0)]);
    assert_eq!((count(&function, "mul"), count(&function, "add")), (1, 0), "{function}");
    assert_eq!(flat(&run(&function, &[0.0f64.into()])), [1.0]);
    // If no result is used, the rule does not run.
    let function = build(&[scalar()], |x| vec![grad(&x[0], |x| both(x).1 * 0.0 + x * 2.0)]);
    assert_eq!(flat(&run(&function, &[0.0f64.into()])), [2.0]);
    // An argument that does not vary gets no derivative code: two of the three products are absent.
    let product = |a: &Tensor, b: &Tensor| {
        custom_vjp(
            &(a.clone(), b.clone()),
            |(a, b)| (a * b, (a.clone(), b.clone())),
            |(a, b): &(Tensor, Tensor), ct: &Tensor| (ct * b, ct * a),
        )
    };
    let function = build(&[scalar(), scalar()], |x| vec![grad(&x[0], |a| product(a, &x[1]))]);
    assert_eq!(count(&function, "mul"), 1, "{function}");
}

#[test]
fn a_call_is_differentiated_and_an_opaque_call_is_not() {
    let square = |x: &Tensor| call("square", x, |x| x * x);
    assert_eq!(at(3.0, square), 9.0);
    assert_eq!(at(3.0, |x| grad(x, square)), 6.0);
    assert_eq!(at(3.0, |x| forward(x, |x| grad(x, square))), 2.0);
    let secret = |x: &Tensor| opaque("secret", x, |x| x.sin());
    assert_eq!(at(0.0, secret), 0.0);
    for error in [error_of(|x| grad(x, |x| secret(x) * 2.0)), error_of(|x| forward(x, secret))] {
        let text = error.to_string();
        assert!(text.contains("cannot differentiate through `@secret`: it is opaque"), "{text}");
        assert!(text.contains("Give it a `custom_vjp` or mark it `stop_gradient`"), "{text}");
        assert!(text.contains("custom.rs:"), "{text}");
    }
    // An opaque function may occur where nothing is differentiated.
    assert_eq!(at(2.0, |x| grad(x, |y| y * secret(&x.zeros_like()) + y)), 1.0);
    // With a rule it is differentiable.
    let known = |x: &Tensor| {
        custom_vjp(x, |x| (secret(x), x.clone()), |x: &Tensor, ct: &Tensor| ct * x.cos())
    };
    assert_eq!(at(0.0, |x| grad(x, known)), 1.0);
    let text = error_of(|x| call("no name", x, Tensor::clone)).to_string();
    assert!(text.contains("is not a valid function name"), "{text}");
}

#[test]
fn results_of_a_rule_must_have_the_right_types() {
    let text = error_of(|x| {
        custom_vjp(x, |x| (x.sin(), ()), |(), ct: &Tensor| ct.broadcast_to(&[3usize.into()]))
    })
    .to_string();
    assert!(
        text.contains("the backward half's outputs have types (f64[3]), not (f64[])"),
        "{text}"
    );
    assert!(text.contains("custom.rs:"), "{text}");
    let text = error_of(|x| custom_jvp(x, |x| x.sin(), |_, _: &Tensor, t| t.convert(DType::F32)))
        .to_string();
    assert!(text.contains("the rule's outputs have types (f32[]), not (f64[])"), "{text}");
}

/// A rule survives printing and parsing, and applies when the parsed function is differentiated.
#[test]
fn rules_survive_the_text_and_hold_for_functions_of_files() {
    let build = |f: Scalar| {
        FunctionBuilder::build("f", |b| {
            let x = b.input("x", scalar());
            b.output("y", f(&x));
        })
        .unwrap()
    };
    for f in [tanh_j as Scalar, tanh_v as Scalar] {
        let text = build(f).to_string();
        let program = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(program.functions()[0].to_string(), text);
        let request = Grad { wrt: &["x"], ..Grad::default() };
        let gradient = grad_of_function(&program, "f", &request).unwrap().function;
        let y = 0.7f64.tanh();
        assert_close(&flat(&run(&gradient, &[0.7f64.into()])), &[1.0 - y * y], 1e-14, &text);
        let tangent = jvp_of_function(&program, "f", &Jvp { wrt: &["x"] }).unwrap().function;
        let got = flat(&run(&tangent, &[0.7f64.into(), 2.0f64.into()]));
        assert_close(&got, &[y, 2.0 * (1.0 - y * y)], 1e-14, &text);
        // The gradient is a normal function, which can be differentiated again.
        let program = Program::from_functions(vec![gradient]).unwrap();
        let second = grad_of_function(&program, "f_grad", &request).unwrap().function;
        assert_close(
            &flat(&run(&second, &[0.7f64.into()])),
            &[-2.0 * y * (1.0 - y * y)],
            1e-14,
            &text,
        );
    }
    // A rule written as text: the sign function gets the derivative 2.
    let text = "func @step(%x: f64[3]) -> (loss: f64[]) {
      %0: f64[3] = custom_vjp %x {function=@step}
        region (%a: f64[3]) { %b: f64[3] = sign %a return %b }
        region (%c: f64[3]) { %d: f64[3] = add %c, %c return %d }
      %1: f64[] = reduce_sum %0 {axes=[0]}
      return %1
    }";
    let program = parse_program(text, "step.ir").unwrap_or_else(|e| panic!("{e}"));
    let gradient =
        grad_of_function(&program, "step", &Grad { wrt: &["x"], ..Grad::default() }).unwrap();
    let x = Literal::from_vec(&[3], vec![-1.0, 0.0, 5.0]).unwrap();
    assert_eq!(flat(&run(&gradient.function, &[x])), [2.0, 2.0, 2.0]);
}
