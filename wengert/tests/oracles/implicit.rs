//! Solutions of equations and their derivatives against JAX in double precision, which uses other
//! solvers.

use super::{Tally, arrays};
use wengert::control::{fori, while_loop};
use wengert::linalg::Cg;
use wengert::operators::{TransposeSolve, custom_linear_solve, custom_root};
use wengert::prelude::*;

type Map<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// 4x + sin(w)·x
fn map_of(w: &Tensor) -> impl Fn(&Tensor) -> Tensor {
    let w = w.sin();
    move |x| x * 4.0 + w.dot(x)
}

/// 2x + wᵀ·w·x
fn symmetric_map_of(w: &Tensor) -> impl Fn(&Tensor) -> Tensor {
    let (w, transposed) = (w.clone(), w.matrix_transpose());
    move |x| x * 2.0 + transposed.dot(&w.dot(x))
}

/// x ← x + (b − A·x)/4 until it converges.
fn iterate(map: Map<'_>, b: &Tensor) -> Tensor {
    let step = |(x, _): &(Tensor, Tensor)| {
        let off = (b - map(x)) * 0.25;
        (x + &off, off.abs().max_axes(&[0]))
    };
    let init = (b.zeros_like(), Tensor::constant(1.0));
    while_loop(&init, |(_, off)| off.gt(1e-16), step).0
}

fn fixed(map: Map<'_>, b: &Tensor) -> Tensor {
    fori(100usize, b, |_, x| x + (b - map(x)) * 0.2)
}

fn row(x: &Tensor, i: usize) -> Tensor {
    x.slice_axis(0, i, i + 1).reshape(x.shape()[1..].to_vec())
}

fn exact<'a, B>() -> Cg<'a, B> {
    Cg { tol: 1e-15, ..Cg::default() }
}

type Program = fn(&Tensor, &Tensor) -> Vec<Tensor>;

const PROGRAMS: &[(&str, Program)] = &[
    ("solved", |b, w| {
        vec![custom_linear_solve(map_of(w), &(b * row(w, 0)), iterate, TransposeSolve::Same)]
    }),
    ("solved", |b, w| {
        vec![custom_linear_solve(map_of(w), &(b * row(w, 0)), iterate, TransposeSolve::By(&fixed))]
    }),
    ("symmetric", |b, w| {
        vec![custom_linear_solve(symmetric_map_of(w), &b.cos(), fixed, TransposeSolve::Symmetric)]
    }),
    ("gradients", |b, w| vec![exact().solve(symmetric_map_of(w), &b.cos())]),
    ("prepared", |b, w| {
        let diagonal = (w * w).sum_axes(&[0]) + 2.0;
        let prepare = |x: &Tensor| x / &diagonal;
        vec![
            Cg { x0: Some(b), preconditioner: Some(&prepare), ..exact() }
                .solve(symmetric_map_of(w), &b.cos()),
        ]
    }),
    ("trees", |b, w| {
        let along = |x: Tensor, like: &Tensor| x.broadcast_in_dim(like.shape().to_vec(), &[]);
        let map = |(x, y): &(Tensor, Tensor)| {
            (x * 3.0 + w * along(y.sum(), w), y * 5.0 + along((w * x).sum(), y))
        };
        let (x, y) = exact().solve(map, &(w * b.broadcast_to(w.shape()), b.sin()));
        vec![x, y]
    }),
    ("root", |b, w| {
        let solve = |f: Map<'_>, x: &Tensor| {
            let step = |(x, _): &(Tensor, Tensor)| {
                let off = f(x);
                (x - &off, off.abs().max_axes(&[0]))
            };
            while_loop(&(x.clone(), Tensor::constant(1.0)), |(_, off)| off.gt(1e-16), step).0
        };
        // 1 − tanh′·w is solved by its normal equations.
        let tangent_solve = |g: Map<'_>, c: &Tensor| {
            let back = |y: &Tensor| transpose(c, |x: &Tensor| g(x))(y);
            exact().solve(|x| back(&g(x)), &back(c))
        };
        vec![custom_root(|x| x - (w.dot(x) + b).tanh(), &b.zeros_like(), solve, tangent_solve)]
    }),
];

#[test]
fn implicit_functions_and_their_derivatives_are_those_of_jax() {
    let arrays = arrays("implicit.npz");
    let mut tally = Tally::default();
    for (name, program) in PROGRAMS {
        let types: Vec<TensorType> = (0..2).map(|i| arrays[&format!("{name}.x{i}")].ty()).collect();
        tally.compare(name, &types, &|v| program(&v[0], &v[1]), &arrays);
    }
    tally.report();
    assert!(tally.compared > 400, "{}", tally.compared);
}
