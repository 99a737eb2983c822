//! Where the time of runs goes, kernel by kernel.

use std::time::{Duration, Instant};

/// What one kernel has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// How often it ran.
    pub runs: u64,
    /// How long, in all runs together, as the thread that follows the plan sees it.
    pub time: Duration,
}

/// What the kernels of a plan have taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Nests, by their number in the plan.
    pub nests: Vec<Spent>,
    /// Calls, in the order in which the plan lists them.
    pub calls: Vec<Spent>,
    /// All copies together.
    pub copies: Spent,
}

impl Profile {
    pub(super) fn new(nests: usize, calls: usize) -> Self {
        Profile {
            nests: vec![Spent::default(); nests],
            calls: vec![Spent::default(); calls],
            copies: Spent::default(),
        }
    }

    /// All kernels together.
    pub fn total(&self) -> Duration {
        let all = self.nests.iter().chain(&self.calls).chain([&self.copies]);
        all.map(|spent| spent.time).sum()
    }
}

impl Spent {
    pub(super) fn add(&mut self, since: Instant) {
        self.runs += 1;
        self.time += since.elapsed();
    }
}
