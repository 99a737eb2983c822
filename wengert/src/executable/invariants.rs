//! What a function computes from its parameters alone, computed once for each value of them.
//!
//! The results are variables of the store that users do not see. They are computed before the
//! first run, and again before a run that follows a change of any variable.

use crate::device::Backend;
use crate::store::Store;
use std::sync::{Arc, Mutex, PoisonError};
use wengert_compiler::pipeline::{Sources, Traced};
use wengert_core::plan::Plan;
use wengert_core::{Result, Verified};

/// The invariants of a function.
pub(super) struct Invariants {
    backend: Arc<dyn Backend>,
    plan: Verified<Plan>,
    sources: Sources,
    /// The version of the variables from which the present values were computed.
    version: Mutex<Option<u64>>,
}

impl Invariants {
    /// The invariants that a plan computes.
    pub fn new(backend: Arc<dyn Backend>, (plan, sources): Traced) -> Self {
        Invariants { backend, plan, sources, version: Mutex::new(None) }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes them, unless they are up to date.
    ///
    /// Errors: of the device; there is not enough memory.
    pub fn compute(&self, variables: &mut Store) -> Result<()> {
        // A run that panicked has not changed the version.
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if *version == Some(variables.version()) {
            return Ok(());
        }
        // The plan's memory is needed for one run only, so it is not kept.
        let sources = Some(self.sources.clone());
        let mut prepared = self.backend.prepare(self.plan.clone(), sources, u64::MAX)?;
        prepared.run(&[], variables)?;
        self.backend.finish()?;
        *version = Some(variables.version());
        Ok(())
    }
}
