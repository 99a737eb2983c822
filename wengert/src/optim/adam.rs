//! Adam and AdamW.

use super::Rate;
use super::settings::{Settings, optimiser, weight_decay, within};
use super::step::{Decay, Rule, Turn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Result, Tensor};

/// Adam (Kingma and Ba 2015):
///
/// ```text
/// m = β₁ · m + (1 − β₁) · gradient              t counts steps from 1
/// v = β₂ · v + (1 − β₂) · gradient²
/// p = p − rate · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
/// ```
///
/// State: `adam.step`, `adam.m.<path>`, `adam.v.<path>`.
#[derive(Clone, Debug)]
pub struct Adam(Core);

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019): before Adam's update,
/// `p = p − rate · weight_decay · p`.
///
/// State: `adamw.step`, `adamw.m.<path>`, `adamw.v.<path>`.
#[derive(Clone, Debug)]
pub struct AdamW(Core);

#[derive(Clone, Debug)]
struct Core {
    settings: Settings,
    betas: (f64, f64),
    epsilon: f64,
}

impl Core {
    fn new(name: &str, rate: Rate, weight_decay: f64) -> Self {
        let settings = Settings { weight_decay, ..Settings::new(name, rate) };
        Core { settings, betas: (0.9, 0.999), epsilon: 1e-8 }
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let (first, second) = self.betas;
        let g = &turn.gradient;
        let old_m = turn.moment(f, "m", 0);
        let old_v = turn.moment(f, "v", 1);
        let m = &old_m.value * first + g * (1.0 - first);
        let v = &old_v.value * second + g.square() * (1.0 - second);
        turn.update(f, &old_m, &m);
        turn.update(f, &old_v, &v);
        let denominator = (v / correction(turn.step(), second, g.dtype())).sqrt() + self.epsilon;
        let direction = m / correction(turn.step(), first, g.dtype()) / denominator;
        -turn.times_rate(&direction)
    }
}

/// 1 − βᵗ as −(e^(t·ln β) − 1), which is accurate for βᵗ close to 1.
pub(super) fn correction(step: &Tensor, beta: f64, dtype: DType) -> Tensor {
    -(step.convert(dtype) * beta.ln()).expm1()
}

/// Checks the decays of two moments.
pub(super) fn check_betas((first, second): (f64, f64)) -> Result<()> {
    within("β₁", first, 0.0..1.0).and_then(|()| within("β₂", second, 0.0..1.0))
}

macro_rules! adam {
    ($name:ident) => {
        optimiser!($name, 0.settings);

        impl $name {
            /// β₁ and β₂; 0.9 and 0.999 by default.
            #[must_use]
            pub fn betas(mut self, first: f64, second: f64) -> Self {
                self.0.betas = (first, second);
                self
            }

            /// ε; 1e-8 by default.
            #[must_use]
            pub fn epsilon(mut self, epsilon: f64) -> Self {
                self.0.epsilon = epsilon;
                self
            }
        }

        impl Rule for $name {
            fn settings(&self) -> &Settings {
                &self.0.settings
            }

            fn decay(&self) -> Decay {
                Decay::Decoupled
            }

            fn check(&self) -> Result<()> {
                check_betas(self.0.betas)
            }

            fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
                self.0.travel(f, turn)
            }
        }
    };
}
adam!(Adam);
adam!(AdamW);
weight_decay!(AdamW, 0.settings);

impl Adam {
    /// Adam with β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Adam(Core::new("adam", rate.into(), 0.0))
    }
}

impl AdamW {
    /// AdamW with β₁ = 0.9, β₂ = 0.999, ε = 1e-8 and a weight decay of 0.01.
    pub fn new(rate: impl Into<Rate>) -> Self {
        AdamW(Core::new("adamw", rate.into(), 0.01))
    }
}
