//! Products of tensors, and their inverse.

use super::prelude::*;
use wengert_core::op::{DotGeneral, TriangularSolve};

pub(super) fn samples() -> Vec<Sample> {
    [dot_general(), triangular_solve()].concat()
}

fn dot_general() -> Vec<Sample> {
    type Axes<'a> = (&'a [usize], &'a [usize]);
    let sample = |contract: Axes<'_>, batch: Axes<'_>, a: &[usize], b: &[usize]| {
        let op = DotGeneral {
            contract: (contract.0.to_vec(), contract.1.to_vec()),
            batch: (batch.0.to_vec(), batch.1.to_vec()),
            result: None,
        };
        Sample::new(op, vec![floats(a, -1.0, 1.0), floats(b, -1.0, 1.0)])
    };
    // Results of a dtype other than the operands'.
    let to = |result, operands: [SampleOperand; 2]| {
        Sample::new(DotGeneral { result: Some(result), ..DotGeneral::matmul(2) }, operands.to_vec())
    };
    let of = |dtype: DType| {
        [&[2usize, 3][..], &[3, 4]]
            .map(|s| SampleOperand::Values(floats(s, -1.0, 1.0).literal(dtype, 11)))
    };
    vec![
        sample((&[1], &[0]), (&[], &[]), &[3, 5], &[5, 4]),
        sample((&[0], &[1]), (&[], &[]), &[5, 3], &[4, 5]),
        sample((&[2], &[1]), (&[0], &[0]), &[2, 3, 5], &[2, 5, 4]),
        sample((&[1], &[3]), (&[0, 2], &[0, 1]), &[2, 5, 3, 4], &[2, 3, 6, 5]),
        sample((&[0, 1], &[1, 0]), (&[], &[]), &[2, 3, 4], &[3, 2]),
        sample((&[0], &[0]), (&[], &[]), &[7], &[7]),
        // Free axes on both sides of the others, batch and contracting axes in other
        // orders.
        sample((&[3, 0], &[1, 2]), (&[2, 4], &[3, 0]), &[2, 3, 2, 3, 1], &[1, 3, 2, 2, 4]),
        // Nothing is contracted; empty sums; an empty result.
        sample((&[], &[]), (&[], &[]), &[2], &[3]),
        sample((&[], &[]), (&[0], &[0]), &[3, 2], &[3]),
        sample((&[1], &[0]), (&[], &[]), &[2, 0], &[0, 3]),
        sample((&[1], &[0]), (&[], &[]), &[0, 2], &[2, 3]),
        to(DType::F32, of(DType::BF16)),
        to(DType::F32, of(DType::F16)),
        to(DType::F16, of(DType::BF16)),
        to(DType::F64, of(DType::F16)),
        to(DType::F64, of(DType::F32)),
        to(DType::I32, [values(&[1, 3], [127i8, -128, 5]), values(&[3, 1], [127i8, -128, 1])]),
        to(DType::I64, [values(&[1, 2], [i32::MAX, -7]), values(&[2, 1], [i32::MAX, 9])]),
        to(DType::I32, [values(&[1, 2], [255u8, 7]), values(&[2, 1], [255u8, 9])]),
        // A result of another sign; products that wrap in the wider integer.
        to(DType::I8, [values(&[1, 2], [255u8, 7]), values(&[2, 1], [2u8, 9])]),
        to(DType::U32, [values(&[1, 2], [u32::MAX, 7]), values(&[2, 1], [3u32, 9])]),
        to(DType::U64, [values(&[1, 2], [u32::MAX, 7]), values(&[2, 1], [u32::MAX, 9])]),
        // Integers as floats: exact, rounded, and beyond the range of f16.
        to(
            DType::F32,
            [values(&[2, 2], [127i8, -128, 5, 3]), values(&[2, 2], [127i8, -128, 1, 0])],
        ),
        to(DType::BF16, [values(&[1, 3], [255u8, 7, 129]), values(&[3, 1], [255u8, 9, 3])]),
        to(DType::F16, [values(&[2, 2], [127i8, -128, 5, 3]), values(&[2, 1], [127i8, -128])]),
        to(DType::F16, [values(&[1, 2], [255u8, 255]), values(&[2, 1], [255u8, 255])]),
        to(DType::F32, [values(&[1, 2], [i32::MAX, 16_777_217]), values(&[2, 1], [3i32, 1])]),
        to(DType::F64, [values(&[1, 2], [u32::MAX, 7]), values(&[2, 1], [u32::MAX, 9])]),
        to(DType::F64, [values(&[1, 2], [i64::MAX, (1 << 53) + 1]), values(&[2, 1], [3i64, 1])]),
        to(DType::F64, [values(&[1, 2], [u64::MAX, 5]), values(&[2, 1], [3u64, 1])]),
        // Bools as numbers: the number of true pairs.
        to(DType::I32, [values(&[1, 3], [true, true, false]), values(&[3, 1], [true, true, true])]),
        to(DType::U8, [values(&[1, 2], [true, true]), values(&[2, 2], [true, true, false, true])]),
        to(DType::F16, [values(&[1, 2], [true, true]), values(&[2, 1], [true, true])]),
        to(DType::F64, [values(&[1, 0], [true; 0]), values(&[0, 2], [true; 0])]),
        // Batched, and with axes in another order.
        Sample::new(
            DotGeneral {
                contract: (vec![1], vec![2]),
                batch: (vec![0], vec![0]),
                result: Some(DType::F32),
            },
            vec![
                values(&[2, 2, 2], [1i8, -2, 3, 4, -5, 6, 7, 8]),
                values(&[2, 3, 2], [1i8, 0, 2, -1, 3, 5, -7, 9, 4, 6, 8, -3]),
            ],
        ),
        Sample::new(
            DotGeneral::matmul(2),
            vec![values(&[1, 2], [255u8, 7]), values(&[2, 2], [255u8, 9, 1, 2])],
        ),
        Sample::new(
            DotGeneral::matmul(2),
            vec![
                values(&[2, 2], [true, false, false, true]),
                values(&[2, 2], [true, false, true, false]),
            ],
        ),
    ]
}

fn triangular_solve() -> Vec<Sample> {
    let mut samples = Vec::new();
    for bits in 0..16 {
        let op = TriangularSolve {
            left_side: bits & 1 != 0,
            lower: bits & 2 != 0,
            transpose_a: bits & 4 != 0,
            unit_diagonal: bits & 8 != 0,
        };
        let b: &[usize] = if op.left_side { &[3, 2] } else { &[2, 3] };
        samples.push(Sample::new(op, vec![floats(&[3, 3], 0.5, 1.5), floats(b, -1.0, 1.0)]));
    }
    let left = TriangularSolve { left_side: true, lower: true, ..Default::default() };
    let right = TriangularSolve { transpose_a: true, ..Default::default() };
    samples.extend([
        Sample::new(left, vec![floats(&[2, 3, 3], 0.5, 1.5), floats(&[2, 3, 1], -1.0, 1.0)]),
        Sample::new(right, vec![floats(&[2, 1, 2, 2], 0.5, 1.5), floats(&[2, 1, 3, 2], -1.0, 1.0)]),
        Sample::new(left, vec![floats(&[1, 1], 0.5, 1.5), floats(&[1, 1], -1.0, 1.0)]),
        Sample::new(left, vec![floats(&[0, 0], 0.5, 1.5), floats(&[0, 2], -1.0, 1.0)]),
        Sample::new(right, vec![floats(&[2, 2], 0.5, 1.5), floats(&[0, 2], -1.0, 1.0)]),
        // Elements outside the triangle may have any value.
        Sample::new(
            TriangularSolve { unit_diagonal: true, ..left },
            vec![
                values(&[2, 2], [f32::NAN, f32::INFINITY, 2.0, f32::NAN]),
                values(&[2, 1], [3.0f32, 1.0]),
            ],
        ),
    ]);
    samples
}
