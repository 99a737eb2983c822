//! Ops whose positions come from data, and sorts.

use super::prelude::*;
use wengert_core::op::{
    Argsort, DynamicSlice, DynamicUpdateSlice, SegmentSum, Sort, TakeAlongAxis, TopK, TopKIndices,
};

pub(super) fn samples() -> Vec<Sample> {
    [
        dynamic_slice(),
        dynamic_update_slice(),
        segment_sum(),
        take_along_axis(),
        argsort(),
        sort(),
        top_k_indices(),
        top_k(),
    ]
    .concat()
}

fn dynamic_slice() -> Vec<Sample> {
    let sample = |sizes: &[usize], operands: Vec<SampleOperand>| {
        Sample::new(
            DynamicSlice { slice_sizes: sizes.iter().map(|s| Dim::from(*s)).collect() },
            operands,
        )
    };
    let x = || floats(&[5, 7], -2.0, 2.0);
    vec![
        sample(&[2, 3], vec![x(), values(&[], [1i32]), values(&[], [4i32])]),
        sample(&[2, 3], vec![x(), values(&[], [-1i64]), values(&[], [5i64])]),
        sample(&[5, 1], vec![x(), values(&[], [3i32]), values(&[], [i32::MAX])]),
        sample(&[1, 7], vec![x(), values(&[], [u64::MAX]), values(&[], [0u8])]),
        sample(&[1, 2], vec![x(), values(&[], [i8::MIN]), values(&[], [3u32])]),
        sample(&[0, 2], vec![x(), values(&[], [9i32]), values(&[], [3i32])]),
        sample(&[0, 2], vec![floats(&[0, 3], -2.0, 2.0), values(&[], [1i32]), values(&[], [1i32])]),
        sample(&[], vec![floats(&[], -2.0, 2.0)]),
        sample(&[2], vec![values(&[4], [3i8, -5, 9, 1]), values(&[], [2i32])]),
        sample(&[2], vec![values(&[4], [true, false, true, true]), values(&[], [i64::MIN])]),
        // An extent larger than the index dtype can count.
        sample(
            &[3],
            vec![
                SampleOperand::Values(Literal::full(&[300], Scalar::one(DType::I32))),
                values(&[], [255u8]),
            ],
        ),
    ]
}

fn dynamic_update_slice() -> Vec<Sample> {
    let sample = |operands: Vec<SampleOperand>| Sample::new(DynamicUpdateSlice {}, operands);
    let x = || floats(&[5, 7], -2.0, 2.0);
    let update = |shape: &[usize]| floats(shape, -2.0, 2.0);
    vec![
        sample(vec![x(), update(&[2, 3]), values(&[], [1i32]), values(&[], [4i32])]),
        sample(vec![x(), update(&[2, 3]), values(&[], [-1i64]), values(&[], [5i64])]),
        sample(vec![x(), update(&[5, 1]), values(&[], [3i32]), values(&[], [i32::MAX])]),
        sample(vec![x(), update(&[1, 7]), values(&[], [u64::MAX]), values(&[], [0u8])]),
        sample(vec![x(), update(&[1, 2]), values(&[], [i8::MIN]), values(&[], [3u32])]),
        sample(vec![x(), update(&[0, 2]), values(&[], [9i32]), values(&[], [3i32])]),
        sample(vec![x(), update(&[5, 7]), values(&[], [9i32]), values(&[], [3i32])]),
        sample(vec![update(&[]), update(&[])]),
        sample(vec![values(&[4], [3i8, -5, 9, 1]), values(&[2], [7i8, 8]), values(&[], [1i32])]),
        sample(vec![
            values(&[3], [true, false, true]),
            values(&[1], [true]),
            values(&[], [i64::MIN]),
        ]),
    ]
}

fn segment_sum() -> Vec<Sample> {
    let sample = |segments: usize, data, ids: SampleOperand| {
        Sample::new(SegmentSum { num_segments: segments.into() }, vec![data, ids.ascending()])
    };
    let rows = |shape: &[usize]| floats(shape, -2.0, 2.0);
    vec![
        sample(4, rows(&[7, 3]), values(&[7], [0i32, 0, 1, 1, 1, 3, 3])),
        sample(3, rows(&[6]), values(&[6], [-2i64, 0, 0, 2, 3, 9])),
        sample(2, rows(&[5, 2, 3]), values(&[5], [-1i32, 0, 1, 1, 7])),
        sample(3, rows(&[4, 5]), values(&[4], [0u32, 2, 2, u32::MAX])),
        sample(2, rows(&[3, 2]), values(&[3], [0u64, 1, u64::MAX])),
        sample(2, rows(&[3, 2]), values(&[3], [-128i8, 1, 127])),
        sample(0, rows(&[2, 2]), values(&[2], [0i32, 1])),
        sample(2, rows(&[0, 2]), values::<i32>(&[0], [])),
        sample(2, rows(&[2, 0]), values(&[2], [0i32, 1])),
        sample(2, values(&[4], [200u8, 100, 3, 4]), values(&[4], [0i64, 0, 1, 1])),
        sample(1, values(&[3, 1], [i32::MAX, 1, 5]), values(&[3], [0i32, 0, 0])),
    ]
}

fn take_along_axis() -> Vec<Sample> {
    let take = |axis| TakeAlongAxis { axis, permutation: false };
    let permute = |axis| TakeAlongAxis { axis, permutation: true };
    vec![
        Sample::new(
            take(1),
            vec![
                floats(&[2, 3, 2], -2.0, 2.0),
                values(&[2, 4, 2], [0i32, 2, 1, 1, 2, 0, 0, 0, 2, 2, 2, 2, -1, 9, 1, 0]),
            ],
        ),
        Sample::new(take(0), vec![floats(&[5], -2.0, 2.0), values(&[3], [4i64, 1, 1])]),
        Sample::new(take(0), vec![floats(&[5], -2.0, 2.0), values(&[4], [u32::MAX, 4, 0, 1])]),
        Sample::new(
            take(0),
            vec![floats(&[5], -2.0, 2.0), values(&[4], [u64::MAX, 1 << 63, 0, 3])],
        ),
        Sample::new(take(0), vec![floats(&[200], -2.0, 2.0), values(&[3], [u8::MAX, 199, 128])]),
        Sample::new(take(0), vec![floats(&[3], -2.0, 2.0), values(&[3], [i8::MIN, 1, i8::MAX])]),
        Sample::new(take(0), vec![floats(&[3, 2], -2.0, 2.0), values::<i32>(&[0, 2], [])]),
        Sample::new(take(0), vec![values(&[3], [true, false, true]), values(&[2], [2i32, 1])]),
        Sample::new(
            permute(0),
            vec![floats(&[3, 2], -2.0, 2.0), values(&[3, 2], [1i32, 0, 2, 2, 0, 1])],
        ),
        Sample::new(permute(0), vec![floats(&[3], -2.0, 2.0), values(&[3], [2u32, 0, 1])]),
        Sample::new(permute(0), vec![floats(&[0], -2.0, 2.0), values::<i64>(&[0], [])]),
    ]
}

fn argsort() -> Vec<Sample> {
    let sample = |axis, descending, operands| Sample::new(Argsort { axis, descending }, operands);
    let nan = f32::NAN;
    vec![
        sample(0, false, vec![floats(&[7], -2.0, 2.0)]),
        sample(1, false, vec![floats(&[2, 5, 3], -2.0, 2.0)]),
        sample(0, true, vec![floats(&[5, 2], -2.0, 2.0)]),
        sample(0, false, vec![values(&[7], [0.0f32, nan, -0.0, f32::INFINITY, -nan, -1.0, 0.0])]),
        sample(0, true, vec![values(&[5], [3i32, -7, 3, i32::MIN, 9])]),
        sample(0, false, vec![values(&[4], [true, false, true, false]), floats(&[4], -1.0, 1.0)]),
        sample(
            1,
            false,
            vec![
                values(&[1, 6], [1i64, 0, 1, 0, 1, 0]),
                values(&[1, 6], [2u8, 2, 1, 255, 2, 2]),
                values(&[1, 6], [u64::MAX, 5, 1, 0, 3, 4]),
            ],
        ),
        sample(1, false, vec![floats(&[3, 0], -1.0, 1.0)]),
        sample(0, false, vec![floats(&[1], -1.0, 1.0)]),
    ]
}

fn sort() -> Vec<Sample> {
    let sample = |axis, num_keys, operands| Sample::new(Sort { axis, num_keys }, operands);
    vec![
        sample(0, 1, vec![floats(&[7], -2.0, 2.0)]),
        sample(1, 1, vec![floats(&[2, 5, 3], -2.0, 2.0)]),
        sample(
            1,
            2,
            vec![
                values(&[2, 4], [1i32, 0, 1, 0, 7, 7, 7, 7]),
                floats(&[2, 4], -2.0, 2.0),
                floats(&[2, 4], -2.0, 2.0),
                values(&[2, 4], [true, false, false, true, true, true, false, false]),
            ],
        ),
        sample(0, 1, vec![values(&[6], [f32::NAN, 1.0, -0.0, 0.0, f32::NEG_INFINITY, 1.0])]),
        sample(0, 1, vec![floats(&[0, 2], -1.0, 1.0), floats(&[0, 2], -1.0, 1.0)]),
    ]
}

fn top_k_indices() -> Vec<Sample> {
    let sample = |k, operand| Sample::new(TopKIndices { k }, vec![operand]);
    vec![
        sample(3, floats(&[7], -2.0, 2.0)),
        sample(2, floats(&[3, 2, 5], -2.0, 2.0)),
        sample(4, values(&[6], [0.0f32, f32::NAN, -0.0, f32::INFINITY, -f32::NAN, 0.0])),
        sample(5, values(&[5], [3i32, -7, 3, i32::MIN, 9])),
        sample(2, values(&[2, 3], [true, false, true, false, false, true])),
        sample(0, floats(&[2, 3], -1.0, 1.0)),
    ]
}

fn top_k() -> Vec<Sample> {
    let sample = |axis, k, operand| Sample::new(TopK { axis, k }, vec![operand]);
    vec![
        sample(0, 3, floats(&[7], -2.0, 2.0)),
        sample(1, 2, floats(&[2, 5, 3], -2.0, 2.0)),
        sample(2, 5, floats(&[2, 1, 5], -2.0, 2.0)),
        sample(0, 3, values(&[6], [0.0f32, f32::NAN, -0.0, 1.0, 1.0, f32::NEG_INFINITY])),
        sample(0, 1, values(&[3, 2], [3u8, 255, 3, 7, 1, 255])),
    ]
}
