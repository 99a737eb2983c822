//! Transposed convolutions of images.

use super::{kaiming_uniform, variable};
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{Differentiable, Dim, Initializer, Tensor};

/// A transposed convolution of images with their channels last. Each element of the image adds
/// its value times the filters, at positions `stride` apart. `[batch, height, width, inputs]` to
/// `[batch, (height − 1) · stride + kernel, …, outputs]`.
///
/// It is the transpose of a convolution of that stride without padding (Zeiler and others 2010),
/// computed as a convolution of the image with zeros between its elements.
#[derive(Differentiable, Clone, Debug)]
pub struct ConvTranspose2d {
    /// `[kernel height, kernel width, inputs, outputs]`.
    pub weight: Tensor,
    /// `[outputs]`.
    pub bias: Tensor,
    #[no_derivative]
    stride: [usize; 2],
    #[no_derivative]
    kernel: [usize; 2],
}

impl ConvTranspose2d {
    /// A layer with a stride of 1, [Kaiming's](kaiming_uniform) weights and a bias of zeros.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, kernel: [usize; 2]) -> Self {
        ConvTranspose2d {
            weight: variable(&[kernel[0], kernel[1], inputs, outputs], kaiming_uniform(inputs)),
            bias: variable(&[outputs], Initializer::Zeros),
            stride: [1, 1],
            kernel,
        }
    }

    /// Sets the strides along height and width.
    #[must_use]
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// `[batch, height, width, inputs]` to `[batch, height′, width′, outputs]`.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let op = ConvGeneralDilated {
            padding: self.kernel.map(|k| (Dim::from(k - 1), Dim::from(k - 1))).to_vec(),
            lhs_dilation: self.stride.to_vec(),
            ..ConvGeneralDilated::new(2)
        };
        // A convolution gathers with the filter; the transpose scatters with it, hence the
        // reversal.
        Tensor::apply(op, &[x, &self.weight.reverse(&[0, 1])]) + &self.bias
    }
}
