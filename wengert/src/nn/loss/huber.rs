//! The error that is squared near 0 and absolute far from it.

use super::{Reduction, alike, refused};
use wengert_core::{Location, Tensor};

/// For each element with error d = x − t: d²/2 if |d| ≤ δ, else δ·(|d| − δ/2) (Huber, *Robust
/// estimation of a location parameter*, 1964). The derivative is d, clamped to ±δ.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Huber {
    /// δ: the greatest error that is squared, a positive number.
    pub delta: f64,
    /// Of the elements.
    pub reduction: Reduction,
}

impl Default for Huber {
    /// δ = 1.
    fn default() -> Self {
        Huber { delta: 1.0, reduction: Reduction::Mean }
    }
}

impl Huber {
    /// The loss of predictions x and targets t, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats; δ is not positive and finite.
    #[track_caller]
    pub fn call(&self, predictions: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let [x, t] = match alike([("predictions", predictions), ("targets", targets)]) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        if !(self.delta > 0.0 && self.delta.is_finite()) {
            let range = "positive and finite";
            return refused("a Huber loss with δ", self.delta, range, &[predictions, targets]);
        }
        let error = x - t;
        let size = error.abs();
        let squared = error.square() * 0.5;
        let absolute = (&size - 0.5 * self.delta) * self.delta;
        self.reduction.call(&size.le(self.delta).select(&squared, &absolute))
    }
}

/// The [`Huber`] loss with δ = β, divided by β: for each element with error d = x − t, d²/(2β) if
/// |d| ≤ β, else |d| − β/2. With β = 1 it is the loss of Girshick, *Fast R-CNN*, 2015.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmoothL1 {
    /// β: the greatest error that is squared, a positive number.
    pub beta: f64,
    /// Of the elements.
    pub reduction: Reduction,
}

impl Default for SmoothL1 {
    /// β = 1.
    fn default() -> Self {
        SmoothL1 { beta: 1.0, reduction: Reduction::Mean }
    }
}

impl SmoothL1 {
    /// The loss of predictions x and targets t, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats; β is not positive and finite.
    #[track_caller]
    pub fn call(&self, predictions: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let huber = Huber { delta: self.beta, reduction: self.reduction };
        huber.call(predictions, targets) / self.beta
    }
}
