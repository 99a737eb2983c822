//! RMSprop.

use super::Rate;
use super::settings::{Settings, optimiser, weight_decay, within};
use super::step::{Decay, Rule, Turn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Result, Tensor};

/// RMSprop (Hinton, *Neural Networks for Machine Learning*, lecture 6e, 2012), as in PyTorch:
///
/// ```text
/// g = gradient + weight_decay · p
/// v = α · v + (1 − α) · g²
/// d = g / (√v + ε)                       centered: g / (√(v − a²) + ε), a = α · a + (1 − α) · g
/// b = momentum · b + d
/// p = p − rate · b
/// ```
///
/// The centered form divides by the standard deviation of the gradient (Graves, *Generating
/// Sequences With Recurrent Neural Networks*, 2013).
///
/// State: `rmsprop.v.<path>`; with momentum `rmsprop.velocity.<path>`; centered
/// `rmsprop.mean.<path>`; `rmsprop.step` with a scheduled rate.
#[derive(Clone, Debug)]
pub struct RmsProp {
    settings: Settings,
    alpha: f64,
    epsilon: f64,
    momentum: f64,
    is_centered: bool,
}

optimiser!(RmsProp, settings);
weight_decay!(RmsProp, settings);

impl RmsProp {
    /// RMSprop with α = 0.99 and ε = 1e-8, without momentum, not centered.
    pub fn new(rate: impl Into<Rate>) -> Self {
        let settings = Settings::new("rmsprop", rate);
        RmsProp { settings, alpha: 0.99, epsilon: 1e-8, momentum: 0.0, is_centered: false }
    }

    /// α; 0.99 by default.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }

    /// ε; 1e-8 by default.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// With momentum, e.g. 0.9.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Divides by the standard deviation of the gradient.
    #[must_use]
    pub fn centered(mut self) -> Self {
        self.is_centered = true;
        self
    }
}

impl Rule for RmsProp {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Gradient
    }

    fn counts(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        within("α", self.alpha, 0.0..1.0)
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let g = &turn.gradient;
        let old = turn.moment(f, "v", 0);
        let v = &old.value * self.alpha + g.square() * (1.0 - self.alpha);
        turn.update(f, &old, &v);
        let variance = match self.is_centered {
            false => v,
            true => {
                let old = turn.moment(f, "mean", 2);
                let mean = &old.value * self.alpha + g * (1.0 - self.alpha);
                turn.update(f, &old, &mean);
                // Not negative, but for rounding errors.
                (v - mean.square()).max(0.0)
            }
        };
        let direction = g / (variance.sqrt() + self.epsilon);
        if self.momentum == 0.0 {
            return -turn.times_rate(&direction);
        }
        let old = turn.moment(f, "velocity", 1);
        let velocity = &old.value * self.momentum + direction;
        turn.update(f, &old, &velocity);
        -turn.times_rate(&velocity)
    }
}
