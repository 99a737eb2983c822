//! An order with the load of each moment.
//!
//! Two consecutive steps may be exchanged if the later does not depend on the earlier. This
//! changes only the loads of these two moments: the live sets before and after both stay the
//! same. Every longer move is a sequence of such exchanges, so its effect is known exactly at
//! each place on the way.

use super::task_graph::TaskGraph;

/// An order with its loads.
pub(super) struct Timeline<'a> {
    pub graph: &'a TaskGraph,
    pub order: Vec<usize>,
    /// The moment of each step.
    pub moment: Vec<usize>,
    /// The moment of each value's last use; `usize::MAX` for values that are kept.
    last: Vec<usize>,
    /// Bytes that stay live after the moment before.
    pub alive: Vec<u64>,
    /// Bytes in memory while the step of a moment runs.
    pub loads: Vec<u64>,
}

/// Most operands whose bytes the results of one step take. Further ones are counted twice; no
/// kernel has as many.
const TAKEN: usize = 8;

impl<'a> Timeline<'a> {
    pub fn new(graph: &'a TaskGraph, order: Vec<usize>) -> Self {
        let count = order.len();
        let mut all = Timeline {
            graph,
            order,
            moment: vec![0; count],
            last: graph.values.iter().map(|v| if v.kept { usize::MAX } else { 0 }).collect(),
            alive: vec![0; count + 1],
            loads: vec![0; count],
        };
        all.lay_out(0, count);
        all
    }

    /// Recomputes the loads after the order of the moments `from..to` changed. Returns the
    /// effort.
    pub fn lay_out(&mut self, from: usize, to: usize) -> u64 {
        let graph = self.graph;
        let mut looked_at = 0;
        for moment in from..to {
            let k = self.order[moment];
            self.moment[k] = moment;
            for v in graph.steps[k].reads.iter().chain(&graph.steps[k].writes) {
                // A last use behind `to` stays.
                if self.last[*v] < to {
                    self.last[*v] = moment;
                }
                looked_at += 2;
            }
        }
        (from..to).for_each(|moment| self.weigh(moment));
        looked_at
    }

    /// Computes the load of a moment, and the bytes live after it.
    fn weigh(&mut self, moment: usize) {
        let graph = self.graph;
        let step = &graph.steps[self.order[moment]];
        let all = self.alive[moment] + graph.bytes(&step.writes);
        let (mut taken, mut count, mut over) = ([0; TAKEN], 0, None);
        self.loads[moment] = all + step.workspace;
        for (write, read) in &step.in_place {
            let dies = self.last[*read] == moment && !taken[..count].contains(read);
            if dies && over != Some(write) && count < TAKEN {
                self.loads[moment] -= graph.values[*read].bytes;
                taken[count] = *read;
                (count, over) = (count + 1, Some(write));
            }
        }
        let values = step.reads.iter().chain(&step.writes);
        let dead: u64 =
            values.filter(|v| self.last[**v] == moment).map(|v| graph.values[*v].bytes).sum();
        self.alive[moment + 1] = all - dead;
    }

    /// Exchanges the steps of a moment and the next. The later must not depend on the earlier.
    fn exchange(&mut self, moment: usize, left: &mut u64) {
        let graph = self.graph;
        let (a, b) = (self.order[moment], self.order[moment + 1]);
        let (first, second) = (&graph.steps[a], &graph.steps[b]);
        for v in second.reads.iter().chain(&second.writes) {
            if self.last[*v] == moment + 1 && first.reads.binary_search(v).is_err() {
                self.last[*v] = moment;
            }
        }
        for v in first.reads.iter().chain(&first.writes) {
            if self.last[*v] == moment && second.reads.binary_search(v).is_err() {
                self.last[*v] = moment + 1;
            }
        }
        self.order.swap(moment, moment + 1);
        (self.moment[a], self.moment[b]) = (moment + 1, moment);
        self.weigh(moment);
        self.weigh(moment + 1);
        let values =
            first.reads.len() + first.writes.len() + second.reads.len() + second.writes.len();
        *left = left.saturating_sub(4 + 2 * values as u64);
    }

    fn shift(&mut self, from: usize, to: usize, left: &mut u64) {
        (from..to).for_each(|moment| self.exchange(moment, left));
        (to..from).rev().for_each(|moment| self.exchange(moment, left));
    }

    /// Moves a step within the moments `from..to`, which contain its own, to where their greatest
    /// load is least. It stays if that is no improvement.
    pub fn settle(&mut self, k: usize, from: usize, to: usize, left: &mut u64) {
        let step = &self.graph.steps[k];
        let at = self.moment[k];
        let waits = step.before.iter().map(|b| self.moment[*b] + 1).max().unwrap_or(0);
        let awaited = step.after.iter().map(|a| self.moment[*a]).min().unwrap_or(usize::MAX);
        let (from, to) = (from.max(waits), to.min(awaited));
        // The current greatest loads up to each earlier moment, and from each later moment on.
        let greatest = |greatest: &mut u64, load: &u64| {
            *greatest = (*greatest).max(*load);
            Some(*greatest)
        };
        let before: Vec<u64> = self.loads[from..at].iter().scan(0, greatest).collect();
        let mut behind: Vec<u64> = self.loads[at + 1..to].iter().rev().scan(0, greatest).collect();
        behind.reverse();
        *left = left.saturating_sub((to - from + step.before.len() + step.after.len()) as u64);
        let ends = |side: Option<&u64>| side.copied().unwrap_or(0);
        let (all_before, all_behind) = (ends(before.last()), ends(behind.first()));
        let mut best = (all_before.max(self.loads[at]).max(all_behind), at);

        let (mut now, mut done) = (at, all_before);
        while now + 1 < to && done < best.0 {
            self.exchange(now, left);
            done = done.max(self.loads[now]);
            now += 1;
            let peak = done.max(self.loads[now]).max(ends(behind.get(now - at)));
            best = if peak < best.0 { (peak, now) } else { best };
        }
        self.shift(now, at, left);
        (now, done) = (at, all_behind);
        while now > from && done < best.0 {
            now -= 1;
            self.exchange(now, left);
            done = done.max(self.loads[now + 1]);
            let rest = now.checked_sub(from + 1).map_or(0, |n| before[n]);
            let peak = done.max(self.loads[now]).max(rest);
            best = if peak < best.0 { (peak, now) } else { best };
        }
        self.shift(now, best.1, left);
    }

    /// The greatest load and the number of moments that have it. Less is better.
    pub fn worth(&self) -> (u64, usize) {
        let peak = self.loads.iter().copied().max().unwrap_or(0);
        (peak, self.loads.iter().filter(|load| **load == peak).count())
    }
}
