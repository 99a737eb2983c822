//! Squared error.

use super::{Reduction, alike};
use wengert_core::{Location, Tensor};

/// (x − t)² for each element.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MeanSquaredError {
    /// Of the elements.
    pub reduction: Reduction,
}

impl MeanSquaredError {
    /// The loss of predictions x and targets t, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats.
    #[track_caller]
    pub fn call(&self, predictions: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        match alike([("predictions", predictions), ("targets", targets)]) {
            Ok([x, t]) => self.reduction.call(&(x - t).square()),
            Err(poisoned) => poisoned,
        }
    }
}
