//! Optimisers: graph code that updates state.
//!
//! `step` takes a model whose tensors are state of the function, and a gradient of the same
//! structure. It declares the optimiser's state (moments, a step counter) under key paths that
//! join the optimiser's name and the variable's path, e.g. `adamw.m.model.hidden.weight`. It then
//! sets the next values of the model's variables and of this state. All of this is in the graph:
//! a training step with its optimiser is one function, which can be saved and run by any session.
//!
//! The model is moved by [`move_along`](wengert_core::Differentiable::move_along): vectors by
//! addition, manifolds (e.g. rotations) by their own definition. Moments have the shape of the
//! gradient.
//!
//! Integers in a model have no gradient and do not change. For f16 and bf16 variables, moments
//! are kept and updates computed in f32. Moments may be stored in bf16 as well
//! ([`AdamW::moments`]), and states in bf16 may be rounded stochastically
//! ([`AdamW::stochastic_rounding`]).
//!
//! A training log shows the learning rate and the norm of the gradient of a step function that has
//! them as outputs: `report_rate` of an optimiser adds [`LEARNING_RATE`], and
//! `f.output(optim::GRAD_NORM, optim::global_norm(&gradient))` the norm.

mod accumulate;
mod adafactor;
mod adagrad;
mod adam;
mod clip;
mod ema;
mod groups;
mod lion;
mod loss_scale;
mod muon;
mod rate;
mod rms_prop;
mod sgd;
mod soap;
mod step;
mod storage;

pub use accumulate::accumulate;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use clip::{GRAD_NORM, clip_by_global_norm, clip_by_value, global_norm};
pub use ema::Ema;
pub use groups::Groups;
pub use lion::Lion;
pub use loss_scale::{LEAST_LOSS_SCALE, LOSS_SCALE, LossScale, SKIPPED, Scaled, scales_loss};
pub use muon::Muon;
pub use rate::{LEARNING_RATE, Rate};
pub use rms_prop::RmsProp;
pub use sgd::Sgd;
pub use soap::Soap;

use std::fmt;
use std::rc::Rc;
use wengert_core::TensorType;

/// A choice of variables, by key path and type.
#[derive(Clone)]
struct Choice(Rc<Predicate>);

type Predicate = dyn Fn(&str, &TensorType) -> bool;

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice")
    }
}
