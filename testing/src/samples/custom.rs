//! Ops that run a user's function, and identities.

use super::prelude::*;
use wengert_core::build::control::{fori, scan, scan_reverse, while_loop};
use wengert_core::op::{
    Checkpoint, CheckpointName, CustomJvp, CustomLinearSolve, CustomVjp, FunctionCall,
    FunctionName, OptimizationBarrier, Probe, ProbeKind,
};

pub(super) fn samples() -> Vec<Sample> {
    [probe(), call(), checkpoint(), identities(), custom_jvp(), custom_vjp(), custom_linear_solve()]
        .concat()
}

fn probe() -> Vec<Sample> {
    let probe = |kind| Probe { kind, name: "h".into() };
    vec![
        Sample::new(probe(ProbeKind::Print), vec![floats(&[2, 3], -2.0, 2.0)]),
        Sample::new(probe(ProbeKind::Print), vec![values(&[2], [1i32, -2])]),
        Sample::new(probe(ProbeKind::Finite), vec![floats(&[2, 3], -2.0, 2.0)]),
    ]
}

fn call() -> Vec<Sample> {
    let call = FunctionCall { function: FunctionName("f".into()), opaque: false };
    let operands = vec![floats(&[3], 0.5, 2.0), floats(&[3], -2.0, 2.0)];
    let regions = |types: &[TensorType]| vec![region(types, |x| vec![&x[0] * &x[1], x[0].log()])];
    vec![Sample::with_regions(call, operands, regions)]
}

fn checkpoint() -> Vec<Sample> {
    let regions = |types: &[TensorType]| {
        let named = |x: Tensor| Tensor::apply(CheckpointName { name: "h".into() }, &[&x]);
        vec![region(types, |x| {
            let hidden = named(x[0].dot(&x[1]).tanh());
            vec![hidden.sin() * &hidden, hidden.exp().sum()]
        })]
    };
    let operands = || vec![floats(&[2, 3], -1.0, 1.0), floats(&[3, 2], -1.0, 1.0)];
    let sample = |op| Sample::with_regions(op, operands(), regions);
    vec![
        sample(Checkpoint::nothing()),
        sample(Checkpoint::dots()),
        sample(Checkpoint::names(&["h"])),
        sample(Checkpoint::all_but_names(&["h"])),
    ]
}

fn identities() -> Vec<Sample> {
    let named = || CheckpointName { name: "h".into() };
    let operands = || [floats(&[2, 3], -2.0, 2.0), values(&[2], [1i32, -2])];
    let names = operands().map(|x| Sample::new(named(), vec![x]));
    names
        .into_iter()
        .chain(operands().map(|x| Sample::new(OptimizationBarrier {}, vec![x])))
        .collect()
}

fn custom_jvp() -> Vec<Sample> {
    let op = |captures| CustomJvp { captures, function: FunctionName("f".into()) };
    // y = x·exp(c), with its true derivative.
    let regions = |types: &[TensorType]| {
        let [x, c] = types else { return vec![] };
        let rule = region(&[x.clone(), c.clone(), x.clone(), x.clone()], |v| {
            vec![v[3].scaled_by(&v[1].convert(v[0].dtype()).exp())]
        });
        vec![region(types, |v| vec![&v[0] * v[1].convert(v[0].dtype()).exp()]), rule]
    };
    // Two arguments, one of integers, and two results.
    let mixed = |types: &[TensorType]| {
        let [x, n] = types else { return vec![] };
        let rule = region(&[x.clone(), n.clone(), x.clone(), n.clone(), x.clone()], |v| {
            vec![v[4].scaled_by(&v[0].cos())]
        });
        vec![region(types, |v| vec![v[0].sin(), &v[1] + &v[1]]), rule]
    };
    vec![
        Sample::with_regions(op(0), vec![floats(&[3], -1.0, 1.0), values(&[2], [3i32, -4])], mixed),
        Sample::with_regions(
            op(1),
            vec![floats(&[3], -1.0, 1.0), values(&[3], [1i32, 2, -1])],
            regions,
        ),
    ]
}

fn custom_vjp() -> Vec<Sample> {
    let op =
        |captures, residuals| CustomVjp { captures, function: FunctionName("f".into()), residuals };
    // tanh, with its result as the residual.
    let tanh = |types: &[TensorType]| {
        let forward = region(types, |v| {
            let y = v[0].tanh();
            vec![y.clone(), y]
        });
        let backward = |v: &[Tensor]| vec![v[1].scaled_by(&(1.0 - v[0].square()))];
        vec![forward, region(&[types[0].clone(), types[0].clone()], backward)]
    };
    // (x·w, Σx) with a captured factor and an integer argument.
    let mixed = |types: &[TensorType]| {
        let [x, _, w] = types else { return vec![] };
        let forward = region(types, |v| {
            vec![&v[0] * v[2].convert(v[0].dtype()), v[1].clone(), v[0].sum(), v[2].clone()]
        });
        let taken = [w.clone(), x.clone(), TensorType::scalar(x.dtype)];
        let backward = region(&taken, |v| {
            vec![&v[1] * v[0].convert(v[1].dtype()) + v[2].broadcast_to(v[1].shape())]
        });
        vec![forward, backward]
    };
    let integers = || values(&[2], [3i32, -4]);
    vec![
        Sample::with_regions(op(0, 1), vec![floats(&[2, 3], -1.0, 1.0)], tanh),
        Sample::with_regions(
            op(1, 1),
            vec![floats(&[3], -1.0, 1.0), integers(), values(&[3], [1i32, 2, -1])],
            mixed,
        ),
    ]
}

fn custom_linear_solve() -> Vec<Sample> {
    let op = |captures, symmetric| CustomLinearSolve { captures, symmetric };
    let near = |shape: &[usize]| floats(shape, -1.0, 1.0);
    vec![
        Sample::with_regions(
            op(2, true),
            vec![near(&[2, 3]), floats(&[3], 1.0, 2.0), values(&[], [2i32])],
            diagonal,
        ),
        Sample::with_regions(
            op(2, false),
            vec![near(&[4]), floats(&[4], 1.0, 2.0), floats(&[4], -0.5, 0.5)],
            bidiagonal,
        ),
        Sample::with_regions(
            op(3, false),
            vec![near(&[2]), near(&[2]), near(&[2]), near(&[2]), near(&[2])],
            coupled,
        ),
        Sample::with_regions(op(0, true), vec![near(&[0])], |types| {
            vec![region(types, |v| vec![&v[0] * 2.0]), region(types, |v| vec![&v[0] * 0.5])]
        }),
    ]
}

/// A diagonal matrix times an integer, on each row.
fn diagonal(types: &[TensorType]) -> Vec<Region> {
    let [b, ..] = types else { return vec![] };
    let scale = |v: &[Tensor]| {
        let n = v[2].convert(v[1].dtype()).broadcast_in_dim(v[1].shape().to_vec(), &[]);
        (&v[1] * n).broadcast_in_dim(b.shape.clone(), &[1])
    };
    vec![region(types, |v| vec![&v[0] * scale(v)]), region(types, |v| vec![&v[0] / scale(v)])]
}

/// dᵢ·xᵢ + lᵢ·xᵢ₋₁, solved by substitution: a scan, and a reverse scan for the transpose.
fn bidiagonal(types: &[TensorType]) -> Vec<Region> {
    let before = |x: &Tensor| x.pad(&[(1, -1)], 0.0);
    let behind = |x: &Tensor| x.pad(&[(-1, 1)], 0.0);
    let step = |last: &Tensor, (b, d, l): &(Tensor, Tensor, Tensor)| {
        let x = (b - l * last) / d;
        (x.clone(), x)
    };
    let zero = |v: &[Tensor]| Tensor::zeros(&TensorType::scalar(v[0].dtype()));
    vec![
        region(types, |v| vec![&v[1] * &v[0] + &v[2] * before(&v[0])]),
        region(types, |v| {
            vec![scan(&zero(v), &(v[0].clone(), v[1].clone(), v[2].clone()), step).1]
        }),
        region(types, |v| vec![&v[1] * &v[0] + behind(&(&v[2] * &v[0]))]),
        region(types, |v| {
            vec![scan_reverse(&zero(v), &(v[0].clone(), v[1].clone(), behind(&v[2])), step).1]
        }),
    ]
}

/// (4u + e·v, f·u + 4v), iterated from a guess by a `while`, and for the transpose by a counted
/// loop.
fn coupled(types: &[TensorType]) -> Vec<Region> {
    const STEPS: i32 = 28;
    let next = |u: &Tensor, v: &Tensor, b: &[Tensor], e: &Tensor, f: &Tensor| {
        ((&b[0] - e * v) * 0.25, (&b[1] - f * u) * 0.25)
    };
    let map =
        |u: &Tensor, v: &Tensor, e: &Tensor, f: &Tensor| vec![u * 4.0 + e * v, f * u + v * 4.0];
    vec![
        region(types, |v| map(&v[0], &v[1], &v[2], &v[3])),
        region(types, |b| {
            let init = (Tensor::constant(0i32), (b[4].clone(), b[4].clone()));
            let (_, (u, v)) = while_loop(
                &init,
                |(i, _)| i.lt(Tensor::constant(STEPS)),
                |(i, (u, v))| (i + 1i32, next(u, v, b, &b[2], &b[3])),
            );
            vec![u, v]
        }),
        region(types, |v| map(&v[0], &v[1], &v[3], &v[2])),
        region(types, |b| {
            let init = (b[4].clone(), b[4].clone());
            let (u, v) = fori(STEPS as usize, &init, |_, (u, v)| next(u, v, b, &b[3], &b[2]));
            vec![u, v]
        }),
    ]
}
