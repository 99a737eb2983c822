//! Samples of control flow: small loops that cover every kind of operand.

use super::prelude::*;
use wengert_core::op::{Cond, Scan, Switch, While};

pub(super) fn samples() -> Vec<Sample> {
    [conds(), switches(), scans(), whiles()].concat()
}

fn scan(length: i64, carries: usize, captures: usize) -> Scan {
    Scan {
        length: Dim::constant(length),
        carries,
        captures,
        reverse: false,
        counted: false,
        checkpoints: 0,
    }
}

/// The type of a part of a stack.
fn part(ty: &TensorType) -> TensorType {
    ty.with_shape(ty.shape.get(1..).unwrap_or_default().to_vec())
}

/// c ← tanh(c·k + x), y = c·x; the new carry differs from the stacked value.
fn recurrence(types: &[TensorType]) -> Vec<Region> {
    let [c, x, k] = types else { return vec![] };
    vec![region(&[c.clone(), part(x), k.clone()], |v| {
        vec![(&v[0] * &v[2] + &v[1]).tanh(), &v[0] * &v[1]]
    })]
}

/// The same, with the number of steps as first operand.
fn counted(types: &[TensorType]) -> Vec<Region> {
    types.split_first().map_or_else(Vec::new, |(_, rest)| recurrence(rest))
}

/// Two carries, one of them an integer counter, and no slices.
fn numbered(types: &[TensorType]) -> Vec<Region> {
    let [n, c] = types else { return vec![] };
    vec![region(&[n.clone(), c.clone()], |v| {
        let next = &v[0] + 1i32;
        let scale = next.convert(v[1].dtype()).broadcast_in_dim(v[1].shape().to_vec(), &[]);
        vec![next, (&v[1] / &scale).sin()]
    })]
}

/// No carry: a map, with two stacks.
fn mapped(types: &[TensorType]) -> Vec<Region> {
    let [x, k] = types else { return vec![] };
    vec![region(&[part(x), k.clone()], |v| vec![v[0].exp() * &v[1], v[0].sum()])]
}

fn scans() -> Vec<Sample> {
    let recurrent =
        || vec![floats(&[3], -1.0, 1.0), floats(&[4, 3], -1.0, 1.0), floats(&[3], -1.0, 1.0)];
    let counting = |n: i32| [vec![values(&[], [n])], recurrent()].concat();
    let steps = |reverse| Scan { reverse, ..scan(4, 1, 1) };
    let upto = |reverse| Scan { reverse, counted: true, ..scan(4, 1, 1) };
    vec![
        Sample::with_regions(steps(false), recurrent(), recurrence),
        Sample::with_regions(steps(true), recurrent(), recurrence),
        Sample::with_regions(
            scan(3, 2, 0),
            vec![values(&[], [0i32]), floats(&[2], 0.5, 1.0)],
            numbered,
        ),
        Sample::with_regions(
            scan(5, 0, 1),
            vec![floats(&[5, 2], -1.0, 1.0), floats(&[2], 0.5, 2.0)],
            mapped,
        ),
        Sample::with_regions(upto(false), counting(3), counted),
        Sample::with_regions(upto(true), counting(2), counted),
        Sample::with_regions(upto(false), counting(0), counted),
        Sample::with_regions(Scan { checkpoints: 2, ..steps(true) }, recurrent(), recurrence),
    ]
}

/// While c₀ is below k: c ← c·2 + 1, and a float carry along with it.
fn grows(types: &[TensorType]) -> Vec<Region> {
    let [n, c, k] = types else { return vec![] };
    let given = [n.clone(), c.clone(), k.clone()];
    vec![
        region(&given, |v| vec![v[0].lt(Tensor::constant(20i32))]),
        region(&given, |v| vec![&v[0] * 2i32 + 1i32, (&v[1] * &v[2]).sin() + &v[1]]),
    ]
}

/// The same, with a stack of squares of the old carry.
fn remembers(types: &[TensorType]) -> Vec<Region> {
    let [n, c, k] = types else { return vec![] };
    let given = [n.clone(), c.clone(), k.clone()];
    vec![
        region(&given, |v| vec![v[0].lt(Tensor::constant(20i32))]),
        region(&given, |v| vec![&v[0] * 2i32 + 1i32, (&v[1] * &v[2]).sin() + &v[1], &v[1] * &v[1]]),
    ]
}

fn whiles() -> Vec<Sample> {
    let operands = |n: i32| vec![values(&[], [n]), floats(&[3], 0.25, 1.0), floats(&[3], 0.5, 1.0)];
    let bounded = |n| While { captures: 1, max_steps: Some(Dim::constant(n)), checkpoints: 0 };
    vec![
        Sample::with_regions(bounded(8), operands(1), grows),
        // Ends at the bound.
        Sample::with_regions(bounded(2), operands(1), grows),
        // Takes no step.
        Sample::with_regions(bounded(3), operands(30), grows),
        Sample::with_regions(bounded(6), operands(2), remembers),
        // Reverse mode recomputes.
        Sample::with_regions(
            While { captures: 1, max_steps: None, checkpoints: 2 },
            operands(1),
            grows,
        ),
    ]
}

fn two_ways(types: &[TensorType]) -> Vec<Region> {
    let [_, x, k] = types else { return vec![] };
    let given = [x.clone(), k.clone()];
    vec![
        region(&given, |v| vec![v[0].sin() * &v[1], v[0].sum()]),
        region(&given, |v| vec![v[0].exp(), (&v[1] * &v[1]).sum()]),
    ]
}

fn conds() -> Vec<Sample> {
    let operands =
        |p: bool| vec![values(&[], [p]), floats(&[3], -1.0, 1.0), floats(&[3], -1.0, 1.0)];
    vec![
        Sample::with_regions(Cond {}, operands(true), two_ways),
        Sample::with_regions(Cond {}, operands(false), two_ways),
    ]
}

fn three_ways(types: &[TensorType]) -> Vec<Region> {
    let [_, x] = types else { return vec![] };
    let given = [x.clone()];
    vec![
        region(&given, |v| vec![v[0].cos()]),
        region(&given, |v| vec![v[0].clone()]),
        region(&given, |v| vec![&v[0] * &v[0]]),
    ]
}

fn switches() -> Vec<Sample> {
    let sample = |n: i32| {
        Sample::with_regions(Switch {}, vec![values(&[], [n]), floats(&[4], -1.0, 1.0)], three_ways)
    };
    vec![sample(1), sample(2), sample(-3), sample(7)]
}
