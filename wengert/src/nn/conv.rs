//! Convolutions of images.

use super::{kaiming_uniform, variable};
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{Differentiable, Dim, Initializer, Tensor};

/// A convolution of images with their channels last: `[batch, height, width, inputs]` to
/// `[batch, height′, width′, outputs]`.
#[derive(Differentiable, Clone, Debug)]
pub struct Conv2d {
    /// `[kernel height, kernel width, inputs, outputs]`.
    pub weight: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
    #[no_derivative]
    stride: [usize; 2],
    #[no_derivative]
    padding: [usize; 2],
    #[no_derivative]
    kernel: [usize; 2],
}

impl Conv2d {
    /// A layer with a stride of 1 and without padding; [Kaiming's](kaiming_uniform) weights and a
    /// bias of zeros.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, kernel: [usize; 2]) -> Self {
        let fan_in = inputs * kernel[0] * kernel[1];
        Conv2d {
            weight: variable(&[kernel[0], kernel[1], inputs, outputs], kaiming_uniform(fan_in)),
            bias: Some(variable(&[outputs], Initializer::Zeros)),
            stride: [1, 1],
            padding: [0, 0],
            kernel,
        }
    }

    /// Sets the strides along height and width.
    #[must_use]
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Sets the zero padding on both sides of height and width.
    #[must_use]
    pub fn padding(mut self, padding: [usize; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// Sets the padding that keeps height and width at a stride of 1, for odd kernels.
    #[must_use]
    pub fn same(self) -> Self {
        let [height, width] = self.kernel;
        self.padding([height / 2, width / 2])
    }

    /// Without bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// `[batch, height, width, inputs]` to `[batch, height′, width′, outputs]`.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let op = ConvGeneralDilated {
            stride: self.stride.to_vec(),
            padding: self.padding.map(|p| (Dim::from(p), Dim::from(p))).to_vec(),
            ..ConvGeneralDilated::new(2)
        };
        let y = Tensor::apply(op, &[x, &self.weight]);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
