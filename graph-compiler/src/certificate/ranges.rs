//! Ranges of results: what the definition of an op says about a machine's values, whatever the
//! error of the operands.
//!
//! An error that is as large as a row of a norm or of a softmax says nothing about the row. But
//! elements of a softmax are between 0 and 1, those of a standardised row of n elements between −√n
//! and √n, and attention is a mean of values.

use super::bounded::Bounded;
use wengert_core::interpret::{Array, Cell};
use wengert_core::op::{AttentionKind, SoftmaxKind};
use wengert_core::{DType, Op};

/// The least and the greatest value of the elements of an op's first result over the reals, and the
/// greatest relative error of a machine for its own operands. `None` if no range is known, or an
/// operand may be infinite or NaN.
pub(super) fn range(op: &Op, operands: &[Array<Bounded>]) -> Option<Range> {
    let dtype = operands.first()?.dtype;
    let [carried, rounded] = [dtype.wide(), dtype].map(DType::unit_roundoff);
    let sums = |extent: usize| (extent as f64 + 64.0) * carried + 2.0 * rounded;
    let of = |low, high, relative: f64| Some(Range { low, high, slack: high * relative });
    match op {
        Op::Softmax(op) if op.kind == SoftmaxKind::Softmax => {
            greatest(&operands[0])?;
            of(0.0, 1.0, sums(operands[0].shape[op.axis]))
        }
        // The squares may not overflow.
        Op::Normalize(op) if greatest(&operands[0])? < 1e15 => {
            let extent = operands[0].shape[op.axis];
            let high = (extent as f64).sqrt();
            of(-high, high, sums(extent))
        }
        Op::Attention(op) if op.kind == AttentionKind::Value => {
            let is_packed = operands[0].shape.len() == 5;
            let read = if is_packed { &operands[..1] } else { &operands[..3] };
            let all = read.iter().map(greatest).collect::<Option<Vec<f64>>>()?;
            let high = *all.last()?;
            // Kernels round the weights to halves after they have added them up.
            of(-high, high, sums(read.last()?.cells.len()) + 2f64.powi(-6))
        }
        _ => None,
    }
}

/// A range of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Range {
    low: f64,
    high: f64,
    /// What a machine may exceed it by.
    slack: f64,
}

impl Range {
    /// The number, whose error does not lead out of the range.
    pub fn limit(&self, number: Bounded, dtype: DType) -> Bounded {
        let (low, high) = (self.low - self.slack, self.high + self.slack);
        let error = (number.value - low).max(high - number.value);
        if !number.value.is_finite() || number.error() <= error {
            return number;
        }
        Bounded::settled_at(number.value, error, dtype)
    }
}

/// The greatest magnitude of a machine's elements. Elements of −∞, which a mask leaves, do not
/// count.
fn greatest(array: &Array<Bounded>) -> Option<f64> {
    array.cells.iter().try_fold(0.0f64, |greatest, cell| match cell {
        Cell::Real(number) if number.value == f64::NEG_INFINITY && number.error() == 0.0 => {
            Some(greatest)
        }
        Cell::Real(number) if number.is_bounded() && number.value.is_finite() => {
            let [low, high] = number.ends();
            Some(greatest.max(low.abs()).max(high.abs()))
        }
        _ => None,
    })
}
