//! Layer normalisation.

use super::variable;
use wengert_core::{DType, Differentiable, Initializer, Tensor};

/// `(x − mean) / √(variance + ε) · weight + bias`, mean and variance along the last axis (Ba, Kiros and Hinton 2016). Halves are
/// normalised in f32.
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
        let wide = if x.dtype().is_half() { DType::F32 } else { x.dtype() };
        let axes = [x.rank().saturating_sub(1)];
        let input = x.convert(wide);
        let mean = input.mean_axes(&axes);
        if mean.error().is_some() {
            return mean;
        }
        let centred = &input - mean.restore_axes(input.shape(), &axes);
        let deviation = (centred.square().mean_axes(&axes) + self.epsilon).rsqrt();
        let normal = centred * deviation.restore_axes(input.shape(), &axes);
        normal.convert(x.dtype()) * &self.weight + &self.bias
    }
}
