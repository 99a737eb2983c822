//! Arguments without a gradient.

use super::{Differentiable, KeyPath, MakeTensor, VisitTensor};
use std::ops::Deref;

/// A value that is passed along without a gradient, whatever it holds. Its tangent vector is
/// `()`.
///
/// It visits no tensors, so derivatives treat its tensors as constants, as if a closure had
/// captured them. In a user's own type, `#[no_derivative]` has the same effect on a field.
///
/// ```
/// use wengert_core::{Differentiable, NoDerivative, Tensor};
///
/// let labels = NoDerivative(Tensor::constant(3i32));
/// let point = (Tensor::constant(1.0f32), labels);
/// let (_gradient, nothing): (Tensor, ()) = point.zero_tangent();
/// assert_eq!(point.tensors().len(), 1);
/// # let () = nothing;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NoDerivative<T>(pub T);

impl<T: Clone> Differentiable for NoDerivative<T> {
    type TangentVector = ();
    fn visit_tensors(&self, _path: &KeyPath, _visit: VisitTensor<'_>) {}
    fn map_tensors(&self, _path: &KeyPath, _map: MakeTensor<'_>) -> Self {
        self.clone()
    }
    fn tangent(&self, _path: &KeyPath, _make: MakeTensor<'_>) {}
}

impl<T> Deref for NoDerivative<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
