//! Scatters of every kind.

use super::*;
use wengert_core::call::{Scatter, ScatterKind};

/// Shapes and dimension numbers that fit together. The indices are chosen separately.
fn scatters() -> impl Strategy<Value = Scatter> {
    (
        prop::collection::vec((0usize..6, any::<bool>(), any::<bool>(), 0usize..6), 0..4),
        prop::collection::vec(0usize..5, 0..3),
        0usize..DTYPES.len(),
        0usize..ScatterKind::ALL.len(),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(axes, positions, dtype, kind, wide, seed)| {
            let operand: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let inserted: Vec<usize> = (0..axes.len()).filter(|a| axes[*a].1).collect();
            let window: Vec<usize> = axes.iter().filter(|a| !a.1).map(|a| a.3.min(a.0)).collect();
            let mut moved: Vec<usize> = (0..axes.len()).filter(|a| axes[*a].2).collect();
            if seed % 2 == 0 {
                moved.reverse();
            }
            // The window axes and scatter axes of the updates are interleaved at random.
            let rank = window.len() + positions.len();
            let (mut update_window_dims, mut updates, mut bits) = (vec![], vec![], seed >> 1);
            let (mut w, mut p) = (window.iter().peekable(), positions.iter().peekable());
            for axis in 0..rank {
                let take_window = p.peek().is_none() || (w.peek().is_some() && bits % 2 == 0);
                bits >>= 1;
                if take_window {
                    update_window_dims.push(axis);
                    updates.push(*w.next().unwrap());
                } else {
                    updates.push(*p.next().unwrap());
                }
            }
            let indices = positions.iter().copied().chain([moved.len()]).collect();
            Scatter {
                kind: ScatterKind::ALL[kind],
                operand,
                indices,
                updates,
                update_window_dims,
                inserted_window_dims: inserted,
                scatter_dims_to_operand_dims: moved,
                dtype: DTYPES[dtype],
                index: if wide { DType::I64 } else { DType::I32 },
            }
        })
}

fn operands(s: &Scatter, seed: u64, highest: i64) -> Vec<Literal> {
    let starts = numbers(DType::I64, &s.indices, seed);
    let starts: Vec<Scalar> = starts
        .scalars()
        .map(|x| {
            let x = x.to_i64().unwrap();
            // Some indices are out of bounds, some of them by far.
            let start = if x % 50 == 7 { x } else { x.rem_euclid(highest + 2) - 1 };
            Scalar::from_i64(s.index, start)
        })
        .collect();
    vec![
        numbers(s.dtype, &s.operand, seed + 1),
        Literal::from_scalars(s.index, &s.indices, &starts).unwrap(),
        numbers(s.dtype, &s.updates, seed + 2),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_scatters(scatter in scatters(), seed in 0u64..1 << 60) {
        let operands = operands(&scatter, seed, 5);
        check(&Call::Scatter(scatter), &operands)?;
    }
}

fn rows(table: [usize; 2], count: usize, dtype: DType) -> Scatter {
    Scatter {
        kind: ScatterKind::Add,
        operand: table.to_vec(),
        indices: vec![count, 1],
        updates: vec![count, table[1]],
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        dtype,
        index: DType::I32,
    }
}

/// The gradient of an embedding, split along the columns.
#[test]
fn rows_of_a_table() {
    for (table, count, dtype) in
        [([50, 384], 1000, DType::F32), ([2000, 70], 900, DType::BF16), ([3, 40], 5, DType::F64)]
    {
        let scatter = rows(table, count, dtype);
        let operands = operands(&scatter, 1, table[0] as i64);
        check(&Call::Scatter(scatter), &operands).unwrap();
    }
}

/// Only the axis that the indices move along is long. Each task owns a range of it, and windows
/// overlap several ranges.
#[test]
fn windows_that_overlap_parts() {
    let scatter = Scatter {
        kind: ScatterKind::Add,
        operand: vec![4000, 2],
        indices: vec![1500, 1],
        updates: vec![1500, 90, 2],
        update_window_dims: vec![1, 2],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        dtype: DType::F32,
        index: DType::I64,
    };
    let operands = operands(&scatter, 3, 4000 - 90);
    check(&Call::Scatter(scatter), &operands).unwrap();
}
