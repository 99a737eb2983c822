//! Normalisation of each channel in each example.

use super::group_norm::{check_channels, standardize_axes};
use super::variable;
use wengert_core::{Differentiable, Initializer, Location, Tensor};

/// `(x − mean) / √(variance + ε) · weight + bias`, mean and variance of each example and each
/// channel over all positions (Ulyanov, Vedaldi and Lempitsky 2016). Channels are the last axis.
/// f16 and bf16 are normalised in f32.
#[derive(Differentiable, Clone, Debug)]
pub struct InstanceNorm {
    /// `[channels]`.
    pub weight: Tensor,
    /// `[channels]`.
    pub bias: Tensor,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
}

impl InstanceNorm {
    /// A layer with weights of one, biases of zero and ε = 1e-5.
    #[track_caller]
    pub fn new(channels: usize) -> Self {
        InstanceNorm {
            weight: variable(&[channels], Initializer::Ones),
            bias: variable(&[channels], Initializer::Zeros),
            epsilon: 1e-5,
        }
    }

    /// `[batch, …, channels]` to the same.
    ///
    /// # Errors
    ///
    /// x has no axis between batch and channels, or another number of channels than the layer.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let takes = "[batch, positions, channels], or more axes of positions";
        if let Err(poisoned) = check_channels("an instance norm", x, &self.weight, 3, takes) {
            return poisoned;
        }
        let positions: Vec<usize> = (1..x.rank() - 1).collect();
        standardize_axes(x, &positions, self.epsilon) * &self.weight + &self.bias
    }
}
