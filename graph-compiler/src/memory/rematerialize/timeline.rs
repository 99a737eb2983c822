//! A schedule with its load profile, which gives the effect of a change without applying it.
//!
//! Each value has an ordered list of *touches*: the executions that write or read it. A *gap*
//! lies between two consecutive touches of which the second is a read: the value is idle there
//! and still takes its bytes. Repetitions inserted before an execution change the live set before
//! it only for the values that they write or read, and for each of these only from its last touch
//! on. So an insertion changes the load in a few intervals only.
//!
//! The solver minimises the *excess*: the bytes above the budget, summed over all executions.
//! Unlike the peak, the excess decreases with every small step towards a schedule that fits.

use super::computation::{Computation, NEVER};

/// A computation in the solver's form.
pub(super) struct Prepared<'a> {
    pub computation: &'a Computation,
    /// The step that writes each value.
    pub writer: Vec<Option<usize>>,
    /// The values that each step reads and some step writes, without duplicates.
    pub reads: Vec<Vec<usize>>,
}

impl<'a> Prepared<'a> {
    pub fn new(computation: &'a Computation) -> Self {
        let mut writer = vec![None; computation.values.len()];
        for (number, step) in computation.steps.iter().enumerate() {
            step.writes.iter().for_each(|v| writer[*v] = Some(number));
        }
        let reads = computation.steps.iter().map(|step| {
            let mut reads: Vec<usize> =
                step.reads.iter().copied().filter(|v| writer[*v].is_some()).collect();
            reads.sort_unstable();
            reads.dedup();
            reads
        });
        let reads = reads.collect();
        Prepared { computation, writer, reads }
    }

    pub fn bytes(&self, value: usize) -> i64 {
        self.computation.values[value].bytes as i64
    }

    pub fn cost(&self, step: usize) -> u64 {
        self.computation.steps[step].cost
    }

    /// Whether a step may be repeated after the first executions of `done` steps.
    pub fn may_repeat(&self, step: usize, done: usize) -> bool {
        let barrier = self.computation.steps[step].barrier;
        barrier != NEVER && done > step && done <= barrier
    }
}

/// An execution that writes or reads a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Touch {
    pub moment: usize,
    pub makes: bool,
}

/// Executions per block.
const BLOCK: usize = 32;

/// Summary of a block of loads. Most blocks lie entirely above or entirely below the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    least: i64,
    greatest: i64,
    counts: i64,
}

/// A schedule with its load profile.
pub(super) struct Timeline<'a> {
    pub prepared: &'a Prepared<'a>,
    pub budget: i64,
    /// Weight of a byte above the budget in a first execution. In a repetition, which may move to
    /// another place, the weight is 1.
    pub original: i64,
    /// The step of each execution.
    pub executions: Vec<usize>,
    /// Bytes live while each execution runs.
    pub load: Vec<i64>,
    /// Weight of a byte above the budget in each execution.
    pub counts: Vec<i64>,
    /// Bytes live before each execution, and at the end.
    pub before: Vec<i64>,
    /// Number of steps whose first execution precedes each execution, and the end.
    pub done: Vec<usize>,
    /// The first execution of each step.
    pub first: Vec<usize>,
    /// Number of executions before each one whose load exceeds the budget; at the end, of all.
    pub hot: Vec<u32>,
    /// Weighted sum of the loads' bytes above the budget.
    pub excess: i64,
    /// Cost of the repetitions.
    pub added: u64,
    pub peak: i64,
    blocks: Vec<Block>,
    starts: Vec<usize>,
    touches: Vec<Touch>,
    alive: Vec<bool>,
}

impl<'a> Timeline<'a> {
    pub fn new(prepared: &'a Prepared<'a>, executions: Vec<usize>, budget: i64) -> Self {
        let mut timeline = Timeline {
            prepared,
            budget,
            original: 1,
            executions,
            load: Vec::new(),
            counts: Vec::new(),
            before: Vec::new(),
            done: Vec::new(),
            first: Vec::new(),
            hot: Vec::new(),
            excess: 0,
            added: 0,
            peak: 0,
            blocks: Vec::new(),
            starts: Vec::new(),
            touches: Vec::new(),
            alive: Vec::new(),
        };
        timeline.update();
        timeline
    }

    /// Recomputes everything from the executions.
    pub fn update(&mut self) {
        let prepared = self.prepared;
        let values = &prepared.computation.values;
        let end = self.executions.len();
        self.starts.clear();
        self.starts.resize(values.len() + 2, 0);
        let count = &mut self.starts;
        for step in &self.executions {
            prepared.reads[*step].iter().for_each(|v| count[v + 2] += 1);
            prepared.computation.steps[*step].writes.iter().for_each(|v| count[v + 2] += 1);
        }
        for (value, about) in values.iter().enumerate() {
            if about.output && prepared.writer[value].is_some() {
                count[value + 2] += 1;
            }
        }
        (2..count.len()).for_each(|v| count[v] += count[v - 1]);
        let total = count[count.len() - 1];
        self.touches.clear();
        self.touches.resize(total, Touch { moment: 0, makes: false });
        let (touches, starts) = (&mut self.touches, &mut self.starts);
        let mut touch = |value: usize, moment: usize, makes: bool| {
            touches[starts[value + 1]] = Touch { moment, makes };
            starts[value + 1] += 1;
        };
        self.done.clear();
        self.first.clear();
        self.counts.clear();
        (self.added, self.excess, self.peak) = (0, 0, 0);
        let mut done = 0;
        for (moment, step) in self.executions.iter().enumerate() {
            self.done.push(done);
            prepared.reads[*step].iter().for_each(|v| touch(*v, moment, false));
            prepared.computation.steps[*step].writes.iter().for_each(|v| touch(*v, moment, true));
            if *step == done {
                done += 1;
                self.first.push(moment);
                self.counts.push(self.original);
            } else {
                self.counts.push(1);
                self.added += prepared.cost(*step);
            }
        }
        self.done.push(done);
        // Backwards, so that the live set behind an execution is known.
        self.alive.clear();
        self.alive.resize(values.len(), false);
        let mut live = 0;
        for (value, about) in values.iter().enumerate() {
            if about.output && prepared.writer[value].is_some() {
                touch(value, end, false);
                self.alive[value] = true;
                live += prepared.bytes(value);
            }
        }
        self.load.clear();
        self.load.resize(end, 0);
        self.before.clear();
        self.before.resize(end + 1, live);
        for moment in (0..end).rev() {
            let step = self.executions[moment];
            let about = &prepared.computation.steps[step];
            let mut load = live + about.workspace as i64;
            for value in &about.writes {
                let bytes = prepared.bytes(*value);
                match std::mem::replace(&mut self.alive[*value], false) {
                    true => live -= bytes,
                    false => load += bytes,
                }
            }
            for value in &prepared.reads[step] {
                if !std::mem::replace(&mut self.alive[*value], true) {
                    live += prepared.bytes(*value);
                    load += prepared.bytes(*value);
                }
            }
            self.load[moment] = load;
            self.before[moment] = live;
            self.peak = self.peak.max(load);
            self.excess += (load - self.budget).max(0) * self.counts[moment];
        }
        self.blocks.clear();
        self.blocks.extend(self.load.chunks(BLOCK).zip(self.counts.chunks(BLOCK)).map(
            |(loads, counts)| Block {
                least: loads.iter().copied().min().unwrap_or(0),
                greatest: loads.iter().copied().max().unwrap_or(0),
                counts: counts.iter().sum(),
            },
        ));
        self.hot.clear();
        let mut hot = 0;
        for load in &self.load {
            self.hot.push(hot);
            hot += u32::from(*load > self.budget);
        }
        self.hot.push(hot);
    }

    /// Touches of a value, in order; the end of the schedule reads outputs.
    pub fn touches(&self, value: usize) -> &[Touch] {
        &self.touches[self.starts[value]..self.starts[value + 1]]
    }

    /// The last touch of a value before a moment, and the first from it on.
    pub fn around(&self, value: usize, moment: usize) -> (Option<Touch>, Option<Touch>) {
        let touches = self.touches(value);
        let at = touches.partition_point(|t| t.moment < moment);
        (at.checked_sub(1).map(|n| touches[n]), touches.get(at).copied())
    }

    /// The last execution up to `moment` before which the barrier allows a repetition of the
    /// step.
    pub fn latest(&self, step: usize, moment: usize) -> usize {
        let barrier = self.prepared.computation.steps[step].barrier;
        self.first.get(barrier).map_or(moment, |first| moment.min(*first))
    }

    /// Whether an execution is a repetition.
    pub fn repeats(&self, moment: usize) -> bool {
        self.executions[moment] < self.done[moment]
    }

    /// The last execution of a step before a moment, and the first from it on. A step that writes
    /// nothing has none.
    pub fn executions_around(&self, step: usize, moment: usize) -> (Option<usize>, Option<usize>) {
        let Some(value) = self.prepared.computation.steps[step].writes.first() else {
            return (None, None);
        };
        let touches = self.touches(*value);
        let at = touches.partition_point(|t| t.moment < moment);
        let last = touches[..at].iter().rev().find(|t| t.makes);
        let next = touches[at..].iter().find(|t| t.makes);
        (last.map(|t| t.moment), next.map(|t| t.moment))
    }

    /// Number of executions in `from..to` whose load exceeds the budget.
    pub fn hot_between(&self, from: usize, to: usize) -> u32 {
        self.hot[to.max(from)] - self.hot[from]
    }

    /// Growth of the excess if bytes are added to the loads of intervals. `changes` has two
    /// entries for each interval: the bytes at its beginning, and their negative at its end.
    pub fn growth(&self, changes: &mut [(usize, i64)]) -> i64 {
        changes.sort_unstable();
        let (mut sum, mut bytes) = (0, 0);
        let mut changes = changes.iter().peekable();
        while let Some((from, by)) = changes.next() {
            bytes += by;
            let Some((to, _)) = changes.peek() else { break };
            if bytes != 0 && from < to {
                sum += self.shift(*from, *to, bytes);
            }
        }
        sum
    }

    /// Growth of the excess if `bytes` are added to the loads of `from..to`.
    pub fn shift(&self, from: usize, to: usize, bytes: i64) -> i64 {
        let by_one = |from: usize, to: usize| {
            let above = |load: i64| (load - self.budget).max(0);
            let loads = self.load[from..to].iter().zip(&self.counts[from..to]);
            loads.map(|(l, n)| (above(l + bytes) - above(*l)) * n).sum::<i64>()
        };
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        if first >= last {
            return by_one(from, to);
        }
        let mut sum = by_one(from, first * BLOCK) + by_one(last * BLOCK, to);
        for (n, block) in self.blocks[first..last].iter().enumerate() {
            if block.least + bytes.min(0) >= self.budget {
                sum += bytes * block.counts;
            } else if block.greatest + bytes.max(0) > self.budget {
                sum += by_one((first + n) * BLOCK, (first + n + 1) * BLOCK);
            }
        }
        sum
    }
}
