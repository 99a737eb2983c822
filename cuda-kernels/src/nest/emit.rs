//! Emission of a nest's code: the values known at a point of the code, and the instructions of a
//! body.
//!
//! **Copies.** A thread runs several iterations of a body interleaved: neighbours along a
//! contiguous axis, whose loads are merged into one, or all the elements of a row that the thread
//! owns. Each such iteration is a [`Copy`]. It gives the nest's axes as expressions over the axes
//! of the schedule. Every instruction is emitted for all copies before the next instruction, so
//! the loads of all copies are in flight together.
//!
//! **Axes of the schedule** are the number of the row, the number of the thread in its team, and
//! the counters of loops. They are appended to the nest's own axes in [`Emit::bounds`], a nest
//! that only bounds expressions. Expressions over them are normal forms like all others, so the
//! difference of two expressions tells whether the next copy reads the next element.
//!
//! **Known values** (value numbering). An instruction reuses the result of an earlier equal
//! instruction on the same registers, and a load reuses an earlier load of the same element. The
//! table has a scope for each loop and branch. This keeps a row in registers: if all phases are
//! emitted without loops, a later phase finds the values that an earlier phase loaded or computed.

use super::band::Accumulators;
use super::element::VECTOR_BYTES;
use super::place::Place;
use crate::ptx::{Code, Operand, Reg, SharedArray, Type};
use crate::scalar::{Functions, value_type};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Id;
use wengert_core::nest::print::InstrText;
use wengert_core::nest::{Affine, Axis, AxisId, BufferId, Instr, Nest, Phase, ScalarOp};
use wengert_core::{DType, Result, Scalar};

/// A register of the nest, not of PTX.
pub(super) type NestReg = wengert_core::nest::Reg;

/// Key of a computed value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    /// A scalar instruction with the dtypes of its last operand and of its result.
    Scalar(ScalarOp, DType, DType, Vec<Reg>),
    /// A constant.
    Constant(Scalar),
    /// An expression without its constant term, in 32 or (`true`) 64 bits.
    Sum(Affine, bool),
    /// Whether an expression is in bounds.
    Guard(Affine, i64, i64),
    /// The conjunction of some predicates.
    All(Vec<Reg>),
    /// The address of an element, without its constant term.
    Address(BufferId, Affine),
    /// An element, under a predicate, with a fill.
    Element(BufferId, Affine, Option<Reg>, Option<Reg>),
    /// An index that is clamped to an extent.
    Clamped(Affine, usize),
    /// Quotient and remainder by a constant, which come from one division.
    Quotient(Affine, i64, bool),
}

/// One of the iterations that a thread runs interleaved.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// The expression for each axis of the nest, by its id.
    pub axes: Vec<Affine>,
    /// Predicate for loads and stores: false if the iteration is beyond the end.
    pub active: Option<Reg>,
    /// Predicate for stores: false if another thread does the same iteration.
    pub stores: Option<Reg>,
}

/// The warp that scans the prefixes of a phase; see [`super::scan`].
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// The axis of the lanes.
    pub lane: AxisId,
    /// Mask of all lanes.
    pub members: Operand,
}

/// Code under construction.
pub(super) struct Emit<'a> {
    pub nest: &'a Nest,
    pub code: Code,
    pub functions: Functions,
    /// Alignment of buffer addresses, in bytes.
    pub alignment: usize,
    /// A nest without code: the axes and registers of the nest, then those of the schedule.
    pub bounds: Nest,
    /// PTX registers of the axes of `bounds`.
    pub axis_registers: Vec<Option<Reg>>,
    /// PTX registers of the registers that were appended to `bounds`.
    pub data: BTreeMap<NestReg, Reg>,
    data_ids: BTreeMap<Reg, NestReg>,
    /// Memory of each buffer.
    pub places: Vec<Place>,
    /// Arrays in local memory of the thread, and in shared memory of the block.
    pub local: Vec<SharedArray>,
    pub shared: Vec<SharedArray>,
    /// Registers of the row, for each copy of the row.
    pub row: Vec<Vec<Option<Reg>>>,
    /// Registers of the body, for each copy.
    pub body: Vec<Vec<Option<Reg>>>,
    /// States of the prefixes of the current phase: by prefix, copy, element.
    pub prefixes: Vec<Vec<Vec<Reg>>>,
    /// Row storage that was loaded from, and the lines that store to row storage.
    pub storage_loads: BTreeSet<BufferId>,
    pub storage_stores: Vec<(BufferId, usize)>,
    /// Loads whose values are already in registers, by the number of the instruction in the body.
    /// The values were transposed through shared memory, or are the sums of a product.
    pub loaded: BTreeMap<usize, Vec<Reg>>,
    /// The accumulators of totals.
    pub accumulators: Accumulators,
    /// How a warp scans the prefixes. If `None`, the prefixes are carried from iteration to
    /// iteration.
    pub scan: Option<Scan>,
    /// Numbers of axes and registers of `bounds` that were defined before the loops of the phase.
    pub outer: (usize, usize),
    known: Vec<BTreeMap<Key, Reg>>,
}

impl<'a> Emit<'a> {
    /// An emitter for a nest, without code.
    pub fn new(nest: &'a Nest) -> Self {
        Emit {
            nest,
            code: Code::new(),
            functions: Functions::new(),
            alignment: VECTOR_BYTES,
            bounds: Nest {
                name: nest.name.clone(),
                buffers: Default::default(),
                axes: nest.axes.clone(),
                parallel: Vec::new(),
                phases: Vec::new(),
                registers: nest.registers.clone(),
            },
            axis_registers: vec![None; nest.axes.len()],
            data: BTreeMap::new(),
            data_ids: BTreeMap::new(),
            places: Vec::new(),
            local: Vec::new(),
            shared: Vec::new(),
            row: vec![vec![None; nest.registers.len()]],
            body: Vec::new(),
            prefixes: Vec::new(),
            storage_loads: BTreeSet::new(),
            storage_stores: Vec::new(),
            loaded: BTreeMap::new(),
            accumulators: Accumulators::new(),
            scan: None,
            outer: (0, 0),
            known: vec![BTreeMap::new()],
        }
    }

    /// A new axis of the schedule, whose register is set later.
    pub fn axis(&mut self, name: &str, extent: usize) -> AxisId {
        self.axis_registers.push(None);
        self.bounds.axes.push(Axis { name: name.into(), extent })
    }

    /// A new axis of the schedule with its register.
    pub fn axis_in(&mut self, name: &str, extent: usize, register: Reg) -> AxisId {
        let axis = self.axis(name, extent);
        self.axis_registers[axis.index()] = Some(register);
        axis
    }

    /// Loads the addresses of the parameters.
    pub fn parameters(&mut self, in_place: &[(usize, usize)]) {
        for (n, (_, buffer)) in self.nest.parameters().enumerate() {
            let base = self.code.load(
                crate::ptx::Space::Param,
                Type::U64,
                Operand::Symbol(parameter(n)),
                0,
            );
            let written = buffer.role != wengert_core::nest::BufferRole::In
                || in_place.iter().any(|(operand, _)| *operand == n);
            self.places.push(Place::Global { base, written });
        }
    }

    /// Opens a scope of known values: a loop, or a branch.
    pub fn open(&mut self) {
        self.known.push(BTreeMap::new());
    }

    /// Closes the innermost scope of known values.
    pub fn close(&mut self) {
        self.known.pop();
    }

    /// The register of a known value.
    pub fn recall(&self, key: &Key) -> Option<Reg> {
        self.known.iter().rev().find_map(|scope| scope.get(key)).copied()
    }

    /// Records a known value.
    pub fn remember(&mut self, key: Key, register: Reg) {
        self.known.last_mut().expect("the outermost scope is never closed").insert(key, register);
    }

    /// The register of a value: the known one, or the one that `make` computes it in.
    pub fn once(&mut self, key: Key, make: impl FnOnce(&mut Self) -> Reg) -> Reg {
        if let Some(known) = self.recall(&key) {
            return known;
        }
        let register = make(self);
        self.remember(key, register);
        register
    }

    /// Forgets the elements of a buffer.
    pub fn forget(&mut self, buffer: BufferId) {
        for scope in &mut self.known {
            scope.retain(|key, _| !matches!(key, Key::Element(b, ..) if *b == buffer));
        }
    }

    /// Removes the stores to row storage that is never loaded: each thread found its own elements
    /// in registers. True if no row storage is loaded at all.
    pub fn drop_storage(&mut self) -> bool {
        let loads = std::mem::take(&mut self.storage_loads);
        let stores = std::mem::take(&mut self.storage_stores);
        let dead: BTreeSet<usize> =
            stores.iter().filter(|(b, _)| !loads.contains(b)).map(|(_, line)| *line).collect();
        self.code.remove(&dead);
        loads.is_empty()
    }

    /// Emits `body` under a predicate.
    pub fn when(
        &mut self,
        predicate: Reg,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let end = self.code.label();
        self.code.branch_unless(predicate, end);
        self.open();
        body(self)?;
        self.close();
        self.code.place(end);
        Ok(())
    }

    /// Emits `body`, under a predicate if there is one.
    pub fn when_any(
        &mut self,
        predicate: Option<Reg>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match predicate {
            Some(predicate) => self.when(predicate, body),
            None => body(self),
        }
    }

    /// Emits `for axis in 0..extent`, in descending order if `reverse`. The extent is at least 1.
    pub fn repeat(
        &mut self,
        axis: AxisId,
        reverse: bool,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        use crate::ptx::{Binary, Compare};
        let extent = self.bounds.axes[axis].extent as i64;
        let ty = counter_type(extent);
        let counter = self.code.mov(ty, if reverse { extent - 1 } else { 0 });
        self.axis_registers[axis.index()] = Some(counter);
        let begin = self.code.label();
        self.code.place(begin);
        self.open();
        body(self)?;
        self.close();
        self.code.binary_into(counter, Binary::Add, ty, counter, if reverse { -1 } else { 1 });
        let (op, end) = if reverse { (Compare::Ge, 0) } else { (Compare::Lt, extent) };
        let more = self.code.compare(op, ty, counter, end);
        self.code.branch_if(more, begin);
        Ok(())
    }

    /// The PTX register of a nest register in a copy.
    pub fn value(&self, copy: usize, register: NestReg) -> Reg {
        let body = self.body.get(copy).and_then(|b| b[register.index()]);
        // Copies are those of a row, or those of all rows again and again.
        let row = || self.row[copy % self.row.len()][register.index()];
        body.or_else(row).expect("the verifier lets only visible registers be read")
    }

    pub fn define(&mut self, copy: usize, register: NestReg, value: Reg) {
        self.body[copy][register.index()] = Some(value);
    }

    /// The register of index expressions for this PTX register, which holds an i32 or i64.
    pub fn data_register(&mut self, register: Reg, dtype: DType) -> NestReg {
        if let Some(id) = self.data_ids.get(&register) {
            return *id;
        }
        let id = self.bounds.registers.push(dtype);
        self.data_ids.insert(register, id);
        self.data.insert(id, register);
        id
    }

    /// Marks the current axes and registers as defined outside the loops of a phase.
    pub fn mark_outer(&mut self) {
        self.outer = (self.bounds.axes.len(), self.bounds.registers.len());
    }

    /// Begins the body of a phase for `copies` copies.
    pub fn begin_body(&mut self, copies: usize) {
        self.body = vec![vec![None; self.nest.registers.len()]; copies];
    }

    /// Emits the instructions of a body, each for all copies.
    pub fn instructions(&mut self, phase: &Phase, copies: &[Copy]) -> Result<()> {
        let mut prefix = 0;
        for (number, instr) in phase.body.iter().enumerate() {
            self.code.comment(InstrText(self.nest, instr).to_string());
            match instr {
                Instr::Scalar { result, op, operands } => {
                    self.scalars(*result, *op, operands, copies.len())?;
                }
                Instr::Const { result, value } => {
                    let constant = self.constant(*value);
                    (0..copies.len()).for_each(|copy| self.define(copy, *result, constant));
                }
                Instr::Index { result, value } => {
                    for (n, copy) in copies.iter().enumerate() {
                        let expression = self.expression(value, n, copy);
                        let dtype = self.nest.registers[*result];
                        let value = self.index(&expression, dtype);
                        self.define(n, *result, value);
                    }
                }
                Instr::Test { result, guards } => {
                    for (n, copy) in copies.iter().enumerate() {
                        let holds = match self.guards(guards, n, copy) {
                            Some(holds) => holds,
                            None => self.constant(true.into()),
                        };
                        self.define(n, *result, holds);
                    }
                }
                Instr::Load { result, access, fill } => {
                    let values = match self.loaded.get(&number) {
                        Some(values) => values.clone(),
                        None => self.load(access, *fill, copies),
                    };
                    for (copy, value) in values.into_iter().enumerate() {
                        self.define(copy, *result, value);
                    }
                }
                Instr::Store { access, value, total } => {
                    let values = (0..copies.len()).map(|c| self.value(c, *value)).collect();
                    match total {
                        Some(total) => self.add_to(total, access.buffer, values, copies)?,
                        None => self.store(access, values, copies),
                    }
                }
                Instr::Prefix(p) if self.scan.is_some() => {
                    self.scan_prefix(p, prefix, copies[0].active)?;
                    prefix += 1;
                }
                Instr::Prefix(p) => {
                    for copy in 0..copies.len() {
                        let state = self.prefixes[prefix][copy].clone();
                        let values: Vec<Reg> =
                            p.values.iter().map(|r| self.value(copy, *r)).collect();
                        let mut next = self.combine(&p.combine, &state, &values)?;
                        let dtypes = p.combine.dtypes();
                        for ((next, dtype), result) in next.iter_mut().zip(&dtypes).zip(&p.results)
                        {
                            // A result that is a register of the state is copied: `assign`
                            // overwrites the state, and later instructions read the result.
                            if state.contains(next) {
                                *next = self.code.mov(value_type(*dtype), *next);
                            }
                            self.define(copy, *result, *next);
                        }
                        self.assign(&dtypes, &state, &next);
                    }
                    prefix += 1;
                }
            }
        }
        Ok(())
    }
}

/// The name of a parameter of the kernel.
pub(super) fn parameter(number: usize) -> String {
    format!("p{number}")
}

/// The type of a counter below `extent`, with room for one step beyond.
pub(super) const fn counter_type(extent: i64) -> Type {
    if extent < (1 << 31) - (1 << 16) { Type::S32 } else { Type::S64 }
}
