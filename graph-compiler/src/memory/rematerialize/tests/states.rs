//! The cheapest schedule of a small problem by Dijkstra's algorithm over sets of live values.
//!
//! A state is the number of steps that have run first, and the values that are live after the
//! last execution. Bytes are dropped only when an execution needs room, and no more than it
//! needs. A live value can be dropped later. So of two states of equal cost, the one with more
//! live values can do whatever the other can.

use super::super::computation::{Computation, NEVER};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A set of values.
type Set = u64;

/// A computation as sets.
pub(super) struct States<'a> {
    computation: &'a Computation,
    reads: Vec<Set>,
    writes: Vec<Set>,
    outputs: Set,
    /// For each number of steps that have run first, the values that are still useful.
    useful: Vec<Set>,
}

fn set(values: impl IntoIterator<Item = usize>) -> Set {
    values.into_iter().fold(0, |set, value| set | 1 << value)
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |v| set >> v & 1 == 1)
}

impl<'a> States<'a> {
    pub fn new(computation: &'a Computation) -> Self {
        assert!(computation.values.len() <= Set::BITS as usize, "a set has a bit for each value");
        let steps = computation.steps.len();
        let written = set(computation.steps.iter().flat_map(|s| s.writes.iter().copied()));
        let reads: Vec<Set> =
            computation.steps.iter().map(|s| written & set(s.reads.iter().copied())).collect();
        let writes: Vec<Set> =
            computation.steps.iter().map(|s| set(s.writes.iter().copied())).collect();
        let outputs =
            written & set((0..computation.values.len()).filter(|v| computation.values[*v].output));
        let useful = (0..=steps).map(|done| {
            // Backwards, so that each step comes after the readers of its results.
            (0..steps).rev().fold(outputs, |useful, step| {
                let of_use = step >= done || writes[step] & useful != 0;
                if of_use { useful | reads[step] } else { useful }
            })
        });
        let useful = useful.collect();
        States { computation, reads, writes, outputs, useful }
    }

    fn bytes(&self, values: Set) -> u64 {
        members(values).map(|v| self.computation.values[v].bytes).sum()
    }

    /// Drops values from `droppable` until `over` bytes are freed. Collects every minimal set of
    /// dropped values.
    fn drop(&self, kept: Set, droppable: Set, over: u64, ways: &mut Vec<Set>) {
        if over == 0 {
            ways.push(kept);
            return;
        }
        if self.bytes(droppable) < over {
            return;
        }
        let value = droppable.trailing_zeros() as usize;
        let rest = droppable & !(1 << value);
        let bytes = self.computation.values[value].bytes;
        self.drop(kept, rest, over, ways);
        if bytes > 0 {
            self.drop(kept & !(1 << value), rest, over.saturating_sub(bytes), ways);
        }
    }

    /// The least cost of repetitions within a budget; None if no schedule fits.
    pub fn cheapest(&self, budget: u64) -> Option<u64> {
        let mut best: HashMap<(usize, Set), u64> = HashMap::from([((0, 0), 0)]);
        let mut open = BinaryHeap::from([Reverse((0, Reverse(0), 0))]);
        let mut ways = Vec::new();
        while let Some(Reverse((cost, Reverse(done), alive))) = open.pop() {
            if best[&(done, alive)] < cost {
                continue;
            }
            if done == self.computation.steps.len() && self.outputs & !alive == 0 {
                return Some(cost);
            }
            for (step, about) in self.computation.steps.iter().enumerate().take(done + 1) {
                let first = step == done;
                let worth = first
                    || about.barrier != NEVER
                        && done <= about.barrier
                        && self.writes[step] & self.useful[done] & !alive != 0;
                if !worth || self.reads[step] & !alive != 0 {
                    continue;
                }
                let (next, cost) = if first { (done + 1, cost) } else { (done, cost + about.cost) };
                let all = alive | self.writes[step];
                let over = (self.bytes(all) + about.workspace).saturating_sub(budget);
                ways.clear();
                self.drop(all, all & !self.reads[step] & !self.writes[step], over, &mut ways);
                for way in &ways {
                    let alive = way & self.useful[next];
                    let known = best.entry((next, alive)).or_insert(u64::MAX);
                    if cost < *known {
                        *known = cost;
                        open.push(Reverse((cost, Reverse(next), alive)));
                    }
                }
            }
        }
        None
    }

    /// The least peak of all schedules. One schedule has the peak `top`.
    pub fn least(&self, top: u64) -> u64 {
        let (mut low, mut high) = (0, top);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.cheapest(middle) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        low
    }
}
