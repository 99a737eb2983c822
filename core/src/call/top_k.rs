//! Top k: the indices of the greatest elements of rows.
//!
//! Like [`Sort`](super::Sort), it returns indices, at which values are gathered. The result is a
//! prefix of a descending sort, computed without sorting the rest.

use super::contract::{Contract, fits, named, product};
use super::reference::Reference;
use super::sort::{compare, countable, indices, sort_passes};
use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::define::attributes;
use crate::ty::TensorType;

attributes! {
    /// For each row `operand[o, ·]`: the indices of its k greatest elements, the greatest first.
    ///
    /// The order is [`compare`]'s, so a NaN counts as greatest. Of equal elements, the one with
    /// the lower index comes first.
    ///
    /// Arguments: operand, dense `[outer, length]`, then out, dense `[outer, k]` of i32.
    TopK {
        /// Number of rows.
        outer: usize = 1,
        /// Elements of a row; below 2³¹, so their indices fit i32.
        length: usize,
        /// Number of indices per row; at most `length`.
        k: usize,
        /// Dtype of the operand.
        dtype: DType,
    }
}

impl Contract for TopK {
    named!("top_k");

    fn operands(&self) -> Vec<TensorType> {
        vec![TensorType::new(self.dtype, [self.outer, self.length])]
    }

    fn results(&self) -> Vec<TensorType> {
        vec![self.result_type()]
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &[self.outer, self.length])
    }

    /// Comparisons do not count.
    fn flops(&self) -> u64 {
        0
    }

    fn passes(&self) -> u64 {
        sort_passes(self.length, 1)
    }

    fn verify(&self) -> Result<()> {
        fits("operand", &[self.outer, self.length])?;
        countable(self.length)?;
        ensure!(self.k <= self.length, "top {} of rows of {} elements", self.k, self.length);
        Ok(())
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let operand = &operands[0];
        let mut out = Vec::new();
        // With k = 0 the number of rows is unbounded, so the loop must not run.
        for o in 0..if self.k == 0 { 0 } else { self.outer } {
            let at = |position: usize| operand.get(o * self.length + position);
            let mut order: Vec<usize> = (0..self.length).collect();
            // A stable sort.
            order.sort_by(|x, y| compare(at(*y), at(*x)));
            let index = |position| i32::try_from(position).expect("the length was verified");
            out.extend(order.into_iter().take(self.k).map(index));
        }
        vec![indices(self.result_type(), out)]
    }
}

impl TopK {
    fn result_type(&self) -> TensorType {
        TensorType::new(DType::I32, [self.outer, self.k])
    }
}
