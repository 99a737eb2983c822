//! Normalisation of groups of channels in each example.

use super::variable;
use wengert_core::{Differentiable, Dim, Initializer, Location, Tensor, diagnostic};

/// `(x − mean) / √(variance + ε) · weight + bias`, mean and variance of each example and each group
/// of neighbouring channels, over the group's channels and all positions (Wu and He 2018).
/// Channels are the last axis. f16 and bf16 are normalised in f32.
///
/// One group is a layer norm over all axes but the batch. As many groups as channels are an
/// [`InstanceNorm`](super::InstanceNorm).
#[derive(Differentiable, Clone, Debug)]
pub struct GroupNorm {
    /// `[channels]`.
    pub weight: Tensor,
    /// `[channels]`.
    pub bias: Tensor,
    /// Number of groups; they share the channels.
    #[no_derivative]
    pub groups: usize,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
}

impl GroupNorm {
    /// A layer with weights of one, biases of zero and ε = 1e-5.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> Self {
        GroupNorm {
            weight: variable(&[channels], Initializer::Ones),
            bias: variable(&[channels], Initializer::Zeros),
            groups,
            epsilon: 1e-5,
        }
    }

    /// `[batch, …, channels]` to the same.
    ///
    /// # Errors
    ///
    /// x has fewer than two axes, or another number of channels than the layer; the groups do not
    /// divide the channels.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let takes = "[batch, …, channels]";
        if let Err(poisoned) = check_channels("a group norm", x, &self.weight, 2, takes) {
            return poisoned;
        }
        let (channels, shape) = (x.rank() - 1, x.shape().to_vec());
        let share = i64::try_from(self.groups).ok().filter(|groups| *groups > 0);
        let share = share.and_then(|n| shape[channels].checked_exact_div(&Dim::constant(n)));
        let Some(share) = share else {
            let (count, groups) = (&shape[channels], self.groups);
            let error = diagnostic!("{groups} groups do not divide {count} channels");
            let help = "give a number of groups that divides the number of channels";
            return Tensor::fail_of(&[x], error.help(help));
        };
        let apart = [self.groups.into(), share];
        let grouped = x.reshape(shape[..channels].iter().cloned().chain(apart));
        let axes: Vec<usize> = (1..channels).chain([channels + 1]).collect();
        let normal = standardize_axes(&grouped, &axes, self.epsilon).reshape(shape);
        normal * &self.weight + &self.bias
    }
}

/// Checks the operand of a norm with weights `[channels]`: at least `rank` axes, of which the last
/// is that of the channels. `takes` is the shape for the help.
///
/// Error: a poisoned tensor.
#[track_caller]
pub(super) fn check_channels(
    norm: &str,
    x: &Tensor,
    weight: &Tensor,
    rank: usize,
    takes: &str,
) -> Result<(), Tensor> {
    if let Some(poisoned) = [x, weight].into_iter().find(|t| t.error().is_some()) {
        return Err(poisoned.clone());
    }
    if x.rank() < rank || x.shape().last() != weight.shape().last() {
        let error = diagnostic!("{norm} with weights {} of {}", weight.ty(), x.ty());
        let help = format!("it takes {takes}, and its weights are [channels]");
        return Err(Tensor::fail_of(&[x, weight], error.help(help)));
    }
    Ok(())
}

/// `(x − mean) / √(variance + ε)` with mean and biased variance along several axes. Halves are
/// computed in f32.
#[track_caller]
pub(super) fn standardize_axes(x: &Tensor, axes: &[usize], epsilon: f64) -> Tensor {
    let wide = x.convert(x.dtype().wide());
    let restore = |t: &Tensor| t.restore_axes(wide.shape(), axes);
    let mean = wide.mean_axes(axes);
    if mean.error().is_some() {
        return mean;
    }
    let centred = &wide - restore(&mean);
    let scale = (centred.square().mean_axes(axes) + epsilon).rsqrt();
    (centred * restore(&scale)).convert(x.dtype())
}
