//! Windows of every kind for tests: strides, paddings of both signs, both dilations, unrolled and
//! not, and windows without elements.

use super::prelude::*;
use wengert_core::op::{
    Extremum, ReduceWindow, WindowArgument, WindowGather, WindowKind, WindowScatterAdd, Windows,
};

pub(super) fn samples() -> Vec<Sample> {
    let reduce = |kind| of(move |windows| ReduceWindow { kind, windows }.into());
    let argument = |extremum| of(move |windows| WindowArgument { extremum, windows }.into());
    [
        WindowKind::ALL.into_iter().flat_map(reduce).collect(),
        Extremum::ALL.into_iter().flat_map(argument).collect(),
        with_positions(|windows, _| WindowGather { windows }.into(), true),
        with_positions(|windows, shape| WindowScatterAdd { shape, windows }.into(), false),
    ]
    .concat()
}

/// A tensor's shape and windows over it.
fn geometries() -> Vec<(Vec<usize>, Windows)> {
    let padding = |pairs: &[(i64, i64)]| {
        pairs.iter().map(|(l, h)| (Dim::constant(*l), Dim::constant(*h))).collect()
    };
    let list = |shape: &[usize], windows: Windows| (shape.to_vec(), windows);
    vec![
        list(&[2, 4, 6, 2], Windows::new(&[1, 2, 2, 1], &[1, 2, 2, 1])),
        list(
            &[1, 5, 5, 1],
            Windows::new(&[1, 3, 3, 1], &[1, 2, 2, 1]).padded(padding(&[
                (0, 0),
                (1, 1),
                (1, 1),
                (0, 0),
            ])),
        ),
        list(&[7], Windows::new(&[3], &[1])),
        list(
            &[3, 5],
            Windows {
                base_dilation: vec![2, 3],
                ..Windows::new(&[2, 2], &[1, 2]).padded(padding(&[(1, 0), (2, 3)]))
            },
        ),
        list(
            &[9],
            Windows {
                window_dilation: vec![2],
                ..Windows::new(&[3], &[3]).padded(padding(&[(2, 1)]))
            },
        ),
        list(
            &[8],
            Windows {
                base_dilation: vec![2],
                window_dilation: vec![3],
                ..Windows::new(&[4], &[2]).padded(padding(&[(-1, 3)]))
            },
        ),
        // Too many terms to unroll.
        list(&[6, 6], Windows::new(&[5, 4], &[1, 1]).padded(padding(&[(2, 2), (0, 1)]))),
        list(
            &[2, 40],
            Windows {
                window_dilation: vec![1, 2],
                ..Windows::new(&[1, 17], &[1, 5]).padded(padding(&[(0, 0), (3, 0)]))
            },
        ),
        // A window without elements, and no window at all.
        list(&[2], Windows::new(&[2], &[2]).padded(padding(&[(4, 2)]))),
        list(&[3], Windows::new(&[5], &[1])),
        list(&[0, 2], Windows::new(&[1, 2], &[1, 1])),
        list(&[], Windows::new(&[], &[])),
    ]
}

/// Samples of an op of one operand.
fn of(op: impl Fn(Windows) -> Op) -> Vec<Sample> {
    let mut samples: Vec<Sample> = geometries()
        .into_iter()
        .map(|(shape, windows)| Sample::new(op(windows), vec![floats(&shape, 0.5, 2.0)]))
        .collect();
    let wide = Windows::new(&[3], &[1]).padded(vec![(Dim::constant(1), Dim::constant(1))]);
    samples.push(Sample::new(op(wide.clone()), vec![values(&[6], [3i32, -7, 1 << 30, 9, 9, -2])]));
    samples.push(Sample::new(op(wide), vec![values(&[4], [3u64, u64::MAX, 0, 5])]));
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let ties = values(&[9], [1.0f32, 1.0, -inf, -inf, -inf, nan, 2.0, inf, inf]);
    samples.push(Sample::new(op(Windows::new(&[3], &[1])), vec![ties]));
    samples
}

/// Samples of an op that takes a position in each window. If `whole`, the other operand is the
/// tensor under the windows, else it has one element for each window.
fn with_positions(op: impl Fn(Windows, Vec<Dim>) -> Op, whole: bool) -> Vec<Sample> {
    let sample = |(shape, windows): (Vec<usize>, Windows)| {
        let dims: Vec<Dim> = shape.iter().map(|e| Dim::from(*e)).collect();
        let sum = Op::from(ReduceWindow { kind: WindowKind::Sum, windows: windows.clone() });
        let result = sum.infer(&[TensorType::of(DType::F32, dims.clone())], &[]);
        let result = result.expect("the geometry of a sample fits").remove(0);
        let result = result.extents().expect("a sample has no variables");
        // Positions of all kinds: on elements, in the padding, and beyond the window.
        let count = windows.window.iter().product::<usize>() as i32;
        let windows_count = result.iter().product::<usize>() as i32;
        let position = |i: i32| match i % 7 {
            5 => i32::MAX,
            6 => -1,
            _ => (i * 5 + 1) % count,
        };
        let positions = Literal::from_vec(&result, (0..windows_count).map(position).collect());
        let positions = SampleOperand::Values(positions.expect("one position for each window"));
        let operand = floats(if whole { &shape } else { &result }, 0.5, 2.0);
        Sample::new(op(windows, dims), vec![operand, positions])
    };
    geometries().into_iter().map(sample).collect()
}
