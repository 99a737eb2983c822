//! In which order kernels run.
//!
//! Any topological order computes the same bits; they differ in what must be in memory at one time. Three rules for choosing
//! among the kernels that are ready are tried, and the order whose greatest load is least is kept (the first of equals):
//!
//! - as given, which for a training step is forward, then backward;
//! - whatever frees memory as soon as it can, else as given;
//! - always what changes the load least.
//!
//! **Donated state.** The new value of a state variable can be written over the old one only if nobody reads the old one
//! afterwards. So readers of the old value come before the kernel that makes the new one, wherever that makes no cycle.

mod ready;

use crate::kernels::{BufferId, Kernels};
use ready::Rule;
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::id::IdVec;

/// Which kernel has to wait for which.
struct Dependencies {
    /// Kernels that wait for each kernel; one that waits for several reasons is there as often.
    successors: Vec<Vec<usize>>,
    /// For how many reasons each kernel waits.
    waits: Vec<usize>,
}

/// Positions of the kernels in the order in which they run. `bytes` is what each buffer takes of the arena: 0 for those that
/// live elsewhere.
pub fn order(kernels: &Kernels, bytes: &IdVec<BufferId, u64>) -> Vec<usize> {
    let dependencies = Dependencies::new(kernels);
    let mut best: Option<(u64, Vec<usize>)> = None;
    for rule in [Rule::AsGiven, Rule::FreeFirst, Rule::LeastGrowth] {
        let order = ready::list_schedule(kernels, bytes, &dependencies, rule);
        let peak = peak(kernels, bytes, &order);
        if best.as_ref().is_none_or(|(least, _)| peak < *least) {
            best = Some((peak, order));
        }
    }
    best.expect("there is at least one rule").1
}

/// For each buffer how many kernels read it; outputs of the function are read once more, at the end.
fn readers(kernels: &Kernels) -> IdVec<BufferId, usize> {
    let mut readers: IdVec<BufferId, usize> = kernels.buffers.ids().map(|_| 0).collect();
    for kernel in &kernels.kernels {
        for buffer in kernel.distinct_reads() {
            readers[buffer] += 1;
        }
    }
    for (_, _, buffer) in &kernels.outputs {
        readers[*buffer] += 1;
    }
    readers
}

/// The greatest load of an order, with operands and results of a kernel side by side.
fn peak(kernels: &Kernels, bytes: &IdVec<BufferId, u64>, order: &[usize]) -> u64 {
    let mut readers = readers(kernels);
    let (mut load, mut peak) = (0u64, 0u64);
    for kernel in order.iter().map(|k| &kernels.kernels[*k]) {
        load = kernel.writes.iter().fold(load, |sum, b| sum.saturating_add(bytes[*b]));
        peak = peak.max(load);
        for buffer in kernel.distinct_reads() {
            readers[buffer] -= 1;
            if readers[buffer] == 0 {
                load = load.saturating_sub(bytes[buffer]);
            }
        }
        for buffer in &kernel.writes {
            if readers[*buffer] == 0 {
                load = load.saturating_sub(bytes[*buffer]);
            }
        }
    }
    peak
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
mod tests;
