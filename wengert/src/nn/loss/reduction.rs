//! From the losses of elements or rows to the result of a loss.

use wengert_core::Tensor;

/// What a loss does with the losses of its elements, or of its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Reduction {
    /// Their mean, a scalar. NaN if there are none.
    #[default]
    Mean,
    /// Their sum, a scalar.
    Sum,
    /// Nothing: the result holds each loss.
    None,
}

impl Reduction {
    /// Applies it: `[…]` to `[]`, or to the same shape.
    #[track_caller]
    pub fn call(self, losses: &Tensor) -> Tensor {
        match self {
            Reduction::Mean => losses.mean(),
            Reduction::Sum => losses.sum(),
            Reduction::None => losses.clone(),
        }
    }
}
