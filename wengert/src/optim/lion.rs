//! Lion.

use super::Rate;
use super::adam::check_betas;
use super::settings::{Settings, optimiser, weight_decay};
use super::step::{Decay, Rule, Turn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Result, Tensor};

/// Lion, *EvoLved Sign Momentum* (Chen et al., *Symbolic Discovery of Optimization Algorithms*,
/// 2023): every element of a step has the magnitude of the rate.
///
/// ```text
/// p = p − rate · weight_decay · p
/// p = p − rate · sign(β₁ · m + (1 − β₁) · gradient)
/// m = β₂ · m + (1 − β₂) · gradient
/// ```
///
/// It keeps one moment, half of what [`Adam`](super::Adam) keeps. The authors take a rate of a
/// third to a tenth of AdamW's, and a weight decay that is larger by as much.
///
/// State: `lion.momentum.<path>`, `lion.step` with a scheduled rate.
#[derive(Clone, Debug)]
pub struct Lion {
    settings: Settings,
    betas: (f64, f64),
}

optimiser!(Lion, settings);
weight_decay!(Lion, settings);

impl Lion {
    /// Lion with β₁ = 0.9, β₂ = 0.99, and no weight decay.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Lion { settings: Settings::new("lion", rate), betas: (0.9, 0.99) }
    }

    /// β₁ and β₂; 0.9 and 0.99 by default.
    #[must_use]
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.betas = (first, second);
        self
    }
}

impl Rule for Lion {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Decoupled
    }

    fn counts(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let (first, second) = self.betas;
        let g = &turn.gradient;
        let old = turn.moment(f, "momentum", 0);
        let m = &old.value;
        turn.update(f, &old, &(m * second + g * (1.0 - second)));
        -turn.times_rate(&(m * first + g * (1.0 - first)).sign())
    }
}
