//! Live ranges of the values in a plan's arena: from which step to which step each of them lies at
//! its address.
//!
//! A value **lives** from the step that writes it to the last step that reads it. Steps have
//! numbers in the order of the text, nested steps after the step that contains them.
//!
//! - A value from outside a loop that a step of the loop reads lives until the loop ends, since the
//!   next iteration reads it again.
//! - Carries, and the wholes of slices and stacks, live throughout their loop. Parts of a whole
//!   have no live range of their own.
//! - Operand and result of a transfer live from its start to its wait at least.
//! - A value in place of another begins at the step at which the other ends. Both have the same
//!   bytes at that step.
//!
//! The plan must be one that [`super::verify()`] accepts; for others the result is unspecified.

use super::uses::{Needed, SCRATCH, span, uses};
use super::{Plan, Step, Trip, ValueId};
use std::collections::BTreeMap;

/// The live range of a value at an address of the arena, or of workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// The value; `None` for workspace.
    pub value: Option<ValueId>,
    /// Its first byte in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The step that writes it.
    pub first: usize,
    /// The last step that reads it; `first` if there is none.
    pub last: usize,
}

/// The live ranges of a plan, by their first step. A value has several if it is copied, or computed
/// again.
pub fn lifetimes(plan: &Plan) -> Vec<Lifetime> {
    let mut walk = Walk { plan, found: Vec::new(), open: BTreeMap::new(), loops: Vec::new() };
    walk.steps(&plan.steps, 0);
    let mut found = walk.found;
    found.sort_by_key(|l| (l.first, l.offset, l.bytes, l.value));
    found
}

struct Walk<'a> {
    plan: &'a Plan,
    found: Vec<Lifetime>,
    /// The newest live range of each value at each address.
    open: BTreeMap<(u64, ValueId), usize>,
    /// The enclosing loops, outermost first: their numbers and those of their last nested steps.
    loops: Vec<(usize, usize)>,
}

impl<'a> Walk<'a> {
    /// Visits steps of which the first has number `first`. Returns the number after the last.
    fn steps(&mut self, steps: &'a [Step], first: usize) -> usize {
        steps.iter().fold(first, |number, step| self.step(step, number))
    }

    fn step(&mut self, step: &'a Step, number: usize) -> usize {
        let (reads, writes) = uses(self.plan, step);
        reads.iter().for_each(|read| self.read(*read, number));
        let blocks = step.blocks();
        if blocks.is_empty() {
            writes.iter().for_each(|write| self.write(*write, number));
            return number + 1;
        }
        let end = number + nested(step);
        if let Step::Loop(l) = step {
            self.loops.push((number, end));
            let inputs = l.carries.iter().filter_map(|c| span(self.plan, c.input, &c.at));
            inputs.collect::<Vec<_>>().into_iter().for_each(|input| self.write(input, number));
        }
        let mut next = number + 1;
        for (block, steps) in blocks.into_iter().enumerate() {
            next = self.steps(steps, next);
            let results = self.results(step, block);
            results.into_iter().for_each(|result| self.read(result, next - 1));
        }
        if matches!(step, Step::Loop(_)) {
            self.loops.pop();
            reads.iter().for_each(|read| self.read(*read, end));
        }
        for write in writes {
            self.write(write, number);
            self.read(write, end);
        }
        next
    }

    /// The values that a block of a step leaves in the arena.
    fn results(&self, step: &Step, block: usize) -> Vec<Needed> {
        let plan = self.plan;
        let mut results = Vec::new();
        match step {
            Step::Loop(l) => {
                results.extend(l.carries.iter().filter_map(|c| span(plan, c.output, &c.at)));
                if let Trip::While { before, after, .. } = &l.trip {
                    results.extend(span(plan, *after, &before.at));
                }
            }
            Step::If { merges, .. } | Step::Switch { merges, .. } => {
                results.extend(merges.iter().filter_map(|m| span(plan, m.ways[block], &m.at)));
            }
            Step::Nest { .. }
            | Step::Call { .. }
            | Step::Start { .. }
            | Step::Wait(_)
            | Step::Copy { .. } => {}
        }
        results
    }

    fn write(&mut self, (span, value): Needed, number: usize) {
        let (offset, bytes) = (span.start, span.end - span.start);
        self.open.insert((offset, value), self.found.len());
        let value = (value != SCRATCH).then_some(value);
        self.found.push(Lifetime { value, offset, bytes, first: number, last: number });
    }

    fn read(&mut self, (span, value): Needed, number: usize) {
        let Some(found) = self.open.get(&(span.start, value)) else { return };
        let lifetime = &mut self.found[*found];
        let around = self.loops.iter().find(|(start, _)| lifetime.first < *start);
        let last = around.map_or(number, |(_, end)| *end);
        lifetime.last = lifetime.last.max(last);
    }
}

/// Number of steps nested in a step.
fn nested(step: &Step) -> usize {
    step.blocks().into_iter().flatten().map(|inner| 1 + nested(inner)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{account, parse_plan, verify_at};

    const TARGET: &str = "target @test {alignment=4, calls=[], gemm_epilogue=false, \
                          reduction_block=0, reduction_lanes=1, row_bytes=0, row_storage=0}";

    const NEST: &str = "nest @add(in %x: f32[2], out %y: f32[2]) {
    parallel i: 2
    phase {
      %0: f32 = load %x[i]
      %1: f32 = add %0, %0
      store %y[i], %1
    }
  }";

    fn plan(text: &str) -> Plan {
        let (plan, places) = parse_plan("test.plan", text).expect("it is a plan");
        verify_at(&plan, &places).expect("it is right");
        plan
    }

    /// Value, offset, first and last step of each live range.
    fn ranges(plan: &Plan) -> Vec<(u32, u64, usize, usize)> {
        let number = |l: &Lifetime| l.value.map_or(u32::MAX, |v| v.0);
        lifetimes(plan).iter().map(|l| (number(l), l.offset, l.first, l.last)).collect()
    }

    /// The bytes that the live ranges of a step cover.
    fn load(lifetimes: &[Lifetime], step: usize) -> u64 {
        let lives = lifetimes.iter().filter(|l| l.first <= step && step <= l.last);
        let mut bytes: Vec<u64> = lives.flat_map(|l| l.offset..l.offset + l.bytes).collect();
        bytes.sort_unstable();
        bytes.dedup();
        bytes.len() as u64
    }

    #[test]
    fn a_value_lives_from_its_writer_to_its_last_reader() {
        let plan = plan(&format!(
            "plan @f {{
  {TARGET}
  arena 16 bound 16
  value %0: f32[2] \"x\"
  value %1: f32[2] \"a\"
  value %2: f32[2] \"b\"
  value %3: f32[2] \"c\"
  value %4: f32[2] \"y\"
  input x = %0
  output y: [2] = %4
  {NEST}
  steps {{
    run @add(%0 at input.0, %1 at arena)
    run @add(%1 at arena, %2 at arena+8)
    run @add(%2 at arena+8, %3 at arena+8)
    run @add(%1 at arena, %4 at output.0)
  }}
}}
"
        ));
        let expected = [(1, 0, 0, 3), (2, 8, 1, 2), (3, 8, 2, 2)];
        assert_eq!(ranges(&plan), expected, "%3 is written in place of %2");
        let found = lifetimes(&plan);
        let peak = (0..4).map(|step| load(&found, step)).max();
        assert_eq!(peak, Some(account(&plan).peak.bytes));
        assert_eq!(peak, Some(16));
    }

    /// `%5` is read by every iteration, so it lives until the loop ends.
    #[test]
    fn what_a_loop_reads_lives_throughout_the_loop() {
        let plan = plan(&format!(
            "plan @long {{
  {TARGET}
  arena 24 bound 24
  value %0: f32[2] \"x\"
  value %1: f32[2] \"before\"
  value %2: f32[2] \"next\"
  value %3: f32[2] \"y\"
  value %4: f32[2] \"unused\"
  value %5: f32[2] \"outside\"
  input x = %0
  output y: [2] = %3
  {NEST}
  steps {{
    copy %0 from input.0 to arena
    run @add(%0 at input.0, %5 at arena+8)
    loop l0 trip 7 {{
      carry %0 -> %1, %2 -> %3 at arena
      run @add(%5 at arena+8, %4 at arena+16)
      run @add(%1 at arena, %2 at arena)
    }}
    copy %3 from arena to output.0
  }}
}}
"
        ));
        let expected = [
            (0, 0, 0, 4), // The initial carry.
            (5, 8, 1, 4),
            (1, 0, 2, 4), // The carry in an iteration, up to the nest that replaces it.
            (3, 0, 2, 5), // Its result, whose bytes are the carry's throughout the loop.
            (4, 16, 3, 3),
            (2, 0, 4, 4),
        ];
        assert_eq!(ranges(&plan), expected);
        let found = lifetimes(&plan);
        assert_eq!((0..6).map(|step| load(&found, step)).max(), Some(account(&plan).peak.bytes));
    }
}
