//! Layer normalisation.

use super::variable;
use wengert_core::{Differentiable, Initializer, Tensor};

/// `(x − mean) / √(variance + ε) · weight + bias`, mean and variance along the last axis (Ba,
/// Kiros and Hinton 2016). f16 and bf16 are normalised in f32.
#[derive(Differentiable, Clone, Debug)]
pub struct LayerNorm {
    /// `[width]`.
    pub weight: Tensor,
    /// `[width]`.
    pub bias: Tensor,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
}

impl LayerNorm {
    /// A layer with weights of one, biases of zero and ε = 1e-5.
    #[track_caller]
    pub fn new(width: usize) -> Self {
        LayerNorm {
            weight: variable(&[width], Initializer::Ones),
            bias: variable(&[width], Initializer::Zeros),
            epsilon: 1e-5,
        }
    }

    /// `[…, width]` to the same.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let normal = x.standardize(x.rank().saturating_sub(1), self.epsilon);
        normal * &self.weight + &self.bias
    }
}
