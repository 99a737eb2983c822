//! Programs with control flow and their derivatives against JAX in double precision.

use super::{Tally, arrays};
use wengert::control::{
    associative_scan, associative_scan_reverse, cond, fold, fori, fori_upto, map, scan,
    scan_checkpointed, scan_reverse, switch, while_at_most, while_checkpointed,
};
use wengert::prelude::*;

/// The point: a state h[3], a series x[5,3], a matrix w[3,3] and an i32.
struct At<'a> {
    h: &'a Tensor,
    x: &'a Tensor,
    w: &'a Tensor,
    n: &'a Tensor,
}

fn number(i: i32) -> Tensor {
    Tensor::constant(i)
}

fn row(x: &Tensor, i: i32) -> Tensor {
    x.dynamic_index_in_dim(&number(i), 0)
}

fn float(i: &Tensor) -> Tensor {
    i.convert(DType::F64).broadcast_in_dim(vec![3usize.into()], &[])
}

/// h·w
fn times(h: &Tensor, w: &Tensor) -> Tensor {
    h.reshape([1usize, 3]).dot(w).reshape([3usize])
}

fn above(x: &Tensor, bound: f64) -> Tensor {
    x.gt(Tensor::constant(bound))
}

type Program = fn(&At<'_>) -> Vec<Tensor>;

fn recurrent_step(at: &At<'_>, h: &Tensor, x: &Tensor) -> (Tensor, Tensor) {
    let h = (times(h, at.w) + x).tanh();
    (h.clone(), &h * x)
}

fn halving_step(at: &At<'_>, h: &Tensor) -> Tensor {
    h.sin() * 0.7 + row(at.x, 0).tanh() * 0.1 * h
}

fn halving_goes_on(h: &Tensor) -> Tensor {
    above(&(h * h).sum(), 0.05)
}

const PROGRAMS: &[(&str, Program)] = &[
    ("recurrent", |at| {
        let (last, all) = scan(at.h, at.x, |h, x| recurrent_step(at, h, x));
        vec![last, all]
    }),
    ("recurrent", |at| {
        let (last, all) = scan_checkpointed(2, at.h, at.x, |h, x| recurrent_step(at, h, x));
        vec![last, all]
    }),
    ("backwards", |at| {
        let init = (at.h.clone(), row(at.w, 1));
        let ((a, b), all) = scan_reverse(&init, at.x, |(a, b), x| {
            (((a * row(at.w, 0) + b).sin(), a * x), (-(a * a)).exp())
        });
        vec![a, b, all]
    }),
    ("counted", |at| {
        vec![fori(6usize, at.h, |i, h| (h * row(at.w, 0) + float(i) * row(at.x, 1)).sin())]
    }),
    ("bounded", |at| {
        vec![fori_upto(at.n, 5usize, at.h, |i, h| {
            (times(h, at.w) + at.x.dynamic_index_in_dim(i, 0)).tanh()
        })]
    }),
    ("mapped", |at| {
        let (a, b) = map(at.x, |x| {
            let product = at.w.dot(&x.reshape([3usize, 1])).reshape([3usize]);
            (product.exp(), (x * at.h).sum())
        });
        vec![a, b]
    }),
    ("folded", |at| vec![fold(at.h, at.x, |h, x| h.sin() * x + row(at.w, 2))]),
    ("chosen", |at| {
        let first = row(at.h, 0);
        let then = cond(&above(&first, -10.0), || times(at.h, at.w).sin(), || at.h * at.h);
        let other =
            cond(&above(&first, 10.0), || times(at.h, at.w).sin(), || at.h * at.h * row(at.x, 0));
        vec![then, other]
    }),
    ("switched", |at| {
        let way = |i: i32| {
            let ways: Vec<Box<dyn FnOnce() -> Tensor>> = vec![
                Box::new(|| at.h.sin()),
                Box::new(|| times(at.h, at.w)),
                Box::new(|| at.h * row(at.x, 0)),
                Box::new(|| at.h.clone()),
            ];
            switch(&(at.n + i), ways)
        };
        (-3..3).map(way).collect()
    }),
    ("nested", |at| {
        let (last, all) = scan(at.h, at.x, |h, x| {
            let inner = fori(3usize, h, |i, d| (times(d, at.w) + x).sin() + float(i) * h);
            let inner = cond(&above(&inner.sum(), 0.0), || &inner * x, || inner.cos());
            (inner.clone(), inner.sum())
        });
        vec![last, all]
    }),
    ("halving", |at| vec![while_at_most(20usize, at.h, halving_goes_on, |h| halving_step(at, h))]),
    ("halving", |at| vec![while_checkpointed(3, at.h, halving_goes_on, |h| halving_step(at, h))]),
    ("prefixes", |at| {
        let compose =
            |f: &(Tensor, Tensor), g: &(Tensor, Tensor)| (&g.0 * &f.0, &g.0 * &f.1 + &g.1);
        let along = |v: &Tensor| v.broadcast_in_dim(at.x.shape().to_vec(), &[1]);
        let forward = associative_scan(&(at.x.sin(), at.x * along(at.h)), compose);
        let backward =
            associative_scan_reverse(&(at.x.cos(), at.x * along(&row(at.w, 0))), compose);
        vec![forward.0, forward.1, backward.0, backward.1]
    }),
];

#[test]
fn control_flow_and_its_derivatives_are_those_of_jax() {
    let arrays = arrays("control.npz");
    let mut tally = Tally::default();
    for (name, program) in PROGRAMS {
        let types: Vec<TensorType> = (0..4).map(|i| arrays[&format!("{name}.x{i}")].ty()).collect();
        let f = |v: &[Tensor]| program(&At { h: &v[0], x: &v[1], w: &v[2], n: &v[3] });
        tally.compare(name, &types, &f, &arrays);
    }
    tally.report();
    assert!(tally.compared > 1000, "{}", tally.compared);
}
