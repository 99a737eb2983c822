//! Functions called by name, which are differentiated once for all of their calls; and closures as
//! values.

use wengert_compiler::autodiff::list::{WengertList, trace};
use wengert_compiler::autodiff::operators::{grad, jvp, vjp};
use wengert_compiler::autodiff::rules;
use wengert_core::graph::{Body, Function, parse_program};
use wengert_core::{DType, Differentiable, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;

type List = WengertList<Tensor, Tensor>;

fn layer() -> List {
    trace(&number(0.0), |x| (x.tanh() * 1.5 - x.square() * 0.25).sin())
        .unwrap()
        .named("layer")
        .unwrap()
}

/// The number of equations in the text: each function counts once.
fn written(f: &Function) -> usize {
    fn count(body: &Body) -> usize {
        let regions =
            body.equations.iter().filter(|e| e.op.callee().is_none()).flat_map(|e| &e.regions);
        body.equations.len() + regions.map(|r| count(r)).sum::<usize>()
    }
    count(&f.body) + f.body.callees().iter().map(|c| count(c.body)).sum::<usize>()
}

fn names(f: &Function) -> Vec<String> {
    f.body.callees().iter().map(|c| c.name.to_string()).collect()
}

fn value(f: &Function, x: f64) -> f64 {
    run(f, &[Literal::from(x)])[0].get(0).to_f64()
}

#[test]
fn a_function_is_differentiated_once() {
    let layer = layer();
    let calls = |n: usize| {
        build(&[scalar()], |x| vec![grad(&x[0], |x| (0..n).fold(x.clone(), |x, _| layer.call(&x)))])
    };
    let (one, two, ten) = (calls(1), calls(2), calls(10));
    assert_eq!(names(&ten), ["layer.forward", "layer.pullback"]);
    // Another call adds one equation forward and one backward.
    assert_eq!(written(&ten) - written(&two), 2 * 8);
    assert_eq!(written(&two) - written(&one), 2);
    let inline = build(&[scalar()], |x| {
        vec![grad(&x[0], |x| {
            (0..10).fold(x.clone(), |x, _| (x.tanh() * 1.5 - x.square() * 0.25).sin())
        })]
    });
    assert_eq!(value(&ten, 0.3), value(&inline, 0.3));
    // The text contains each function once, and parses back.
    let text = ten.to_string();
    assert_eq!(text.matches("func @layer.forward").count(), 1);
    assert_eq!(parse_program(&text, "f.ir").unwrap().functions()[0].to_string(), text);
}

#[test]
fn functions_of_functions_stay_small_at_any_order() {
    // fₙ₊₁ calls fₙ twice, so f₆ has 64 layers when inlined. (Its pullback still keeps the
    // residuals of 64 layers.)
    let tower = |depth: usize| {
        (0..depth).fold(layer(), |f, n| {
            let twice = trace(&number(0.0), |x| f.call(&f.call(x)) * 0.5).unwrap();
            twice.named(&format!("twice{n}")).unwrap()
        })
    };
    let sizes = |depth: usize| {
        let f = tower(depth);
        let first = build(&[scalar()], |x| vec![grad(&x[0], |x| f.call(x))]);
        let second = build(&[scalar()], |x| vec![grad(&x[0], |x| grad(x, |x| f.call(x)))]);
        let along =
            build(&[scalar()], |x| vec![jvp(&x[0], &number(1.0), |x| grad(x, |x| f.call(x))).1]);
        [written(&first), written(&second), written(&along)]
    };
    let (two, four, six) = (sizes(2), sizes(4), sizes(6));
    for i in 0..3 {
        assert_eq!(six[i] - four[i], four[i] - two[i], "{two:?} {four:?} {six:?}");
    }
    // The values are right as well.
    let inline = |x: &Tensor, f: &dyn Fn(&Tensor) -> Tensor| f(&f(x)) * 0.5;
    let plain = |x: &Tensor| (x.tanh() * 1.5 - x.square() * 0.25).sin();
    let f = tower(2);
    let second = |f: &dyn Fn(&Tensor) -> Tensor| {
        build(&[scalar()], |x| vec![grad(&x[0], |x| grad(x, |x| f(x)))])
    };
    let by_name = value(&second(&|x| f.call(x)), 0.3);
    let in_place = value(&second(&|x| inline(x, &|x| inline(x, &plain))), 0.3);
    assert!((by_name - in_place).abs() < 1e-14 * in_place.abs(), "{by_name} {in_place}");
}

#[test]
fn too_deep_or_too_large_functions_are_refused_where_they_are_called() {
    let error = |f: &dyn Fn(&Tensor) -> wengert_core::Result<Tensor>| {
        let built = wengert_core::build::FunctionBuilder::build("f", |b| {
            let x = b.input("x", scalar());
            b.output("y", f(&x).unwrap_or_else(Tensor::poisoned));
        });
        built.unwrap_err().to_string()
    };
    let deep = error(&|x| {
        let mut f = layer();
        for _ in 0..200 {
            f = trace(&number(0.0), |x| f.call(x).neg())?.named("g")?;
        }
        Ok(f.call(x))
    });
    assert!(deep.contains("functions call functions more than 100 deep"), "{deep}");
    assert!(deep.contains("calls.rs:"), "{deep}");
    let large = error(&|x| {
        let mut f = layer();
        for _ in 0..40 {
            f = trace(&number(0.0), |x| f.call(&f.call(x)))?.named("g")?;
        }
        Ok(f.call(x))
    });
    assert!(large.contains("it may have at most 16777216"), "{large}");
}

#[test]
fn only_what_varies_is_differentiated() {
    // The two calls differ in the arguments that vary, so there are two pairs of forward and
    // pullback.
    let product = trace(&(number(0.0), number(0.0)), |(a, b)| a.exp() * b.sin()).unwrap();
    let product = product.named("product").unwrap();
    let f = build(&[scalar(), scalar()], |x| {
        let both = (x[0].clone(), x[1].clone());
        let by_first = grad(&x[0], |a| product.call(&(a.clone(), x[1].clone())));
        let (a, b) = grad(&both, |x| product.call(x));
        vec![by_first, a, b]
    });
    assert_eq!(
        names(&f),
        ["product.forward", "product.pullback", "product.forward.2", "product.pullback.2"]
    );
    let results = run(&f, &[Literal::from(0.5), Literal::from(0.7)]);
    assert_eq!(results[0], results[1]);
    assert_eq!(results[1].get(0).to_f64(), 0.5f64.exp() * 0.7f64.sin());
    assert_eq!(results[2].get(0).to_f64(), 0.5f64.exp() * 0.7f64.cos());
}

#[test]
fn one_name_means_one_body() {
    let f = build(&[scalar()], |x| {
        let a = rules::call("f", &x[0], |x| x.sin());
        let b = rules::call("f", &a, |x| x.sin());
        vec![rules::call("f", &b, |x| x.cos())]
    });
    // The first two compute the same, so they are one function, although they are at different
    // places of the source.
    assert_eq!(names(&f), ["f", "f.2"]);
    let sine = |x: &Tensor| rules::call("f", x, |x| x.sin());
    let g = build(&[scalar()], |x| vec![sine(&sine(&x[0]))]);
    assert_eq!(names(&g), ["f"]);
}

#[test]
fn the_cotangent_of_a_closure_is_that_of_what_it_captured() {
    #[derive(Differentiable)]
    #[differentiable(crate = wengert_core, synthesize = ModelTangent)]
    struct Model {
        activation: List,
        weight: Tensor,
    }
    let f = build(&[scalar(), scalar(), scalar()], |v| {
        let slope = v[0].exp();
        let activation =
            trace(&number(0.0), |x| x.tanh() * &slope).unwrap().named("activation").unwrap();
        let model = Model { activation, weight: v[1].clone() };
        let paths: Vec<String> = model.tensors().iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(paths, ["activation.0", "weight"]);
        let (y, pullback) =
            vjp(&model, |m| m.activation.call(&m.activation.call(&(&v[2] * &m.weight))));
        let cotangent = pullback(&number(1.0));
        vec![y, cotangent.activation[0].clone(), cotangent.weight]
    });
    let (a, w, x) = (0.3f64, 0.8f64, 1.1f64);
    let results: Vec<f64> =
        run(&f, &[a.into(), w.into(), x.into()]).iter().map(|l| l.get(0).to_f64()).collect();
    let s = a.exp();
    let (h, dh) = ((x * w).tanh(), 1.0 - (x * w).tanh().powi(2));
    let (g, dg) = ((s * h).tanh(), 1.0 - (s * h).tanh().powi(2));
    let expected = [s * g, g + s * dg * h, s * dg * s * dh * x];
    for (found, expected) in results.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-14, "{results:?} {expected:?}");
    }
    // The pullback does not recompute the value.
    let count = |f: &Function, name: &str| {
        let all = f.body.callees();
        let of = |b: &Body| b.equations.iter().filter(|e| e.op.name() == name).count();
        of(&f.body) + all.iter().map(|c| of(c.body)).sum::<usize>()
    };
    assert_eq!((count(&f, "tanh"), count(&f, "exp")), (1, 1));
}

#[test]
fn a_closure_is_chosen_at_run_time_and_differentiated() {
    let types = [TensorType::scalar(DType::I32), scalar(), scalar(), scalar()];
    let f = build(&types, |v| {
        let (a, b, x) = (&v[1], &v[2], &v[3]);
        let gradient = grad(&(a.clone(), b.clone()), |(a, b)| {
            let scale = trace(&number(0.0), |x| x * a).unwrap();
            let power = trace(&number(0.0), |x| x.square() * b).unwrap().named("power").unwrap();
            let chosen = WengertList::choose(&v[0], &[scale, power]).unwrap();
            chosen.call(&chosen.call(x))
        });
        vec![gradient.0, gradient.1]
    });
    let at = |n: i32| -> Vec<f64> {
        let inputs = [Literal::from(n), 2.0.into(), 3.0.into(), 5.0.into()];
        run(&f, &inputs).iter().map(|l| l.get(0).to_f64()).collect()
    };
    // The chosen functions applied twice: a²x and b³x⁴. The index is clamped.
    assert_eq!(
        (at(0), at(1), at(7)),
        (vec![20.0, 0.0], vec![0.0, 27.0 * 625.0], vec![0.0, 27.0 * 625.0])
    );
    let message = |error: wengert_core::Diagnostic| error.to_string();
    let one = trace(&number(0.0), |x| x.neg()).unwrap();
    let none: &[List] = &[];
    assert!(
        message(WengertList::choose(&number(0.0), none).unwrap_err())
            .contains("no list to choose from")
    );
    let other = trace(&Tensor::constant(0.0f32), |x| x.neg()).unwrap();
    let error = message(WengertList::choose(&number(0.0), &[one.clone(), other]).unwrap_err());
    assert!(error.contains("list 1 has another signature than list 0"), "{error}");
    let error = message(WengertList::choose(&number(0.0), &[one.clone(), one]).unwrap_err());
    assert!(error.contains("i32"), "{error}");
}

#[test]
fn an_argument_of_another_type_is_no_partial_application() {
    let f = trace(&(number(0.0), number(0.0)), |(a, b)| a * b).unwrap();
    let error = f.partial(&Tensor::constant(0.0f32)).unwrap_err().to_string();
    assert!(error.contains("tensors of types (f32[]), the list was traced on (f64[])"), "{error}");
    assert!(f.named("3f").unwrap_err().to_string().contains("`3f` is not a valid function name"));
}
