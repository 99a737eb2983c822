//! Lookup of vectors by number.

use super::variable;
use wengert_core::{Differentiable, Initializer, Tensor};

/// A table of vectors.
#[derive(Differentiable, Clone, Debug)]
pub struct Embedding {
    /// `[entries, width]`.
    pub weight: Tensor,
}

impl Embedding {
    /// A table of normally distributed initial values with standard deviation 0.02, as GPT-2's.
    #[track_caller]
    pub fn new(entries: usize, width: usize) -> Self {
        Embedding {
            weight: variable(&[entries, width], Initializer::Normal { mean: 0.0, std: 0.02 }),
        }
    }

    /// The vectors of integers `[…]`, as `[…, width]`; numbers out of range are clamped.
    #[track_caller]
    pub fn call(&self, indices: &Tensor) -> Tensor {
        self.weight.gather_rows(indices)
    }
}
