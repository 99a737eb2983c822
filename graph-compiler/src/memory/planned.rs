//! A plan with its predicted cost.

use crate::kernels::Kernels;
use crate::kernels::cost::{Cost, Rates};
use wengert_core::plan::Plan;
use wengert_core::{LocationId, Result, Verified};

/// A plan with the origins of its steps and its predicted cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned<P = Verified<Plan>> {
    /// The plan.
    pub plan: P,
    /// For each step, in the order of the text, the locations of its kernel's equations; none for
    /// copies.
    pub sources: Vec<Vec<LocationId>>,
    /// Predicted cost of a run, repetitions included.
    pub all: Prediction,
    /// The part of it that repeated kernels cost.
    pub repetitions: Prediction,
}

impl Planned<Plan> {
    /// The same with its plan verified.
    ///
    /// Error: the plan breaks an invariant.
    pub(crate) fn verified(self) -> Result<Planned> {
        let Planned { plan, sources, all, repetitions } = self;
        Ok(Planned { plan: Verified::new(plan)?, sources, all, repetitions })
    }
}

/// Predicted cost of a set of kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Number of kernels.
    pub kernels: usize,
    /// Their arithmetic and traffic.
    pub cost: Cost,
    /// Seconds, at the target's [`Rates`].
    pub seconds: f64,
}

impl Prediction {
    /// The cost of the kernels that `chosen` accepts.
    pub(super) fn of(kernels: &Kernels, chosen: impl Fn(usize) -> bool, rates: &Rates) -> Self {
        let some = kernels
            .kernels
            .iter()
            .enumerate()
            .filter(|(k, _)| chosen(*k))
            .map(|(_, kernel)| kernel);
        Prediction {
            kernels: some.clone().count(),
            cost: some.clone().map(|kernel| kernels.cost(kernel)).sum(),
            // An empty sum of floats is −0.
            seconds: some
                .map(|kernel| kernels.seconds(kernel, rates))
                .fold(0.0, |sum, seconds| sum + seconds),
        }
    }
}
