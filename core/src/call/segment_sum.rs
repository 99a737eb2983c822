//! Segmented sums: rows with sorted ids, added up by id.

use super::contract::{Contract, fits, named, product};
use super::reference::{Reference, Sum};
use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::define::attributes;
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `out[s, c] = Σ data[r, c]` over the rows r of segment s: those from [`first_row`] of s up to
    /// `first_row` of s + 1. If the ids ascend, these are the rows with id s.
    ///
    /// Arguments: data, dense `[rows, columns]`, ids, dense `[rows]`, then out, dense
    /// `[segments, columns]`. Sums of halves are computed in f32. The back end chooses the order
    /// of a sum, fixed for given extents (an opaque sum: compared within a bound).
    SegmentSum {
        /// Rows of data.
        rows: usize,
        /// Columns of data and out.
        columns: usize,
        /// Rows of out; below 2⁶³.
        segments: usize,
        /// Dtype of data and out: a number.
        dtype: DType,
        /// Dtype of the ids: i32 or i64.
        index: DType,
    }
}

/// The first row of a segment: the result of this binary search, in `id(0), …, id(rows − 1)`, for
/// the first id that is not below `segment`.
///
/// If the ids do not ascend, the result depends on the search. So the search is a part of the
/// contract: every implementation does the same. The result never decreases with `segment`,
/// whatever the ids, so every row belongs to at most one segment.
pub fn first_row(rows: usize, id: impl Fn(usize) -> i64, segment: i64) -> usize {
    let (mut low, mut high) = (0, rows);
    while low < high {
        let middle = low + (high - low) / 2;
        if id(middle) < segment {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Contract for SegmentSum {
    named!("segment_sum");

    fn operands(&self) -> Vec<TensorType> {
        vec![
            TensorType::new(self.dtype, [self.rows, self.columns]),
            TensorType::new(self.index, [self.rows]),
        ]
    }

    fn results(&self) -> Vec<TensorType> {
        vec![TensorType::new(self.dtype, [self.segments, self.columns])]
    }

    fn verify(&self) -> Result<()> {
        fits("data", &[self.rows, self.columns])?;
        fits("out", &[self.segments, self.columns])?;
        ensure!(matches!(self.index, DType::I32 | DType::I64), "ids of {}", self.index);
        ensure!(self.dtype != DType::Bool, "bool has no sums");
        Ok(())
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let (data, ids) = (&operands[0], &operands[1]);
        let id = |row: usize| ids.get(row).to_i64().expect("ids are integers");
        let [result] = self.results().try_into().expect("there is one result");
        let mut reference = Reference::new(result);
        let one = Scalar::from_i64(self.dtype, 1);
        // Without columns the number of segments is unbounded, so the loop must not run.
        for segment in 0..if self.columns == 0 { 0 } else { self.segments as i64 } {
            let rows = first_row(self.rows, id, segment)..first_row(self.rows, id, segment + 1);
            for column in 0..self.columns {
                let wide = self.dtype.wide();
                let mut sum = Sum::new(wide);
                let terms = rows.clone().map(|row| data.get(row * self.columns + column));
                terms.for_each(|term| sum.add_product(term, one));
                let (value, error) = sum.finish_in(self.dtype);
                reference.push(value, error);
            }
        }
        vec![reference]
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &[self.rows, self.columns])
    }

    /// The sums, and a search for each segment.
    fn iterations(&self) -> u64 {
        let search = self.rows.max(1).ilog2() as usize + 1;
        self.count(1).saturating_add(product(1, &[self.segments, search]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    #[test]
    fn rows_belong_to_one_segment_whatever_the_ids() {
        let mut state = 1u64;
        for rows in 0..40 {
            let ids: Vec<i64> = (0..rows)
                .map(|_| {
                    state =
                        state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 60) as i64 - 4
                })
                .collect();
            let mut sorted = ids.clone();
            sorted.sort();
            let first = |ids: &[i64], segment| first_row(rows, |row| ids[row], segment);
            for segment in -6..14 {
                assert!(first(&ids, segment) <= first(&ids, segment + 1));
                let below = sorted.iter().filter(|id| **id < segment).count();
                assert_eq!(first(&sorted, segment), below);
            }
        }
    }

    #[test]
    fn wrong_calls_are_refused() {
        let call =
            SegmentSum { rows: 3, columns: 2, segments: 2, dtype: DType::F32, index: DType::I32 };
        Call::from(call.clone()).verify().unwrap();
        for (bad, says) in [
            (SegmentSum { rows: 1 << 62, ..call.clone() }, "data: extents"),
            (SegmentSum { segments: 1 << 62, ..call.clone() }, "out: extents"),
            (SegmentSum { index: DType::U8, ..call.clone() }, "ids of u8"),
            (SegmentSum { dtype: DType::Bool, ..call.clone() }, "bool has no sums"),
        ] {
            let error = Call::from(bad).verify().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
