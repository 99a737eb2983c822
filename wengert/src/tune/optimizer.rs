//! The optimisers of a model that is trained after import.

use crate::optim::{Adafactor, Adagrad, Adam, AdamW, Lion, Muon, Rate, RmsProp, Sgd, Soap};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use wengert_core::build::FunctionBuilder;
use wengert_core::nearest::nearest;
use wengert_core::{Diagnostic, Result, Tensor, diagnostic};

/// An optimiser with the settings that it has by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Optimizer {
    /// [`AdamW`].
    AdamW,
    /// [`Adam`].
    Adam,
    /// [`Muon`].
    Muon,
    /// [`Soap`].
    Soap,
    /// [`Lion`].
    Lion,
    /// [`Adafactor`].
    Adafactor,
    /// [`RmsProp`].
    RmsProp,
    /// [`Adagrad`].
    Adagrad,
    /// [`Sgd`] without momentum.
    Sgd,
    /// [`Sgd`] with a momentum of 0.9.
    Momentum,
}

impl Optimizer {
    /// All of them.
    pub const ALL: [Optimizer; 10] = [
        Optimizer::AdamW,
        Optimizer::Adam,
        Optimizer::Muon,
        Optimizer::Soap,
        Optimizer::Lion,
        Optimizer::Adafactor,
        Optimizer::RmsProp,
        Optimizer::Adagrad,
        Optimizer::Sgd,
        Optimizer::Momentum,
    ];

    /// The name, as the option `--optimizer` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Optimizer::AdamW => "adamw",
            Optimizer::Adam => "adam",
            Optimizer::Muon => "muon",
            Optimizer::Soap => "soap",
            Optimizer::Lion => "lion",
            Optimizer::Adafactor => "adafactor",
            Optimizer::RmsProp => "rmsprop",
            Optimizer::Adagrad => "adagrad",
            Optimizer::Sgd => "sgd",
            Optimizer::Momentum => "momentum",
        }
    }

    /// Updates variables, which are state of the function, with their gradients.
    pub(super) fn step(
        self,
        f: &mut FunctionBuilder,
        rate: Rate,
        variables: &BTreeMap<String, Tensor>,
        gradient: &BTreeMap<String, Tensor>,
    ) {
        macro_rules! step {
            ($optimiser:expr) => {
                $optimiser.report_rate().step(f, variables, gradient)
            };
        }
        match self {
            Optimizer::AdamW => step!(AdamW::new(rate)),
            Optimizer::Adam => step!(Adam::new(rate)),
            Optimizer::Muon => step!(Muon::new(rate)),
            Optimizer::Soap => step!(Soap::new(rate)),
            Optimizer::Lion => step!(Lion::new(rate)),
            Optimizer::Adafactor => step!(Adafactor::new(rate)),
            Optimizer::RmsProp => step!(RmsProp::new(rate)),
            Optimizer::Adagrad => step!(Adagrad::new(rate)),
            Optimizer::Sgd => step!(Sgd::new(rate)),
            Optimizer::Momentum => step!(Sgd::new(rate).momentum(0.9)),
        }
    }
}

impl FromStr for Optimizer {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let names = || Optimizer::ALL.iter().map(|optimizer| optimizer.name());
        Optimizer::ALL.into_iter().find(|optimizer| optimizer.name() == text).ok_or_else(|| {
            let all = names().collect::<Vec<_>>().join(", ");
            diagnostic!("there is no optimizer `{text}`").help(match nearest(text, names()) {
                Some(near) => format!("did you mean `{near}`? there are {all}"),
                None => format!("there are {all}"),
            })
        })
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
