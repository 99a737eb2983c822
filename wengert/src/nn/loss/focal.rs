//! Binary cross-entropy in which easy examples count less.

use super::{BinaryCrossEntropy, Reduction, alike, refused};
use wengert_core::{Location, Tensor};

/// For each element with logit x and target t: αₜ·(1 − pₜ)^γ·CE, where CE is the
/// [`BinaryCrossEntropy`] and pₜ = t·σ(x) + (1 − t)·(1 − σ(x)) is the
/// probability of the target (Lin and others, *Focal loss for dense object detection*, 2017,
/// equation 5). The factor is small for examples that the network classifies well.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Focal {
    /// γ ≥ 0. With γ = 0 the factor (1 − pₜ)^γ is 1.
    pub gamma: f64,
    /// α in 0..=1: positive targets have the weight α, negative ones 1 − α. Without it all have
    /// the weight 1.
    pub alpha: Option<f64>,
    /// Of the elements.
    pub reduction: Reduction,
}

impl Default for Focal {
    /// γ = 2 and α = 0.25, the best of the paper.
    fn default() -> Self {
        Focal { gamma: 2.0, alpha: Some(0.25), reduction: Reduction::Mean }
    }
}

impl Focal {
    /// The loss of logits x and targets t in 0..=1, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats; γ is negative or not finite; α is
    /// not in 0..=1.
    #[track_caller]
    pub fn call(&self, logits: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let [x, t] = match alike([("logits", logits), ("targets", targets)]) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        let operands = [logits, targets];
        if !(self.gamma >= 0.0 && self.gamma.is_finite()) {
            return refused(
                "a focal loss with γ",
                self.gamma,
                "finite and not negative",
                &operands,
            );
        }
        if let Some(alpha) = self.alpha.filter(|alpha| !(0.0..=1.0).contains(alpha)) {
            return refused("a focal loss with α", alpha, "at least 0 and at most 1", &operands);
        }
        let cross_entropy = BinaryCrossEntropy { reduction: Reduction::None, ..Default::default() };
        let mut losses = cross_entropy.call(&x, &t);
        let negative = 1.0 - &t;
        if self.gamma > 0.0 {
            // 1 − pₜ. The difference from 1 would lose the digits of a small number.
            let missed = &negative * x.logistic() + &t * (-&x).logistic();
            losses = losses * missed.pow(self.gamma);
        }
        if let Some(alpha) = self.alpha {
            losses = losses * (&t * alpha + &negative * (1.0 - alpha));
        }
        self.reduction.call(&losses)
    }
}
