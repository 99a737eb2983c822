//! Batch normalisation.

use super::variable;
use std::collections::BTreeMap;
use wengert_core::{DType, Differentiable, Initializer, Location, Tensor};

/// `(x − mean) / √(variance + ε) · weight + bias` (Ioffe and Szegedy 2015). In training, mean and
/// variance are those of each channel (the last axis) in the batch; in prediction, the
/// [`RunningStatistics`] of the training batches.
///
/// Running statistics are not part of the layer, since they have no gradient and no optimiser
/// updates them: a training step takes them as state and replaces them by the result of
/// [`train`](Self::train). Passed to `state` under the name of the model, they have the names of
/// published weights.
#[derive(Differentiable, Clone, Debug)]
pub struct BatchNorm {
    /// `[channels]`.
    pub weight: Tensor,
    /// `[channels]`.
    pub bias: Tensor,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
    /// Weight of the current batch in the updated running statistics.
    #[no_derivative]
    pub momentum: f64,
}

/// Mean and variance of the channels over past batches, as exponential moving averages.
#[derive(Differentiable, Clone, Debug)]
pub struct RunningStatistics {
    /// `[channels]`.
    pub running_mean: Tensor,
    /// `[channels]`; unbiased.
    pub running_var: Tensor,
}

/// The running statistics of a model's batch norms by their key paths.
pub type Statistics = BTreeMap<String, RunningStatistics>;

impl BatchNorm {
    /// A layer with weights of one, biases of zero, ε = 1e-5 and a momentum of 0.1.
    #[track_caller]
    pub fn new(channels: usize) -> Self {
        BatchNorm {
            weight: variable(&[channels], Initializer::Ones),
            bias: variable(&[channels], Initializer::Zeros),
            epsilon: 1e-5,
            momentum: 0.1,
        }
    }

    /// Initial running statistics of this layer: means of zero, variances of one.
    #[track_caller]
    pub fn first_statistics(&self) -> RunningStatistics {
        let _user = Location::caller().attributed();
        let begin = |initializer| Tensor::variable(self.weight.ty().clone(), initializer);
        RunningStatistics {
            running_mean: begin(Initializer::Zeros),
            running_var: begin(Initializer::Ones),
        }
    }

    /// Prediction: `[…, channels]` to the same, with running statistics.
    #[track_caller]
    pub fn call(&self, x: &Tensor, running: &RunningStatistics) -> Tensor {
        let scale = &self.weight * (&running.running_var + self.epsilon).rsqrt();
        (x - &running.running_mean) * scale + &self.bias
    }

    /// Training: `[…, channels]` to the same, with the statistics of this batch; and the updated
    /// running statistics, which have no derivative.
    #[track_caller]
    pub fn train(&self, x: &Tensor, running: &RunningStatistics) -> (Tensor, RunningStatistics) {
        let _user = Location::caller().attributed();
        let axes: Vec<usize> = (0..x.rank().saturating_sub(1)).collect();
        let mean = x.mean_axes(&axes);
        let centred = x - &mean;
        let variance = centred.square().mean_axes(&axes);
        let y = centred * (&self.weight * (&variance + self.epsilon).rsqrt()) + &self.bias;
        let mixed = |old: &Tensor, new: &Tensor| old * (1.0 - self.momentum) + new * self.momentum;
        // The mean square of n centred numbers is (n − 1)/n of the unbiased variance.
        let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let extents = axes.iter().map(|axis| Tensor::dim_as_value(x.shape()[*axis].clone(), wide));
        let count = extents.fold(Tensor::constant(1.0f64).convert(wide), |n, extent| n * extent);
        let unbiased = variance.stop_gradient() * (&count / (&count - 1.0)).convert(x.dtype());
        let seen = RunningStatistics {
            running_mean: mixed(&running.running_mean, &mean.stop_gradient()),
            running_var: mixed(&running.running_var, &unbiased),
        };
        (y, seen)
    }
}
