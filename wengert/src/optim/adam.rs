//! Adam and AdamW.

use super::storage::{Storage, storage_settings};
use super::{Choice, Rate, Variable, advance, count, no_decay, variables, wide};
use std::rc::Rc;
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Differentiable, Tensor, TensorType};

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
    rate: Rate,
    betas: (f64, f64),
    epsilon: f64,
    weight_decay: f64,
    decays: Choice,
    reports_rate: bool,
    name: String,
    storage: Storage,
}

impl Core {
    fn new(name: &str, rate: Rate, weight_decay: f64) -> Self {
        let decays = Choice(Rc::new(|_, _| true));
        let (betas, epsilon, reports_rate) = ((0.9, 0.999), 1e-8, false);
        let (name, storage) = (name.into(), Storage::default());
        Core { rate, betas, epsilon, weight_decay, decays, reports_rate, name, storage }
    }

    #[track_caller]
    fn step<M: Differentiable>(
        &self,
        f: &mut FunctionBuilder,
        model: &M,
        gradient: &M::TangentVector,
    ) {
        let step = count(f, &self.name);
        if self.reports_rate {
            self.rate.report(f, Some(&step));
        }
        let variables = variables(f, model, gradient);
        let (mut decays, mut steps) = (Vec::new(), Vec::new());
        for variable in &variables {
            let Some([decay, direction]) = self.moves(f, &self.storage, &step, variable) else {
                return;
            };
            decays.push(decay);
            steps.push(direction);
        }
        match self.weight_decay == 0.0 {
            true => advance(f, model, gradient, &variables, &[steps], &self.storage),
            false => advance(f, model, gradient, &variables, &[decays, steps], &self.storage),
        }
    }

    /// Moves of a variable by the decay and by the step; `None` if it cannot decay, which the
    /// function reports.
    #[track_caller]
    fn moves(
        &self,
        f: &mut FunctionBuilder,
        storage: &Storage,
        step: &Tensor,
        variable: &Variable,
    ) -> Option<[Tensor; 2]> {
        let (first, second) = self.betas;
        let dtype = wide(&variable.value);
        let (value, g) = (variable.value.convert(dtype), variable.gradient.convert(dtype));
        let old_m = storage.moment(f, [&self.name, "m"], 0, variable);
        let old_v = storage.moment(f, [&self.name, "v"], 1, variable);
        let m = &old_m.value * first + &g * (1.0 - first);
        let v = &old_v.value * second + g.square() * (1.0 - second);
        storage.update(f, &old_m, variable, &m);
        storage.update(f, &old_v, variable, &v);
        let decays =
            self.weight_decay != 0.0 && (self.decays.0)(&variable.path, variable.value.ty());
        let decay = match decays {
            true if value.ty() != g.ty() => {
                no_decay(f, variable);
                return None;
            }
            true => -self.rate.times(&(&value * self.weight_decay), Some(step)),
            // Adding −0 changes no bit, not even the sign of 0, and compiles to nothing.
            false => g.full_like(-0.0),
        };
        let denominator = (v / correction(step, second, dtype)).sqrt() + self.epsilon;
        let direction = m / correction(step, first, dtype) / denominator;
        Some([decay, -self.rate.times(&direction, Some(step))])
    }
}

/// 1 − βᵗ as −(e^(t·ln β) − 1), which is accurate for βᵗ close to 1.
#[track_caller]
fn correction(step: &Tensor, beta: f64, dtype: DType) -> Tensor {
    -(step.convert(dtype) * beta.ln()).expm1()
}

macro_rules! settings {
    ($name:ident) => {
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

            /// Sets another name for its state; two optimisers in one function need different
            /// names.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.0.name = name.into();
                self
            }

            /// Adds an output [`LEARNING_RATE`](super::LEARNING_RATE) to the function, for a
            /// training log.
            #[must_use]
            pub fn report_rate(mut self) -> Self {
                self.0.reports_rate = true;
                self
            }

            /// Updates the model's state with its gradient.
            #[track_caller]
            pub fn step<M: Differentiable>(
                &self,
                f: &mut FunctionBuilder,
                model: &M,
                gradient: &M::TangentVector,
            ) {
                self.0.step(f, model, gradient);
            }
        }
    };
}
settings!(Adam);
settings!(AdamW);
storage_settings!(Adam, 0.storage);
storage_settings!(AdamW, 0.storage);

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

    /// Moves of a variable by the decay and by the step, for an optimiser that leaves some
    /// variables to this one.
    #[track_caller]
    pub(super) fn moves(
        &self,
        f: &mut FunctionBuilder,
        storage: &Storage,
        step: &Tensor,
        variable: &Variable,
    ) -> Option<[Tensor; 2]> {
        self.0.moves(f, storage, step, variable)
    }

    /// The weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.0.weight_decay = weight_decay;
        self
    }

    /// Decays only the variables that `decays` selects by key path and type, e.g. those with two
    /// axes or more.
    #[must_use]
    pub fn decay_where(mut self, decays: impl Fn(&str, &TensorType) -> bool + 'static) -> Self {
        self.0.decays = Choice(Rc::new(decays));
        self
    }
}
