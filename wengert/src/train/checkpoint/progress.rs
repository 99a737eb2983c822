//! The progress of a run, and the tensors that hold it in a checkpoint.

use super::super::watch::Watch;
use crate::data::Arrays;
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// The progress of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Sum of the losses of the current epoch, each weighted by its number of examples.
    pub epoch_loss: f64,
    /// Number of examples seen in the current epoch.
    pub epoch_examples: u64,
    /// Fingerprint of the program, the recipe and the data. A run resumes only with the same
    /// ones.
    pub fingerprint: u64,
    /// What is remembered of the watched number.
    pub watch: Watch,
}

impl Progress {
    /// The tensors that hold it.
    pub(super) fn to_arrays(&self) -> Vec<(&'static str, Literal)> {
        let mut tensors = vec![
            ("/step", Literal::from(self.step)),
            ("/epoch_loss", Literal::from(self.epoch_loss)),
            ("/epoch_examples", Literal::from(self.epoch_examples)),
            ("/fingerprint", Literal::from(self.fingerprint)),
        ];
        tensors.extend(self.watch.to_arrays());
        tensors
    }

    /// Takes it out of the tensors of a checkpoint.
    ///
    /// Error: they do not hold it.
    pub(super) fn take(arrays: &mut Arrays) -> Result<Progress> {
        let mut take = |name: &str| -> Result<Literal> {
            let found = arrays.remove(name).filter(|literal| literal.shape().is_empty());
            found.ok_or_else(|| diagnostic!("it is no checkpoint: it has no `{name}`"))
        };
        let wrong = || Diagnostic::new("it is no checkpoint of this version");
        let whole = |literal: Literal| literal.as_slice::<u64>().map(|s| s[0]).ok_or_else(wrong);
        Ok(Progress {
            step: whole(take("/step")?)?,
            epoch_loss: take("/epoch_loss")?.as_slice::<f64>().map(|s| s[0]).ok_or_else(wrong)?,
            epoch_examples: whole(take("/epoch_examples")?)?,
            fingerprint: whole(take("/fingerprint")?)?,
            watch: Watch::take(arrays)?,
        })
    }
}
