//! A schedule, laid out so that a change is weighed without making it.
//!
//! For each value there is a list of its *touches*, executions that make it or read it, in order. Between two touches of which the second reads, a value is idle and
//! takes its bytes for nothing: a *gap*. A group of repetitions in front of an execution changes what is alive before it only for the values that the group
//! makes or reads, and for each of these from its last touch on. So what the group changes are a few intervals of the profile of loads.
//!
//! What is to be made small is the *excess*: the bytes above the budget, summed over all executions. Other than the peak it tells of every small
//! step towards a schedule that fits.

use super::problem::{NEVER, Problem};

/// A problem as the solver reads it.
pub(super) struct Prepared<'a> {
    pub problem: &'a Problem,
    /// For each value the step that writes it.
    pub writer: Vec<Option<usize>>,
    /// For each step the values it reads that some step writes, each once.
    pub reads: Vec<Vec<usize>>,
}

impl<'a> Prepared<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        let mut writer = vec![None; problem.values.len()];
        for (number, step) in problem.steps.iter().enumerate() {
            step.writes.iter().for_each(|v| writer[*v] = Some(number));
        }
        let reads = problem.steps.iter().map(|step| {
            let mut reads: Vec<usize> = step.reads.iter().copied().filter(|v| writer[*v].is_some()).collect();
            reads.sort_unstable();
            reads.dedup();
            reads
        });
        let reads = reads.collect();
        Prepared { problem, writer, reads }
    }

    pub fn bytes(&self, value: usize) -> i64 {
        self.problem.values[value].bytes as i64
    }

    pub fn cost(&self, step: usize) -> u64 {
        self.problem.steps[step].cost
    }

    /// Whether a step may be repeated when `done` steps have run first.
    pub fn may_repeat(&self, step: usize, done: usize) -> bool {
        let barrier = self.problem.steps[step].barrier;
        barrier != NEVER && done > step && done <= barrier
    }
}

/// An execution that makes a value or reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Touch {
    pub moment: usize,
    pub makes: bool,
}

/// Executions of a block.
const BLOCK: usize = 32;

/// What is known of a block of loads: most lie above the budget, or below it, altogether.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    least: i64,
    greatest: i64,
    counts: i64,
}

/// A schedule with its profile.
pub(super) struct Timeline<'a> {
    pub prepared: &'a Prepared<'a>,
    pub budget: i64,
    /// What a byte above the budget counts in a first execution; in a repetition, which is elsewhere in another schedule, it counts 1.
    pub original: i64,
    /// Which step each execution is of.
    pub executions: Vec<usize>,
    /// Bytes taken while each execution runs.
    pub load: Vec<i64>,
    /// What a byte above the budget counts in each execution.
    pub counts: Vec<i64>,
    /// Bytes alive before each execution, and at the end.
    pub before: Vec<i64>,
    /// Number of steps that have run first before each execution, and at the end.
    pub done: Vec<usize>,
    /// The first execution of each step.
    pub first: Vec<usize>,
    /// How many of the executions before each one, and of all, have a load above the budget.
    pub hot: Vec<u32>,
    /// The sum of what loads are above the budget.
    pub excess: i64,
    /// What repetitions cost.
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

    /// Makes everything anew from the executions.
    pub fn update(&mut self) {
        let prepared = self.prepared;
        let values = &prepared.problem.values;
        let end = self.executions.len();
        self.starts.clear();
        self.starts.resize(values.len() + 2, 0);
        let count = &mut self.starts;
        for step in &self.executions {
            prepared.reads[*step].iter().for_each(|v| count[v + 2] += 1);
            prepared.problem.steps[*step].writes.iter().for_each(|v| count[v + 2] += 1);
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
            prepared.problem.steps[*step].writes.iter().for_each(|v| touch(*v, moment, true));
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
        // Backwards: what is alive behind an execution is known.
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
            let about = &prepared.problem.steps[step];
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
        self.blocks.extend(self.load.chunks(BLOCK).zip(self.counts.chunks(BLOCK)).map(|(loads, counts)| {
            Block {
                least: loads.iter().copied().min().unwrap_or(0),
                greatest: loads.iter().copied().max().unwrap_or(0),
                counts: counts.iter().sum(),
            }
        }));
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

    /// The last execution, `moment` or one before it, in front of which a step may be repeated as far as its barrier goes.
    pub fn latest(&self, step: usize, moment: usize) -> usize {
        let barrier = self.prepared.problem.steps[step].barrier;
        self.first.get(barrier).map_or(moment, |first| moment.min(*first))
    }

    /// Whether an execution repeats its step.
    pub fn repeats(&self, moment: usize) -> bool {
        self.executions[moment] < self.done[moment]
    }

    /// The last execution of a step before a moment, and the first from it on. A step that writes nothing has none.
    pub fn executions_around(&self, step: usize, moment: usize) -> (Option<usize>, Option<usize>) {
        let Some(value) = self.prepared.problem.steps[step].writes.first() else { return (None, None) };
        let touches = self.touches(*value);
        let at = touches.partition_point(|t| t.moment < moment);
        let last = touches[..at].iter().rev().find(|t| t.makes);
        let next = touches[at..].iter().find(|t| t.makes);
        (last.map(|t| t.moment), next.map(|t| t.moment))
    }

    /// How many executions in `from..to` have a load above the budget.
    pub fn hot_between(&self, from: usize, to: usize) -> u32 {
        self.hot[to.max(from)] - self.hot[from]
    }

    /// What the excess grows by if each interval's bytes `(from, to, bytes)` are added to the loads.
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

    /// What the excess grows by if `bytes` are added to the loads of `from..to`.
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
