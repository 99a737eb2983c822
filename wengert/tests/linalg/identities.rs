//! The defining identities of each factorization in f32 and f64, derivatives against finite
//! differences, a batch against its examples, and the size of the graph.

use super::{compute, doubles, draw, eye, function, places, spd, turned};
use wengert::core::Op;
use wengert::core::graph::Body;
use wengert::linalg::{
    cholesky, det, eigh, eigvalsh, inv, lu, matrix_exp, qr, slogdet, solve, svd, svdvals,
};
use wengert::prelude::*;

/// The greatest magnitude.
fn most(x: &Tensor) -> Tensor {
    x.abs().max_axes(&(0..x.rank()).collect::<Vec<_>>())
}

fn lower(x: &Tensor) -> Tensor {
    let (row, column) = places(x);
    row.ge(column).select(x, &x.zeros_like())
}

fn upper(x: &Tensor) -> Tensor {
    lower(&x.matrix_transpose()).matrix_transpose()
}

/// Deviation of the columns from orthonormality.
fn orthonormal(x: &Tensor) -> Tensor {
    let gram = x.matrix_transpose().dot(x);
    most(&(&gram - eye(&gram)))
}

/// A diagonal matrix.
fn diagonal(v: &Tensor) -> Tensor {
    let n = v.shape()[0].clone();
    let x = v.broadcast_in_dim(vec![n.clone(), n], &[1]);
    eye(&x) * x
}

/// The greatest violation of increasing order.
fn ascends(v: &Tensor) -> Tensor {
    let n = v.shape()[0].as_constant().unwrap();
    let (before, after) = (v.slice_axis(0, 0, n - 1), v.slice_axis(0, 1, n));
    if n == 1 { most(&v.zeros_like()) } else { most(&(before - after).max(0.0)) }
}

/// Names of identities and the amounts by which they are violated, for a matrix whose entries are
/// mostly of size 1.
fn violations(a: &Tensor) -> Vec<(&'static str, Tensor)> {
    let [m, n] = [0, 1].map(|i| a.shape()[i].as_constant().unwrap());
    let k = m.min(n);
    let mut all = Vec::new();
    let mut check = |name, amount: Tensor| all.push((name, amount));
    let (factors, _, permutation) = lu(a);
    let low = factors.slice_axis(1, 0, k);
    let l = lower(&low) + eye(&low) - eye(&low) * &low;
    check(
        "P·a = L·U",
        most(&(a.gather_rows(&permutation) - l.dot(&upper(&factors.slice_axis(0, 0, k))))),
    );
    check("|L| ≤ 1", (most(&l) - 1.0).max(0.0));
    for full in [false, true] {
        let (q, r) = qr(a, full);
        check("Q·R = a", most(&(q.dot(&r) - a)));
        check("QᵀQ = 1", orthonormal(&q));
        check("R is triangular", most(&(upper(&r) - &r)));
        let (u, s, vt) = svd(a, full);
        let (reduced_u, reduced_vt) = (u.slice_axis(1, 0, k), vt.slice_axis(0, 0, k));
        check("u·diag(s)·vt = a", most(&(reduced_u.dot(&diagonal(&s)).dot(&reduced_vt) - a)));
        check("uᵀu = 1", orthonormal(&u));
        check("vt·v = 1", orthonormal(&vt.matrix_transpose()));
        check("s descends", ascends(&-&s));
        check("s ≥ 0", most(&s.min(0.0)));
        check("svdvals", most(&(svdvals(a) - s)));
    }
    if m != n {
        return all;
    }
    let positive = spd(a);
    let l = cholesky(&positive);
    check("L·Lᵀ = a", most(&(l.dot(&l.matrix_transpose()) - &positive)));
    check("L is triangular", most(&(lower(&l) - &l)));
    let symmetric = a + a.matrix_transpose();
    let (w, v) = eigh(&symmetric);
    check(
        "v·diag(w)·vᵀ = a",
        most(&(v.dot(&diagonal(&w)).dot(&v.matrix_transpose()) - &symmetric)),
    );
    check("vᵀv = 1", orthonormal(&v));
    check("w ascends", ascends(&w));
    check("eigvalsh", most(&(eigvalsh(&symmetric) - w)));
    let regular = a + turned(a);
    check("a·inv(a) = 1", most(&(regular.dot(&inv(&regular)) - eye(a))));
    check("a·solve(a, b) = b", most(&(regular.dot(&solve(&regular, a)) - a)));
    let (sign, log) = slogdet(&regular);
    let value = det(&(&regular / 3.0));
    check("det = sign·exp(log)", (value / (sign * (log - n as f64 * 3f64.ln()).exp()) - 1.0).abs());
    let small = a / (n as f64);
    check("exp(a)·exp(−a) = 1", most(&(matrix_exp(&small).dot(&matrix_exp(&-&small)) - eye(a))));
    all
}

#[test]
fn factors_are_what_they_are_called() {
    let squares = [1, 2, 3, 8, 31, 32, 33, 65].map(|n| (n, n));
    for (number, (m, n)) in
        squares.into_iter().chain([(6, 4), (4, 6), (40, 33), (33, 40), (70, 3), (1, 5)]).enumerate()
    {
        for dtype in [DType::F32, DType::F64] {
            let a = draw(number as u64, &[m, n]).convert(dtype);
            let mut names = Vec::new();
            let amounts = compute(&[a], |x| {
                let (all, amounts): (Vec<_>, Vec<_>) = violations(&x[0]).into_iter().unzip();
                names = all;
                amounts
            });
            let epsilon = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
            for (name, amount) in names.iter().zip(&amounts) {
                let amount = amount.get(0).to_f64();
                assert!(
                    amount <= 60.0 * epsilon * (m.max(n) as f64 + 4.0),
                    "{name} of {m}×{n} {dtype}: {:.1} ε",
                    amount / epsilon
                );
            }
        }
    }
}

#[test]
fn pivots_are_the_exchanges_that_make_the_permutation() {
    let results = compute(&[draw(3, &[7, 5])], |x| {
        let (_, pivots, permutation) = lu(&x[0]);
        vec![pivots, permutation]
    });
    let numbers = |l: &Literal| doubles(l).into_iter().map(|v| v as usize).collect::<Vec<_>>();
    let mut rows: Vec<usize> = (0..7).collect();
    numbers(&results[0]).into_iter().enumerate().for_each(|(i, p)| rows.swap(i, p));
    assert_eq!(rows, numbers(&results[1]));
    assert_ne!(rows, (0..7).collect::<Vec<_>>());
}

type Function = fn(&Tensor) -> Vec<Tensor>;

/// Functions that do not depend on the signs of vectors.
const FUNCTIONS: &[(&str, Function)] = &[
    ("cholesky", |a| vec![cholesky(&spd(a))]),
    ("lu", |a| vec![lu(&(a + turned(a))).0]),
    ("qr", |a| {
        let (q, r) = qr(&(a + turned(a)), false);
        vec![q, r]
    }),
    ("eigh", |a| {
        let (w, v) = eigh(&(a + super::ramp(a, 1.0) * 3.0));
        vec![w, &v * &v]
    }),
    ("svd", |a| {
        let (u, s, vt) = svd(&(a + super::ramp(a, 1.0) * 3.0), false);
        vec![&u * &u, s, &vt * &vt]
    }),
    ("solve", |a| vec![solve(&(a + turned(a)), &(a * a))]),
    ("inv", |a| vec![inv(&(a + turned(a)))]),
    ("det", |a| vec![det(&(a + turned(a)))]),
    ("slogdet", |a| vec![slogdet(&(a + turned(a))).1]),
    ("matrix_exp", |a| vec![matrix_exp(a), matrix_exp(&(a * 9.0)) / 1000.0]),
];

#[test]
fn derivatives_are_those_of_differences() {
    let (a, t, h) = (draw(11, &[4, 4]), draw(12, &[4, 4]), 1e-3);
    for (name, f) in FUNCTIONS {
        let results = compute(&[a.clone(), t.clone()], |x| {
            let at = |s: f64| f(&(&x[0] + &x[1] * s));
            let tangent = jvp(&x[0], &x[1], f).1;
            let steps = [at(-2.0 * h), at(-h), at(h), at(2.0 * h)];
            let difference = |i: usize| {
                ((&steps[2][i] - &steps[1][i]) * 8.0 - (&steps[3][i] - &steps[0][i])) / (12.0 * h)
            };
            (0..tangent.len()).flat_map(|i| [difference(i), tangent[i].clone()]).collect()
        });
        for pair in results.chunks(2) {
            let (difference, tangent) = (doubles(&pair[0]), doubles(&pair[1]));
            let scale = difference.iter().fold(1.0f64, |s, v| s.max(v.abs()));
            for (d, t) in difference.iter().zip(&tangent) {
                assert!((d - t).abs() <= 1e-8 * scale, "{name}: {t}, by differences {d}");
            }
        }
    }
}

#[test]
fn a_batch_is_each_of_its_examples() {
    let a = draw(21, &[2, 3, 5, 5]);
    for (name, f) in FUNCTIONS {
        // Leading axes, a map, and the derivative of a map.
        let all = compute(std::slice::from_ref(&a), |x| {
            let nested = |a: &Tensor| vmap(a, |a| vmap(a, f));
            let gradient = |a: &Tensor| {
                grad(a, |a| f(a).iter().map(|y| (y * y).sum()).reduce(|s, t| s + t).unwrap())
            };
            let mapped = nested(&x[0]);
            let gradients = vmap(&x[0], |a| vmap(a, gradient));
            let each = |g: &dyn Fn(&Tensor) -> Tensor| {
                let one = |i: usize| {
                    x[0].slice_axis(0, i / 3, i / 3 + 1)
                        .slice_axis(1, i % 3, i % 3 + 1)
                        .reshape([5usize, 5])
                };
                let parts: Vec<Tensor> = (0..6)
                    .map(|i| {
                        let y = g(&one(i));
                        y.reshape([Dim::constant(1)].into_iter().chain(y.shape().iter().cloned()))
                    })
                    .collect();
                Tensor::concatenate(&parts.iter().collect::<Vec<_>>(), 0)
            };
            let mut pairs = vec![gradients.flatten(0), each(&gradient).flatten(0)];
            for (i, y) in mapped.iter().enumerate() {
                pairs.extend([y.flatten(0), each(&|a| f(a).swap_remove(i)).flatten(0)]);
            }
            pairs
        });
        for pair in all.chunks(2) {
            let (batch, each) = (doubles(&pair[0]), doubles(&pair[1]));
            let scale = each.iter().fold(1.0f64, |s, v| s.max(v.abs()));
            for (b, e) in batch.iter().zip(&each) {
                assert!((b - e).abs() <= 1e-12 * scale, "{name}: {b} in a batch, {e} by itself");
            }
        }
    }
}

#[test]
fn leading_axes_are_a_batch() {
    let a = draw(31, &[2, 3, 4, 4]);
    let results = compute(&[a], |x| {
        let a = &x[0]
            + turned(&x[0].slice_axis(0, 0, 1).slice_axis(1, 0, 1).reshape([4usize, 4]))
                .broadcast_to(x[0].shape());
        let b = a.slice_axis(3, 0, 1).reshape([2usize, 3, 4]);
        let (factors, pivots, permutation) = lu(&a);
        let mapped = vmap(&a, |a| vmap(a, lu));
        let (sign, log) = slogdet(&a);
        vec![
            solve(&a, &b),
            inv(&a).slice_axis(3, 0, 1).reshape([2usize, 3, 4]) * 0.0
                + vmap(&(a.clone(), b.clone()), |(a, b)| solve(a, b)),
            factors,
            mapped.0,
            pivots,
            mapped.1,
            permutation,
            mapped.2,
            sign * log.exp(),
            det(&a),
        ]
    });
    for pair in results.chunks(2) {
        assert_eq!(pair[0].ty(), pair[1].ty());
        for (x, y) in doubles(&pair[0]).iter().zip(doubles(&pair[1])) {
            assert!((x - y).abs() <= 1e-12 * y.abs().max(1.0), "{x} and {y}");
        }
    }
}

/// The number of equations in a body and its regions.
fn count(body: &Body) -> usize {
    body.equations.iter().map(|e| 1 + e.regions.iter().map(|r| count(r)).sum::<usize>()).sum()
}

/// The number of calls of a function with a custom rule.
fn calls(body: &Body, name: &str) -> usize {
    let of = |e: &wengert::core::graph::Equation| {
        let this = matches!(&e.op, Op::CustomJvp(op) if op.function.0 == name);
        usize::from(this) + e.regions.iter().map(|r| calls(r, name)).sum::<usize>()
    };
    body.equations.iter().map(of).sum()
}

#[test]
fn a_graph_does_not_grow_with_the_matrix_and_a_derivative_does_not_factorize_again() {
    for (name, f) in FUNCTIONS {
        let gradient = |n: usize| {
            let ty = TensorType::new(DType::F64, [n, n]);
            function(&[ty], |x| {
                let all = |a: &Tensor| f(a).iter().map(|y| y.sum()).reduce(|s, t| s + t).unwrap();
                let (value, gradient) = value_and_grad(&x[0], all);
                vec![value, gradient]
            })
            .unwrap()
        };
        let (small, large) = (gradient(65).body, gradient(701).body);
        assert_eq!(count(&small), count(&large), "{name}");
        let once = calls(&gradient(65).body, name);
        assert!(once <= 1 + usize::from(*name == "matrix_exp"), "{name} is called {once} times");
    }
}
