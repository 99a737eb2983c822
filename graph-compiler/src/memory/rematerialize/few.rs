//! The cheapest schedule of few steps, found exactly if the effort suffices.
//!
//! The executions that may follow depend only on the number of steps that have run first and on
//! the set of live values, not on the order or number of earlier executions. Over these states a
//! shortest path is searched (A*: Hart, Nilsson and Raphael 1968). An edge is an execution, and a
//! repetition's edge costs its step. Three rules keep the number of states small:
//!
//! - Values are dropped only when an execution needs their bytes, and no more than it needs; a
//!   live value that is not wanted can be dropped later. A value that no later step can use is
//!   dropped at once.
//! - Missing values cost at least the repetition of all steps between them and the live values.
//!   If one of those may no longer be repeated, the state is a dead end.
//! - The cost of the best schedule found by other methods is a ceiling.
//!
//! Twenty steps need thousands of states. A hundred steps need too many: the search is given up,
//! and the schedules found by other methods stay.

use super::timeline::Prepared;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A set of values that steps write, the widest first.
type Set = u64;

/// The outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The executions of a schedule that no other beats.
    Cheapest(Vec<usize>),
    /// No schedule that fits costs less than the ceiling.
    Nothing,
    /// The effort reached its limit.
    GivenUp,
}

/// A state and the edge that reached it.
#[derive(Clone, Copy, Debug)]
struct Node {
    done: usize,
    alive: Set,
    cost: u64,
    parent: usize,
    step: usize,
}

/// A computation in terms of sets.
pub(super) struct Few<'a> {
    prepared: &'a Prepared<'a>,
    bytes: Vec<u64>,
    reads: Vec<Set>,
    writes: Vec<Set>,
    outputs: Set,
    /// For each number of steps that have run first: the values written by these that later steps
    /// or the end need.
    wanted: Vec<Set>,
    /// The same, with the values that help to recompute those.
    useful: Vec<Set>,
    /// Results of `make_room`.
    ways: Vec<Set>,
    effort: u64,
}

impl<'a> Few<'a> {
    /// None if there are more values than a set holds.
    pub fn new(prepared: &'a Prepared<'a>) -> Option<Self> {
        let computation = prepared.computation;
        let mut values: Vec<usize> =
            (0..computation.values.len()).filter(|v| prepared.writer[*v].is_some()).collect();
        if values.len() > Set::BITS as usize {
            return None;
        }
        values.sort_by_key(|v| Reverse(computation.values[*v].bytes));
        let mut place = vec![0; computation.values.len()];
        values.iter().enumerate().for_each(|(n, v)| place[*v] = n);
        let set =
            |values: &mut dyn Iterator<Item = usize>| values.fold(0, |s: Set, v| s | 1 << place[v]);
        let steps = computation.steps.len();
        let reads: Vec<Set> = prepared.reads.iter().map(|r| set(&mut r.iter().copied())).collect();
        let writes: Vec<Set> =
            computation.steps.iter().map(|s| set(&mut s.writes.iter().copied())).collect();
        let outputs = set(&mut values.iter().copied().filter(|v| computation.values[*v].output));
        let bytes = values.iter().map(|v| computation.values[*v].bytes).collect();
        let wanted: Vec<Set> = (0..=steps)
            .map(|done| {
                let made = writes[..done].iter().fold(0, |s, w| s | w);
                made & reads[done..].iter().fold(outputs, |s, r| s | r)
            })
            .collect();
        let useful = wanted.iter().enumerate().map(|(done, wanted)| {
            (0..done).rev().fold(*wanted, |s, n| if writes[n] & s != 0 { s | reads[n] } else { s })
        });
        let useful = useful.collect();
        let ways = Vec::new();
        Some(Few { prepared, bytes, reads, writes, outputs, wanted, useful, ways, effort: 0 })
    }

    /// The cheapest schedule within a budget that costs less than `ceiling`, if the effort
    /// suffices; and the effort spent.
    pub fn cheapest(&mut self, budget: u64, ceiling: u64, effort: u64) -> (Outcome, u64) {
        self.effort = 0;
        (self.search(budget, ceiling, effort), self.effort)
    }

    fn search(&mut self, budget: u64, ceiling: u64, limit: u64) -> Outcome {
        let steps = self.prepared.computation.steps.len();
        let mut nodes = vec![Node { done: 0, alive: 0, cost: 0, parent: 0, step: 0 }];
        let mut best: FxHashMap<(usize, Set), u64> = FxHashMap::default();
        let mut expanded: Vec<Vec<(Set, u64)>> = vec![Vec::new(); steps + 1];
        // Ordered by estimated cost. Among equals the state with most steps run comes first, then
        // the oldest.
        let mut open = BinaryHeap::from([Reverse((0, Reverse(0), 0))]);
        while let Some(Reverse((_, _, at))) = open.pop() {
            // `make_room` may have left out some ways when the effort reached its limit.
            if self.effort > limit {
                return Outcome::GivenUp;
            }
            let Node { done, alive, cost, .. } = nodes[at];
            if best.get(&(done, alive)).is_some_and(|b| *b < cost) {
                continue;
            }
            // Skips a state if one with at least its live values and no higher cost has been
            // expanded.
            let looked = &mut expanded[done];
            self.effort += looked.len() as u64 / 4;
            if looked.iter().any(|(other, least)| *least <= cost && alive & !other == 0) {
                continue;
            }
            looked.push((alive, cost));
            if done == steps && self.outputs & !alive == 0 {
                return Outcome::Cheapest(executions(&nodes, at));
            }
            for step in 0..steps.min(done + 1) {
                let first = step == done;
                let worth = first
                    || self.writes[step] & self.useful[done] & !alive != 0
                        && self.prepared.may_repeat(step, done);
                self.effort += 1;
                if !worth || self.reads[step] & !alive != 0 {
                    continue;
                }
                let next = done + usize::from(first);
                let cost = if first { cost } else { cost + self.prepared.cost(step) };
                self.make_room(step, alive, budget, limit);
                while let Some(way) = self.ways.pop() {
                    let alive = way & self.useful[next];
                    let Some(missing) = self.missing(next, alive) else { continue };
                    let promise = cost + missing;
                    let known = best.entry((next, alive)).or_insert(u64::MAX);
                    if promise < ceiling && cost < *known {
                        *known = cost;
                        open.push(Reverse((promise, Reverse(next), nodes.len())));
                        nodes.push(Node { done: next, alive, cost, parent: at, step });
                    }
                }
            }
        }
        if self.effort > limit { Outcome::GivenUp } else { Outcome::Nothing }
    }

    /// Least cost of the repetitions from a state to the end. None if the end cannot be reached.
    fn missing(&mut self, done: usize, alive: Set) -> Option<u64> {
        self.effort += 20 + done as u64;
        let mut need = self.wanted[done] & !alive;
        let mut cost = 0;
        for step in (0..done).rev() {
            if need == 0 {
                break;
            }
            if self.writes[step] & need != 0 {
                if !self.prepared.may_repeat(step, done) {
                    return None;
                }
                cost += self.prepared.cost(step);
                need = (need | self.reads[step]) & !alive & !self.writes[step];
            }
        }
        Some(cost)
    }

    /// Puts into `ways` the maximal sets of values that may be live after an execution.
    fn make_room(&mut self, step: usize, alive: Set, budget: u64, limit: u64) {
        let own = self.reads[step] | self.writes[step];
        let all = alive | self.writes[step];
        let taken = self.sum(all) + self.prepared.computation.steps[step].workspace;
        self.ways.clear();
        self.drop_from(all, all & !own, taken.saturating_sub(budget), limit);
    }

    fn sum(&self, mut values: Set) -> u64 {
        let mut sum = 0;
        while values != 0 {
            sum += self.bytes[values.trailing_zeros() as usize];
            values &= values - 1;
        }
        sum
    }

    /// Drops at least `over` bytes from `droppable`. The widest value is dropped first, so no
    /// dropped value could be kept once there is room.
    fn drop_from(&mut self, kept: Set, droppable: Set, over: u64, limit: u64) {
        self.effort += 4;
        if over == 0 {
            self.ways.push(kept);
            return;
        }
        if self.effort > limit || self.sum(droppable) < over {
            return;
        }
        let widest = droppable & droppable.wrapping_neg();
        let bytes = self.bytes[widest.trailing_zeros() as usize];
        self.drop_from(kept & !widest, droppable & !widest, over.saturating_sub(bytes), limit);
        self.drop_from(kept, droppable & !widest, over, limit);
    }
}

/// The executions on the path to a node.
fn executions(nodes: &[Node], mut at: usize) -> Vec<usize> {
    let mut executions = Vec::new();
    while at != 0 {
        executions.push(nodes[at].step);
        at = nodes[at].parent;
    }
    executions.reverse();
    executions
}
