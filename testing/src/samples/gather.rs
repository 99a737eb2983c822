//! Sample gathers.

use super::prelude::*;
use wengert_core::op::Gather;

pub(super) fn samples() -> Vec<Sample> {
    let sizes = |s: &[usize]| s.iter().map(|e| Dim::from(*e)).collect();
    let rows = Gather::rows(&TensorType::new(DType::F32, [6usize, 3]), 1);
    let filled = |fill| Gather { fill: Some(fill), ..rows.clone() };
    // Windows of 2x2 at (row, column) pairs: those in the middle cross the border.
    let windows = Gather {
        offset_dims: vec![0, 2],
        collapsed_slice_dims: vec![],
        start_index_map: vec![1, 0],
        slice_sizes: sizes(&[2, 2]),
        operand_batching_dims: vec![],
        start_indices_batching_dims: vec![],
        fill: None,
    };
    let mixed = Gather {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![0, 2],
        start_index_map: vec![2, 0],
        slice_sizes: sizes(&[1, 2, 1]),
        ..windows.clone()
    };
    // For each of 3 × 2 pairs of operand and indices, runs of 2 elements at 2 places.
    let batched = Gather {
        offset_dims: vec![1],
        collapsed_slice_dims: vec![],
        start_index_map: vec![1],
        slice_sizes: sizes(&[1, 2, 1]),
        operand_batching_dims: vec![0, 2],
        start_indices_batching_dims: vec![2, 0],
        fill: None,
    };
    let pairs = || floats(&[3, 5, 2], -2.0, 2.0);
    // `take_along_axis`: only batching axes and one index.
    let along = Gather {
        offset_dims: vec![],
        collapsed_slice_dims: vec![1],
        start_index_map: vec![1],
        slice_sizes: sizes(&[1, 1]),
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        fill: None,
    };
    let table = || floats(&[6, 3], -2.0, 2.0);
    let ids = || values(&[5, 1], [0i32, 5, 2, 2, 9]);
    let corners = || values(&[4, 2], [0i64, 0, 2, 4, -3, 7, 1, 3]);
    vec![
        Sample::new(rows.clone(), vec![table(), ids()]),
        Sample::new(
            rows.clone(),
            vec![values(&[2, 3], [1i32, 2, 3, 4, 5, 6]), values(&[1, 1], [1i64])],
        ),
        Sample::new(windows.clone(), vec![floats(&[5, 4], -2.0, 2.0), corners()]),
        Sample::new(
            mixed,
            vec![floats(&[2, 2, 3], -2.0, 2.0), values(&[2, 2, 2], [0i32, 1, 2, 0, -1, 1, 9, 9])],
        ),
        Sample::new(
            batched.clone(),
            vec![pairs(), values(&[2, 2, 3, 1], [0i32, 1, 2, 3, 4, -1, 3, 3, 0, 9, 2, 1])],
        ),
        Sample::new(
            along,
            vec![floats(&[2, 4], -2.0, 2.0), values(&[2, 3, 1], [3i64, 0, 0, 1, 4, 2])],
        ),
        // Indices of every other dtype, some out of bounds.
        Sample::new(rows.clone(), vec![table(), values(&[3, 1], [4u8, 255, 0])]),
        Sample::new(rows.clone(), vec![table(), values(&[3, 1], [4i8, -128, 127])]),
        Sample::new(
            windows.clone(),
            vec![floats(&[5, 4], -2.0, 2.0), values(&[2, 2], [1u32, 1, u32::MAX, 2])],
        ),
        Sample::new(
            windows.clone(),
            vec![floats(&[5, 4], -2.0, 2.0), values(&[2, 2], [1u64, 1, u64::MAX, 2])],
        ),
        Sample::new(
            Gather { fill: Some(Scalar::of(7i32)), ..rows.clone() },
            vec![values(&[2, 3], [1i32, 2, 3, 4, 5, 6]), values(&[3, 1], [1u64, u64::MAX, 2])],
        ),
        Sample::new(
            Gather { fill: Some(Scalar::of(true)), ..rows.clone() },
            vec![values(&[1, 3], [false, true, false]), values(&[2, 1], [0u32, 1])],
        ),
        // No position; empty windows; no index vector.
        Sample::new(
            rows.clone(),
            vec![table(), SampleOperand::Values(Literal::zeros(DType::I32, &[0, 1]))],
        ),
        Sample::new(
            Gather { slice_sizes: sizes(&[2, 0]), ..windows.clone() },
            vec![floats(&[5, 4], -2.0, 2.0), values(&[1, 2], [0i32, 4])],
        ),
        Sample::new(
            Gather { slice_sizes: sizes(&[2, 0]), ..windows.clone() },
            vec![floats(&[5, 0], -2.0, 2.0), values(&[1, 2], [0i32, 4])],
        ),
        Sample::new(
            Gather { start_index_map: vec![], ..windows.clone() },
            vec![
                floats(&[2, 3], -2.0, 2.0),
                SampleOperand::Values(Literal::zeros(DType::I32, &[3, 0])),
            ],
        ),
    ]
    .into_iter()
    .chain(DType::ALL.into_iter().filter(|d| d.is_float()).flat_map(|d| {
        let table =
            move |shape: &[usize]| SampleOperand::Values(floats(shape, -2.0, 2.0).literal(d, 7));
        [
            Sample::new(
                filled(Scalar::zero(d)),
                vec![table(&[6, 3]), values(&[5, 1], [0i32, 5, 2, -1, 9])],
            ),
            Sample::new(
                filled(Scalar::from_f64(d, 0.5)),
                vec![table(&[6, 3]), values(&[3, 1], [0i32, 6, 2])],
            ),
            Sample::new(
                Gather { fill: Some(Scalar::zero(d)), ..batched.clone() },
                vec![table(&[3, 5, 2]), values(&[2, 1, 3, 1], [0i32, 3, 4, -1, 2, 9])],
            ),
            Sample::new(
                Gather { fill: Some(Scalar::zero(d)), ..windows.clone() },
                vec![table(&[5, 4]), values(&[4, 2], [0i64, 0, 2, 3, -3, 7, 3, 3])],
            ),
        ]
    }))
    .collect()
}
