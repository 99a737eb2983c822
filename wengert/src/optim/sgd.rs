//! Gradient descent.

use super::storage::{Storage, storage_settings};
use super::{Rate, advance, count, no_decay, variables, wide};
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Differentiable, Tensor};

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
    rate: Rate,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    reports_rate: bool,
    name: String,
    storage: Storage,
}

storage_settings!(Sgd, storage);

impl Sgd {
    /// Plain gradient descent.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Sgd {
            rate: rate.into(),
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            reports_rate: false,
            name: "sgd".into(),
            storage: Storage::default(),
        }
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

    /// Adds the gradient of weight_decay · |p|²/2.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Sets another name for its state than `sgd`; two optimisers in one function need different
    /// names.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an output [`LEARNING_RATE`](super::LEARNING_RATE) to the function, for a training log.
    #[must_use]
    pub fn report_rate(mut self) -> Self {
        self.reports_rate = true;
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
        let step = if self.rate.is_constant() { None } else { Some(count(f, &self.name)) };
        if self.reports_rate {
            self.rate.report(f, step.as_ref());
        }
        let variables = variables(f, model, gradient);
        let mut steps = Vec::with_capacity(variables.len());
        for variable in &variables {
            let dtype = wide(&variable.value);
            let mut g = variable.gradient.convert(dtype);
            if self.weight_decay != 0.0 {
                let value = variable.value.convert(dtype);
                if value.ty() != g.ty() {
                    return no_decay(f, variable);
                }
                g = g + value * self.weight_decay;
            }
            if self.momentum != 0.0 {
                let velocity = self.storage.moment(f, [&self.name, "velocity"], 0, variable);
                let next = &velocity.value * self.momentum + &g;
                self.storage.update(f, &velocity, variable, &next);
                let velocity = next;
                g = if self.nesterov { g + velocity * self.momentum } else { velocity };
            }
            steps.push(-self.rate.times(&g, step.as_ref()));
        }
        advance(f, model, gradient, &variables, &[steps], &self.storage);
    }
}
