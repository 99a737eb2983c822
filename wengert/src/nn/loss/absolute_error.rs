//! Absolute error.

use super::{Reduction, alike};
use wengert_core::{Location, Tensor};

/// |x − t| for each element. Its derivative at 0 is 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MeanAbsoluteError {
    /// Of the elements.
    pub reduction: Reduction,
}

impl MeanAbsoluteError {
    /// The loss of predictions x and targets t, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats.
    #[track_caller]
    pub fn call(&self, predictions: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        match alike([("predictions", predictions), ("targets", targets)]) {
            Ok([x, t]) => self.reduction.call(&(x - t).abs()),
            Err(poisoned) => poisoned,
        }
    }
}
