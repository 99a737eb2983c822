//! Kronecker factors against loops over images, labels and weights; inverses; and the progress of
//! natural gradient descent in few steps.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use ndarray::{Array1, Array2, ArrayView2, Ix2};
use python_free_examples::digits::{digits, inputs};
use python_free_examples::kfac::{Mlp, factors, inverse, program};
use wengert::prelude::*;

fn matrix(literal: &Literal) -> Array2<f64> {
    let view: ArrayView2<f32> =
        literal.as_array::<f32>().unwrap().into_dimensionality::<Ix2>().unwrap();
    view.mapv(f64::from)
}

fn near(found: &Literal, expected: &Array2<f64>) {
    let found = matrix(found);
    let greatest = expected.iter().fold(0.0f64, |g, v| g.max(v.abs()));
    assert_eq!(found.dim(), expected.dim());
    for ((i, j), expected) in expected.indexed_iter() {
        let error = (found[[i, j]] - expected).abs();
        assert!(error < 1e-5 * greatest, "({i}, {j}): {} instead of {expected}", found[[i, j]]);
    }
}

/// For each image and each label, weighted with the label's probability: backpropagation by hand,
/// and an outer product.
fn by_loops(x: &Array2<f64>, layers: &[Array2<f64>; 2]) -> [Array2<f64>; 4] {
    let [first, second] = layers;
    let (hidden, classes) = (first.ncols(), second.ncols());
    let mut results =
        [first.nrows(), hidden, second.nrows(), classes].map(|n| Array2::<f64>::zeros((n, n)));
    let mut add = |which: usize, v: &Array1<f64>, weight: f64| {
        for (i, a) in v.iter().enumerate() {
            for (j, b) in v.iter().enumerate() {
                results[which][[i, j]] += weight * a * b / x.nrows() as f64;
            }
        }
    };
    let with_one = |v: Array1<f64>| v.iter().copied().chain([1.0]).collect::<Array1<f64>>();
    for image in x.rows() {
        let input = with_one(image.to_owned());
        let inner = with_one(input.dot(first).mapv(f64::tanh));
        let exponentials = inner.dot(second).mapv(f64::exp);
        let p = &exponentials / exponentials.sum();
        add(0, &input, 1.0);
        add(2, &inner, 1.0);
        for label in 0..classes {
            let slope = Array1::from_shape_fn(classes, |c| f64::from(u8::from(c == label)) - p[c]);
            let slope_inner = Array1::from_shape_fn(hidden, |h| {
                second.row(h).dot(&slope) * (1.0 - inner[h] * inner[h])
            });
            add(1, &slope_inner, p[label]);
            add(3, &slope, p[label]);
        }
    }
    results
}

#[test]
fn factors_are_those_of_loops() {
    let mut program = Program::new();
    program
        .function("factors", |f| {
            let x = f.input("x", f32("B,64"));
            let model = f.param("model", Mlp::new(&[64, 12, 10]));
            for (i, layer) in factors(&model, &x).iter().enumerate() {
                f.output(&format!("inputs.{i}"), &layer.inputs);
                f.output(&format!("sums.{i}"), &layer.sums);
            }
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 3).unwrap();
    let [(_, images), _] = inputs(&digits().unwrap(), "test").unwrap();
    let images =
        Literal::from_vec(&[40, 64], images.as_slice::<f32>().unwrap()[..40 * 64].to_vec())
            .unwrap();
    let found = session
        .compile(&program, "factors", bind!(B = 40))
        .unwrap()
        .run(&[("x", &images)])
        .unwrap();
    let layers =
        ["model.layers.0", "model.layers.1"].map(|name| matrix(&session.variable(name).unwrap()));
    let expected = by_loops(&matrix(&images), &layers);
    for (name, expected) in ["inputs.0", "sums.0", "inputs.1", "sums.1"].into_iter().zip(&expected)
    {
        near(found.get(name).unwrap(), expected);
    }
}

#[test]
fn inverses_are_as_exact_as_rounding_lets_them_be() {
    // 1/(i + j + 1), Hilbert's matrix, with 1e-3 added to the diagonal: its eigenvalues go from
    // 0.001 to 1.8.
    let m = Array2::from_shape_fn((20, 20), |(i, j)| {
        1.0 / (i + j + 1) as f32 + if i == j { 1e-3 } else { 0.0 }
    });
    let mut program = Program::new();
    program
        .function("inverse", |f| {
            let m = f.input("m", f32([20, 20]));
            f.output("inverse", inverse(&m));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut run = session.compile(&program, "inverse", bind!()).unwrap();
    let found = run.run(&[("m", Literal::from_array(&m))]).unwrap();
    let product = matrix(found.get("inverse").unwrap()).dot(&m.mapv(f64::from));
    let missing = (Array2::<f64>::eye(20) - product).iter().fold(0.0f64, |g, v| g.max(v.abs()));
    assert!(missing < 1e-3, "{missing}");
}

#[test]
fn a_few_steps_are_worth_many_of_gradient_descent() {
    let digits = digits().unwrap();
    let (train, test) = (inputs(&digits, "train").unwrap(), inputs(&digits, "test").unwrap());
    let losses = |name: &str, rate: f64, steps: usize| -> (Vec<f64>, f64) {
        let program = program(&[64, 32, 10], 0.03, rate).unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        session.initialize(&program, 1).unwrap();
        let mut step = session.compile(&program, name, bind!(B = 1437)).unwrap();
        let losses =
            (0..steps).map(|_| step.run(&train).unwrap().scalar("loss").unwrap()).collect();
        let mut accuracy = session.compile(&program, "accuracy", bind!(B = 360)).unwrap();
        (losses, accuracy.run(&test).unwrap().scalar("accuracy").unwrap())
    };
    let (kfac, accuracy) = losses("kfac_step", 1.0, 20);
    assert!(kfac[19] < 1e-3, "{kfac:?}");
    assert!(kfac.windows(2).all(|l| l[1] <= l[0]), "no step makes it worse: {kfac:?}");
    assert!(accuracy > 0.96, "{accuracy}");
    // Five times as many steps of gradient descent leave a loss at least five times greater, with
    // each of four rates.
    for rate in [0.5, 1.0, 2.0, 4.0] {
        let (sgd, _) = losses("sgd_step", rate, 100);
        assert!(sgd[99] > 5.0 * kfac[19], "rate {rate}: {}, K-FAC {}", sgd[99], kfac[19]);
    }
}
