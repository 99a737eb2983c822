//! Gradient descent.

use super::Rate;
use super::settings::{Settings, optimiser, weight_decay};
use super::step::{Decay, Rule, Turn};
use wengert_core::Tensor;
use wengert_core::build::FunctionBuilder;

/// Gradient descent, optionally with momentum:
///
/// ```text
/// g = gradient + weight_decay · p
/// v = momentum · v + g
/// p = p − rate · v                      (Nesterov: p − rate · (g + momentum · v))
/// ```
///
/// On a manifold the variable moves along −rate · v, and v is a plain sum of tangent vectors
/// without parallel transport.
///
/// State: `sgd.velocity.<path>` with momentum, `sgd.step` with a scheduled rate.
#[derive(Clone, Debug)]
pub struct Sgd {
    settings: Settings,
    momentum: f64,
    nesterov: bool,
}

optimiser!(Sgd, settings);
weight_decay!(Sgd, settings);

impl Sgd {
    /// Plain gradient descent.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Sgd { settings: Settings::new("sgd", rate), momentum: 0.0, nesterov: false }
    }

    /// With momentum, e.g. 0.9.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// With momentum in Nesterov's form.
    #[must_use]
    pub fn nesterov(mut self, momentum: f64) -> Self {
        (self.momentum, self.nesterov) = (momentum, true);
        self
    }
}

impl Rule for Sgd {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Gradient
    }

    fn counts(&self) -> bool {
        false
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let g = &turn.gradient;
        if self.momentum == 0.0 {
            return -turn.times_rate(g);
        }
        let old = turn.moment(f, "velocity", 0);
        let velocity = &old.value * self.momentum + g;
        turn.update(f, &old, &velocity);
        -turn.times_rate(&if self.nesterov { g + velocity * self.momentum } else { velocity })
    }
}
