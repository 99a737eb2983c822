//! Settings that all optimisers have, and the methods that set them.

use super::storage::Storage;
use super::{Groups, Rate};
use wengert_core::{Result, diagnostic};

/// The settings that all optimisers have.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub rate: Rate,
    pub weight_decay: f64,
    pub groups: Groups,
    pub reports_rate: bool,
    pub name: String,
    pub storage: Storage,
}

impl Settings {
    pub fn new(name: &str, rate: impl Into<Rate>) -> Self {
        Settings {
            rate: rate.into(),
            weight_decay: 0.0,
            groups: Groups::new(),
            reports_rate: false,
            name: name.into(),
            storage: Storage::default(),
        }
    }
}

/// Checks that a number of an optimiser is within a range.
pub(super) fn within(what: &str, number: f64, range: std::ops::Range<f64>) -> Result<()> {
    match range.contains(&number) {
        true => Ok(()),
        false => Err(diagnostic!("{what} is {number}").help(match range.end.is_finite() {
            true => format!("it is at least {} and less than {}", range.start, range.end),
            false => format!("it is a number of at least {}", range.start),
        })),
    }
}

/// The methods of an optimiser that implements [`Rule`](super::step::Rule), whose settings are at a
/// path of fields.
macro_rules! optimiser {
    ($name:ident, $($settings:tt)+) => {
        impl $name {
            /// Sets another name for its state; two optimisers in one function need different
            /// names.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.$($settings)+.name = name.into();
                self
            }

            /// Adds an output [`LEARNING_RATE`](super::LEARNING_RATE) to the function, for a
            /// training log.
            #[must_use]
            pub fn report_rate(mut self) -> Self {
                self.$($settings)+.reports_rate = true;
                self
            }

            /// Freezes variables, exempts them from weight decay, or scales their rate, by
            /// patterns of their key paths. Groups of several calls add up.
            #[must_use]
            pub fn groups(mut self, groups: super::Groups) -> Self {
                self.$($settings)+.groups.extend(groups);
                self
            }

            /// Stores moments in a dtype, such as bf16, instead of that of the arithmetic, which
            /// is f32 or f64. Small changes of a half are lost, unless it is rounded
            /// [stochastically](Self::stochastic_rounding).
            #[must_use]
            pub fn moments(mut self, dtype: wengert_core::DType) -> Self {
                self.$($settings)+.storage.moments = Some(dtype);
                self
            }

            /// Rounds updates of variables and moments in bf16 stochastically: to one of the two
            /// nearest numbers, so that the mean is exact (Gupta and others, *Deep Learning with
            /// Limited Numerical Precision*, 2015). The key is one of this step, such as a key
            /// input of the function. Each state gets random numbers of its own.
            #[must_use]
            pub fn stochastic_rounding(mut self, key: &wengert_core::Tensor) -> Self {
                self.$($settings)+.storage.key = Some(key.clone());
                self
            }

            /// Updates the model's state with its gradient.
            #[track_caller]
            pub fn step<M: wengert_core::Differentiable>(
                &self,
                f: &mut wengert_core::build::FunctionBuilder,
                model: &M,
                gradient: &M::TangentVector,
            ) {
                super::step::step(self, f, model, gradient);
            }
        }
    };
}
pub(super) use optimiser;

/// The methods of weight decay.
macro_rules! weight_decay {
    ($name:ident, $($settings:tt)+) => {
        impl $name {
            /// The weight decay.
            #[must_use]
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.$($settings)+.weight_decay = weight_decay;
                self
            }

            /// Decays only the variables that `decays` selects by key path and type, e.g. those
            /// with two axes or more: [`Groups::decay_where`](super::Groups::decay_where).
            #[must_use]
            pub fn decay_where(
                self,
                decays: impl Fn(&str, &wengert_core::TensorType) -> bool + 'static,
            ) -> Self {
                self.groups(super::Groups::new().decay_where(decays))
            }
        }
    };
}
pub(super) use weight_decay;
