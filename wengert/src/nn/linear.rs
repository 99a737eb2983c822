//! Affine maps.

use super::{glorot_uniform, kaiming_uniform, variable};
use wengert_core::{Differentiable, Initializer, Tensor};

/// `x · weight + bias` along the last axis.
#[derive(Differentiable, Clone, Debug)]
pub struct Linear {
    /// `[inputs, outputs]`.
    pub weight: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer with [Glorot's](glorot_uniform) weights and a bias of zeros.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Linear::of(inputs, outputs, glorot_uniform(inputs, outputs))
    }

    /// A layer with [Kaiming's](kaiming_uniform) weights, to be followed by a relu, and a bias of
    /// zeros.
    #[track_caller]
    pub fn kaiming(inputs: usize, outputs: usize) -> Self {
        Linear::of(inputs, outputs, kaiming_uniform(inputs))
    }

    /// A layer with weights of a normal distribution, of mean 0 and standard deviation `std`, and a
    /// bias of zeros.
    #[track_caller]
    pub(crate) fn normal(inputs: usize, outputs: usize, std: f64) -> Self {
        Linear::of(inputs, outputs, Initializer::Normal { mean: 0.0, std })
    }

    #[track_caller]
    fn of(inputs: usize, outputs: usize, initializer: Initializer) -> Self {
        let weight = variable(&[inputs, outputs], initializer);
        Linear { weight, bias: Some(variable(&[outputs], Initializer::Zeros)) }
    }

    /// The same layer without bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// `[…, inputs]` to `[…, outputs]`.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let y = x.dot(&self.weight);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
