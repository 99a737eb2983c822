//! States in bf16: variables and moments in half of the memory, and what their rounding costs.
//!
//! A bf16 has 8 bits, so an update that is smaller than 1/256 of a variable is lost if it is
//! rounded to the nearest number: late in a training, and in moments that change by a thousandth a
//! step, that is most of them. Rounded stochastically, a small update has a small probability to be
//! a large one, and the mean is right.

use std::fmt;
use wengert::core::KeyPath;
use wengert::nn::with_dtype;
use wengert::optim::Muon;
use wengert::prelude::*;

/// How a training step stores variables and moments. It computes in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum States {
    /// As f32.
    #[default]
    F32,
    /// As bf16, rounded to the nearest.
    Bf16,
    /// As bf16, rounded stochastically.
    StochasticBf16,
}

impl States {
    /// All of them.
    pub const ALL: [States; 3] = [States::F32, States::Bf16, States::StochasticBf16];

    /// A model as it is stored.
    pub fn stored<M: Differentiable>(self, model: M) -> M {
        if self == States::F32 { model } else { with_dtype(&model, DType::BF16) }
    }

    /// A stored model in f32.
    pub fn read<M: Differentiable>(self, stored: &M) -> M {
        stored.map_tensors(&KeyPath::default(), &mut |_, tensor| tensor.convert(DType::F32))
    }

    /// AdamW that stores its moments like this.
    pub fn adam_w(self, optimiser: AdamW, key: &Tensor) -> AdamW {
        match self {
            States::F32 => optimiser,
            States::Bf16 => optimiser.moments(DType::BF16),
            States::StochasticBf16 => {
                optimiser.moments(DType::BF16).stochastic_rounding(&rounding(key))
            }
        }
    }

    /// Muon that stores its momentum like this.
    pub fn muon(self, optimiser: Muon, key: &Tensor) -> Muon {
        match self {
            States::F32 => optimiser,
            States::Bf16 => optimiser.moments(DType::BF16),
            States::StochasticBf16 => {
                optimiser.moments(DType::BF16).stochastic_rounding(&rounding(key))
            }
        }
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            States::F32 => "f32",
            States::Bf16 => "bf16, to nearest",
            States::StochasticBf16 => "bf16, stochastically",
        })
    }
}

/// The key of a step's roundings. The step's other random numbers do not depend on it.
fn rounding(key: &Tensor) -> Tensor {
    key.fold_in(0x_b16)
}

/// The mean of paired differences, and its standard error.
pub fn paired(values: &[f64], others: &[f64]) -> (f64, f64) {
    let differences: Vec<f64> = values.iter().zip(others).map(|(a, b)| a - b).collect();
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0) / count).sqrt())
}
