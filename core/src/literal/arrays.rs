//! Literals and ndarray's arrays: conversions of every dtype, and views that become literals.
//!
//! The elements of a literal are shared. An array in standard (row-major) layout becomes a literal
//! without a copy, and a literal that no other literal shares becomes an array without one.
//!
//! ```
//! use wengert_core::ndarray::{Array2, array};
//! use wengert_core::{Literal, Result, s};
//! # fn main() -> Result<()> {
//! let literal = Literal::from(array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
//! let columns = literal.transpose().slice(s![1.., ..;-1])?;
//! assert_eq!(Array2::<f32>::try_from(columns)?, array![[5.0, 2.0], [6.0, 3.0]]);
//! # Ok(())
//! # }
//! ```

use super::{Element, Literal};
use crate::build::axes::{Axes, positions};
use crate::build::slicing;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::float8::{f8e4m3fn, f8e5m2};
use half::{bf16, f16};
use ndarray::{ArcArray, Array, ArrayView, Dimension, IxDyn, SliceInfoElem};

/// The literal of an array. Without a copy if the array is in standard layout.
fn shared<T: Element>(array: ArcArray<T, IxDyn>) -> Literal {
    match array.is_standard_layout() {
        true => T::wrap(array),
        false => Literal::from_array(&array),
    }
}

macro_rules! conversions {
    ($($t:ty)*) => {$(
        /// Without a copy if the array is in standard layout.
        impl<D: Dimension> From<Array<$t, D>> for Literal {
            fn from(array: Array<$t, D>) -> Self { shared(array.into_dyn().into_shared()) }
        }

        /// Without a copy if the array is in standard layout.
        impl<D: Dimension> From<ArcArray<$t, D>> for Literal {
            fn from(array: ArcArray<$t, D>) -> Self { shared(array.into_dyn()) }
        }

        /// Copies the elements.
        impl<D: Dimension> From<ArrayView<'_, $t, D>> for Literal {
            fn from(array: ArrayView<'_, $t, D>) -> Self { Literal::from_array(&array) }
        }

        /// Without a copy if the literal shares its elements with no other.
        ///
        /// Errors: the literal has another dtype or another number of axes.
        impl<D: Dimension> TryFrom<Literal> for Array<$t, D> {
            type Error = Diagnostic;

            fn try_from(literal: Literal) -> Result<Self> {
                Ok(ArcArray::<$t, D>::try_from(literal)?.into_owned())
            }
        }

        /// Shares the elements of the literal.
        ///
        /// Errors: the literal has another dtype or another number of axes.
        impl<D: Dimension> TryFrom<Literal> for ArcArray<$t, D> {
            type Error = Diagnostic;

            fn try_from(literal: Literal) -> Result<Self> { literal.into_shared() }
        }
    )*};
}
conversions! { bool u8 i8 i32 i64 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 }

impl Literal {
    /// The array of a literal.
    fn into_shared<T: Element, D: Dimension>(self) -> Result<ArcArray<T, D>> {
        let ty = self.ty();
        let dtype = self.dtype();
        let array = T::into_array(self).ok_or_else(|| {
            Diagnostic::new(format!("a literal of type {ty} is no array of {}", T::DTYPE)).help(
                format!("convert it by `.convert(DType::{:?})`, or ask for {dtype}", T::DTYPE),
            )
        })?;
        array.into_dimensionality::<D>().map_err(|_| {
            let rank = D::NDIM.map_or("another number of".into(), |rank| rank.to_string());
            Diagnostic::new(format!("a literal of type {ty} is no array of {rank} axes"))
                .help("ask for an array with its number of axes, or for an `ArrayD`")
        })
    }

    /// The elements with axis i of the result being axis `permutation[i]` of `self`, as
    /// [`Tensor::permute`](crate::Tensor::permute). Without a copy if the result is in row-major
    /// order.
    ///
    /// # Errors
    /// The permutation does not name each axis once.
    pub fn permute(&self, permutation: impl Axes) -> Result<Literal> {
        let numbers = permutation.numbers(self.shape().len());
        let axes = positions(&self.ty(), &numbers).map_err(|d| d.context("permute"))?;
        ensure!(axes.len() == self.shape().len(),
            "permute: {} axes for a literal of type {}", axes.len(), self.ty();
            help "name each axis once");
        Ok(crate::with_native!(self.dtype(), T => {
            let array = T::unwrap(self).expect("the dtype is its own");
            shared(array.clone().permuted_axes(IxDyn(&axes)))
        }))
    }

    /// The elements with the axes in reverse order, as ndarray's `t`: of a matrix, its transpose.
    #[must_use]
    pub fn transpose(&self) -> Literal {
        let axes: Vec<usize> = (0..self.shape().len()).rev().collect();
        self.permute(axes).expect("each axis occurs once")
    }

    /// A part in the notation of [`s!`](crate::s), as [`Tensor::slice`](crate::Tensor::slice).
    /// Without a copy if it is in row-major order.
    ///
    /// # Errors
    /// More entries than axes; an index or a range that does not lie within its axis; a step of 0.
    pub fn slice(&self, entries: impl AsRef<[SliceInfoElem]>) -> Result<Literal> {
        let mut entries = entries.as_ref().to_vec();
        slicing::check(&self.ty(), &entries).map_err(|d| d.context("slice"))?;
        let is_new = |entry: &&SliceInfoElem| matches!(entry, SliceInfoElem::NewAxis);
        let named = entries.len() - entries.iter().filter(is_new).count();
        let whole = SliceInfoElem::Slice { start: 0, end: None, step: 1 };
        entries.resize(entries.len() + self.shape().len() - named, whole);
        Ok(crate::with_native!(self.dtype(), T => {
            let array = T::unwrap(self).expect("the dtype is its own");
            shared(array.clone().slice_move(&entries[..]))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::s;
    use crate::scalar::Scalar;
    use ndarray::{Array2, ArrayD, array};

    #[test]
    fn arrays_of_every_dtype_round_trip() {
        for dtype in DType::ALL {
            let values: Vec<_> = (0..6).map(|i| Scalar::from_i64(dtype, i)).collect();
            let literal = Literal::from_scalars(dtype, &[2, 3], &values).unwrap();
            crate::with_native!(dtype, T => {
                let array: ArcArray<T, IxDyn> = literal.clone().into_shared().unwrap();
                assert_eq!(shared(array), literal);
            });
        }
    }

    #[test]
    fn elements_are_copied_only_if_they_must_be() {
        let array = array![[1.0f32, 2.0], [3.0, 4.0]];
        let place = array.as_ptr();
        let literal = Literal::from(array);
        assert_eq!(literal.as_slice::<f32>().unwrap().as_ptr(), place);
        // A row is a part of the same memory.
        let row = literal.slice(s![1]).unwrap();
        assert_eq!(row.as_slice::<f32>().unwrap().as_ptr(), place.wrapping_add(2));
        drop(row);
        let array = Array2::<f32>::try_from(literal.clone()).unwrap();
        assert_ne!(array.as_ptr(), place, "the literal is still there");
        let array = ArrayD::<f32>::try_from(literal).unwrap();
        assert_eq!(array.as_ptr(), place);
        // A transposed array is not in row-major order.
        let transposed = Literal::from(array.reversed_axes());
        assert_eq!(transposed.as_slice::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn views_are_those_of_ndarray() {
        let element = |(i, j, k)| (100 * i + 10 * j + k) as i64;
        let array = Array::from_shape_fn((2, 3, 4), element).into_dyn();
        let literal = Literal::from(array.clone());
        let same = |a: Literal, b: ArrayView<'_, i64, IxDyn>| assert_eq!(a, Literal::from(b));
        same(literal.transpose(), array.t());
        same(literal.permute([1, -1, 0]).unwrap(), array.view().permuted_axes(&[1, 2, 0][..]));
        let part = s![-1, ..;-1, 1..-1;2];
        same(literal.slice(part).unwrap(), array.slice(&part[..]));
        same(literal.slice(s![.., 1]).unwrap(), array.slice(&s![.., 1, ..][..]));
        let longer = s![ndarray::NewAxis, 0..0];
        assert_eq!(literal.slice(longer).unwrap().shape(), [1, 0, 3, 4]);
    }

    #[test]
    fn mistakes_are_errors() {
        let literal = Literal::from(array![[1.0f32, 2.0], [3.0, 4.0]]);
        let error = |result: Result<Literal>| result.unwrap_err().message;
        let slice = literal.slice(s![2]);
        let expected = "slice: axis 0 of f32[2,2]: index 2 does not lie within its extent 2";
        assert_eq!(error(slice), expected);
        let expected = "slice: the slice has more entries than f32[2,2] has axes";
        assert_eq!(error(literal.slice(s![0, 0, 0])), expected);
        let expected = "permute: axis 0 of f32[2,2] is named twice";
        assert_eq!(error(literal.permute([0, 0])), expected);
        let expected = "permute: 1 axes for a literal of type f32[2,2]";
        assert_eq!(error(literal.permute([0])), expected);
        let array = Array2::<f64>::try_from(literal.clone());
        let expected = "a literal of type f32[2,2] is no array of f64";
        assert_eq!(array.unwrap_err().message, expected);
        let array = ndarray::Array1::<f32>::try_from(literal);
        let expected = "a literal of type f32[2,2] is no array of 1 axes";
        assert_eq!(array.unwrap_err().message, expected);
    }
}
