//! Divergence of two distributions.

use super::{Reduction, alike};
use wengert_core::{Location, Tensor, diagnostic};

/// For each row, the divergence of a distribution t from a prediction p (Kullback and Leibler,
/// *On information and sufficiency*, 1951): Σ tₖ·(ln tₖ − ln pₖ) over the classes k. A class with
/// tₖ = 0 adds 0.
///
/// The mean is that of the rows, as of PyTorch's `batchmean` for matrices.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct KlDivergence {
    /// Whether the targets are ln t instead of t.
    pub log_targets: bool,
    /// Of the rows.
    pub reduction: Reduction,
}

impl KlDivergence {
    /// The loss of predictions ln p and targets t, or ln t, floats of one type `[…, C]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, are not floats, or have no axis.
    #[track_caller]
    pub fn call(&self, log_predictions: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let names = [("log-probabilities", log_predictions), ("targets", targets)];
        let [log_p, t] = match alike(names) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        let Some(axis) = log_p.rank().checked_sub(1) else {
            let error = diagnostic!("a divergence of {}", log_predictions.ty());
            let help = "distributions have an axis of classes, the last";
            return Tensor::fail_of(&[log_predictions], error.help(help));
        };
        let terms = if self.log_targets {
            t.exp() * (&t - log_p)
        } else {
            let there = t.ne(0.0);
            // The logarithm of 0 would give NaN, also in the derivative.
            let log_t = there.select(&t, &t.ones_like()).log();
            there.select(&(&t * (log_t - log_p)), &t.zeros_like())
        };
        self.reduction.call(&terms.sum_axes(&[axis]))
    }
}
