//! Sample scatters.

use super::prelude::*;
use wengert_core::call::ScatterKind;
use wengert_core::op::Scatter;

pub(super) fn samples() -> Vec<Sample> {
    ScatterKind::ALL.into_iter().flat_map(of_kind).collect()
}

/// Rows of a table.
fn rows(kind: ScatterKind) -> Scatter {
    Scatter {
        kind,
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        operand_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        clip: false,
        unique_indices: false,
    }
}

fn of_kind(kind: ScatterKind) -> Vec<Sample> {
    let rows = rows(kind);
    // Windows at (column, row) pairs, which overlap and cross the border.
    let windows = Scatter {
        update_window_dims: vec![0, 2],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![1, 0],
        ..rows.clone()
    };
    let mixed = Scatter {
        inserted_window_dims: vec![0, 2],
        scatter_dims_to_operand_dims: vec![2, 0],
        ..rows.clone()
    };
    // For each of 3 × 2 pairs of operand and indices, runs of 2 elements.
    let batched = Scatter {
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![1],
        operand_batching_dims: vec![0, 2],
        scatter_indices_batching_dims: vec![2, 0],
        ..rows.clone()
    };
    let random = |shape: &[usize]| floats(shape, -2.0, 2.0);
    let nothing = |shape: &[usize]| SampleOperand::Values(Literal::zeros(DType::I32, shape));
    let mut samples = vec![];
    for clip in [false, true] {
        let with = |op: &Scatter| Scatter { clip, ..op.clone() };
        let mut add = |op: &Scatter, operands: [SampleOperand; 3]| {
            samples.push(Sample::new(with(op), operands.to_vec()));
        };
        let ids = || values(&[5, 1], [0i32, 5, 2, 2, 9]);
        let corners = || values(&[4, 2], [0i64, 0, 2, 4, -3, 7, 1, 3]);
        add(&rows, [random(&[6, 3]), ids(), random(&[5, 3])]);
        add(&windows, [random(&[5, 4]), corners(), random(&[2, 4, 2])]);
        add(
            &mixed,
            [
                random(&[2, 2, 3]),
                values(&[2, 2, 2], [0i32, 1, 2, 0, -1, 1, 9, 9]),
                random(&[2, 2, 2]),
            ],
        );
        let starts = || values(&[2, 2, 3, 1], [0i32, 1, 2, 3, 4, -1, 3, 3, 0, 9, 2, 1]);
        add(&batched, [random(&[3, 5, 2]), starts(), random(&[2, 2, 2, 3])]);
        add(
            &rows,
            [
                values(&[2, 2], [1i32, 2, 3, i32::MAX]),
                values(&[3, 1], [1i64, 1, -1]),
                values(&[3, 2], [1i32, 2, 3, 4, 5, 6]),
            ],
        );
        add(
            &rows,
            [
                values(&[2, 2], [1u64, u64::MAX, 3, 9]),
                values(&[3, 1], [1u64, 0, u64::MAX]),
                values(&[3, 2], [1u64, 2, 3, u64::MAX, 5, 6]),
            ],
        );
        add(
            &rows,
            [
                values(&[2, 2], [1i8, -2, 3, 4]),
                values(&[2, 1], [1u8, 200]),
                values(&[2, 2], [-5i8, 6, 127, 100]),
            ],
        );
        if kind.takes(DType::Bool) {
            let bools = values(&[3, 2], [true, false, false, true, true, false]);
            add(
                &rows,
                [values(&[2, 2], [true, false, true, false]), values(&[3, 1], [1u32, 0, 1]), bools],
            );
        }
        // No position; empty windows; no index vector.
        add(&rows, [random(&[6, 3]), nothing(&[0, 1]), random(&[0, 3])]);
        add(&windows, [random(&[5, 4]), nothing(&[2, 2]), random(&[0, 2, 2])]);
        let whole = Scatter { scatter_dims_to_operand_dims: vec![], ..windows.clone() };
        add(&whole, [random(&[3, 2]), nothing(&[2, 0]), random(&[3, 2, 2])]);
        if kind == ScatterKind::Mul {
            // Elements with no, one and two zeros among their updates.
            let updates = values(&[7], [0.0f64, 1.5, 0.0, 2.0, 0.0, -1.5, 3.0]);
            let ids = values(&[7, 1], [0i32, 0, 1, 2, 1, 1, 2]);
            let scalars = Scatter { update_window_dims: vec![], ..rows.clone() };
            add(&scalars, [values(&[3], [2.0f64, -1.0, 0.5]), ids, updates]);
        }
        // No element gets two updates, as promised.
        let unique = Scatter { unique_indices: true, ..windows.clone() };
        add(&unique, [random(&[5, 4]), values(&[3, 2], [0i32, 0, 2, 3, 0, 2]), random(&[2, 3, 2])]);
        let unique = Scatter { unique_indices: true, ..batched.clone() };
        add(
            &unique,
            [
                random(&[3, 5, 2]),
                values(&[2, 1, 3, 1], [0i32, 3, 1, 2, 3, 0]),
                random(&[2, 2, 1, 3]),
            ],
        );
    }
    samples
}
