//! Ops that move elements to positions known in advance.

use super::prelude::*;
use wengert_core::op::{BroadcastInDim, Concatenate, Pad, Permute, Reshape, Reverse, Slice};

pub(super) fn samples() -> Vec<Sample> {
    [broadcast_in_dim(), reshape(), permute(), slice(), pad(), concatenate(), reverse()].concat()
}

fn broadcast_in_dim() -> Vec<Sample> {
    let sample = |shape: &[i64], dims: &[usize], operand: &[usize]| {
        let shape = shape.iter().map(|e| Dim::constant(*e)).collect();
        Sample::new(BroadcastInDim { shape, dims: dims.to_vec() }, vec![floats(operand, -2.0, 2.0)])
    };
    vec![
        sample(&[4, 3], &[1], &[3]),
        sample(&[2, 3], &[], &[]),
        sample(&[2, 4, 3], &[0, 2], &[1, 3]),
        sample(&[], &[], &[]),
        sample(&[1, 3, 1], &[1], &[1]),
        sample(&[2, 0, 3], &[0, 2], &[2, 3]),
        sample(&[0, 3], &[0, 1], &[1, 3]),
        Sample::new(
            BroadcastInDim { shape: vec![Dim::constant(2), Dim::constant(2)], dims: vec![0] },
            vec![values(&[2], [true, false])],
        ),
    ]
}

fn reshape() -> Vec<Sample> {
    let sample = |from: &[usize], to: &[i64]| {
        let shape = to.iter().map(|e| Dim::constant(*e)).collect();
        Sample::new(Reshape { shape }, vec![floats(from, -2.0, 2.0)])
    };
    vec![
        sample(&[6, 4], &[24]),
        sample(&[24], &[2, 3, 4]),
        sample(&[6, 4], &[4, 6]),
        sample(&[1, 6], &[2, 1, 3]),
        sample(&[0, 5], &[7, 0, 2]),
        sample(&[], &[1, 1]),
        sample(&[1], &[]),
        Sample::new(
            Reshape { shape: vec![Dim::constant(4)] },
            vec![values(&[2, 2], [true, false, false, true])],
        ),
    ]
}

fn permute() -> Vec<Sample> {
    let sample = |permutation: &[usize], shape: &[usize]| {
        Sample::new(Permute { permutation: permutation.to_vec() }, vec![floats(shape, -2.0, 2.0)])
    };
    vec![
        sample(&[1, 0], &[3, 5]),
        sample(&[2, 0, 1], &[2, 3, 4]),
        sample(&[], &[]),
        sample(&[0, 1], &[2, 3]),
        sample(&[1, 2, 0], &[2, 0, 3]),
        Sample::new(
            Permute { permutation: vec![1, 0] },
            vec![values(&[2, 3], [1u8, 2, 3, 4, 5, 6])],
        ),
    ]
}

fn slice() -> Vec<Sample> {
    let dims = |v: &[i64]| v.iter().map(|e| Dim::constant(*e)).collect();
    let sample = |start: &[i64], limit: &[i64], stride: &[i64]| {
        let op = Slice { start: dims(start), limit: dims(limit), stride: stride.to_vec() };
        Sample::new(op, vec![floats(&[5, 7], -2.0, 2.0)])
    };
    vec![
        sample(&[1, 0], &[4, 7], &[]),
        sample(&[0, 1], &[5, 7], &[2, 3]),
        // The last step falls short of the limit; a step beyond it; an empty result.
        sample(&[1, 0], &[5, 6], &[3, 9]),
        sample(&[2, 3], &[2, 7], &[1, 2]),
        sample(&[5, 7], &[5, 7], &[]),
        Sample::new(
            Slice { start: vec![], limit: vec![], stride: vec![] },
            vec![floats(&[], -2.0, 2.0)],
        ),
        Sample::new(
            Slice { start: dims(&[1]), limit: dims(&[4]), stride: vec![2] },
            vec![values(&[4], [true, false, true, true])],
        ),
    ]
}

fn pad() -> Vec<Sample> {
    let dims = |v: &[i64]| v.iter().map(|e| Dim::constant(*e)).collect();
    let sample = |low: &[i64], high: &[i64], interior: &[i64]| {
        let op = Pad { low: dims(low), high: dims(high), interior: interior.to_vec() };
        Sample::new(op, vec![floats(&[3, 4], -2.0, 2.0), floats(&[], 0.5, 1.0)])
    };
    vec![
        sample(&[1, 0], &[0, 2], &[]),
        sample(&[-1, 2], &[1, -2], &[]),
        sample(&[1, -1], &[0, 2], &[1, 2]),
        // Cropped within the interior padding on both sides.
        sample(&[-2, -4], &[-1, -3], &[2, 3]),
        sample(&[-1, 1], &[-3, -2], &[1, 0]),
        // Only padding remains; nothing remains; the operand is empty.
        sample(&[-3, 0], &[2, 0], &[]),
        sample(&[-1, 0], &[-2, 0], &[]),
        Sample::new(
            Pad { low: dims(&[2, -1]), high: dims(&[1, 1]), interior: vec![3, 1] },
            vec![floats(&[0, 2], -2.0, 2.0), floats(&[], 0.5, 1.0)],
        ),
        Sample::new(
            Pad { low: vec![], high: vec![], interior: vec![] },
            vec![floats(&[], -2.0, 2.0), floats(&[], 0.5, 1.0)],
        ),
        Sample::new(
            Pad { low: dims(&[-1]), high: dims(&[1]), interior: vec![1] },
            vec![values(&[3], [1i8, 2, 3]), values(&[], [-7i8])],
        ),
        Sample::new(
            Pad { low: dims(&[1]), high: dims(&[0]), interior: vec![] },
            vec![values(&[2], [true, false]), values(&[], [true])],
        ),
    ]
}

fn concatenate() -> Vec<Sample> {
    let sample = |axis: usize, shapes: &[&[usize]]| {
        Sample::new(Concatenate { axis }, shapes.iter().map(|s| floats(s, -2.0, 2.0)).collect())
    };
    vec![
        sample(0, &[&[2, 3], &[1, 3], &[4, 3]]),
        sample(1, &[&[2, 3], &[2, 5]]),
        sample(0, &[&[4]]),
        sample(1, &[&[2, 0], &[2, 3], &[2, 0], &[2, 1]]),
        sample(0, &[&[0, 2], &[0, 2]]),
        sample(2, &[&[1, 2, 1], &[1, 2, 2]]),
        Sample::new(
            Concatenate { axis: 0 },
            vec![values(&[2], [true, false]), values(&[1], [true])],
        ),
        Sample::new(
            Concatenate { axis: 0 },
            vec![values(&[2], [1u64, u64::MAX]), values(&[1], [7u64])],
        ),
    ]
}

fn reverse() -> Vec<Sample> {
    let sample = |axes: &[usize]| {
        Sample::new(Reverse { axes: axes.to_vec() }, vec![floats(&[3, 4], -2.0, 2.0)])
    };
    vec![
        sample(&[0]),
        sample(&[1, 0]),
        sample(&[]),
        Sample::new(Reverse { axes: vec![] }, vec![floats(&[], -2.0, 2.0)]),
        Sample::new(Reverse { axes: vec![0, 2] }, vec![floats(&[2, 0, 3], -2.0, 2.0)]),
        Sample::new(Reverse { axes: vec![0] }, vec![values(&[3], [true, false, false])]),
        Sample::new(Reverse { axes: vec![1] }, vec![values(&[2, 3], [1i8, 2, 3, -4, 5, 6])]),
    ]
}
