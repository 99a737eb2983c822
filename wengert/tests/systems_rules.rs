//! What earlier systems could do with derivatives that the user gives: rows of the table in `docs/differentiation.md`, beside
//! `systems.rs`.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use wengert::core::graph::Function;
use wengert::core::interpret;
use wengert::core::op::Op;
use wengert::operators::{call, opaque};
use wengert::prelude::*;

fn build(count: usize, f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Function> {
    FunctionBuilder::build("f", |b| {
        let x: Vec<Tensor> = (0..count).map(|i| b.input(&format!("x{i}"), f64(""))).collect();
        for (i, y) in f(&x).iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    })
}

fn at<const N: usize>(x: [f64; N], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<f64> {
    let inputs: Vec<Literal> = x.into_iter().map(Literal::from).collect();
    let results = interpret::run(&build(N, f).unwrap_or_else(|e| panic!("{e}")), &inputs).unwrap();
    results.iter().flat_map(|l| l.scalars().map(|s| s.to_f64()).collect::<Vec<_>>()).collect()
}

fn count(f: &Function, op: &str) -> usize {
    f.body.equations.iter().filter(|e| e.op.name() == op).count()
}

/// The adjoint of Swift's example: from the input, the result and the seed.
#[test]
fn a5_a_custom_adjoint_of_a_primitive_from_input_result_and_seed() {
    let tanh = |x: &Tensor| {
        custom_vjp(
            x,
            |x| {
                let y = x.tanh();
                (y.clone(), (x.clone(), y))
            },
            |(x, y): &(Tensor, Tensor), seed: &Tensor| seed * (1.0 - y * y) + x * 0.0,
        )
    };
    let x = 0.4f64;
    let exact = 1.0 - x.tanh() * x.tanh();
    let [value, first, second] =
        at([x], |v| vec![tanh(&v[0]), grad(&v[0], tanh), grad(&v[0], |x| grad(x, tanh))])[..]
    else {
        panic!("three results")
    };
    assert!((value - x.tanh()).abs() < 1e-15 && (first - exact).abs() < 1e-15);
    assert!((second + 2.0 * x.tanh() * exact).abs() < 1e-15);
}

/// A custom primal keeps what it chooses: here nothing but a sign, for |x|·x.
#[test]
fn a6_a_custom_primal_with_checkpoints_of_ones_choice() {
    let f = |x: &Tensor| custom_vjp(x, |x| (x.abs(), x.sign()), |sign: &Tensor, seed: &Tensor| seed * sign);
    assert_eq!(at([-3.0], |v| vec![f(&v[0]), grad(&v[0], f)]), [3.0, -1.0]);
    // What is not differentiated keeps nothing.
    let function = build(1, |v| vec![f(&v[0])]).unwrap();
    assert_eq!((function.body.equations.len(), count(&function, "sign")), (1, 0));
}

#[test]
fn a9_what_is_opaque_is_an_error_with_both_places() {
    let error =
        build(1, |v| vec![grad(&v[0], |x| opaque("table", x, |x| x.floor()) * 2.0)]).unwrap_err().to_string();
    assert!(error.contains("cannot differentiate through `@table`: it is opaque"), "{error}");
    assert!(error.contains("custom_vjp") && error.contains("stop_gradient"), "{error}");
    assert_eq!(error.matches("systems_rules.rs:").count(), 2, "{error}");
    // Cut off, it is no obstacle.
    let cut = |x: &Tensor| opaque("table", &x.stop_gradient(), |x| x.floor()) * x;
    assert_eq!(at([2.5], |v| vec![grad(&v[0], cut)]), [2.0]);
}

/// The adjoint is a closure in the primal's scope: what that has computed stays at hand.
#[test]
fn a12_inline_adjoints_that_see_the_values_around_them() {
    let [value, gradient] = at([3.0, 2.0], |v| {
        let scale = v[1].exp();
        let f = |x: &Tensor| custom_vjp(x, |x| (x * &scale, ()), |(), seed: &Tensor| seed * &scale * 10.0);
        vec![f(&v[0]), grad(&v[0], f)]
    })[..] else {
        panic!("two results")
    };
    assert!((value - 3.0 * 2f64.exp()).abs() < 1e-12 && (gradient - 10.0 * 2f64.exp()).abs() < 1e-12);
    let function = build(2, |v| {
        let scale = v[1].exp();
        vec![grad(&v[0], |x| custom_vjp(x, |x| (x * &scale, ()), |(), ct: &Tensor| ct * &scale))]
    });
    assert_eq!(count(&function.unwrap(), "exp"), 1, "the value is not computed again");
}

/// Surgery: a gradient is clipped at every step of an unrolled recurrence, so it does not explode.
#[test]
fn a14_the_gradient_is_clipped_inside_an_unrolled_recurrence() {
    let recurrence = |clip: bool| {
        move |w: &Tensor| {
            (0..50).fold(Tensor::constant(1.0f64), |h, _| {
                let h = &h * w;
                if clip { with_derivative(&h, |ct| ct.clamp(-1.0, 1.0)) } else { h }
            })
        }
    };
    let [exploding, clipped] =
        at([2.0], |v| vec![grad(&v[0], recurrence(false)), grad(&v[0], recurrence(true))])[..]
    else {
        panic!("two results")
    };
    assert_eq!(exploding, 50.0 * 2f64.powi(49));
    // Each step has the cotangent 1 (2 without clipping), times the state before it.
    assert_eq!(clipped, (0..50).map(|k| 2f64.powi(k)).sum::<f64>());
    // Compiled, nothing is left of the surgery but the clipping.
    let mut program = Program::new();
    program
        .function("f", |f| {
            let w = f.input("w", f64(""));
            f.output("d", grad(&w, recurrence(true)));
        })
        .unwrap();
    for device in [Device::Cpu, Device::Emulator] {
        let mut session = Session::open(device).unwrap();
        let d =
            session.compile(&program, "f", bind!()).unwrap().run(&[("w", Literal::from(2.0f64))]).unwrap();
        assert_eq!(d.scalar("d").unwrap(), clipped, "{device}");
    }
}

/// A cotangent is a tangent: the conversion is the identity, so a step of gradient descent is `move_along`.
#[test]
fn b2_a_cotangent_is_taken_for_a_tangent() {
    let moved = at([3.0], |v| {
        let gradient = grad(&v[0], |x: &Tensor| x * x);
        vec![v[0].move_along(&(gradient * -0.1))]
    });
    assert!((moved[0] - 2.4).abs() < 1e-15);
}

/// Each call is replaced by its value and its pullback; what the pullback needs is kept, typed.
#[test]
fn e1_calls_become_values_and_pullbacks_with_typed_residuals() {
    let function = build(1, |v| {
        let (y, differential) =
            linearize(&v[0], |x: &Tensor| call("g", x, |x| x.sin()) * call("h", x, |x| x.exp()));
        let linear = differential.linear().unwrap();
        assert!(linear.residuals.iter().all(|r| r.ty() == v[0].ty()));
        // cos x, eˣ and sin x times eˣ: the residuals of two calls and of their product.
        assert!((3..=4).contains(&linear.residuals.len()), "{}", linear.residuals.len());
        vec![y, differential.pull_back(&Tensor::constant(1.0f64))]
    })
    .unwrap();
    let x = 0.7f64;
    let results = interpret::run(&function, &[x.into()]).unwrap();
    assert!((results[1].get(0).to_f64() - (x.cos() + x.sin()) * x.exp()).abs() < 1e-14);
}

/// A primitive is one definition, and differentiation does not look into it: neither into an op nor into a function with a rule.
#[test]
fn e3_primitives_are_added_by_one_definition_where_recursion_stops() {
    for entry in Op::catalogue() {
        assert!(!entry.derivative.is_empty() && !entry.samples.is_empty(), "{}", entry.name);
    }
    // My own primitive: its value by a loop that nobody could differentiate well, its derivative in closed form.
    let root = |x: &Tensor| {
        custom_jvp(
            x,
            |x| (0..40).fold(x.clone(), |y, _| (&y + x / &y) * 0.5),
            |_, y: &Tensor, t| t / (y * 2.0),
        )
    };
    let [value, first, second] =
        at([9.0], |v| vec![root(&v[0]), grad(&v[0], root), grad(&v[0], |x| grad(x, root))])[..]
    else {
        panic!("three results")
    };
    assert!((value - 3.0).abs() < 1e-15 && (first - 1.0 / 6.0).abs() < 1e-15);
    assert!((second + 0.25 / 27.0).abs() < 1e-15);
    let function = build(1, |v| vec![grad(&v[0], root)]).unwrap();
    assert!(function.body.equations.len() < 10, "the loop is not differentiated\n{function}");
}
