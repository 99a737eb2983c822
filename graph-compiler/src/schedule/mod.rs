//! Scheduling: the order in which kernels run.
//!
//! Every topological order computes the same bits. Orders differ in their *load*, the bytes in
//! memory at each moment. The aim is an order whose greatest load, the *peak*, is least. This is
//! hard in general, so:
//!
//! 1. **Rules** (`ready`). List scheduling forward, and backward from the end. Three rules choose
//!    among the ready kernels: the given order, kernels that free memory first, and least growth
//!    of the load. Unless another order has a lower peak, the result is the given order with
//!    kernels that free memory first. For a training step this is forward, then backward, with
//!    each parameter updated as soon as its gradient is computed.
//! 2. **Search** (`search`). The best of these orders is improved at its greatest load. The least
//!    memory while a kernel runs is a minimum cut of the graph (`cut`). The cut tells which
//!    kernels to move across that moment, and often proves that no order is better.
//!
//! The load counts memory as the plan will use it: results that take a dying operand's bytes add
//! none, and workspace counts.
//!
//! **Donated state.** The new value of a state variable can overwrite the old one only if no
//! kernel reads the old one afterwards. So readers of the old value come before the kernel that
//! computes the new one, wherever that makes no cycle.
//!
//! **Late updates.** On targets whose kernels share launches, small updates of variables move to
//! the end of the order, as neighbours (`late`).
//!
//! **Overlap.** In a function of several ranks, another order starts collectives early and reads
//! their results late ([`overlap()`]).

mod cut;
mod flow;
mod late;
mod overlap;
mod ready;
mod search;
mod task_graph;
mod timeline;

use crate::kernels::{BufferId, Kernels};
pub use overlap::{Overlap, exchanged, overlap};
use search::{Found, search};
use task_graph::TaskGraph;
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::id::IdVec;

/// The dependencies between kernels.
struct Dependencies {
    /// The kernels that depend on each kernel, once per dependency.
    successors: Vec<Vec<usize>>,
    /// Number of dependencies of each kernel.
    waits: Vec<usize>,
}

/// The bytes of the arena that kernels need.
pub struct Costs<'a> {
    /// Bytes of each buffer: 0 for those outside the arena.
    pub bytes: &'a IdVec<BufferId, u64>,
    /// Bytes that each kernel needs besides its buffers while it runs.
    pub workspace: &'a [u64],
    /// For each kernel its results with operands of the same size that they may overwrite. Sorted
    /// by result, and for each result by preference. The product of a followed product counts as an
    /// operand here.
    pub in_place: &'a [Vec<(BufferId, BufferId)>],
}

/// Positions of the kernels in the order in which they run. `late`: whether small updates of
/// variables are neighbours at the end.
pub fn order(kernels: &Kernels, costs: &Costs<'_>, late: bool) -> Vec<usize> {
    let graph = TaskGraph::new(kernels, costs, &Dependencies::new(kernels));
    let Found { peak, order, proven } = search(&graph);
    tracing::debug!(peak, proven, "ordered");
    match late {
        true => late::late(kernels, &graph, order, peak),
        false => order,
    }
}

impl Dependencies {
    fn new(kernels: &Kernels) -> Dependencies {
        let mut writer: IdVec<BufferId, Option<usize>> =
            kernels.buffers.ids().map(|_| None).collect();
        let mut readers: IdVec<BufferId, Vec<usize>> =
            kernels.buffers.ids().map(|_| Vec::new()).collect();
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
        // Dependencies that agree with the given order make no cycle among themselves.
        for (writer, before) in &donated {
            for reader in readers[*before].iter().filter(|r| *r < writer) {
                all.add(*reader, *writer);
            }
        }
        for (writer, before) in &donated {
            let late: Vec<usize> =
                readers[*before].iter().copied().filter(|r| r > writer).collect();
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

/// State variables whose new value is a different buffer: (old, new).
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
