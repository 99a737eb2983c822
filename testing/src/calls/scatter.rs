//! Scatters.

use super::{DTYPES, Device, check, check_random, numbers};
use crate::random::literal;
use proptest::prelude::*;
use wengert_core::call::{Call, Scatter, ScatterKind};
use wengert_core::{DType, Literal, Scalar};

/// Random shapes and dimension numbers that fit together. The indices are chosen separately.
fn scatters() -> impl Strategy<Value = Call> {
    (
        prop::collection::vec((0usize..6, any::<bool>(), any::<bool>(), 0usize..6), 0..4),
        prop::collection::vec(0usize..5, 0..3),
        prop::sample::select(&DTYPES[..]),
        prop::sample::select(&ScatterKind::ALL[..]),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(axes, positions, dtype, kind, wide, seed)| {
            let operand: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let inserted: Vec<usize> = (0..axes.len()).filter(|a| axes[*a].1).collect();
            let mut window = axes.iter().filter(|a| !a.1).map(|a| a.3.min(a.0)).peekable();
            let mut moved: Vec<usize> = (0..axes.len()).filter(|a| axes[*a].2).collect();
            if seed % 2 == 0 {
                moved.reverse();
            }
            if seed % 5 == 0 {
                // Two components of one axis.
                moved.extend(moved.first().copied());
            }
            // The window axes and scatter axes of the updates are interleaved at random.
            let (mut update_window_dims, mut updates, mut bits) = (vec![], vec![], seed >> 1);
            let mut rest = positions.iter().copied().peekable();
            while window.peek().is_some() || rest.peek().is_some() {
                if rest.peek().is_none() || (window.peek().is_some() && bits % 2 == 0) {
                    update_window_dims.push(updates.len());
                    updates.extend(window.next());
                } else {
                    updates.extend(rest.next());
                }
                bits >>= 1;
            }
            let indices = positions.iter().copied().chain([moved.len()]).collect();
            Call::Scatter(Scatter {
                kind,
                operand,
                indices,
                updates,
                update_window_dims,
                inserted_window_dims: inserted,
                scatter_dims_to_operand_dims: moved,
                dtype,
                index: if wide { DType::I64 } else { DType::I32 },
                clip: seed % 7 < 2,
            })
        })
}

/// Operands with starts up to `highest` and one beyond. Some starts are out of bounds, some of them
/// by far.
fn operands(s: &Scatter, seed: u64, highest: i64) -> Vec<Literal> {
    let starts = numbers(DType::I64, &s.indices, seed);
    let mut starts = starts.scalars().map(|x| x.to_i64().expect("the dtype is i64"));
    let indices = literal(s.index, &s.indices, |index| {
        let x = starts.next().expect("one start for each index");
        let start = match x % 50 {
            7 => x,
            8 => i64::MAX - 3,
            9 => i64::MIN + 3,
            _ => x.rem_euclid(highest + 2) - 1,
        };
        Scalar::from_i64(index, start)
    });
    vec![numbers(s.dtype, &s.operand, seed + 1), indices, numbers(s.dtype, &s.updates, seed + 2)]
}

/// Random scatters.
pub fn small_scatters<D: Device>() {
    check_random::<D>(500, scatters(), |call, seed| {
        let Call::Scatter(scatter) = call else { unreachable!("all are scatters") };
        operands(scatter, seed, 5)
    });
}

/// Adds `count` rows to a table.
pub fn rows(table: [usize; 2], count: usize, dtype: DType) -> Scatter {
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
        clip: false,
    }
}

/// The gradient of an embedding.
pub fn rows_of_a_table<D: Device>() {
    for (table, count, dtype) in [
        ([50, 384], 1000, DType::F32),
        ([2000, 70], 900, DType::BF16),
        ([3, 40], 5, DType::F64),
        ([50, 12], 300, DType::F32),
        ([2000, 7], 900, DType::BF16),
        ([300, 2], 5000, DType::F32),
        ([70000, 4], 2100, DType::F16),
    ] {
        let scatter = rows(table, count, dtype);
        let call = Call::Scatter(scatter.clone());
        check::<D>(&call, || operands(&scatter, 1, table[0] as i64));
    }
}

/// Windows that overlap in part. Only the axis that the indices move along is long: on CPUs each
/// task owns a range of it, and windows overlap several ranges.
pub fn overlapping(extent: usize, count: usize) -> Scatter {
    Scatter {
        kind: ScatterKind::Add,
        operand: vec![extent, 2],
        indices: vec![count, 1],
        updates: vec![count, 90, 2],
        update_window_dims: vec![1, 2],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        dtype: DType::F32,
        index: DType::I64,
        clip: false,
    }
}

/// The scatters of [`overlapping`].
pub fn windows_that_overlap<D: Device>() {
    for (extent, count) in [(4000, 1500), (400, 300)] {
        let scatter = overlapping(extent, count);
        let call = Call::Scatter(scatter.clone());
        check::<D>(&call, || operands(&scatter, 3, extent as i64 - 90));
    }
}
