//! Types that are their own tangent vectors, with their addition and scaling.

use super::{Differentiable, rebuild, same_type};
use crate::build::operators::Operand;
use crate::build::tensor::Tensor;
use crate::dtype::DType;

/// A type that is its own tangent vector: a vector space over the numbers of its tensors' dtypes.
///
/// Implemented for tensors, and for types built from them by tuples, vectors, options, maps, boxes
/// and `#[derive(Differentiable)]`. Sums and multiples are computed component by component. Adding
/// values of different structure gives a poisoned result. Parts without a derivative (integers,
/// and fields marked `#[no_derivative]`) are taken from the first operand. In floating point the
/// laws of vector spaces hold up to rounding.
pub trait VectorSpace: Differentiable<TangentVector = Self> {
    /// `self + other`.
    #[track_caller]
    #[must_use]
    fn plus(&self, other: &Self) -> Self {
        self.move_along(other)
    }

    /// `self − other`.
    #[track_caller]
    #[must_use]
    fn minus(&self, other: &Self) -> Self {
        self.plus(&other.negated())
    }

    /// `−self`.
    #[track_caller]
    #[must_use]
    fn negated(&self) -> Self {
        let mut negated = Vec::new();
        for (_, t) in self.tensors() {
            negated.push(if t.dtype().is_float() { -t } else { t });
        }
        rebuild(self, negated)
    }

    /// `factor · self` for a number or a scalar tensor. The factor is converted to the dtype of
    /// each tensor.
    #[track_caller]
    #[must_use]
    fn scaled(&self, factor: impl Operand + Clone) -> Self {
        let mut scaled = Vec::new();
        for (_, t) in self.tensors() {
            let float = t.dtype().is_float();
            scaled.push(if float { &t * factor.clone().beside(&t).convert(t.dtype()) } else { t });
        }
        rebuild(self, scaled)
    }

    /// Zero of the same structure and shapes.
    #[track_caller]
    #[must_use]
    fn zero(&self) -> Self {
        self.zero_tangent()
    }

    /// The inner product: the sum of the products of all float elements, in f32 (in f64 if an
    /// element is f64).
    #[track_caller]
    fn inner(&self, other: &Self) -> Tensor {
        let (mine, mut theirs) = (self.tensors(), Vec::new());
        self.components(other, &mut |t| theirs.push(t.clone()));
        let wide =
            if mine.iter().any(|(_, t)| t.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
        let mut sum: Option<Tensor> = None;
        for ((_, mine), theirs) in mine.iter().zip(&theirs) {
            if let Some(poison) = same_type(mine, theirs) {
                return poison;
            }
            if mine.dtype().is_float() {
                let product = (mine.convert(wide) * theirs.convert(wide)).sum();
                sum = Some(match sum {
                    Some(sum) => sum + product,
                    None => product,
                });
            }
        }
        sum.unwrap_or_else(|| Tensor::constant(0.0f32))
    }
}

impl<T: Differentiable<TangentVector = T>> VectorSpace for T {}

/// Implemented for each pair of equal types. The derive uses it to require that a field's tangent
/// vector has the field's own type.
#[diagnostic::on_unimplemented(
    message = "the tangent vector of `{T}` is `{Self}`, not `{T}` itself",
    label = "a field whose tangent vector is of another type",
    note = "the type with this field cannot be its own tangent vector: generate a tangent type by \
            `#[differentiable(synthesize = NameOfTangent)]` on the type, name an existing one by \
            `#[differentiable(tangent = YourTangent)]`, or mark the field with `#[no_derivative]`"
)]
pub trait Itself<T> {
    /// The value.
    fn itself(self) -> T;
    /// The value as `Self`.
    fn of(value: &T) -> &Self;
}

impl<T> Itself<T> for T {
    fn itself(self) -> T {
        self
    }
    fn of(value: &T) -> &T {
        value
    }
}
