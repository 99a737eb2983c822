//! Memory account of a plan: its bytes by purpose, and the peak of the arena.
//!
//! A byte of the arena is *needed* at a step if it holds a value that a later step reads, or if
//! the step itself reads or writes it. The maximum over the steps of the needed bytes (each value
//! rounded up to the alignment) is the plan's lower bound: no arena for this order of steps and
//! these uses in place can be smaller.
//!
//! Needed bytes are found backwards: a value is needed from its last reader back to its writer.
//! Needed throughout a loop are the values that its body reads before it writes them, its
//! carries, and the wholes of its slices and stacks. A branch needs nothing on behalf of the
//! other branches. The plan must be one that [`super::verify()`] accepts up to P14; for others
//! the result is unspecified.

use super::intervals::{Intervals, Span};
use super::uses::{Needed, SCRATCH, span, uses};
use super::{Plan, Step, Trip, ValueId};
use std::fmt;

/// Bytes of a plan by purpose.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Inputs, given at each run.
    pub inputs: u64,
    /// Outputs.
    pub outputs: u64,
    /// Variables that are only read.
    pub parameters: u64,
    /// Variables that are replaced or created.
    pub state: u64,
    /// Constants.
    pub constants: u64,
    /// The arena.
    pub arena: u64,
    /// Largest workspace of one call. It is part of the arena.
    pub workspace: u64,
    /// The peak of the arena.
    pub peak: Peak,
}

impl Account {
    /// The account of a plan without its peak. The peak needs a walk over all steps.
    pub fn sizes(plan: &Plan) -> Account {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0u64, u64::saturating_add);
        let value = |v: ValueId| plan.values[v].bytes();
        let variables = |read_only: bool| {
            let chosen =
                plan.variables.iter().filter(move |v| (v.before == Some(v.after)) == read_only);
            sum(&mut chosen.map(|v| value(v.after)))
        };
        Account {
            inputs: sum(&mut plan.inputs.iter().map(|i| value(i.value))),
            outputs: sum(&mut plan.outputs.iter().map(|o| value(o.value))),
            parameters: variables(true),
            state: variables(false),
            constants: sum(&mut plan.constants.iter().map(|c| value(c.value))),
            arena: plan.arena,
            workspace: workspace(plan),
            peak: Peak::default(),
        }
    }

    /// Sum of all memories of the plan.
    pub fn total(&self) -> u64 {
        let all =
            [self.inputs, self.outputs, self.parameters, self.state, self.constants, self.arena];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// The step at which the most bytes of the arena are needed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peak {
    /// The first such step. Steps are numbered in the order of the text, nested steps after the
    /// step that contains them.
    pub step: usize,
    /// Needed bytes, each value's rounded up to the alignment.
    pub bytes: u64,
    /// The needed values, by offset.
    pub living: Vec<Living>,
}

/// A value in the arena, or workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Living {
    /// The value; `None` for workspace.
    pub value: Option<ValueId>,
    /// Its first byte in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Accounts for a plan.
pub fn account(plan: &Plan) -> Account {
    Account { peak: peak(plan), ..Account::sizes(plan) }
}

fn workspace(plan: &Plan) -> u64 {
    let mut most = 0;
    plan.visit(&mut |step| {
        if let Step::Call { workspace: Some((_, bytes)), .. } = step {
            most = most.max(*bytes);
        }
    });
    most
}

fn peak(plan: &Plan) -> Peak {
    let mut walk = Walk {
        plan,
        needed: Intervals::default(),
        load: 0,
        exposed: Vec::new(),
        best: None,
        capture: None,
        living: Vec::new(),
    };
    walk.needed.add_memory();
    walk.expose(&plan.steps, &[]);
    walk.steps(&plan.steps, 0);
    let Some((bytes, step)) = walk.best else { return Peak::default() };
    // A second walk collects the values needed at that step.
    walk.needed.rollback(0);
    (walk.load, walk.capture) = (0, Some(step));
    walk.steps(&plan.steps, 0);
    let living = std::mem::take(&mut walk.living);
    Peak { step, bytes, living }
}

struct Walk<'a> {
    plan: &'a Plan,
    needed: Intervals,
    /// Sum of the needed bytes.
    load: u64,
    /// For each step: the number of steps nested in it, and for loops and branches the values
    /// that they read before they write them.
    exposed: Vec<(usize, Vec<Needed>)>,
    /// The greatest load, and its (first) step.
    best: Option<(u64, usize)>,
    capture: Option<usize>,
    living: Vec<Living>,
}

impl<'a> Walk<'a> {
    /// The values needed at the end of each block of a step.
    fn demands(&self, step: &Step, block: usize) -> Vec<Needed> {
        let mut demands = Vec::new();
        match step {
            Step::Loop(l) => {
                demands.extend(l.carries.iter().filter_map(|c| span(self.plan, c.output, &c.at)));
                demands.extend(l.slices.iter().filter_map(|s| span(self.plan, s.whole, &s.at)));
                demands.extend(l.stacks.iter().filter_map(|s| span(self.plan, s.whole, &s.at)));
                if let Trip::While { before, after, .. } = &l.trip {
                    demands.extend(span(self.plan, *after, &before.at));
                }
            }
            Step::If { merges, .. } | Step::Switch { merges, .. } => {
                demands.extend(merges.iter().filter_map(|m| span(self.plan, m.ways[block], &m.at)));
            }
            _ => {}
        }
        demands
    }

    /// Fills `exposed` for these steps and the steps nested in them, in order. Takes the values
    /// needed after them and returns those needed before them.
    fn expose(&mut self, steps: &'a [Step], demands: &[Needed]) -> Vec<Needed> {
        let mut numbers = Vec::with_capacity(steps.len());
        for step in steps {
            let number = self.exposed.len();
            numbers.push(number);
            self.exposed.push((0, Vec::new()));
            let (mut reads, writes) = uses(self.plan, step);
            for (n, block) in step.blocks().into_iter().enumerate() {
                let mut inner = self.expose(block, &self.demands(step, n));
                if matches!(step, Step::Loop(_)) {
                    // Bytes that the loop itself uses, such as carries, are among its reads and
                    // writes.
                    inner.retain(|(span, _)| {
                        !writes.iter().chain(&reads).any(|(w, _)| w.meets(span))
                    });
                }
                reads.extend(inner);
            }
            self.exposed[number] = (self.exposed.len() - number - 1, reads);
        }
        let mut needed = Intervals::default();
        needed.add_memory();
        demands.iter().for_each(|(span, value)| needed.write(*span, *value));
        for (step, number) in steps.iter().zip(numbers).rev() {
            uses(self.plan, step).1.iter().for_each(|(span, _)| needed.clear(*span));
            self.exposed[number].1.iter().for_each(|(span, value)| needed.write(*span, *value));
        }
        needed.iter(0).collect()
    }

    /// Walks steps backwards, from the bytes needed after them to those needed before. `first` is
    /// the number of the first.
    fn steps(&mut self, steps: &'a [Step], first: usize) {
        let mut numbers = vec![first];
        for n in 1..steps.len() {
            numbers.push(numbers[n - 1] + 1 + self.exposed[numbers[n - 1]].0);
        }
        for (step, number) in steps.iter().zip(numbers).rev() {
            let writes = uses(self.plan, step).1;
            writes.iter().for_each(|n| self.need(*n));
            let mut inside = number + 1;
            for (n, block) in step.blocks().into_iter().enumerate() {
                let (mark, load) = (self.needed.mark(), self.load);
                if matches!(step, Step::Loop(_)) {
                    // The next iteration reads the values that this one has read.
                    self.exposed[number].1.clone().into_iter().for_each(|n| self.need(n));
                }
                self.demands(step, n).into_iter().for_each(|n| self.need(n));
                self.record(number);
                self.steps(block, inside);
                inside += self.count(block, inside);
                self.needed.rollback(mark);
                self.load = load;
            }
            if !step.blocks().is_empty() {
                self.kill(&writes);
            }
            self.exposed[number].1.clone().into_iter().for_each(|n| self.need(n));
            self.record(number);
            self.kill(&writes);
        }
    }

    /// Number of steps in a block whose first has number `first`, including nested steps.
    fn count(&self, block: &[Step], first: usize) -> usize {
        block.iter().fold(0, |n, _| n + 1 + self.exposed[first + n].0)
    }

    fn need(&mut self, (span, value): Needed) {
        if self.needed.holds(span, value) {
            return;
        }
        let gone: u64 = self.needed.overlapping(span).map(|(s, _)| self.rounded(s)).sum();
        self.needed.write(span, value);
        self.load = self.load - gone + self.rounded(span);
    }

    /// Removes values that are written here, unless other values have taken their bytes.
    fn kill(&mut self, written: &[Needed]) {
        for (span, value) in written {
            if self.needed.holds(*span, *value) {
                self.needed.clear(*span);
                self.load -= self.rounded(*span);
            }
        }
    }

    /// The bytes of a value with its padding.
    fn rounded(&self, span: Span) -> u64 {
        let end = span.end.checked_next_multiple_of(self.plan.target.alignment);
        end.unwrap_or(span.end) - span.start
    }

    fn record(&mut self, step: usize) {
        if self
            .best
            .is_none_or(|(load, first)| self.load > load || (self.load == load && step < first))
        {
            self.best = Some((self.load, step));
        }
        if self.capture == Some(step) && self.best.is_some_and(|(load, _)| load == self.load) {
            let living = self.needed.iter(0).map(|(span, value)| Living {
                value: (value != SCRATCH).then_some(value),
                offset: span.start,
                bytes: span.end - span.start,
            });
            self.living = living.collect();
        }
    }
}

/// Bytes for display: `1.50 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let (mut size, mut unit) = (self.0 as f64 / 1024.0, 0);
        while size >= 1024.0 {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        write!(f, "{size:.2} {}", units[unit])
    }
}

/// Displays the account of a plan: bytes by purpose, the peak, and the gap to the lower bound.
pub struct AccountText<'a>(pub &'a Plan, pub &'a Account);

impl fmt::Display for AccountText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccountText(plan, account) = self;
        writeln!(f, "memory of @{}", plan.function)?;
        let rows = [
            ("inputs", account.inputs),
            ("outputs", account.outputs),
            ("parameters", account.parameters),
            ("state", account.state),
            ("constants", account.constants),
            ("arena", account.arena),
            ("  of it workspace", account.workspace),
        ];
        for (what, bytes) in rows {
            writeln!(f, "  {what:<18} {:>14}  {:>12}", bytes, Bytes(bytes).to_string())?;
        }
        let bound = account.peak.bytes;
        let gap =
            if bound == 0 { 0.0 } else { (account.arena as f64 / bound as f64 - 1.0) * 100.0 };
        writeln!(
            f,
            "  {:<18} {:>14}  {:>12}",
            "in all",
            account.total(),
            Bytes(account.total()).to_string()
        )?;
        writeln!(
            f,
            "  {:<18} {bound:>14}  {:>12}  gap {gap:.2} %",
            "lower bound",
            Bytes(bound).to_string()
        )?;
        if account.peak.living.is_empty() {
            return Ok(());
        }
        let step = super::verify::find(&plan.steps, account.peak.step);
        let text = step.map_or(String::new(), |s| super::print::StepText(plan, s).to_string());
        let text: String = text.chars().take(100).collect();
        writeln!(f, "  peak at step {}: {text}", account.peak.step)?;
        let mut living = account.peak.living.clone();
        living.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.offset));
        for one in living {
            let what = one
                .value
                .map_or("workspace".into(), |v| super::print::ValueText(plan, v).to_string());
            writeln!(
                f,
                "    {:>14}  {:>12}  at arena+{:<12} {what}",
                one.bytes,
                Bytes(one.bytes).to_string(),
                one.offset
            )?;
        }
        Ok(())
    }
}
