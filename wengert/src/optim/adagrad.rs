//! Adagrad.

use super::Rate;
use super::settings::{Settings, optimiser, weight_decay, within};
use super::step::{Decay, Rule, Turn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Result, Tensor};

/// Adagrad (Duchi, Hazan and Singer, *Adaptive Subgradient Methods for Online Learning and
/// Stochastic Optimization*, 2011), as in PyTorch:
///
/// ```text
/// g = gradient + weight_decay · p                              t counts steps from 1
/// s = s + g²
/// p = p − rate / (1 + (t − 1) · rate_decay) · g / (√(initial + s) + ε)
/// ```
///
/// State: `adagrad.sum.<path>`, which is s; `adagrad.step` with a scheduled rate or with
/// `rate_decay`.
#[derive(Clone, Debug)]
pub struct Adagrad {
    settings: Settings,
    rate_decay: f64,
    initial: f64,
    epsilon: f64,
}

optimiser!(Adagrad, settings);
weight_decay!(Adagrad, settings);

impl Adagrad {
    /// Adagrad with ε = 1e-10; the sum begins at 0, and the rate does not decay.
    pub fn new(rate: impl Into<Rate>) -> Self {
        let settings = Settings::new("adagrad", rate);
        Adagrad { settings, rate_decay: 0.0, initial: 0.0, epsilon: 1e-10 }
    }

    /// The decay of the rate, PyTorch's `lr_decay`; 0 by default.
    #[must_use]
    pub fn rate_decay(mut self, rate_decay: f64) -> Self {
        self.rate_decay = rate_decay;
        self
    }

    /// What the sum of squares begins with, PyTorch's `initial_accumulator_value`; 0 by default.
    #[must_use]
    pub fn initial_sum(mut self, initial: f64) -> Self {
        self.initial = initial;
        self
    }

    /// ε; 1e-10 by default.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
}

impl Rule for Adagrad {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Gradient
    }

    fn counts(&self) -> bool {
        self.rate_decay != 0.0
    }

    fn check(&self) -> Result<()> {
        within("the decay of the rate", self.rate_decay, 0.0..f64::INFINITY)?;
        within("the initial sum of squares", self.initial, 0.0..f64::INFINITY)
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let g = &turn.gradient;
        let old = turn.moment(f, "sum", 0);
        let sum = &old.value + g.square();
        turn.update(f, &old, &sum);
        let sum = if self.initial == 0.0 { sum } else { sum + self.initial };
        let direction = g / (sum.sqrt() + self.epsilon);
        if self.rate_decay == 0.0 {
            return -turn.times_rate(&direction);
        }
        let done = turn.step().convert(g.dtype()) - 1.0;
        -turn.times_rate(&(direction / (done * self.rate_decay + 1.0)))
    }
}
