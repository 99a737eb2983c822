//! Values, derivatives in both modes, and second derivatives against JAX in double precision.
//! `generate.py` wrote the results, and draws the points in the same way as this file.

use super::{doubles, draw, function, ramp, run, spd, turned};
use std::collections::BTreeMap;
use std::path::PathBuf;
use wengert::linalg::{
    TriangularSolve, cholesky, det, eigh, inv, lu, matrix_exp, qr, slogdet, solve, svd,
    triangular_solve,
};
use wengert::prelude::*;

type Case = (String, Box<dyn Fn(&[Tensor]) -> Vec<Tensor>>, Vec<Vec<usize>>);

/// Signs that make the first row of a matrix non-negative.
fn signs(x: &Tensor) -> Tensor {
    let first = x.slice_axis(0, 0, 1);
    first.lt(0.0).select(&first.full_like(-1.0), &first.ones_like())
}

const SIZES: [usize; 5] = [1, 2, 5, 8, 33];

/// The cases of `generate.py`, in its order.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name: String, shapes: &[&[usize]], f: fn(&[Tensor]) -> Vec<Tensor>| {
        cases.push((name, Box::new(f), shapes.iter().map(|s| s.to_vec()).collect()));
    };
    let shapes = SIZES.map(|n| (n, n));
    for n in SIZES.into_iter().chain([70]) {
        add(format!("cholesky_{n}"), &[&[n, n]], |x| vec![cholesky(&spd(&x[0]))]);
    }
    for n in SIZES {
        let square: &[usize] = &[n, n];
        add(format!("eigh_{n}"), &[square], |x| {
            let (w, v) = eigh(&(&x[0] * 0.3 + ramp(&x[0], 1.0)));
            vec![w, &v * signs(&v)]
        });
        add(format!("inv_{n}"), &[square], |x| vec![inv(&(&x[0] + turned(&x[0])))]);
        add(format!("det_{n}"), &[square], |x| vec![det(&(&x[0] * 0.4 + turned(&x[0]) / 3.0))]);
        add(format!("slogdet_{n}"), &[square], |x| {
            let (sign, log) = slogdet(&(&x[0] + turned(&x[0])));
            vec![sign, log]
        });
        let solved = |x: &[Tensor]| vec![solve(&(&x[0] + turned(&x[0])), &x[1])];
        add(format!("solve_{n}"), &[square, &[n, 3]], solved);
        add(format!("solve_vector_{n}"), &[square, &[n]], solved);
        add(format!("matrix_exp_{n}"), &[square], |x| vec![matrix_exp(&x[0])]);
    }
    add("matrix_exp_scaled_0".into(), &[&[4, 4]], |x| vec![matrix_exp(&(&x[0] * 0.0))]);
    add("matrix_exp_scaled_0.001".into(), &[&[4, 4]], |x| vec![matrix_exp(&(&x[0] * 1e-3))]);
    add("matrix_exp_scaled_3".into(), &[&[4, 4]], |x| vec![matrix_exp(&(&x[0] * 3.0))]);
    add("matrix_exp_scaled_20".into(), &[&[4, 4]], |x| vec![matrix_exp(&(&x[0] * 20.0))]);
    for (m, n) in shapes.into_iter().chain([(5, 3), (3, 5), (40, 35), (35, 40), (70, 70)]) {
        add(format!("lu_{m}_{n}"), &[&[m, n]], |x| {
            let (lu, pivots, permutation) = lu(&(&x[0] + turned(&x[0])));
            vec![lu, pivots, permutation]
        });
        add(format!("qr_{m}_{n}"), &[&[m, n]], |x| {
            let (q, r) = qr(&x[0], false);
            vec![q, r]
        });
    }
    for (m, n) in shapes.into_iter().chain([(5, 3), (3, 5), (40, 35), (35, 40)]) {
        add(format!("svd_{m}_{n}"), &[&[m, n]], |x| {
            let (u, s, vt) = svd(&(&x[0] * 0.3 + ramp(&x[0], 1.0)), false);
            let signs = signs(&u);
            vec![&u * &signs, s, vt * signs.matrix_transpose()]
        });
    }
    let mut triangular: Vec<Case> = Vec::new();
    for bits in 0..16 {
        let [left_side, lower, transpose_a, unit_diagonal] =
            [1, 2, 4, 8].map(|bit| bits & bit != 0);
        for n in [5, 70] {
            if n == 70 && ![0, 3, 6, 13].contains(&bits) {
                continue;
            }
            let f = move |x: &[Tensor]| {
                let a = &x[0] * 0.3 + ramp(&x[0], 2.0) / n as f64;
                let options = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
                vec![triangular_solve(&a, &x[1], options)]
            };
            let b = if left_side { vec![n, 3] } else { vec![3, n] };
            triangular.push((
                format!("triangular_solve_{bits}_{n}"),
                Box::new(f),
                vec![vec![n, n], b],
            ));
        }
    }
    triangular.extend(cases);
    triangular
}

/// The part of an array that the file keeps.
fn kept(values: Vec<f64>) -> Vec<f64> {
    if values.len() > 200 { values.into_iter().step_by(13).collect() } else { values }
}

#[test]
fn values_and_derivatives_are_those_of_jax() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/linalg/jax.npz");
    let wanted: BTreeMap<String, Literal> =
        wengert::data::read_all(&path).unwrap().into_iter().collect();
    let (mut compared, mut worst) = (0, (0.0, String::new()));
    for (number, (name, f, shapes)) in cases().into_iter().enumerate() {
        let mut part = 0;
        let mut next = |shape: &[usize]| {
            part += 1;
            draw(1000 * (number as u64 + 1) + part - 1, shape)
        };
        let x: Vec<Literal> = shapes.iter().map(|s| next(s)).collect();
        let t: Vec<Literal> = shapes.iter().map(|s| next(s)).collect();
        let types: Vec<TensorType> = x.iter().map(Literal::ty).collect();
        let mut keys: Vec<String> = Vec::new();
        let built = function(&types, |x| {
            let mut results = Vec::new();
            let mut give = |key: &str, tensors: Vec<Tensor>| {
                keys.extend((0..tensors.len()).map(|i| format!("{name}.{key}{i}")));
                results.extend(tensors);
            };
            let y = f(x);
            let of_floats = |v: &Vec<Tensor>| -> Vec<Tensor> {
                f(v).into_iter().filter(|t| t.dtype().is_float()).collect()
            };
            let floats = y.iter().filter(|t| t.dtype().is_float());
            let extents = |t: &Tensor| -> Vec<usize> {
                t.shape().iter().map(|d| d.as_extent().unwrap()).collect()
            };
            let c: Vec<Tensor> = floats.map(|t| Tensor::constant(next(&extents(t)))).collect();
            give("y", y);
            let t: Vec<Tensor> = t.iter().cloned().map(Tensor::constant).collect();
            let x = x.to_vec();
            give("ydot", jvp(&x, &t, of_floats).1);
            let pull = |v: &Vec<Tensor>| vjp(v, of_floats).1(&c);
            let (xbar, second) = jvp(&x, &t, pull);
            give("xbar", xbar);
            give("second", second);
            results
        });
        let built = built.unwrap_or_else(|e| panic!("{name}: {e}"));
        let small = shapes.iter().flatten().all(|n| *n <= 8);
        for device in [Device::Cpu, Device::Interpreter].into_iter().take(if small { 2 } else { 1 })
        {
            for (key, got) in keys.iter().zip(run(&built, device, &x)) {
                let (got, wanted) = (kept(doubles(&got)), doubles(&wanted[key]));
                assert_eq!(got.len(), wanted.len(), "{key}");
                let scale = wanted.iter().fold(0f64, |s, v| s.max(v.abs())).max(1e-3);
                for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                    let error = (got - wanted).abs() / scale;
                    assert!(
                        error <= 1e-11,
                        "{key}[{i}] on {device}: {got:e}, not {wanted:e}, of {scale:e}"
                    );
                    compared += 1;
                    if error > worst.0 {
                        worst = (error, format!("{key}[{i}] on {device}"));
                    }
                }
            }
        }
    }
    println!(
        "{compared} numbers; error at most {:.2e} of the array's greatest ({})",
        worst.0, worst.1
    );
    assert!(compared > 20_000, "{compared}");
}
