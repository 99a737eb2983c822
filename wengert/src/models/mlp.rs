//! A sequence of affine layers.

use crate::nn::{Activation, Linear};
use wengert_core::{Differentiable, Location, Tensor};

/// A multilayer perceptron (Rumelhart, Hinton and Williams 1986): affine layers with an
/// activation between them, and none after the last.
#[derive(Differentiable, Clone, Debug)]
pub struct Mlp {
    /// The layers.
    pub layers: Vec<Linear>,
    /// Between the layers.
    #[no_derivative]
    pub activation: Activation,
}

impl Mlp {
    /// A network of layers from `widths[0]` elements to the last width. Layers before a relu have
    /// the initial values of [`Linear::kaiming`], others those of [`Linear::new`].
    #[track_caller]
    pub fn new(widths: &[usize], activation: Activation) -> Self {
        let _user = Location::caller().attributed();
        let last = widths.len().saturating_sub(2);
        let layer = |(n, w): (usize, &[usize])| match n < last && activation == Activation::Relu {
            true => Linear::kaiming(w[0], w[1]),
            false => Linear::new(w[0], w[1]),
        };
        Mlp { layers: widths.windows(2).enumerate().map(layer).collect(), activation }
    }

    /// Number of learnt parameters of a network of these widths.
    pub fn parameters(widths: &[usize]) -> usize {
        widths.windows(2).map(|w| (w[0] + 1) * w[1]).sum()
    }

    /// `[…, widths[0]]` to `[…, last of the widths]`.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let Some((last, before)) = self.layers.split_last() else { return x.clone() };
        last.call(&before.iter().fold(x.clone(), |x, layer| self.activation.call(&layer.call(&x))))
    }
}
