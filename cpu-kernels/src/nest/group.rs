//! Runs of instructions become [native code](crate::native).
//!
//! Instructions that run for every lane of a block and have a rule in native code go into a
//! **group**: arithmetic, loads and stores of neighbouring elements, and the steps of reductions.
//! A group is one loop over the block; values stay in vector registers. Instructions without a
//! rule (gathers, conditions of single lanes, prefixes, integer division) remain steps of the
//! interpreter. Such a step runs before the group that it stands in. If it reads a result of the
//! group, or if the reordering would be visible in memory, the group ends there.
//!
//! Large results in unaliased memory are stored past the caches (`PAST`). That saves a third of
//! the time of a copy of 16M elements of f32, and a quarter of that of `(x·w + b)·x + r`: an
//! ordinary store first reads the line.
//!
//! Within a lane, a group's loads and stores keep the order of the nest, and lanes are
//! independent. So a group is correct for every aliasing that a nest permits.

use super::analyse::Analysis;
use super::lower::{FlatNest, Op, Place};
use super::schedule::Schedule;
use super::sum::Sum;
use crate::kernels::CHUNK;
use crate::native;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_core::nest::{BufferId, BufferRole, Instr, Reg, ScalarOp};
use wengert_core::{DType, Diagnostic, Id, Scalar};

/// Instructions compiled to one function.
#[derive(Clone)]
pub(super) struct Group {
    pub function: Arc<native::Function>,
    /// The same with large results stored past the caches, and the numbers of their pointers,
    /// whose memory must be aligned and unaliased.
    pub past: Option<(Arc<native::Function>, Vec<usize>)>,
    /// Vector instructions of sixteen lanes.
    pub size: usize,
    /// The meaning of each pointer of the function's table.
    pub entries: Vec<Entry>,
    /// Registers that it reads, and those it stores to their blocks.
    pub inputs: Vec<Reg>,
    pub results: Vec<Reg>,
    /// Reductions of the phase to which it adds the block's values.
    pub folds: Vec<usize>,
}

/// The meaning of a pointer of a table.
#[derive(Clone)]
pub(super) enum Entry {
    /// A register's block.
    Register(Reg),
    /// Memory, to read or to write. Where the conditions of a place do not hold, which is the same
    /// for all lanes, the block of `fill` is read.
    Memory { place: Place, dtype: DType, written: bool, fill: Option<Reg> },
    /// Accumulators of a reduction.
    Accumulators(usize),
}

impl Group {
    /// Registers whose blocks it reads in place of memory.
    pub fn fills(&self) -> impl Iterator<Item = Reg> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Memory { fill, .. } => *fill,
            _ => None,
        })
    }

    /// Memory that it accesses.
    pub fn places(&self) -> impl Iterator<Item = (&Place, bool)> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Memory { place, written, .. } => Some((place, *written)),
            _ => None,
        })
    }

    /// The same, mutable.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Memory { place, .. } => Some(place),
            _ => None,
        })
    }
}

/// Vector instructions after which a group ends, which bounds its spills to the stack, whatever
/// the nest.
const LARGEST: usize = 1500;

/// Fewest bytes of a result that is stored past the caches. It would not stay there, and an
/// ordinary store first reads the line.
#[cfg(not(test))]
const PAST: usize = 32 << 20;
#[cfg(test)]
const PAST: usize = 1 << 10;

/// The nest with its groups formed.
///
/// Error: there is no memory for code.
pub(super) fn groups<'n>(
    nest: &FlatNest<'n>,
    schedule: &Schedule,
) -> Result<FlatNest<'n>, Diagnostic> {
    let analysis = Analysis::new(nest, schedule);
    let mut constants = BTreeMap::new();
    for op in nest.phases.iter().flat_map(|phase| &phase.body) {
        if let Op::Const { result, value } = op {
            constants.insert(*result, *value);
        }
    }
    let mut grouped = nest.clone();
    for p in 0..nest.phases.len() {
        let former =
            Former { analysis: &analysis, constants: &constants, p, body: vec![], open: None };
        grouped.phases[p].body = former.form()?;
    }
    Ok(grouped)
}

/// Forms the groups of a phase.
struct Former<'a, 'n> {
    analysis: &'a Analysis<'a, 'n>,
    constants: &'a BTreeMap<Reg, Scalar>,
    p: usize,
    body: Vec<Op<'n>>,
    open: Option<Open>,
}

/// A group under construction.
#[derive(Default)]
struct Open {
    program: native::Program,
    entries: Vec<Entry>,
    inputs: Vec<Reg>,
    known: BTreeMap<Reg, native::Register>,
    /// Registers that it defines, in order.
    defined: Vec<Reg>,
    /// Number of reads of each register.
    reads: BTreeMap<Reg, usize>,
    read: BTreeSet<BufferId>,
    written: BTreeSet<BufferId>,
    folds: Vec<usize>,
}

impl<'n> Former<'_, 'n> {
    fn form(mut self) -> Result<Vec<Op<'n>>, Diagnostic> {
        let analysis = self.analysis;
        for op in &analysis.nest.phases[self.p].body {
            let (uniform, level) = analysis.nature(self.p, op);
            let everywhere = !uniform && level == analysis.innermost(self.p);
            if self.open.as_ref().is_some_and(|open| open.program.size() > LARGEST) {
                self.close()?;
            }
            if everywhere && self.take(op) {
                continue;
            }
            if self.conflicts(op) {
                self.close()?;
            }
            self.body.push(op.clone());
        }
        self.fold();
        self.close()?;
        Ok(self.body)
    }

    /// Adds an instruction to the open group if possible.
    fn take(&mut self, op: &Op<'n>) -> bool {
        match op {
            Op::Scalar { result, op, operands } => {
                let dtype = |r: &Reg| self.analysis.dtype(*r);
                let (dtypes, made): (Vec<DType>, DType) =
                    (operands.iter().map(dtype).collect(), dtype(result));
                // Tried on a scratch program first, so that a failure adds no operands.
                let mut trial = native::Program::default();
                let registers: Vec<_> = dtypes.iter().map(|d| trial.load(*d).0).collect();
                if trial.scalar(*op, &registers, &dtypes, made).is_none() {
                    return false;
                }
                let registers: Vec<_> = operands.iter().map(|r| self.operand(*r)).collect();
                let value = self.open().program.scalar(*op, &registers, &dtypes, made);
                self.define(*result, value.expect("it was tried"));
            }
            Op::Product { result, operands } => {
                let registers = operands.map(|r| self.operand(r));
                let value = self.open().program.product(registers);
                self.define(*result, value.expect("products are of f32"));
            }
            Op::Load { result, place, fill } if self.is_stream(place) && self.is_fixed(*fill) => {
                let dtype = self.analysis.dtype(*result);
                let fill = fill.filter(|_| !place.guards.is_empty());
                let open = self.open();
                let (value, _) = open.program.load(dtype);
                let place = place.clone();
                open.read.insert(place.buffer);
                if let Some(fill) = fill {
                    open.inputs.push(fill);
                    *open.reads.entry(fill).or_default() += 1;
                }
                open.entries.push(Entry::Memory { place, dtype, written: false, fill });
                self.define(*result, value);
            }
            Op::Store { place, value } if place.guards.is_empty() && self.is_stream(place) => {
                if !self.open.as_ref().is_some_and(|open| open.known.contains_key(value)) {
                    return false;
                }
                let dtype = self.analysis.dtype(*value);
                let register = self.operand(*value);
                let open = self.open();
                open.program.store(dtype, register);
                let place = place.clone();
                open.written.insert(place.buffer);
                open.entries.push(Entry::Memory { place, dtype, written: true, fill: None });
            }
            _ => return false,
        }
        true
    }

    fn open(&mut self) -> &mut Open {
        self.open.get_or_insert_default()
    }

    fn define(&mut self, reg: Reg, value: native::Register) {
        let open = self.open();
        open.known.insert(reg, value);
        open.defined.push(reg);
    }

    /// A register as an operand in the open group.
    fn operand(&mut self, reg: Reg) -> native::Register {
        let dtype = self.analysis.dtype(reg);
        let uniform = self.analysis.registers[reg.index()].uniform;
        let constant = self.constants.get(&reg).copied();
        let open = self.open.get_or_insert_default();
        *open.reads.entry(reg).or_default() += 1;
        if let Some(value) = open.known.get(&reg) {
            return *value;
        }
        let value = match constant {
            Some(constant) => open.program.constant(constant),
            None => {
                open.entries.push(Entry::Register(reg));
                open.inputs.push(reg);
                if uniform { open.program.uniform(dtype).0 } else { open.program.load(dtype).0 }
            }
        };
        open.known.insert(reg, value);
        value
    }

    /// Whether the value of an expression is the same in all lanes.
    fn is_uniform(&self, sum: &Sum) -> bool {
        let mut uniform = self.analysis.vector(self.p).constant(sum);
        sum.visit_registers(&mut |reg| uniform &= self.analysis.registers[reg.index()].uniform);
        uniform
    }

    /// Whether a fill, if there is one, is the same in all lanes.
    fn is_fixed(&self, fill: Option<Reg>) -> bool {
        fill.is_none_or(|reg| self.analysis.registers[reg.index()].uniform)
    }

    /// Whether an access is to neighbouring elements, under conditions that hold for all lanes or
    /// for none.
    fn is_stream(&self, place: &Place) -> bool {
        let vector = self.analysis.vector(self.p);
        let uniform_terms =
            place.offset.terms.iter().all(|(term, _)| self.is_uniform(&Sum::term(term.clone())));
        // If lanes are rows, row storage is one element per lane, contiguous.
        let step = i64::from(!(self.analysis.is_row(place.buffer) && self.analysis.by_rows()));
        place.guards.iter().all(|guard| self.is_uniform(&guard.value))
            && uniform_terms
            && vector.pattern(&place.offset) == super::address::Pattern::Step(step)
    }

    /// Whether the open group must end before an instruction.
    fn conflicts(&self, op: &Op<'_>) -> bool {
        let Some(open) = &self.open else { return false };
        let mut conflict = false;
        let mut meet = |reg: Reg| conflict |= open.defined.contains(&reg);
        op.visit_registers(&mut meet);
        // Parameters may share memory.
        let meets = |touched: &BTreeSet<BufferId>, buffer: BufferId| {
            touched.iter().any(|other| {
                *other == buffer || !(self.analysis.is_row(*other) || self.analysis.is_row(buffer))
            })
        };
        match op {
            Op::Load { place, .. } => conflict |= meets(&open.written, place.buffer),
            Op::Store { place, .. } => {
                conflict |= meets(&open.written, place.buffer) || meets(&open.read, place.buffer);
            }
            _ => {}
        }
        conflict
    }

    /// Moves the steps of reductions into the last group, where that does not change the bits.
    fn fold(&mut self) {
        let phase = &self.analysis.nest.phases[self.p];
        let vector = self.analysis.vector(self.p);
        for (k, reduction) in phase.reductions.iter().enumerate() {
            let ([value], [Instr::Scalar { result, op, operands }]) =
                (reduction.values.as_slice(), reduction.combine.body.as_slice())
            else {
                continue;
            };
            let plain = operands[..] == [Reg::new(0), Reg::new(1)]
                && reduction.combine.results[..] == [*result];
            let defined = self.open.as_ref().is_some_and(|open| open.defined.contains(value));
            if !plain || !defined || reduction.tree.block != 0 {
                continue;
            }
            let dtype = self.analysis.dtype(*value);
            let taken = if self.analysis.by_rows() {
                self.fold_rows(*op, dtype, *value)
            } else {
                // Every block must begin with the tree's first lane.
                let whole = vector.positions().is_multiple_of(CHUNK)
                    || self.analysis.loops(self.p).is_empty();
                reduction.tree.lanes as usize == CHUNK
                    && whole
                    && self.fold_elements(*op, dtype, *value)
            };
            if taken {
                let open = self.open();
                open.entries.push(Entry::Accumulators(k));
                open.folds.push(k);
                *open.reads.entry(*value).or_default() += 1;
            }
        }
    }

    /// A lane of the tree has an accumulator for each row.
    fn fold_rows(&mut self, op: ScalarOp, dtype: DType, value: Reg) -> bool {
        let open = self.open();
        let value = open.known[&value];
        let mut trial = native::Program::default();
        let of = [trial.load(dtype).0, trial.load(dtype).0];
        if dtype.is_half() || trial.scalar(op, &of, &[dtype; 2], dtype).is_none() {
            return false;
        }
        let (sum, pointer) = open.program.load(dtype);
        let sum = open.program.scalar(op, &[sum, value], &[dtype; 2], dtype).expect("it was tried");
        open.program.store_at(pointer, dtype, sum);
        true
    }

    fn fold_elements(&mut self, op: ScalarOp, dtype: DType, value: Reg) -> bool {
        let open = self.open();
        let value = open.known[&value];
        open.program.fold(op, dtype, value).is_some()
    }

    /// Ends the open group.
    fn close(&mut self) -> Result<(), Diagnostic> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let body = &self.analysis.nest.phases[self.p].body;
        let total = |reg: Reg| self.analysis.registers[reg.index()].uses;
        let mut results = vec![];
        for reg in &open.defined {
            if total(*reg) <= open.reads.get(reg).copied().unwrap_or(0) {
                continue;
            }
            // A block that is in memory costs nothing, so the group need not copy it, unless the
            // group might write there.
            let load =
                body.iter().find(|op| matches!(op, Op::Load { result, .. } if result == reg));
            match load.filter(|_| open.written.is_empty()) {
                Some(load) => self.body.push(load.clone()),
                None => {
                    open.program.store(self.analysis.dtype(*reg), open.known[reg]);
                    open.entries.push(Entry::Register(*reg));
                    results.push(*reg);
                }
            }
        }
        let large = open.entries.iter().enumerate().filter_map(|(k, entry)| match entry {
            Entry::Memory { place, dtype, written: true, .. } => {
                let buffer = &self.analysis.nest.nest.buffers[place.buffer];
                let large = buffer.bytes() >= PAST && dtype.size() >= 4;
                let is_large = buffer.role == BufferRole::Out && large;
                is_large.then_some(k)
            }
            _ => None,
        });
        let large: Vec<usize> = large.collect();
        let mut past = None;
        if !large.is_empty() {
            past = Some((Arc::new(open.program.past_caches(&large).compile()?), large));
        }
        if open.program.has_effects() {
            self.body.push(Op::Group(Box::new(Group {
                function: Arc::new(open.program.compile()?),
                past,
                size: open.program.size(),
                entries: open.entries,
                inputs: open.inputs,
                results,
                folds: open.folds,
            })));
        }
        Ok(())
    }
}
