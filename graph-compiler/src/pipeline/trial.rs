//! The choice between a function with buckets and the function without.
//!
//! A bucket keeps its operands until the last of them exists, and has a copy of them. So its plan
//! may take more memory. The pass [`buckets`](crate::rewrite) is therefore on trial:
//!
//! - Without a budget, the plan with buckets is taken if its arena is at most that of the plan
//!   without, or [`SPARE`], up to which no memory is saved for overlap either.
//! - With a budget, both plans are within it. The plan with buckets is taken if it repeats no
//!   kernels, or if its repetitions cost no more time than those of the plan without.
//!
//! The second plan is made only where the first does not decide.

use super::compile::Options;
use crate::memory::{Planned, SPARE};
use wengert_core::Result;
use wengert_core::graph::Function;
use wengert_core::plan::Plan;

/// A function after the graph passes.
pub(super) struct Optimized {
    pub function: Function,
    /// The function without the changes of the pass on trial, if that has made any.
    pub plain: Option<Function>,
    /// The function after each run of a graph pass, if these are kept.
    pub stages: Vec<(&'static str, Function)>,
}

impl Optimized {
    /// The function that is used, with its plans. `plan` makes those of a function.
    ///
    /// Errors: those of `plan`, for the function without changes if there is one.
    pub fn chosen<P: AsRef<[Planned<Plan>]>>(
        self,
        options: &Options,
        plan: impl Fn(&Function) -> Result<P>,
    ) -> Result<(Function, P)> {
        let Optimized { function, plain, .. } = self;
        let changed = plan(&function);
        let Some(plain) = plain else { return Ok((function, changed?)) };
        let budget = options.memory_budget;
        let found = changed.as_ref().ok().map(|plans| Cost::of(plans.as_ref()));
        if found.is_some_and(|cost| cost.is_little(budget)) {
            return Ok((function, changed?));
        }
        let without = plan(&plain);
        let other = without.as_ref().ok().map(|plans| Cost::of(plans.as_ref()));
        match (found, other) {
            (Some(found), Some(other)) if found.is_at_most(other, budget) => {
                Ok((function, changed?))
            }
            (Some(_), None) => Ok((function, changed?)),
            _ => Ok((plain, without?)),
        }
    }
}

/// What plans cost besides their kernels.
#[derive(Clone, Copy)]
struct Cost {
    /// Bytes of the largest arena.
    arena: u64,
    /// Predicted seconds of repeated kernels.
    repetitions: f64,
}

impl Cost {
    fn of(plans: &[Planned<Plan>]) -> Cost {
        Cost {
            arena: plans.iter().map(|planned| planned.plan.arena).max().unwrap_or(0),
            repetitions: plans.iter().map(|planned| planned.repetitions.seconds).sum(),
        }
    }

    /// Whether plans of this cost are taken in any case.
    fn is_little(self, budget: Option<u64>) -> bool {
        match budget {
            None => self.arena <= SPARE,
            Some(_) => self.repetitions <= 0.0,
        }
    }

    fn is_at_most(self, other: Cost, budget: Option<u64>) -> bool {
        match budget {
            None => self.arena <= other.arena,
            Some(_) => self.repetitions <= other.repetitions,
        }
    }
}
