//! The cosine of two vectors that are to be similar, or not.

use super::{Reduction, alike, check_rows};
use wengert_core::{DType, Location, Tensor, diagnostic};

/// Added to the squares of lengths, as by PyTorch.
const EPSILON: f64 = 1e-12;

/// For each row of two matrices of vectors a and b: 1 − cos(a, b) if they are to be similar, else
/// max(0, cos(a, b) − margin). The cosine is a·b / √((|a|² + ε)·(|b|² + ε)) with ε = 10⁻¹².
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CosineEmbedding {
    /// Dissimilar vectors whose cosine is at most this have no loss. Useful margins are 0..=0.5.
    pub margin: f64,
    /// Of the rows.
    pub reduction: Reduction,
}

impl CosineEmbedding {
    /// The loss of vectors a and b, floats of one type `[…, C]`, and of bools `[…]` that are true
    /// for rows that are to be similar.
    ///
    /// # Errors
    ///
    /// The vectors have different types, or are not floats; `similar` is not of bools, or has not
    /// the shape of the rows.
    #[track_caller]
    pub fn call(&self, a: &Tensor, b: &Tensor, similar: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let [x, y] = match alike([("vectors", a), ("vectors", b)]) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        if let Err(poisoned) = check_rows(("vectors", a), ("similarities", similar)) {
            return poisoned;
        }
        if similar.dtype() != DType::Bool {
            let error = diagnostic!("similarities of dtype {}", similar.dtype());
            let help = "they are bools, true for rows that are to be similar: compare, e.g. \
                        `y.gt(0)` for labels of 1 and −1";
            return Tensor::fail_of(&[similar], error.help(help));
        }
        let axis = [x.rank() - 1];
        let length = |v: &Tensor| v.square().sum_axes(&axis) + EPSILON;
        let cosine = (&x * &y).sum_axes(&axis) / (length(&x) * length(&y)).sqrt();
        let losses = similar.select(&(1.0 - &cosine), &(&cosine - self.margin).relu());
        self.reduction.call(&losses)
    }
}
