//! Batch normalisation.

use super::variable;
use std::collections::BTreeMap;
use wengert_core::{DType, Differentiable, Initializer, Location, Tensor};

/// `(x − mean) / √(variance + ε) · weight + bias` (Ioffe and Szegedy 2015). In training, mean and variance are those of each channel (the last axis) in the
/// batch; in prediction, [`RunningStatistics`] of the batches that training has seen.
///
/// Running statistics are no part of the layer, as they have no gradient and no optimiser moves them: a training step takes them as state and updates them
/// with what [`train`](Self::train) gives. Given to `state` under the name of the model they have the names of published weights.
#[derive(Differentiable, Clone, Debug)]
pub struct BatchNorm {
    /// `[channels]`.
    pub weight: Tensor,
    /// `[channels]`.
    pub bias: Tensor,
    /// ε.
    #[no_derivative]
    pub epsilon: f64,
    /// The share of a batch in the running statistics after it.
    #[no_derivative]
    pub momentum: f64,
}

/// Mean and variance of the channels over the batches seen, of which the last weigh most.
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

    /// How the running statistics of this layer begin: means of zero, variances of one.
    #[track_caller]
    pub fn first_statistics(&self) -> RunningStatistics {
        let _user = Location::caller().attributed();
        let begin = |initializer| Tensor::variable(self.weight.ty().clone(), initializer);
        RunningStatistics { running_mean: begin(Initializer::Zeros), running_var: begin(Initializer::Ones) }
    }

    /// In prediction: `[…, channels]` to the same, by running statistics.
    #[track_caller]
    pub fn call(&self, x: &Tensor, running: &RunningStatistics) -> Tensor {
        let scale = &self.weight * (&running.running_var + self.epsilon).rsqrt();
        (x - &running.running_mean) * scale + &self.bias
    }

    /// In training: `[…, channels]` to the same, by the statistics of this batch, and the running statistics after it, which have no derivative.
    #[track_caller]
    pub fn train(&self, x: &Tensor, running: &RunningStatistics) -> (Tensor, RunningStatistics) {
        let _user = Location::caller().attributed();
        let axes: Vec<usize> = (0..x.rank().saturating_sub(1)).collect();
        let mean = x.mean_axes(&axes);
        let centred = x - &mean;
        let variance = centred.square().mean_axes(&axes);
        let y = centred * (&self.weight * (&variance + self.epsilon).rsqrt()) + &self.bias;
        let mixed = |old: &Tensor, new: &Tensor| old * (1.0 - self.momentum) + new * self.momentum;
        // Of n numbers the mean square is (n − 1)/n of the unbiased variance.
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
