//! Methods of [`Tensor`] that move elements, reduce and contract.

use super::axes::{Axes, Axis, or_poison, position};
use super::tensor::Tensor;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{
    Argument, BitcastConvertType, Concatenate, ConvertElementType, DotGeneral, Extremum, Iota,
    IsFinite, Permute, Reduce, ReduceKind, Reverse, Slice,
};
use crate::ty::TensorType;

impl Tensor {
    /// `permute`: axis i of the result is axis `permutation[i]` of `self`.
    #[track_caller]
    pub fn permute(&self, permutation: impl Axes) -> Tensor {
        let permutation = or_poison!(self.op_axes("permute", permutation));
        if self.error().is_some()
            || (permutation.len() == self.rank()
                && permutation.iter().enumerate().all(|(i, p)| i == *p))
        {
            return self.clone();
        }
        Tensor::apply(Permute { permutation }, &[self])
    }

    /// Swaps the last two axes.
    #[track_caller]
    pub fn matrix_transpose(&self) -> Tensor {
        let rank = self.rank();
        if self.error().is_none() && rank < 2 {
            return self.fail(
                Diagnostic::new(format!("matrix_transpose: {} has no two axes to swap", self.ty()))
                    .help("a matrix has two axes; `reshape` makes one of a vector"),
            );
        }
        let mut permutation: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            permutation.swap(rank - 2, rank - 1);
        }
        self.permute(permutation)
    }

    /// `slice` of one axis: elements `start..limit`.
    #[track_caller]
    pub fn slice_axis(
        &self,
        axis: impl Axis,
        start: impl Into<Dim>,
        limit: impl Into<Dim>,
    ) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        let axis = or_poison!(self.op_axis("slice", axis));
        if axis >= self.rank() {
            return self.no_axis("slice", axis);
        }
        let mut from = vec![Dim::constant(0); self.rank()];
        let mut to = self.shape().to_vec();
        from[axis] = start.into();
        to[axis] = limit.into();
        Tensor::apply(Slice { start: from, limit: to, stride: vec![] }, &[self])
    }

    /// `concatenate` along an axis.
    #[track_caller]
    pub fn concatenate(parts: &[impl AsRef<Tensor>], axis: impl Axis) -> Tensor {
        let parts: Vec<&Tensor> = parts.iter().map(AsRef::as_ref).collect();
        let axis = match parts.first() {
            Some(part) => or_poison!(part.op_axis("concatenate", axis)),
            // The op's own rule refuses a concatenation of nothing.
            None => 0,
        };
        Tensor::apply(Concatenate { axis }, &parts)
    }

    /// `convert_element_type`. No op is emitted if the dtype is the same.
    #[track_caller]
    pub fn convert(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype || self.error().is_some() {
            return self.clone();
        }
        Tensor::apply(ConvertElementType { dtype }, &[self])
    }

    /// `bitcast_convert_type`: the same bits as another dtype. If its size is 1/k of the old one,
    /// the result has a further last axis of extent k, the lowest bits first. If its size is k
    /// times the old one, a last axis of extent k is removed. A NaN of a half becomes the
    /// canonical one if the size changes.
    ///
    /// Errors: bool, whose bits are not those of another dtype; a last axis whose extent is not
    /// k.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype || self.error().is_some() {
            return self.clone();
        }
        Tensor::apply(BitcastConvertType { dtype }, &[self])
    }

    /// `iota`: counts from 0 along `axis`.
    #[track_caller]
    pub fn iota<D: Into<Dim>>(
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
        axis: impl Axis,
    ) -> Tensor {
        let ty = TensorType::new(dtype, shape);
        let axis = match usize::try_from(axis.number()) {
            // The op's own rule refuses an axis beyond the last.
            Ok(axis) => axis,
            Err(_) => match position(&ty, axis.number()) {
                Ok(axis) => axis,
                Err(error) => return Tensor::fail_of(&[], error.context("iota")),
            },
        };
        Tensor::apply(Iota { dtype, shape: ty.shape, axis }, &[])
    }

    /// `reverse`: reverses the order along `axes`.
    #[track_caller]
    pub fn reverse(&self, axes: impl Axes) -> Tensor {
        let axes = or_poison!(self.op_axes("reverse", axes));
        Tensor::apply(Reverse { axes }, &[self])
    }

    /// `is_finite`: neither infinite nor NaN, element by element.
    #[track_caller]
    pub fn is_finite(&self) -> Tensor {
        Tensor::apply(IsFinite {}, &[self])
    }

    /// `argmax`: the index (i32) of the greatest element along `axis`, which is removed.
    #[track_caller]
    pub fn argmax(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("argmax", axis));
        Tensor::apply(Argument { extremum: Extremum::Max, axis, index: DType::I32 }, &[self])
    }

    /// `argmin`: the index (i32) of the least element along `axis`, which is removed.
    #[track_caller]
    pub fn argmin(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("argmin", axis));
        Tensor::apply(Argument { extremum: Extremum::Min, axis, index: DType::I32 }, &[self])
    }

    #[track_caller]
    pub(super) fn reduce(&self, kind: ReduceKind, axes: impl Axes) -> Tensor {
        let axes = or_poison!(self.op_axes(kind.name(), axes));
        Tensor::apply(Reduce::new(kind, axes), &[self])
    }

    /// Sum of all elements.
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        self.sum_axes(..)
    }

    /// Sum along axes, which are removed.
    #[track_caller]
    pub fn sum_axes(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceKind::Sum, axes)
    }

    /// Greatest element along axes, which are removed.
    #[track_caller]
    pub fn max_axes(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceKind::Max, axes)
    }

    /// Matrix product of the last axis of `self` with the first axis of `other`. The other axes
    /// remain in order.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        if self.rank() == 0 || other.rank() == 0 {
            let error = Diagnostic::new(format!(
                "dot of {} and {}: a scalar has no axis",
                self.ty(),
                other.ty()
            ));
            return Tensor::fail_of(&[self, other], error.help("multiply by a scalar with `*`"));
        }
        Tensor::apply(DotGeneral::matmul(self.rank().max(1)), &[self, other])
    }
}
