//! An order in which collectives overlap with kernels.
//!
//! An order of least memory runs a collective where its result is needed, and each rank then waits
//! for the slowest. In a training step that is once for each gradient. Here collectives are started
//! as soon as their operands exist, and kernels that read their results run as late as possible:
//! the updates of variables after the backward pass.
//!
//! **Algorithm.** List scheduling that hides latency. A collective is *under way* from its start
//! until it *arrives*; kernels that depend on it are not ready before. Of the ready kernels the
//! first in the given order runs next. A collective that is ready starts at once. When no kernel is
//! ready, the oldest collective arrives. How long a transfer takes is not known here, so the
//! schedule assumes that it takes as long as there is other work.
//!
//! **Memory.** Operands and results under way are in memory. `most` bounds their bytes: a
//! collective that does not fit waits for its turn in the given order, and then the oldest ones
//! arrive until it fits. One that is larger than `most` arrives at once. So 0 gives the given
//! order. The bound does not cover kernels that run earlier than in the given order; the caller
//! compares the memory of plans.
//!
//! The order is the same on all ranks, since it depends on the function alone. So the ranks start
//! their collectives in the same order.
//!
//! Time: O(n log n) for n dependencies.

use super::Dependencies;
use crate::kernels::{Kernel, Kernels, Work};
use std::collections::{BTreeSet, VecDeque};

/// Kernels in an order in which collectives are started and waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// The order. A collective is where it starts.
    pub order: Vec<usize>,
    /// The collectives that are under way while others start or kernels run, in the order of their
    /// starts. Each with the position in the order of the kernel before which it arrives, or the
    /// end.
    pub waits: Vec<(usize, usize)>,
}

/// The bytes of operand and result of a kernel that is a collective. None if nothing is exchanged.
pub fn exchanged(kernels: &Kernels, kernel: &Kernel) -> Option<u64> {
    let Work::Call(call) = &kernel.work else { return None };
    call.collective().filter(|collective| collective.kind.exchanges())?;
    let bytes = |b| kernels.buffers[b].bytes().expect("kernels were verified: types fit") as u64;
    let bytes = kernel.reads.iter().chain(&kernel.writes).map(|b| bytes(*b)).sum();
    Some(bytes).filter(|bytes| *bytes > 0)
}

/// The order with at most `most` bytes under way, from a given order.
pub fn overlap(kernels: &Kernels, given: &[usize], most: u64) -> Overlap {
    let mut place = vec![0; given.len()];
    given.iter().enumerate().for_each(|(n, k)| place[*k] = n);
    let Dependencies { successors, waits: dependencies } = Dependencies::new(kernels);
    let sizes = kernels.kernels.iter().map(|kernel| exchanged(kernels, kernel)).collect();
    let mut list = List {
        place,
        successors,
        dependencies,
        sizes,
        ready: BTreeSet::new(),
        collectives: BTreeSet::new(),
        under_way: VecDeque::new(),
        bytes: 0,
    };
    for k in 0..given.len() {
        if list.dependencies[k] == 0 {
            list.is_ready(k);
        }
    }
    let (mut order, mut waits) = (Vec::with_capacity(given.len()), Vec::new());
    loop {
        let first = list.collectives.first().map(|(_, k)| *k);
        if let Some(k) = first.filter(|k| list.bytes.saturating_add(list.size(*k)) <= most) {
            order.push(k);
            list.start(k);
            continue;
        }
        match list.ready.first().map(|(_, k)| *k) {
            Some(k) if list.sizes[k].is_none() || list.under_way.is_empty() => {
                order.push(k);
                list.run(k);
            }
            _ => {
                let Some(k) = list.under_way.pop_front() else { break };
                if order.last() != Some(&k) {
                    waits.push((k, order.len()));
                }
                list.arrive(k);
            }
        }
    }
    assert_eq!(order.len(), given.len(), "overlap: dependencies have no cycle");
    Overlap { order, waits }
}

/// The state of the list scheduling.
struct List {
    /// The position of each kernel in the given order.
    place: Vec<usize>,
    successors: Vec<Vec<usize>>,
    /// Dependencies of each kernel that have not run or not arrived.
    dependencies: Vec<usize>,
    /// Bytes of each collective.
    sizes: Vec<Option<u64>>,
    /// Ready kernels by their places, and the collectives among them.
    ready: BTreeSet<(usize, usize)>,
    collectives: BTreeSet<(usize, usize)>,
    /// Collectives under way, and their bytes.
    under_way: VecDeque<usize>,
    bytes: u64,
}

impl List {
    fn size(&self, k: usize) -> u64 {
        self.sizes[k].unwrap_or(0)
    }

    fn is_ready(&mut self, k: usize) {
        self.ready.insert((self.place[k], k));
        if self.sizes[k].is_some() {
            self.collectives.insert((self.place[k], k));
        }
    }

    fn is_not_ready(&mut self, k: usize) {
        self.ready.remove(&(self.place[k], k));
        self.collectives.remove(&(self.place[k], k));
    }

    /// Runs a kernel to its end.
    fn run(&mut self, k: usize) {
        self.is_not_ready(k);
        self.release(k);
    }

    fn start(&mut self, k: usize) {
        self.is_not_ready(k);
        self.under_way.push_back(k);
        self.bytes += self.size(k);
    }

    fn arrive(&mut self, k: usize) {
        self.bytes -= self.size(k);
        self.release(k);
    }

    fn release(&mut self, k: usize) {
        for n in 0..self.successors[k].len() {
            let next = self.successors[k][n];
            self.dependencies[next] -= 1;
            if self.dependencies[next] == 0 {
                self.is_ready(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::BufferId;
    use crate::samples::Sample;
    use wengert_core::DType;
    use wengert_core::call::{Collective, CollectiveKind};
    use wengert_core::graph::{InputRole, OutputRole};

    /// Elements of a gradient, and bytes of one with its sum.
    const N: usize = 100;
    const BYTES: u64 = 2 * 4 * N as u64;

    /// A chain of gradients, each summed over ranks, doubled and put out. The given order is that
    /// of least memory: kernels 4i to 4i + 3 are a gradient, its sum, its use and the next link.
    fn chain(links: usize) -> Sample {
        let mut s = Sample::new();
        let mut x = s.input("x", InputRole::Input, N);
        for i in 0..links {
            let gradient = s.reversed(x);
            let sum = s.buffer(N);
            let call = Collective::whole(CollectiveKind::Sum, &["data".into()], DType::F32, N);
            s.0.kernels.push(Kernel {
                work: Work::Call(call.into()),
                reads: vec![gradient],
                writes: vec![sum],
                locations: vec![],
            });
            let used = s.sum(&[sum]);
            s.output(&format!("y{i}"), OutputRole::Output, used);
            x = s.reversed(x);
        }
        s
    }

    fn given(s: &Sample) -> Vec<usize> {
        (0..s.0.kernels.len()).collect()
    }

    /// The most bytes under way between starts and waits.
    fn most_under_way(s: &Sample, overlap: &Overlap) -> u64 {
        let size = |k: usize| exchanged(&s.0, &s.0.kernels[k]).unwrap();
        let start = |k: usize| overlap.order.iter().position(|other| *other == k).unwrap();
        let at = |moment: usize| {
            let is_under_way = |(k, wait): &&(usize, usize)| start(*k) <= moment && moment < *wait;
            overlap.waits.iter().filter(is_under_way).map(|(k, _)| size(*k)).sum()
        };
        (0..overlap.order.len()).map(at).max().unwrap_or(0)
    }

    fn is_topological(s: &Sample, order: &[usize]) -> bool {
        let mut written: BTreeSet<BufferId> = s.0.inputs.iter().map(|(_, b)| *b).collect();
        order.iter().all(|k| {
            let kernel = &s.0.kernels[*k];
            let ready = kernel.reads.iter().all(|b| written.contains(b));
            written.extend(&kernel.writes);
            ready
        })
    }

    #[test]
    fn without_bytes_the_order_is_the_given_one() {
        let s = chain(3);
        let Overlap { order, waits } = overlap(&s.0, &given(&s), 0);
        assert_eq!(order, given(&s));
        assert_eq!(waits, []);
    }

    #[test]
    fn sums_are_started_at_once_and_used_at_the_end() {
        let s = chain(3);
        let all = overlap(&s.0, &given(&s), u64::MAX);
        // Gradients, sums and links; then the uses, each behind its wait.
        assert_eq!(all.order, [0, 1, 3, 4, 5, 7, 8, 9, 11, 2, 6, 10]);
        assert_eq!(all.waits, [(1, 9), (5, 10), (9, 11)]);
        assert!(is_topological(&s, &all.order));
        assert_eq!(most_under_way(&s, &all), 3 * BYTES);
    }

    #[test]
    fn bytes_under_way_are_bounded() {
        let s = chain(8);
        for count in 1..8 {
            let bounded = overlap(&s.0, &given(&s), count * BYTES);
            assert!(is_topological(&s, &bounded.order));
            assert_eq!(most_under_way(&s, &bounded), count * BYTES);
        }
        let less = overlap(&s.0, &given(&s), BYTES - 1);
        assert_eq!(less.order, given(&s));
    }
}
