//! Scatters of every kind.

use super::*;
use wengert_core::call::{Scatter, ScatterKind};

/// Shapes and dimension numbers that are consistent; indices are chosen separately.
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
            if seed % 5 == 0 {
                // Two components of one axis.
                moved.extend(moved.first().copied());
            }
            // Window axes and scatter axes of the updates are mixed in some order.
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
            // Some are outside, some of them far outside.
            let start = match x % 50 {
                7 => x,
                8 => i64::MAX - 3,
                9 => i64::MIN + 3,
                _ => x.rem_euclid(highest + 2) - 1,
            };
            Scalar::from_i64(s.index, start)
        })
        .collect();
    vec![
        numbers(s.dtype, &s.operand, seed + 1),
        Literal::from_scalars(s.index, &s.indices, &starts).unwrap(),
        numbers(s.dtype, &s.updates, seed + 2),
    ]
}

/// By scanning, and by sorting where that is possible: both have the bits of the reference.
fn check_both(scatter: &Scatter, operands: &[Literal]) -> std::result::Result<(), TestCaseError> {
    let call = Call::Scatter(scatter.clone());
    check(&call, operands)?;
    let reference = call.reference(operands).unwrap();
    for in_place in [None, Some(0)] {
        if let Some(sorted) = super::super::scatter::sorted(scatter, in_place).unwrap() {
            let found = run(&call, &sorted, operands, in_place);
            reference
                .check(&found)
                .map_err(|e| TestCaseError::fail(format!("{call:?} sorted: {e}")))?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_scatters(scatter in scatters(), seed in 0u64..1 << 60) {
        check_both(&scatter, &operands(&scatter, seed, 5))?;
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

/// The gradient of an embedding: one digit and two, several blocks, vectors and not.
#[test]
fn rows_of_a_table() {
    for (table, count, dtype) in [
        ([50, 12], 300, DType::F32),
        ([2000, 7], 900, DType::BF16),
        ([300, 2], 5000, DType::F32),
        ([70000, 4], 2100, DType::F16),
        ([3, 40], 5, DType::F64),
    ] {
        let scatter = rows(table, count, dtype);
        check_both(&scatter, &operands(&scatter, 1, table[0] as i64)).unwrap();
    }
    let names = kernels(&Call::Scatter(rows([70000, 4], 2100, DType::F16)));
    let pass = ["sort_count", "sort_offsets", "sort_place"];
    assert_eq!(names[0..2], ["scatter_copy_f16", "scatter_keys_i32"]);
    assert_eq!(
        names[2..].join(" "),
        [pass, pass, pass].concat().join(" ") + " scatter_add_segments_f16"
    );
}

/// Windows that overlap in part cannot be sorted.
#[test]
fn windows_that_overlap() {
    let scatter = Scatter {
        kind: ScatterKind::Add,
        operand: vec![400, 2],
        indices: vec![300, 1],
        updates: vec![300, 90, 2],
        update_window_dims: vec![1, 2],
        inserted_window_dims: vec![],
        scatter_dims_to_operand_dims: vec![0],
        dtype: DType::F32,
        index: DType::I64,
    };
    assert!(super::super::scatter::sorted(&scatter, None).unwrap().is_none());
    check_both(&scatter, &operands(&scatter, 3, 400 - 90)).unwrap();
}
