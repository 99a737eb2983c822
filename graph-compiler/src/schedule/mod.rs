//! In which order kernels run.
//!
//! Any topological order computes the same bits; they differ in what must be in memory at one time, their *load*. An order is wanted whose greatest load, the
//! *peak*, is least, which is hard in general, so:
//!
//! 1. **Rules** (`ready`). List scheduling forward and, from the end, backward: of the kernels that are ready as given, whatever frees memory first, or what
//!    changes the load least. As long as no other has a lower peak, it is the order given, which for a training step is forward, then backward, but for what frees memory:
//!    so parameters are updated as soon as their gradients are there.
//! 2. **Search** (`search`). The best of these is improved where its load is greatest. The least that can be in memory while a kernel runs is a least cut of the graph (`cut`); so
//!    it is known which kernels are better moved across that moment, and often that no order is better.
//!
//! The load of a moment is counted as memory will be: results that take over a dying operand's bytes take none, and workspace does.
//!
//! **Donated state.** The new value of a state variable can be written over the old one only if nobody reads the old one
//! afterwards. So readers of the old value come before the kernel that makes the new one, wherever that makes no cycle.

mod cut;
mod flow;
mod problem;
mod ready;
mod search;
mod timeline;

use crate::kernels::{BufferId, Kernels};
use problem::Problem;
use search::{Found, search};
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::id::IdVec;

/// Which kernel has to wait for which.
struct Dependencies {
    /// Kernels that wait for each kernel; one that waits for several reasons is there as often.
    successors: Vec<Vec<usize>>,
    /// For how many reasons each kernel waits.
    waits: Vec<usize>,
}

/// What kernels take of the arena.
pub struct Costs<'a> {
    /// Bytes of each buffer: 0 for those that live elsewhere.
    pub bytes: &'a IdVec<BufferId, u64>,
    /// Bytes that each kernel needs besides its buffers while it runs.
    pub workspace: &'a [u64],
    /// For each kernel its results with the operands that they may be written over, of as many bytes; by results, and for each the operand to be tried first
    /// comes first. The product of a joined pair is an operand here.
    pub in_place: &'a [Vec<(BufferId, BufferId)>],
}

/// Positions of the kernels in the order in which they run.
pub fn order(kernels: &Kernels, costs: &Costs<'_>) -> Vec<usize> {
    let problem = Problem::new(kernels, costs, &Dependencies::new(kernels));
    let Found { peak, order, proven } = search(&problem);
    tracing::debug!(peak, proven, "ordered");
    order
}

impl Dependencies {
    fn new(kernels: &Kernels) -> Dependencies {
        let mut writer: IdVec<BufferId, Option<usize>> = kernels.buffers.ids().map(|_| None).collect();
        let mut readers: IdVec<BufferId, Vec<usize>> = kernels.buffers.ids().map(|_| Vec::new()).collect();
        let count = kernels.kernels.len();
        let mut all = Dependencies { successors: vec![Vec::new(); count], waits: vec![0; count] };
        for (k, kernel) in kernels.kernels.iter().enumerate() {
            for buffer in kernel.distinct_reads() {
                readers[buffer].push(k);
                if let Some(first) = writer[buffer] {
                    all.add(first, k);
                }
            }
            for buffer in &kernel.writes {
                writer[*buffer] = Some(k);
            }
        }
        let donated: Vec<(usize, BufferId)> = donations(kernels)
            .into_iter()
            .filter_map(|(before, after)| Some((writer[after]?, before)))
            .collect();
        // Waits that agree with the given order make no cycle among themselves.
        for (writer, before) in &donated {
            for reader in readers[*before].iter().filter(|r| *r < writer) {
                all.add(*reader, *writer);
            }
        }
        for (writer, before) in &donated {
            let late: Vec<usize> = readers[*before].iter().copied().filter(|r| r > writer).collect();
            if late.is_empty() {
                continue;
            }
            let after = all.reachable(*writer);
            if late.iter().all(|r| !after[*r]) {
                late.iter().for_each(|r| all.add(*r, *writer));
            }
        }
        all
    }

    fn add(&mut self, first: usize, then: usize) {
        self.successors[first].push(then);
        self.waits[then] += 1;
    }

    fn reachable(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.successors.len()];
        let mut stack = vec![from];
        while let Some(k) = stack.pop() {
            if !std::mem::replace(&mut seen[k], true) {
                stack.extend(self.successors[k].iter().filter(|s| !seen[**s]));
            }
        }
        seen
    }
}

/// State variables whose new value is another buffer than the old one: (old, new).
fn donations(kernels: &Kernels) -> Vec<(BufferId, BufferId)> {
    let states = kernels.inputs.iter().filter(|(input, _)| input.role == InputRole::State);
    let old: std::collections::BTreeMap<&str, BufferId> =
        states.map(|(i, b)| (i.name.as_str(), *b)).collect();
    kernels
        .outputs
        .iter()
        .filter(|(output, ..)| output.role == OutputRole::State)
        .filter_map(|(output, _, new)| Some((*old.get(output.name.as_str())?, *new)))
        .filter(|(old, new)| old != new)
        .collect()
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
