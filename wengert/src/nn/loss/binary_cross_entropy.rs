//! Cross-entropy of independent yes-or-no questions.

use super::{Reduction, alike};
use wengert_core::{Location, Tensor};

/// For each element, the cross-entropy of a target t in 0..1 and the probability σ(x) of a logit
/// x: −w·(p·t·ln σ(x) + (1 − t)·ln(1 − σ(x))).
///
/// The logarithm of a probability is computed from the logit: −ln σ(x) = ln(1 + e⁻ˣ), without
/// overflow. So large logits lose no accuracy.
#[derive(Clone, Debug, Default)]
pub struct BinaryCrossEntropy {
    /// p: the factor of positive targets, floats that broadcast to the logits. A class with ten
    /// negative examples for each positive one may have p = 10. Without it p is 1.
    pub positive_weight: Option<Tensor>,
    /// w: the weight of each element, floats that broadcast to the logits. Without it w is 1. The
    /// mean divides by the number of elements, not by the sum of their weights.
    pub weight: Option<Tensor>,
    /// Of the elements.
    pub reduction: Reduction,
}

impl BinaryCrossEntropy {
    /// The loss of logits x and targets t, floats of one type `[…]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, or are not floats; weights do not broadcast to them.
    #[track_caller]
    pub fn call(&self, logits: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let [x, t] = match alike([("logits", logits), ("targets", targets)]) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        // −ln(1 − σ(x)) is x − ln σ(x).
        let mut positive = (-&x).softplus();
        if let Some(weight) = &self.positive_weight {
            positive = positive * (&t * (spread(weight, &t) - 1.0) + 1.0);
        }
        let mut losses = (1.0 - &t) * &x + positive;
        if let Some(weight) = &self.weight {
            losses = losses * spread(weight, &t);
        }
        self.reduction.call(&losses)
    }
}

/// A weight in dtype and shape of the targets.
#[track_caller]
fn spread(weight: &Tensor, targets: &Tensor) -> Tensor {
    weight.convert(targets.dtype()).broadcast_to(targets.shape())
}
