//! List scheduling: of the kernels that are ready, always the one with the least key.

use super::{Dependencies, readers};
use crate::kernels::{BufferId, Kernels};
use std::collections::BTreeSet;
use wengert_core::id::IdVec;

/// How ready kernels are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// In the given order.
    AsGiven,
    /// First those that free at least what they take, the greatest gain first; then in the given order.
    FreeFirst,
    /// By what the load grows.
    LeastGrowth,
}

/// The order that a rule gives.
pub(super) fn list_schedule(
    kernels: &Kernels,
    bytes: &IdVec<BufferId, u64>,
    dependencies: &Dependencies,
    rule: Rule,
) -> Vec<usize> {
    let mut state = State::new(kernels, bytes, rule);
    let mut waits = dependencies.waits.clone();
    let mut order = Vec::with_capacity(waits.len());
    for k in (0..waits.len()).filter(|k| dependencies.waits[*k] == 0) {
        state.enter(k);
    }
    while let Some((_, k)) = state.ready.pop_first() {
        order.push(k);
        state.run(k);
        for next in &dependencies.successors[k] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                state.enter(*next);
            }
        }
    }
    assert_eq!(order.len(), waits.len(), "schedule: dependencies have no cycle");
    order
}

struct State<'a> {
    kernels: &'a Kernels,
    bytes: &'a IdVec<BufferId, u64>,
    rule: Rule,
    /// Readers to come, the end of the function among them.
    readers: IdVec<BufferId, usize>,
    /// Kernels that read each buffer.
    reading: IdVec<BufferId, Vec<usize>>,
    /// What the load grows by each kernel, as things are.
    growth: Vec<i128>,
    ready: BTreeSet<(i128, usize)>,
    done: Vec<bool>,
}

impl<'a> State<'a> {
    fn new(kernels: &'a Kernels, bytes: &'a IdVec<BufferId, u64>, rule: Rule) -> Self {
        let mut reading: IdVec<BufferId, Vec<usize>> = kernels.buffers.ids().map(|_| Vec::new()).collect();
        let readers = readers(kernels);
        let mut growth = Vec::with_capacity(kernels.kernels.len());
        for (k, kernel) in kernels.kernels.iter().enumerate() {
            let mut grows = 0;
            for buffer in kernel.distinct_reads() {
                reading[buffer].push(k);
                if readers[buffer] == 1 {
                    grows -= i128::from(bytes[buffer]);
                }
            }
            // What nobody reads is free again at once.
            let stays = kernel.writes.iter().filter(|b| readers[**b] > 0);
            growth.push(grows + stays.map(|b| i128::from(bytes[*b])).sum::<i128>());
        }
        let count = growth.len();
        State {
            kernels,
            bytes,
            rule,
            readers,
            reading,
            growth,
            ready: BTreeSet::new(),
            done: vec![false; count],
        }
    }

    fn key(&self, k: usize) -> (i128, usize) {
        match self.rule {
            Rule::AsGiven => (0, k),
            Rule::FreeFirst => (self.growth[k].min(1), k),
            Rule::LeastGrowth => (self.growth[k], k),
        }
    }

    fn enter(&mut self, k: usize) {
        self.ready.insert(self.key(k));
    }

    /// Accounts for kernel `k` having run: the last reader of a buffer will free it.
    fn run(&mut self, k: usize) {
        self.done[k] = true;
        let kernels = self.kernels;
        for buffer in kernels.kernels[k].distinct_reads() {
            self.readers[buffer] -= 1;
            if self.readers[buffer] != 1 {
                continue;
            }
            // The one that is left, unless it is the end of the function.
            let left = self.reading[buffer].iter().copied().find(|r| !self.done[*r]);
            let Some(last) = left else { continue };
            let old = self.key(last);
            self.growth[last] -= i128::from(self.bytes[buffer]);
            if self.ready.remove(&old) {
                self.ready.insert(self.key(last));
            }
        }
    }
}
