//! Optimisers: graph code that updates state.
//!
//! | optimiser | of the gradient it takes | moments of a matrix m × n | paper |
//! |---|---|---|---|
//! | [`Sgd`] | itself, or a sum with momentum | 0 or mn | |
//! | [`Adam`], [`AdamW`] | mean over root mean square | 2mn | Kingma and Ba 2015; Loshchilov and Hutter 2019 |
//! | [`Lion`] | the sign of a mean | mn | Chen et al. 2023 |
//! | [`RmsProp`] | itself over root mean square | mn to 3mn | Hinton 2012 |
//! | [`Adagrad`] | itself over the root of the sum of squares | mn | Duchi et al. 2011 |
//! | [`Adafactor`] | itself over the root of means of rows and columns | m + n | Shazeer and Stern 2018 |
//! | [`Muon`] | an orthogonal matrix near the momentum | mn | Jordan et al. 2024 |
//! | [`Soap`] | Adam's step in the eigenbasis of g·gᵀ and gᵀ·g | 2(mn + m² + n²) | Vyas et al. 2024 |
//!
//! What surrounds them:
//!
//! | | |
//! |---|---|
//! | [`Rate`] | a constant or a schedule |
//! | [`Groups`] | variables that are frozen, do not decay, or have another rate, by patterns |
//! | [`clip_by_global_norm`], [`clip_by_value`] | limits of gradients |
//! | [`accumulate`] | the gradient of a batch, by parts of it |
//! | [`Ema`] | moving averages of weights |
//! | [`LossScale`] | gradients in f16 |
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
//! All optimisers share one step (`step.rs`), in which the rule of an optimiser is the move of one
//! variable. Weight decay is that of the reference: AdamW, Lion, Adafactor, Muon and SOAP move a
//! variable by −rate · weight_decay · p; SGD, RMSprop and Adagrad add weight_decay · p to the
//! gradient.
//!
//! A training log shows the learning rate and the norm of the gradient of a step function that has
//! them as outputs: `report_rate` of an optimiser adds [`LEARNING_RATE`], and
//! `f.output(optim::GRAD_NORM, optim::global_norm(&gradient))` the norm. [`report_gradients`] adds
//! the gradients themselves, for their distributions.

mod accumulate;
mod adafactor;
mod adagrad;
mod adam;
mod clip;
mod ema;
mod gradients;
mod groups;
mod lion;
mod loss_scale;
mod muon;
mod rate;
mod rms_prop;
mod settings;
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
pub use gradients::{GRADIENT, report_gradients};
pub use groups::Groups;
pub use lion::Lion;
pub use loss_scale::{LEAST_LOSS_SCALE, LOSS_SCALE, LossScale, SKIPPED, Scaled, scales_loss};
pub use muon::Muon;
pub use rate::{LEARNING_RATE, Rate, settable_rates};
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
