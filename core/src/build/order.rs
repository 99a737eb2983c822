//! Methods of [`Tensor`] that order elements: sorting and the greatest ones.

use super::axes::{Axis, or_poison};
use super::tensor::Tensor;
use crate::dtype::DType;
use crate::op::{Argsort, Sort, TakeAlongAxis, TopK};

impl Tensor {
    /// `sort`: ascending along an axis; stable, −0 equal to +0, NaN last.
    #[track_caller]
    pub fn sort(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("sort", axis));
        Tensor::apply(Sort { axis, num_keys: 1 }, &[self])
    }

    /// `sort` of several operands of one shape in the order of the first `num_keys`.
    ///
    /// On an error there is one result, which is poisoned.
    #[track_caller]
    pub fn sort_by(operands: &[&Tensor], axis: impl Axis, num_keys: usize) -> Vec<Tensor> {
        let axis = match operands.first() {
            Some(first) => match first.op_axis("sort", axis) {
                Ok(axis) => axis,
                Err(poison) => return vec![poison],
            },
            // The op's own rule refuses a sort of nothing.
            None => 0,
        };
        Tensor::apply_many(Sort { axis, num_keys }, operands)
    }

    /// `argsort`: the positions along an axis in ascending order of their elements, as i32.
    #[track_caller]
    pub fn argsort(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("argsort", axis));
        Tensor::apply(Argsort { axis, descending: false }, &[self])
    }

    /// `take_along_axis`: `result[…, i, …] = self[…, indices[…, i, …], …]`. Indices out of bounds
    /// are clamped.
    #[track_caller]
    pub fn take_along_axis(&self, indices: &Tensor, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("take_along_axis", axis));
        let indices = match indices.dtype() {
            DType::I8 | DType::U8 => indices.convert(DType::I32),
            DType::U32 | DType::U64 => indices.convert(DType::I64),
            _ => indices.clone(),
        };
        Tensor::apply(TakeAlongAxis { axis, permutation: false }, &[self, &indices])
    }

    /// `top_k`: the `k` greatest elements along an axis, the greatest first, and their positions
    /// as i32.
    #[track_caller]
    pub fn top_k(&self, k: usize, axis: impl Axis) -> (Tensor, Tensor) {
        let axis = match self.op_axis("top_k", axis) {
            Ok(axis) => axis,
            Err(poison) => return (poison.clone(), poison),
        };
        let mut results = Tensor::apply_many(TopK { axis, k }, &[self]);
        let values = results.swap_remove(0);
        // A failing op gives one poisoned result.
        let indices = results.pop().unwrap_or_else(|| values.clone());
        (values, indices)
    }
}
