//! Convolutions of sequences and images.

use super::{kaiming_uniform, variable};
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{Differentiable, Dim, Initializer, Tensor};

/// A convolution over N axes, with channels last: `[batch, extents…, inputs]` to
/// `[batch, extents′…, outputs]`. N is 1 for sequences ([`Conv1d`]) and 2 for images ([`Conv2d`]).
#[derive(Differentiable, Clone, Debug)]
pub struct Conv<const N: usize> {
    /// `[kernel…, inputs, outputs]`.
    pub weight: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
    #[no_derivative]
    stride: [usize; N],
    #[no_derivative]
    dilation: [usize; N],
    #[no_derivative]
    padding: Padding<N>,
    #[no_derivative]
    kernel: [usize; N],
}

/// A convolution of sequences: `[batch, steps, inputs]` to `[batch, steps′, outputs]`.
pub type Conv1d = Conv<1>;

/// A convolution of images: `[batch, height, width, inputs]` to
/// `[batch, height′, width′, outputs]`.
pub type Conv2d = Conv<2>;

/// The zeros around the operand. Those of `Same` and `Causal` depend on kernel and dilation.
#[derive(Clone, Copy, Debug)]
enum Padding<const N: usize> {
    Given([usize; N]),
    Same,
    Causal,
}

impl<const N: usize> Conv<N> {
    /// A layer with strides and dilations of 1 and without padding; [Kaiming's](kaiming_uniform)
    /// weights and a bias of zeros.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, kernel: [usize; N]) -> Self {
        let fan_in = inputs * kernel.iter().product::<usize>();
        let shape: Vec<usize> = kernel.into_iter().chain([inputs, outputs]).collect();
        Conv {
            weight: variable(&shape, kaiming_uniform(fan_in)),
            bias: Some(variable(&[outputs], Initializer::Zeros)),
            stride: [1; N],
            dilation: [1; N],
            padding: Padding::Given([0; N]),
            kernel,
        }
    }

    /// Sets the stride along each axis.
    #[must_use]
    pub fn stride(mut self, stride: [usize; N]) -> Self {
        self.stride = stride;
        self
    }

    /// Sets the distance of neighbouring elements of the kernel along each axis (Yu and Koltun,
    /// *Multi-scale context aggregation by dilated convolutions*, 2016).
    #[must_use]
    pub fn dilation(mut self, dilation: [usize; N]) -> Self {
        self.dilation = dilation;
        self
    }

    /// Sets the zero padding on both sides of each axis.
    #[must_use]
    pub fn padding(mut self, padding: [usize; N]) -> Self {
        self.padding = Padding::Given(padding);
        self
    }

    /// Sets the padding that keeps the extents at a stride of 1, for odd kernels.
    #[must_use]
    pub fn same(mut self) -> Self {
        self.padding = Padding::Same;
        self
    }

    /// Pads the beginning of each axis only, such that no result depends on later elements (van
    /// den Oord and others, *WaveNet*, 2016). The extents are kept at a stride of 1.
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.padding = Padding::Causal;
        self
    }

    /// Without bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// `[batch, extents…, inputs]` to `[batch, extents′…, outputs]`.
    ///
    /// # Errors
    ///
    /// x has another rank, dtype or number of channels; a stride or a dilation is 0; the padded
    /// operand is smaller than the kernel.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let zeros = |count: usize| Dim::constant(i64::try_from(count).unwrap_or(i64::MAX));
        let padding = |axis: usize| {
            // Distance between the first and the last element of the kernel.
            let span = self.kernel[axis].saturating_sub(1).saturating_mul(self.dilation[axis]);
            match self.padding {
                Padding::Given(padding) => (zeros(padding[axis]), zeros(padding[axis])),
                Padding::Same => (zeros(span / 2), zeros(span / 2)),
                Padding::Causal => (zeros(span), zeros(0)),
            }
        };
        let is_dilated = self.dilation != [1; N];
        let op = ConvGeneralDilated {
            stride: self.stride.to_vec(),
            rhs_dilation: if is_dilated { self.dilation.to_vec() } else { vec![] },
            padding: (0..N).map(padding).collect(),
            ..ConvGeneralDilated::new(N)
        };
        let y = Tensor::apply(op, &[x, &self.weight]);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
