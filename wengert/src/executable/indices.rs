//! Checked runs: an index out of range is an error.
//!
//! The compiler appends the reports of a function's lookups to its outputs
//! ([`wengert_compiler::indices`]). They are read after the run, which has already replaced its
//! variables; so the old values are saved, and restored if a report has a fault.

use crate::data::Arrays;
use crate::signature::Signature;
use crate::store::Store;
use wengert_compiler::indices::Watched;
use wengert_core::graph::OutputRole;
use wengert_core::{Diagnostic, Literal, Result};

/// The first fault of the watched lookups in the reports of a run.
pub(super) fn fault(watched: &[Watched], reports: &[Literal]) -> Option<Diagnostic> {
    let fault = watched.iter().zip(reports).find_map(|(watched, report)| watched.fault(report))?;
    Some(fault.help(
        "mend the indices; without the check, the op defines what an index out of range gives",
    ))
}

/// The variables that a run will replace or create, as saved before it.
pub(super) struct Before {
    values: Arrays,
    /// Key paths of variables that it will create.
    absent: Vec<String>,
}

impl Before {
    pub(super) fn of(signature: &Signature, variables: &Store) -> Result<Before> {
        let mut before = Before { values: Arrays::new(), absent: vec![] };
        for output in signature.outputs.iter().filter(|output| output.role == OutputRole::State) {
            match variables.get(&output.name) {
                Some(stored) => {
                    drop(before.values.insert(output.name.clone(), stored.to_literal()?))
                }
                None => before.absent.push(output.name.clone()),
            }
        }
        Ok(before)
    }

    pub(super) fn restore(self, variables: &mut Store) -> Result<()> {
        self.absent.iter().for_each(|path| variables.remove(path));
        variables.set_all(self.values.iter())
    }
}
