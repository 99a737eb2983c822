//! Methods of [`Tensor`] that change the number of axes and keep the elements in their order.
//!
//! | method | PyTorch | NumPy |
//! |---|---|---|
//! | [`unsqueeze`](Tensor::unsqueeze) | `unsqueeze` | `expand_dims` |
//! | [`squeeze`](Tensor::squeeze) | `squeeze(dim)` | `squeeze(axis)` |
//! | [`flatten`](Tensor::flatten) | `flatten(start_dim)` | `reshape` |
//! | [`flatten_axes`](Tensor::flatten_axes) | `flatten(start_dim, end_dim)` | `reshape` |
//! | [`unflatten`](Tensor::unflatten) | `unflatten` | `reshape` |

use super::axes::{Axes, Axis, new_positions, position, positions};
use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::Dim;
use crate::op::Reshape;
use crate::text::joined;

impl Tensor {
    /// `reshape`: the same elements in row-major order. One extent may be [`Dim::INFER`], which is
    /// −1: it follows from the others. Of `[2,6]`, `reshape([3, -1])` is `[3,4]`.
    ///
    /// # Errors
    /// The shape has another number of elements; two extents are to be inferred, or one that is no
    /// whole number.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, Dim, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, ["B".into(), Dim::from(6)]));
    /// assert_eq!(x.reshape(["B".into(), 2.into(), Dim::INFER]).ty().to_string(), "f32[B,2,3]");
    /// assert_eq!(x.reshape([-1, 3]).ty().to_string(), "f32[2*B,3]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn reshape<D: Into<Dim>>(&self, shape: impl IntoIterator<Item = D>) -> Tensor {
        let mut shape: Vec<Dim> = shape.into_iter().map(Into::into).collect();
        if self.error().is_none() && shape.contains(&Dim::INFER) {
            match inferred(self.shape(), &shape) {
                Ok(full) => shape = full,
                Err(error) => return self.fail(error.context("reshape")),
            }
        }
        if self.shape() == shape { self.clone() } else { Tensor::apply(Reshape { shape }, &[self]) }
    }

    /// New axes of extent 1. `axes` are their numbers in the result; −1 is its last axis. Of
    /// `[2,3]`, `unsqueeze(-1)` is `[2,3,1]` and `unsqueeze([0, 2])` is `[1,2,1,3]`.
    ///
    /// # Errors
    /// The result has no such axis; an axis is named twice.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// assert_eq!(x.unsqueeze(-1).ty().to_string(), "f32[2,3,1]");
    /// assert_eq!(x.unsqueeze([0, 2]).ty().to_string(), "f32[1,2,1,3]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn unsqueeze(&self, axes: impl Axes) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed("unsqueeze", &[self], || {
            let mut shape = self.shape().to_vec();
            for axis in new_positions(self.ty(), &axes)? {
                shape.insert(axis, Dim::constant(1));
            }
            Ok(self.reshape(shape))
        })
    }

    /// Removes axes of extent 1. Of `[2,1,3,1]`, `squeeze(1)` is `[2,3,1]` and `squeeze([1, -1])`
    /// is `[2,3]`.
    ///
    /// # Errors
    /// There is no such axis; its extent is not 1.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 1, 3, 1]));
    /// assert_eq!(x.squeeze(1).ty().to_string(), "f32[2,3,1]");
    /// assert_eq!(x.squeeze([1, -1]).ty().to_string(), "f32[2,3]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn squeeze(&self, axes: impl Axes) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed("squeeze", &[self], || {
            let axes = positions(self.ty(), &axes)?;
            for axis in &axes {
                let extent = &self.shape()[*axis];
                ensure!(*extent == Dim::constant(1),
                    "axis {axis} of {} has extent {extent}", self.ty();
                    help "only axes of extent 1 can be removed; a reduction, such as `sum_axes`, \
                          removes others");
            }
            Ok(self.reshape(without(self.shape(), &axes)))
        })
    }

    /// Merges all axes from `axis` on into one, in row-major order. Of `[2,3,4]`, `flatten(1)` is
    /// `[2,12]`. `flatten(rank)` appends an axis of extent 1.
    ///
    /// # Errors
    /// There is no such axis; the product of the extents overflows.
    #[track_caller]
    pub fn flatten(&self, axis: impl Axis) -> Tensor {
        let number = axis.number();
        composed("flatten", &[self], || {
            let rank = self.rank();
            let first = if number == rank as i64 { rank } else { position(self.ty(), number)? };
            self.merged(first, rank)
        })
    }

    /// Merges the axes from `first` to `last`, which is included, into one, in row-major order. Of
    /// `[2,3,4,5]`, `flatten_axes(1, -2)` is `[2,12,5]`.
    ///
    /// # Errors
    /// There is no such axis; `last` is before `first`; the product of the extents overflows.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3, 4, 5]));
    /// assert_eq!(x.flatten_axes(1, -2).ty().to_string(), "f32[2,12,5]");
    /// assert_eq!(x.flatten(1).ty().to_string(), "f32[2,60]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn flatten_axes(&self, first: impl Axis, last: impl Axis) -> Tensor {
        let numbers = [first.number(), last.number()];
        composed("flatten_axes", &[self], || {
            let [first, last] =
                [position(self.ty(), numbers[0])?, position(self.ty(), numbers[1])?];
            ensure!(first <= last, "axis {last} of {} is before axis {first}", self.ty();
                help "name the first axis first");
            self.merged(first, last + 1)
        })
    }

    /// The tensor with the axes `first..end` as one.
    #[track_caller]
    fn merged(&self, first: usize, end: usize) -> Result<Tensor> {
        let (kept, after) = (&self.shape()[..first], &self.shape()[end..]);
        let product =
            self.shape()[first..end].iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
        let Some(product) = product else {
            bail!(
                "the product of axes {first} to {} of {} is no dimension", end - 1, self.ty();
                help "merge fewer axes, or give some of them numbers");
        };
        Ok(self.reshape(kept.iter().cloned().chain([product]).chain(after.iter().cloned())))
    }

    /// Splits one axis into several of these extents, in row-major order. One extent may be
    /// [`Dim::INFER`]. Of `[2,12]`, `unflatten(1, [3, 4])` is `[2,3,4]`.
    ///
    /// # Errors
    /// There is no such axis; the product of the extents is not the extent of the axis.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 12]));
    /// assert_eq!(x.unflatten(-1, [3, 4]).ty().to_string(), "f32[2,3,4]");
    /// assert_eq!(x.unflatten(1, [-1, 4]).ty().to_string(), "f32[2,3,4]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn unflatten<D: Into<Dim>>(
        &self,
        axis: impl Axis,
        extents: impl IntoIterator<Item = D>,
    ) -> Tensor {
        let number = axis.number();
        let extents: Vec<Dim> = extents.into_iter().map(Into::into).collect();
        composed("unflatten", &[self], || {
            let axis = position(self.ty(), number)?;
            let extents = inferred(&self.shape()[axis..=axis], &extents)?;
            let mut shape = self.shape().to_vec();
            shape.splice(axis..=axis, extents);
            Ok(self.reshape(shape))
        })
    }
}

/// The extents `to` with the inferred one as a number, such that there are as many elements as in
/// `from`.
fn inferred(from: &[Dim], to: &[Dim]) -> Result<Vec<Dim>> {
    let shown = || joined(to, ",");
    let open: Vec<usize> = (0..to.len()).filter(|axis| to[*axis] == Dim::INFER).collect();
    let [open] = open[..] else {
        ensure!(open.is_empty(), "[{}] leaves {} extents open", shown(), open.len();
            help "one extent may be -1 (`Dim::INFER`); the others are given");
        return Ok(to.to_vec());
    };
    // Equal extents cancel, so that products of variables stay small.
    let mut numerator = from.to_vec();
    let mut denominator = Vec::new();
    for dim in to.iter().enumerate().filter(|(axis, _)| *axis != open).map(|(_, dim)| dim) {
        match numerator.iter().position(|known| known == dim) {
            Some(equal) => drop(numerator.remove(equal)),
            None => denominator.push(dim.clone()),
        }
    }
    let zero = Dim::constant(0);
    if to.contains(&zero) {
        bail!("the open extent of [{}] may be any number", shown();
            help "give each extent of an empty tensor");
    }
    let product = |dims: &[Dim]| dims.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
    let quotient = product(&numerator)
        .zip(product(&denominator))
        .and_then(|(all, known)| all.checked_exact_div(&known));
    let Some(quotient) = quotient else {
        bail!("the open extent of [{}] is no whole number for the elements of [{}]",
            shown(), joined(from, ",");
            help "the product of the given extents divides the number of elements");
    };
    let mut full = to.to_vec();
    full[open] = quotient;
    Ok(full)
}

/// The entries of a list but those at `axes`.
pub(super) fn without<T: Clone>(list: &[T], axes: &[usize]) -> Vec<T> {
    let kept = list.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    kept.map(|(_, item)| item.clone()).collect()
}
