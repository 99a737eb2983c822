//! P8, P10 to P14 and P18: the steps replayed over an abstract memory.
//!
//! Addresses with the same memory and the same strides share one *frame*, which is an abstract
//! memory of its own. The frame without strides is the memory itself. A frame with a stride of a
//! loop represents the stacked values as one iteration accesses them. It consists of *windows*,
//! the current parts of slices and stacks; all other bytes of the frame are inaccessible. While
//! the loop runs, the bytes behind the windows of stacks are *locked* in the enclosing frame, so
//! no bytes are in use in two frames at one time. The bytes behind a slice keep their value, and
//! no step of the body may overwrite them.
//!
//! Values without bytes have a frame of their own, each at its number.

use super::transfers::{Busy, UnderWay};
use super::{Failure, Part, failure};
use crate::diagnostic::{bail, ensure};
use crate::id::Id;
use crate::nest::{self, BufferRole};
use crate::plan::intervals::{Intervals, Span};
use crate::plan::print::ValueText;
use crate::plan::{
    Address, Argument, Loop, LoopId, Merge, NestId, Plan, Space, Step, Transfer, Trip, ValueId,
};
use std::collections::{BTreeMap, BTreeSet};

type Result<T = ()> = std::result::Result<T, Failure>;

/// The frame of values without bytes.
const EMPTY: usize = 0;

/// The properties of a frame, besides its contents.
#[derive(Default)]
struct Frame {
    /// Whether it consists of windows.
    windowed: bool,
    /// Windows: start to end, and whether they may be written.
    windows: BTreeMap<u64, (u64, bool)>,
    /// Bytes behind stacks of running loops.
    locks: BTreeMap<u64, u64>,
}

/// Replays the steps. Returns the greatest end of an address in the arena.
pub(super) fn check(plan: &Plan) -> Result<u64> {
    let mut replay = Replay {
        plan,
        memory: Intervals::default(),
        frames: Vec::new(),
        plain: BTreeMap::new(),
        strided: BTreeMap::new(),
        writes: Vec::new(),
        written: Vec::new(),
        aliases: BTreeMap::new(),
        busy: Busy::default(),
        next_step: 0,
        reach: 0,
    };
    replay.memory.add_memory();
    replay.frames.push(Frame::default());
    replay.footprint(&plan.steps);
    replay.begin();
    replay.block(&plan.steps)?;
    replay.end()?;
    Ok(replay.reach)
}

struct Replay<'a> {
    plan: &'a Plan,
    memory: Intervals,
    frames: Vec<Frame>,
    /// Frames without strides, and frames with strides.
    plain: BTreeMap<Space, usize>,
    strided: BTreeMap<(Space, Vec<(LoopId, u64)>), usize>,
    /// Writes in the order of the steps, and for each step the range of `writes` made inside it.
    writes: Vec<Span>,
    written: Vec<(usize, usize)>,
    aliases: BTreeMap<(NestId, Vec<(usize, usize)>), bool>,
    /// The bytes of transfers under way.
    busy: Busy,
    next_step: usize,
    reach: u64,
}

impl<'a> Replay<'a> {
    /// The frame of addresses with these strides.
    fn frame(&mut self, space: Space, strides: &[(LoopId, u64)]) -> usize {
        let known = if strides.is_empty() {
            self.plain.get(&space)
        } else {
            self.strided.get(&(space, strides.to_vec()))
        };
        if let Some(number) = known {
            return *number;
        }
        let number = self.memory.add_memory();
        self.frames.push(Frame { windowed: !strides.is_empty(), ..Frame::default() });
        if strides.is_empty() {
            self.plain.insert(space, number);
        } else {
            self.strided.insert((space, strides.to_vec()), number);
        }
        number
    }

    fn span(&mut self, value: ValueId, at: &'a Address) -> Span {
        match self.plan.values[value].bytes() {
            0 => empty(value),
            bytes => self.bytes(at, bytes),
        }
    }

    fn bytes(&mut self, at: &'a Address, bytes: u64) -> Span {
        let memory = self.frame(at.space, &at.strides);
        // The structure check ensures that this does not overflow.
        let end = at.offset + bytes;
        if at.space == Space::Arena {
            self.reach = self.reach.max(end);
        }
        Span { memory, start: at.offset, end }
    }

    /// Collects the writes of steps.
    fn footprint(&mut self, steps: &'a [Step]) {
        for step in steps {
            let number = self.written.len();
            let start = self.writes.len();
            self.written.push((start, start));
            match step {
                Step::Nest { nest, arguments } => {
                    let plan = self.plan;
                    for (argument, (_, buffer)) in
                        arguments.iter().zip(plan.nests[*nest].parameters())
                    {
                        if buffer.role == BufferRole::Out {
                            self.will_write(argument.value, &argument.at);
                        }
                    }
                }
                Step::Call { call, arguments, workspace } => {
                    for result in call.split(arguments).1 {
                        self.will_write(result.value, &result.at);
                    }
                    if let Some((at, bytes)) = workspace.as_ref().filter(|w| w.1 > 0) {
                        let span = self.bytes(at, *bytes);
                        self.writes.push(span);
                    }
                }
                Step::Start { transfer: Transfer { result, .. }, .. }
                | Step::Wait(Transfer { result, .. }) => self.will_write(result.value, &result.at),
                Step::Copy { value, to, .. } => self.will_write(*value, to),
                Step::Loop(l) => {
                    l.carries.iter().for_each(|c| self.will_write(c.input, &c.at));
                    l.stacks.iter().for_each(|s| self.will_write(s.whole, &s.at));
                    if let Trip::While { before, .. } = &l.trip {
                        self.will_write(before.value, &before.at);
                    }
                }
                Step::If { merges, .. } | Step::Switch { merges, .. } => {
                    merges.iter().for_each(|m| self.will_write(m.result, &m.at));
                }
            }
            step.blocks().into_iter().for_each(|block| self.footprint(block));
            self.written[number] = (start, self.writes.len());
        }
    }

    fn will_write(&mut self, value: ValueId, at: &'a Address) {
        let span = self.span(value, at);
        self.writes.push(span);
    }

    /// Forgets everything that step number `n` may write.
    fn forget(&mut self, n: usize) {
        let (from, to) = self.written[n];
        for k in from..to {
            self.memory.clear(self.writes[k]);
        }
    }

    fn begin(&mut self) {
        let plan = self.plan;
        let inputs = plan.inputs.iter().enumerate().map(|(n, i)| (Space::Input(n as u32), i.value));
        let constants =
            plan.constants.iter().enumerate().map(|(n, c)| (Space::Constant(n as u32), c.value));
        let variables = plan.variables.iter().enumerate();
        let variables = variables.filter_map(|(n, v)| Some((Space::Variable(n as u32), v.before?)));
        for (space, value) in inputs.chain(constants).chain(variables) {
            let span = self.whole(space, value);
            self.memory.write(span, value);
        }
    }

    fn whole(&mut self, space: Space, value: ValueId) -> Span {
        match self.plan.values[value].bytes() {
            0 => empty(value),
            end => Span { memory: self.frame(space, &[]), start: 0, end },
        }
    }

    /// P14.
    fn end(&mut self) -> Result {
        let plan = self.plan;
        let outputs = plan
            .outputs
            .iter()
            .enumerate()
            .map(|(n, o)| (Part::Output(n), Space::Output(n as u32), o.value));
        let variables = plan
            .variables
            .iter()
            .enumerate()
            .map(|(n, v)| (Part::Variable(n), Space::Variable(n as u32), v.after));
        for (part, space, value) in outputs.chain(variables) {
            let span = self.whole(space, value);
            if !self.memory.holds(span, value) {
                let (wanted, found) = (ValueText(plan, value), self.found(span));
                bail!(part, 14, "at the end it holds {found}, not {wanted}");
            }
        }
        Ok(())
    }

    /// The actual contents of a span, for a message.
    fn found(&self, span: Span) -> String {
        match self.memory.overlapping(span).next() {
            Some((there, value)) if there == span => ValueText(self.plan, value).to_string(),
            Some((_, value)) => format!("a part of {}", ValueText(self.plan, value)),
            None => "nothing".into(),
        }
    }

    /// P8, of P12 that a stack is accessed only through its parts, and of P18 that no step writes
    /// bytes of a transfer.
    fn access(&self, part: Part, span: Span, write: bool) -> Result {
        if span.memory == EMPTY {
            return Ok(());
        }
        if write {
            self.busy.check(part, span)?;
        }
        let frame = &self.frames[span.memory];
        if frame.windowed {
            let window = frame.windows.range(..=span.start).next_back();
            let inside = window.filter(|(_, (end, _))| *end >= span.end);
            match inside {
                Some((_, (_, writable))) if *writable || !write => {}
                Some(_) => {
                    bail!(part, 12, "writes a slice, which is only read";
                        help "a stack at the same place replaces its parts");
                }
                None => {
                    bail!(part, 8, "is at an address with strides outside of slices and stacks");
                }
            }
        }
        let lock = frame.locks.range(..span.end).next_back().filter(|(_, end)| **end > span.start);
        match lock {
            Some(_) if write => {
                Err(failure(part, 12, "writes to a stack other than its current part"))
            }
            _ => Ok(()),
        }
    }

    /// P10.
    fn read(&mut self, part: Part, value: ValueId, at: &'a Address) -> Result<Span> {
        let span = self.span(value, at);
        self.access(part, span, false)?;
        if self.memory.holds(span, value) {
            return Ok(span);
        }
        let (wanted, found) = (ValueText(self.plan, value), self.found(span));
        Err(failure(part, 10, format!("`{at}` holds {found}, not {wanted}")))
    }

    fn write(&mut self, part: Part, span: Span, value: ValueId) -> Result {
        self.access(part, span, true)?;
        self.memory.write(span, value);
        Ok(())
    }

    fn block(&mut self, steps: &'a [Step]) -> Result {
        let mut under_way = UnderWay::default();
        for step in steps {
            let number = self.next_step;
            self.next_step += 1;
            let part = Part::Step(number);
            match step {
                Step::Nest { nest, arguments } => self.nest(part, *nest, arguments)?,
                Step::Call { call, arguments, workspace } => {
                    let (operands, results) = call.split(arguments);
                    let spans = self.operands(part, operands)?;
                    let outs: Vec<Span> =
                        results.iter().map(|r| self.span(r.value, &r.at)).collect();
                    let allowed = call.in_place();
                    for (m, out) in outs.iter().enumerate() {
                        for (n, operand) in spans.iter().enumerate().filter(|(_, s)| s.meets(out)) {
                            if operand != out || !allowed.contains(&n) {
                                return Err(overlap(part));
                            }
                        }
                        if outs[..m].iter().any(|other| other.meets(out)) {
                            bail!(part, 11, "its results overlap");
                        }
                    }
                    if let Some((at, bytes)) = workspace.as_ref().filter(|w| w.1 > 0) {
                        let scratch = self.bytes(at, *bytes);
                        if spans.iter().chain(&outs).any(|s| s.meets(&scratch)) {
                            bail!(part, 11, "its workspace overlaps its arguments");
                        }
                        self.access(part, scratch, true)?;
                        self.memory.clear(scratch);
                    }
                    for (out, result) in outs.into_iter().zip(results) {
                        self.write(part, out, result.value)?;
                    }
                }
                Step::Start { transfer, .. } => {
                    let Transfer { operand, result, .. } = transfer;
                    let from = self.read(part, operand.value, &operand.at)?;
                    let to = self.span(result.value, &result.at);
                    if from.meets(&to) && from.memory != EMPTY {
                        return Err(failure(part, 11, "a transfer is not in place"));
                    }
                    self.access(part, to, true)?;
                    // They hold nothing until the wait.
                    self.memory.clear(to);
                    let bytes = [from, to].map(|span| (span.memory != EMPTY).then_some(span));
                    under_way.start(number, transfer, bytes, &mut self.busy);
                }
                Step::Wait(transfer) => {
                    under_way.wait(part, transfer, &mut self.busy)?;
                    let to = self.span(transfer.result.value, &transfer.result.at);
                    self.write(part, to, transfer.result.value)?;
                }
                Step::Copy { value, from, to } => {
                    let source = self.read(part, *value, from)?;
                    let target = self.span(*value, to);
                    if source.meets(&target) && source.memory != EMPTY {
                        return Err(overlap(part));
                    }
                    self.write(part, target, *value)?;
                }
                Step::Loop(l) => self.looping(number, l)?,
                Step::If { predicate, then, otherwise, merges } => {
                    self.read(part, predicate.value, &predicate.at)?;
                    self.branch(number, &[then, otherwise], merges)?;
                }
                Step::Switch { index, arms, merges } => {
                    self.read(part, index.value, &index.at)?;
                    let arms: Vec<&'a [Step]> = arms.iter().map(Vec::as_slice).collect();
                    self.branch(number, &arms, merges)?;
                }
            }
        }
        under_way.end()
    }

    fn operands(&mut self, part: Part, operands: &'a [Argument]) -> Result<Vec<Span>> {
        operands.iter().map(|o| self.read(part, o.value, &o.at)).collect()
    }

    fn nest(&mut self, part: Part, id: NestId, arguments: &'a [Argument]) -> Result {
        let nest = &self.plan.nests[id];
        let mut operands: Vec<(usize, Span)> = Vec::new();
        let mut results: Vec<(usize, Span)> = Vec::new();
        for (n, (argument, (_, buffer))) in arguments.iter().zip(nest.parameters()).enumerate() {
            if buffer.role == BufferRole::In {
                operands.push((n, self.read(part, argument.value, &argument.at)?));
            } else {
                results.push((n, self.span(argument.value, &argument.at)));
            }
        }
        // Sorted by bytes, only neighbouring results can overlap. Then each operand finds the
        // result it meets.
        results.sort_by_key(|(_, span)| *span);
        if results.windows(2).any(|w| w[0].1.meets(&w[1].1)) {
            bail!(part, 11, "its results overlap");
        }
        let mut pairs = Vec::new();
        for (n, operand) in &operands {
            let next = results
                .partition_point(|(_, r)| (r.memory, r.start) < (operand.memory, operand.end));
            let Some((m, result)) = next.checked_sub(1).map(|k| results[k]) else { continue };
            if !result.meets(operand) {
                continue;
            }
            if result != *operand {
                return Err(overlap(part));
            }
            pairs.push((*n, m));
        }
        let key = (id, pairs);
        if !key.1.is_empty() && !self.aliases.contains_key(&key) {
            let buffer = nest::BufferId::new;
            let pairs: Vec<_> = key.1.iter().map(|(n, m)| (buffer(*n), buffer(*m))).collect();
            self.aliases.insert(key.clone(), nest::may_alias(nest, &pairs));
        }
        ensure!(
            key.1.is_empty() || self.aliases[&key],
            part,
            11,
            "a result is in place of an operand that is read after it is written"
        );
        for (n, span) in results {
            self.write(part, span, arguments[n].value)?;
        }
        Ok(())
    }

    /// P13.
    fn branch(&mut self, number: usize, arms: &[&'a [Step]], merges: &'a [Merge]) -> Result {
        for (way, steps) in arms.iter().enumerate() {
            let mark = self.memory.mark();
            self.block(steps)?;
            for (k, merge) in merges.iter().enumerate() {
                let part = Part::Merge(number, k);
                let span = self.span(merge.ways[way], &merge.at);
                self.access(part, span, false)?;
                if !self.memory.holds(span, merge.ways[way]) {
                    let (wanted, found) = (ValueText(self.plan, merge.ways[way]), self.found(span));
                    let at = &merge.at;
                    bail!(part, 13, "after way {way} `{at}` holds {found}, not {wanted}");
                }
            }
            self.memory.rollback(mark);
        }
        self.forget(number);
        for (k, merge) in merges.iter().enumerate() {
            let span = self.span(merge.result, &merge.at);
            self.write(Part::Merge(number, k), span, merge.result)?;
        }
        Ok(())
    }

    /// P12.
    fn looping(&mut self, number: usize, l: &'a Loop) -> Result {
        let part = Part::Step(number);
        match &l.trip {
            Trip::Constant(_) => {}
            Trip::Value { count: tested, .. } | Trip::While { before: tested, .. } => {
                self.read(part, tested.value, &tested.at)?;
            }
        }
        for (k, carry) in l.carries.iter().enumerate() {
            self.read(Part::Carry(number, k), carry.initial, &carry.at)?;
        }
        for (k, slice) in l.slices.iter().enumerate() {
            self.read(Part::Slice(number, k), slice.whole, &slice.at)?;
        }
        for (k, stack) in l.stacks.iter().enumerate() {
            if let Some(initial) = stack.initial {
                self.read(Part::Stack(number, k), initial, &stack.at)?;
            }
        }
        self.forget(number);
        let opened = self.open(number, l)?;
        for (k, carry) in l.carries.iter().enumerate() {
            let span = self.span(carry.input, &carry.at);
            self.write(Part::Carry(number, k), span, carry.input)?;
        }
        let mark = self.memory.mark();
        self.block(&l.body)?;
        self.iteration_ends(number, l, &opened)?;
        self.memory.rollback(mark);
        self.close(opened);
        for (k, carry) in l.carries.iter().enumerate() {
            let span = self.span(carry.result, &carry.at);
            self.write(Part::Carry(number, k), span, carry.result)?;
        }
        for (k, stack) in l.stacks.iter().enumerate() {
            let span = self.span(stack.whole, &stack.at);
            self.write(Part::Stack(number, k), span, stack.whole)?;
        }
        // The value tested last is undefined after the loop.
        if let Trip::While { before, .. } = &l.trip {
            let span = self.span(before.value, &before.at);
            self.memory.clear(span);
        }
        Ok(())
    }

    /// Checks the values that must be present at the end of the body.
    fn iteration_ends(&mut self, number: usize, l: &'a Loop, opened: &Opened) -> Result {
        for (k, carry) in l.carries.iter().enumerate() {
            let span = self.span(carry.output, &carry.at);
            if !self.memory.holds(span, carry.output) {
                let (wanted, found) = (ValueText(self.plan, carry.output), self.found(span));
                let what = format!("at the end of the body it holds {found}, not {wanted}");
                return Err(failure(Part::Carry(number, k), 12, what));
            }
        }
        for (k, (stack, span)) in l.stacks.iter().zip(&opened.stacks).enumerate() {
            let span = *span;
            if !self.memory.holds(span, stack.part) {
                let (wanted, found) = (ValueText(self.plan, stack.part), self.found(span));
                let what = format!("at the end of the body its part is {found}, not {wanted}");
                return Err(failure(Part::Stack(number, k), 12, what));
            }
        }
        if let Trip::While { before, after, .. } = &l.trip {
            let span = self.span(*after, &before.at);
            if !self.memory.holds(span, *after) {
                let (wanted, found) = (ValueText(self.plan, *after), self.found(span));
                let what = format!("at the end of the body the condition is {found}, not {wanted}");
                return Err(failure(Part::Step(number), 12, what));
            }
        }
        Ok(())
    }

    /// Opens the windows of a loop and locks the bytes behind its stacks. The parts of slices
    /// hold their values.
    fn open(&mut self, number: usize, l: &'a Loop) -> Result<Opened> {
        let mut opened = Opened::default();
        for (k, stack) in l.stacks.iter().enumerate() {
            let part = Part::Stack(number, k);
            let region = self.span(stack.whole, &stack.at);
            if region.memory != EMPTY {
                self.access(part, region, true)?;
                let locks = &mut self.frames[region.memory].locks;
                locks.insert(region.start, region.end);
                opened.locks.push(region);
            }
            let window = self.window(l.id, &stack.at, stack.part, true);
            opened.stacks.push(window);
        }
        let bytes = |v: ValueId| self.plan.values[v].bytes();
        let replacing =
            l.stacks.iter().map(|stack| (&stack.at, bytes(stack.part), bytes(stack.whole)));
        let replacing: BTreeSet<(&Address, u64, u64)> = replacing.collect();
        for (k, slice) in l.slices.iter().enumerate() {
            let whole = self.span(slice.whole, &slice.at);
            let bytes = |v: ValueId| self.plan.values[v].bytes();
            let replaced = replacing.contains(&(&slice.at, bytes(slice.part), bytes(slice.whole)));
            ensure!(
                replaced || self.memory.holds(whole, slice.whole),
                Part::Slice(number, k),
                12,
                "the body writes over it, or a stack does"
            );
            let window = self.window(l.id, &slice.at, slice.part, replaced);
            self.memory.write(window, slice.part);
            opened.slices.push(window);
        }
        Ok(opened)
    }

    /// Opens the window of the current part of the whole that begins at `at`.
    fn window(&mut self, id: LoopId, at: &Address, part: ValueId, writable: bool) -> Span {
        let bytes = self.plan.values[part].bytes();
        if bytes == 0 {
            return empty(part);
        }
        let mut strides = at.strides.clone();
        strides.push((id, bytes));
        let memory = self.frame(at.space, &strides);
        let span = Span { memory, start: at.offset, end: at.offset + bytes };
        self.frames[memory].windows.insert(span.start, (span.end, writable));
        span
    }

    fn close(&mut self, opened: Opened) {
        // A part without bytes has no window, and its value may come from outside the loop.
        let stacks = opened.stacks.into_iter().filter(|window| window.memory != EMPTY);
        for window in stacks.chain(opened.slices) {
            self.frames[window.memory].windows.remove(&window.start);
            self.memory.clear(window);
        }
        for lock in opened.locks {
            self.frames[lock.memory].locks.remove(&lock.start);
        }
    }
}

/// Windows and locks of a running loop.
#[derive(Default)]
struct Opened {
    /// The window of each stack, and of each slice.
    stacks: Vec<Span>,
    slices: Vec<Span>,
    locks: Vec<Span>,
}

fn empty(value: ValueId) -> Span {
    let start = value.index() as u64;
    Span { memory: EMPTY, start, end: start + 1 }
}

fn overlap(part: Part) -> Failure {
    failure(part, 11, "a result overlaps an operand")
        .help("in place, both lie at exactly the same bytes")
}
