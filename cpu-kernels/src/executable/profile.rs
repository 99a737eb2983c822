//! The time of runs, by kernel.

use std::time::Duration;

/// The time of one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Number of runs.
    pub runs: u64,
    /// Total time of all runs, measured on the thread that executes the plan.
    pub time: Duration,
}

/// The times of a plan's kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Nests, by their number in the plan.
    pub nests: Vec<Spent>,
    /// Calls, in the order of the plan.
    pub calls: Vec<Spent>,
    /// All copies together.
    pub copies: Spent,
    /// All starts of transfers and waits for them together, and the time in which transfers were
    /// advanced between kernels.
    pub transfers: Spent,
}

impl Profile {
    pub(super) fn new(nests: usize, calls: usize) -> Self {
        Profile {
            nests: vec![Spent::default(); nests],
            calls: vec![Spent::default(); calls],
            copies: Spent::default(),
            transfers: Spent::default(),
        }
    }

    /// Total time of all kernels.
    pub fn total(&self) -> Duration {
        let all = self.nests.iter().chain(&self.calls).chain([&self.copies, &self.transfers]);
        all.map(|spent| spent.time).sum()
    }
}

impl Spent {
    pub(super) fn add(&mut self, time: Duration) {
        self.runs += 1;
        self.time += time;
    }
}
