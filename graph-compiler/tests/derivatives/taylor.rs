//! Taylor mode, against known series, nested forward mode and exact power series; and its cost.

use super::jet::Jet;
use wengert_compiler::autodiff::operators::{grad, jet, jvp, nth_derivative};
use wengert_core::graph::Function;
use wengert_core::interpret::{Array, Cell, Cells, Real};
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::derivative::*;
use wengert_testing::samples;
use wengert_testing::smooth;
use wengert_testing::{Random, Rational};

/// The derivatives of orders 1 to `n` of `f` at `x`.
fn derivatives(n: usize, x: f64, f: impl Fn(&Tensor) -> Tensor) -> Vec<f64> {
    let function = line(n, f);
    flat(&run(&function, &[Literal::from(x)])[1..])
}

/// A function of one scalar: the value of `f` and its first `n` derivatives.
fn line(n: usize, f: impl Fn(&Tensor) -> Tensor) -> Function {
    build(&[scalar()], |x| {
        let series: Vec<Tensor> =
            (0..n).map(|k| if k == 0 { x[0].ones_like() } else { x[0].zeros_like() }).collect();
        let (value, derivatives) = jet(&x[0], &series, |x| f(x));
        [vec![value], derivatives].concat()
    })
}

#[test]
fn the_series_of_exp_of_sin_is_known() {
    // e^(sin x) at 0 is 1 + x + x²/2 − x⁴/8 − x⁵/15 − …, so the derivatives are 1, 1, 0, −3, −8, −3
    // (OEIS A002017).
    assert_eq!(derivatives(6, 0.0, |x| x.sin().exp()), [1.0, 1.0, 0.0, -3.0, -8.0, -3.0]);
    // At any other point by Faà di Bruno's formula: with s and c for sin x and cos x,
    // e^s · (c, c² − s, c³ − 3sc − c, …).
    let x = 0.7f64;
    let (s, c) = x.sin_cos();
    let known = [
        c,
        c * c - s,
        c.powi(3) - 3.0 * s * c - c,
        c.powi(4) - 6.0 * s * c * c + 3.0 * s * s - 4.0 * c * c + s,
        c.powi(5) - 10.0 * s * c.powi(3) + 15.0 * s * s * c - 10.0 * c.powi(3) + 15.0 * s * c + c,
    ];
    let known: Vec<f64> = known.iter().map(|k| k * s.exp()).collect();
    assert_close(&derivatives(5, x, |x| x.sin().exp()), &known, 1e-14, "exp ∘ sin");
}

#[test]
fn series_of_elementary_functions_are_known() {
    let x = 0.3f64;
    // dᵏ/dxᵏ log x = (−1)ᵏ⁻¹ (k−1)! x⁻ᵏ
    let log: Vec<f64> =
        (1..=8).map(|k| (1..k).map(|i| -(i as f64)).product::<f64>() * x.powi(-k)).collect();
    let found = derivatives(8, x, Tensor::log);
    found.iter().zip(&log).for_each(|(f, l)| assert_close(&[f / l], &[1.0], 1e-14, "log"));
    // dᵏ/dxᵏ 1/x = (−1)ᵏ k! x⁻ᵏ⁻¹
    let inverse: Vec<f64> =
        (1..=8).map(|k| (1..=k).map(|i| -(i as f64)).product::<f64>() * x.powi(-k - 1)).collect();
    for (name, f) in
        [("reciprocal", (|x| x.reciprocal()) as fn(&Tensor) -> Tensor), ("div", |x| 1.0 / x)]
    {
        let found = derivatives(8, x, f);
        found.iter().zip(&inverse).for_each(|(f, l)| assert_close(&[f / l], &[1.0], 1e-14, name));
    }
    // dᵏ/dxᵏ √x = Π (1/2 − i) · x^(1/2−k)
    let root: Vec<f64> = (1..=8)
        .map(|k| (0..k).map(|i| 0.5 - i as f64).product::<f64>() * x.powf(0.5 - k as f64))
        .collect();
    let found = derivatives(8, x, Tensor::sqrt);
    found.iter().zip(&root).for_each(|(f, l)| assert_close(&[f / l], &[1.0], 1e-13, "sqrt"));
}

#[test]
fn a_curve_may_bend() {
    // f(x(s)) with x(s) = 2 + 3s + 5s²/2 + 7s³/6 is the composition. For x² it is x·x by Leibniz.
    let types = vec![scalar(); 4];
    let f = build(&types, |x| jet(&x[0], &x[1..], |x| x * x).1);
    let inputs: Vec<Literal> = [2.0, 3.0, 5.0, 7.0].map(Literal::from).to_vec();
    let (x, a, b, c) = (2.0, 3.0, 5.0, 7.0);
    assert_eq!(
        flat(&run(&f, &inputs)),
        [2.0 * x * a, 2.0 * x * b + 2.0 * a * a, 2.0 * x * c + 6.0 * a * b]
    );
}

#[test]
fn the_nth_derivative_is_a_tensor_like_any_other() {
    assert_eq!(at(1.5, |x| nth_derivative(0, x, |x| x * x)), 2.25);
    assert_eq!(at(1.5, |x| nth_derivative(2, x, |x| x * x * x)), 9.0);
    assert_eq!(at(1.5, |x| nth_derivative(7, x, |x| x * x * x)), 0.0);
    // `nth_derivative` can be differentiated, and nested in itself.
    assert_eq!(at(1.5, |x| grad(x, |x| nth_derivative(2, x, |x| x * x * x))), 6.0);
    assert_eq!(
        at(1.5, |x| nth_derivative(2, x, |x| nth_derivative(2, x, |x| x * x * x * x))),
        24.0
    );
    assert_eq!(at(0.0, |x| nth_derivative(3, x, |x| grad(x, |x| x.sin()))), 0.0);
    let tanh = |x: &Tensor| x.tanh();
    let nested = at(0.3, |x| grad(x, |x| grad(x, |x| grad(x, |x| grad(x, tanh)))));
    assert_close(&[at(0.3, |x| nth_derivative(4, x, tanh))], &[nested], 1e-14, "tanh⁗");
}

/// Dᵏf(x)[t, …, t] by nested forward mode.
fn nested(
    k: usize,
    x: &[Tensor],
    t: &[Tensor],
    f: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
) -> Vec<Tensor> {
    if k == 0 {
        return f(x);
    }
    jvp(&x.to_vec(), &t.to_vec(), |x: &Vec<Tensor>| nested(k - 1, x, t, f)).1
}

#[test]
fn every_op_has_the_series_that_nested_forward_mode_gives() {
    const ORDER: usize = 4;
    let mut random = Random(0x7a71);
    let mut compared = 0;
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            let x = sample.literals(DType::F64, random.bits());
            let types: Vec<TensorType> = x.iter().map(Literal::ty).collect();
            let regions = sample.regions(&types);
            let results = sample.op.infer(&types, &regions).unwrap();
            let floats: Vec<TensorType> =
                types.iter().filter(|t| t.dtype.is_float()).cloned().collect();
            if floats.is_empty() || !results.iter().any(|t| t.dtype.is_float()) {
                continue;
            }
            // Some samples have narrow floats. Their results differ by rounding, so they are left
            // out.
            if types.iter().chain(&results).any(|t| t.dtype.is_float() && t.dtype != DType::F64) {
                continue;
            }
            let t: Vec<Literal> = floats.iter().map(|ty| random.literal(ty)).collect();
            let all: Vec<TensorType> = types.iter().chain(&floats).cloned().collect();
            let program = |x: &[Tensor], others: &[Tensor]| {
                let (mut x, mut others) = (x.iter(), others.iter());
                let pick = types
                    .iter()
                    .map(|ty| if ty.dtype.is_float() { x.next() } else { others.next() });
                let operands: Vec<&Tensor> = pick.map(Option::unwrap).collect();
                let results = Tensor::apply_with(sample.op.clone(), &operands, regions.clone());
                results.into_iter().filter(|t| t.dtype().is_float()).collect::<Vec<_>>()
            };
            let function = |by_jet: bool| {
                build(&all, |values| {
                    let (values, t) = values.split_at(types.len());
                    let (x, others): (Vec<_>, Vec<_>) =
                        values.iter().cloned().partition(|v| v.dtype().is_float());
                    let program = |x: &[Tensor]| program(x, &others);
                    if !by_jet {
                        return (1..=ORDER).flat_map(|k| nested(k, &x, t, &program)).collect();
                    }
                    let zeros: Vec<Tensor> = t.iter().map(Tensor::zeros_like).collect();
                    let series: Vec<Vec<Tensor>> = (0..ORDER)
                        .map(|k| if k == 0 { t.to_vec() } else { zeros.clone() })
                        .collect();
                    jet(&x, &series, |x: &Vec<Tensor>| program(x)).1.concat()
                })
            };
            let inputs = [x, t].concat();
            let (jets, nested) =
                (flat(&run(&function(true), &inputs)), flat(&run(&function(false), &inputs)));
            let what = format!("{} {:?}", entry.name, sample.op);
            assert_eq!(jets.len(), nested.len(), "{what}");
            // The tolerance is relative to the greatest element of each order.
            let each = jets.len() / ORDER;
            for k in 0..ORDER {
                let (a, b) = (&jets[k * each..][..each], &nested[k * each..][..each]);
                let nan = |v: &[f64]| v.iter().map(|v| v.is_finite()).collect::<Vec<_>>();
                assert_eq!(nan(a), nan(b), "{what}, order {}", k + 1);
                let scale =
                    a.iter().chain(b).filter(|v| v.is_finite()).fold(1.0f64, |s, v| s.max(v.abs()));
                for (a, b) in a.iter().zip(b).filter(|(a, _)| a.is_finite()) {
                    assert!(
                        (a - b).abs() <= 1e-11 * scale,
                        "{what}, order {}: {a} and {b}, of {scale}",
                        k + 1
                    );
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared} samples");
}

#[test]
fn series_of_rational_programs_are_exact() {
    let mut curved = 0;
    for seed in 1..40u64 {
        let mut random = Random(seed);
        let mut rational = || Rational::new(random.below(9) as i64 - 4, random.below(3) as i64 + 1);
        let program = smooth::random(seed, 3 + seed as usize % 6, false);
        let count = smooth::ty().elements().unwrap();
        let point: Vec<Vec<Rational>> =
            (0..8).map(|_| (0..count).map(|_| rational()).collect()).collect();
        let ty = smooth::ty();
        let array = |cells: &[Rational]| {
            let cells = Cells::collect(cells.iter().cloned().map(Cell::Real)).unwrap();
            Array::new(ty.dtype, ty.extents().unwrap(), cells)
        };

        // Two inputs, each along x + a·s + b·s²/2 + c·s³/6.
        let primal = build(&vec![ty.clone(); 2], |x| vec![program(x)]);
        let number = |i: i64| Rational::new(i, 1).0;
        let jets: Vec<Array<Jet>> = (0..2)
            .map(|i| {
                let curve = |at: usize| {
                    let [x, a, b, c] = std::array::from_fn(|k| point[2 * k + i][at].0.clone());
                    Jet([x, a, b / number(2), c / number(6)])
                };
                let cells = Cells::collect((0..count).map(|at| Cell::Real(curve(at)))).unwrap();
                Array::new(ty.dtype, ty.extents().unwrap(), cells)
            })
            .collect();
        let expected = run_on(&primal, &jets);
        let f = build(&vec![ty.clone(); 8], |v| {
            let series: Vec<Vec<Tensor>> = v[2..].chunks(2).map(<[Tensor]>::to_vec).collect();
            let (value, series) = jet(&v[..2].to_vec(), &series, |x: &Vec<Tensor>| program(x));
            [vec![value], series].concat()
        });
        let found = run_on(&f, &point.iter().map(|c| array(c)).collect::<Vec<_>>());
        for (k, factorial) in [1, 1, 2, 6].into_iter().enumerate() {
            for (jet, found) in expected[0].cells.iter().zip(found[k].cells.iter()) {
                let expected = Rational(&jet.real().0[k] * number(factorial));
                assert_eq!(*found.real(), expected, "program {seed}, order {k}");
                curved += (k == 3 && !Real::is_zero(found.real())) as usize;
            }
        }
    }
    // A test of zeros would show little.
    assert!(curved >= 100, "{curved} elements have a third derivative");
}

/// The exponent of the power law by which the number of equations grows with the order, from order
/// 16 to 32.
fn growth(f: impl Fn(&Tensor) -> Tensor) -> f64 {
    let count = |n| line(n, &f).body.equations.len() as f64;
    (count(32) / count(16)).log2()
}

#[test]
fn the_number_of_equations_is_quadratic_in_the_order() {
    for (name, f) in [
        ("exp ∘ sin", (|x| x.sin().exp()) as fn(&Tensor) -> Tensor),
        ("tanh", Tensor::tanh),
        ("div", |x| x.cos() / (x * x + 1.0)),
        ("logistic ∘ log", |x| x.log().logistic()),
        ("sqrt", |x| (x * x + 1.0).sqrt()),
        ("erf ∘ atan2", |x| x.atan2(1.0 + x).erf()),
        ("rsqrt", Tensor::rsqrt),
    ] {
        let growth = growth(f);
        assert!(growth < 2.2, "{name}: doubling the order multiplies the equations by 2^{growth}");
    }
    // Each derivative of a power is another power.
    assert!(growth(|x| x.pow(x)) < 3.2);
    // The number of equations is linear in the length of the program.
    let chain =
        |m: usize| line(6, |x| (0..m).fold(x.clone(), |y, _| y.tanh())).body.equations.len();
    assert_eq!(chain(9) - chain(8), chain(5) - chain(4));
}

#[test]
fn a_function_that_occurs_twice_is_solved_once() {
    let count =
        |f: &Function, name| f.body.equations.iter().filter(|e| e.op.name() == name).count();
    let f = line(5, |x| x.sin() + x.cos());
    assert_eq!((count(&f, "sin"), count(&f, "cos")), (1, 1));
    let f = line(5, Tensor::tanh);
    assert_eq!(count(&f, "tanh"), 1);
}

#[test]
fn a_zero_derivative_annihilates_in_series_too() {
    let log_or_zero = |x: &Tensor| x.gt(0.0).select(&x.log(), &x.zeros_like());
    assert_eq!(derivatives(4, 0.0, log_or_zero), [0.0; 4]);
    // Along a constant curve no derivative is infinite: √x, x^½ and 1/x at 0.
    let still = build(&[scalar()], |x| {
        let zeros = vec![x[0].zeros_like(); 3];
        let f = |x: &Tensor| vec![x.sqrt(), x.log(), x.reciprocal(), 1.0 / x, x.abs()];
        jet(&x[0], &zeros, f).1.concat()
    });
    assert_eq!(flat(&run(&still, &[Literal::from(0.0)])), [0.0; 15]);
}

#[test]
fn mistakes_in_a_series_say_which_order_and_where() {
    use wengert_core::build::FunctionBuilder;
    let error = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F64, [3usize]));
        let wrong = f.input("wrong", TensorType::new(DType::F64, [2usize]));
        let (_, series) = jet(&x, &[x.clone(), wrong], |x| x.exp());
        f.output("y", &series[1]);
    });
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains(
            "order 2 of the series: the derivative has type f64[2], the value has f64[3]"
        ),
        "{text}"
    );
    assert_eq!(text.matches("taylor.rs:").count(), 3, "{text}");
    let error = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F64, [3usize]));
        f.output("y", nth_derivative(2, &x, |x| x.exp()));
    });
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("nth_derivative needs a closure of a float scalar; this one is of f64[3]"),
        "{text}"
    );
    assert!(text.contains("taylor.rs:"), "{text}");
}
