//! Normalisation by the root of the mean square.

use super::variable;
use wengert_core::{Differentiable, Initializer, Tensor};

/// `x / √(mean x² + ε) · weight`, the mean along the last axis (Zhang and Sennrich 2019). f16 and
/// bf16 are normalised in f32.
#[derive(Differentiable, Clone, Debug)]
pub struct RmsNorm {
    /// `[width]`.
    pub weight: Tensor,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
}

impl RmsNorm {
    /// A layer with weights of one and ε = 1e-6.
    #[track_caller]
    pub fn new(width: usize) -> Self {
        RmsNorm { weight: variable(&[width], Initializer::Ones), epsilon: 1e-6 }
    }

    /// `[…, width]` to the same.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        x.rms_normalize(x.rank().saturating_sub(1), self.epsilon) * &self.weight
    }
}
