//! Builder of nests.
//!
//! ```
//! use wengert_core::nest::{Affine, Combine, NestBuilder, ScalarOp, Tree};
//! use wengert_core::DType;
//!
//! let mut b = NestBuilder::new("mean");
//! let x = b.input("x", DType::F32, &[64, 10]);
//! let y = b.output("y", DType::F32, &[64]);
//! let i = b.parallel("i", 64);
//! let [j] = b.phase([("j", 10)]);
//! let value = b.load(x, &[Affine::axis(i), Affine::axis(j)]);
//! let sum = b.reduce(&[value], Combine::sum(DType::F32), Tree { lanes: 16, block: 0 })[0];
//! b.phase([]);
//! let tenth = b.constant(0.1f32.into());
//! let mean = b.scalar(ScalarOp::Mul, &[sum, tenth]);
//! b.store(y, &[Affine::axis(i)], mean);
//! let nest = b.finish()?;
//! assert_eq!(nest.phases.len(), 2);
//! # Ok::<(), wengert_core::Diagnostic>(())
//! ```
//!
//! The builder makes names unique, simplifies index expressions by the extents of axes, merges
//! identical pure instructions of a phase, and removes dead code. It keeps the first mistake;
//! later calls are harmless, and [`NestBuilder::finish`] returns the mistake. A nest that it
//! returns is verified.

use super::bounds::Ranges;
use super::fold::{Folded, fold};
use super::{
    Access, Affine, Axis, AxisId, Buffer, BufferId, BufferRole, Combine, Guard, Instr, Nest, Phase,
    Prefix, Reduction, Reg, ScalarOp, Total, Tree, verify,
};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::id::IdVec;
use crate::scalar::Scalar;
use crate::text::is_name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// A nest under construction.
pub struct NestBuilder {
    nest: Nest,
    /// Visible pure instructions, with a result of register 0, and the registers of their
    /// results.
    known: FxHashMap<(Instr, DType), Reg>,
    /// Values of the registers that are constants.
    constants: FxHashMap<Reg, Scalar>,
    /// Buffers that the phase has stored to. Earlier loads from them cannot be reused.
    stored: BTreeSet<BufferId>,
    /// Names of buffers, and the next number to try for each name that was requested again.
    names: FxHashSet<String>,
    numbers: FxHashMap<String, usize>,
    error: Option<Diagnostic>,
}

impl NestBuilder {
    /// An empty nest.
    pub fn new(name: &str) -> Self {
        let nest = Nest {
            name: sanitised(name),
            buffers: IdVec::new(),
            axes: IdVec::new(),
            parallel: Vec::new(),
            phases: Vec::new(),
            registers: IdVec::new(),
        };
        NestBuilder {
            nest,
            known: FxHashMap::default(),
            constants: FxHashMap::default(),
            stored: BTreeSet::new(),
            names: FxHashSet::default(),
            numbers: FxHashMap::default(),
            error: None,
        }
    }

    /// Declares a buffer. Parameters are in the order of their declaration. A name already in use
    /// gets a number.
    pub fn buffer(
        &mut self,
        role: BufferRole,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> BufferId {
        let name = self.free_name(sanitised(name));
        self.nest.buffers.push(Buffer { name, dtype, shape: shape.to_vec(), pitch: None, role })
    }

    /// The buffers so far, in the order of their declaration.
    pub fn buffers(&self) -> Vec<BufferId> {
        self.nest.buffers.ids().collect()
    }

    /// Gives a buffer a [pitch](crate::pitch).
    pub fn set_pitch(&mut self, buffer: BufferId, pitch: Option<usize>) {
        self.nest.buffers[buffer].pitch = pitch;
    }

    /// `name`, or `name` with the first number that makes it unique. A nest may have thousands of
    /// parameters of one name.
    fn free_name(&mut self, name: String) -> String {
        if self.names.insert(name.clone()) {
            return name;
        }
        let next = self.numbers.entry(name.clone()).or_insert(2);
        loop {
            let numbered = format!("{name}_{next}");
            *next += 1;
            if self.names.insert(numbered.clone()) {
                return numbered;
            }
        }
    }

    /// Declares an `in` parameter.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(BufferRole::In, name, dtype, shape)
    }

    /// Declares an `out` parameter.
    pub fn output(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(BufferRole::Out, name, dtype, shape)
    }

    /// Declares an `inout` parameter.
    pub fn in_place(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(BufferRole::InOut, name, dtype, shape)
    }

    /// Declares row storage.
    pub fn row(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        self.buffer(BufferRole::Row, name, dtype, shape)
    }

    /// The buffer with that id.
    pub fn buffer_of(&self, id: BufferId) -> &Buffer {
        &self.nest.buffers[id]
    }

    /// Adds a parallel axis inside those before it. All are declared before the first phase.
    pub fn parallel(&mut self, name: &str, extent: usize) -> AxisId {
        if !self.nest.phases.is_empty() {
            self.fail("a parallel axis is declared after the first phase");
        }
        let axis = self.axis(name, extent, &[]);
        self.nest.parallel.push(axis);
        axis
    }

    /// Begins a phase with these inner axes, outermost first. The previous phase ends.
    pub fn phase<const N: usize>(&mut self, axes: [(&str, usize); N]) -> [AxisId; N] {
        let ids = self.phase_over(&axes);
        ids.try_into().expect("as many ids as axes")
    }

    /// Begins a phase over any number of inner axes, outermost first.
    pub fn phase_over(&mut self, axes: &[(&str, usize)]) -> Vec<AxisId> {
        let row = self.nest.phases.last().is_none_or(|p| p.axes.is_empty());
        // Results of a phase without inner axes belong to the row, but written memory may have
        // changed since.
        let buffers = &self.nest.buffers;
        self.known.retain(|(instr, _), _| match instr {
            Instr::Load { access, .. } => row && buffers[access.buffer].role == BufferRole::In,
            _ => row,
        });
        self.stored.clear();
        let mut ids = Vec::new();
        for (name, extent) in axes {
            ids.push(self.axis(name, *extent, &ids));
        }
        self.nest.phases.push(Phase {
            axes: ids.clone(),
            body: Vec::new(),
            reductions: Vec::new(),
        });
        ids
    }

    fn axis(&mut self, name: &str, extent: usize, beside: &[AxisId]) -> AxisId {
        let name = if is_name(name) && !matches!(name, "floor_div" | "mod") { name } else { "i" };
        let visible = self.nest.parallel.iter().chain(beside);
        let taken: BTreeSet<&str> = visible.map(|a| self.nest.axes[*a].name.as_str()).collect();
        let name = free(name, |n| taken.contains(n));
        self.nest.axes.push(Axis { name, extent })
    }

    /// The extent of an axis.
    pub fn extent(&self, axis: AxisId) -> usize {
        self.nest.axes[axis].extent
    }

    /// The nest as built so far: its axes and registers, for analyses of ranges.
    pub fn draft(&self) -> &Nest {
        &self.nest
    }

    /// The dtype of a register.
    pub fn dtype(&self, reg: Reg) -> DType {
        self.nest.registers[reg]
    }

    /// A scalar instruction whose result has the dtype of its last operand (bool for comparisons).
    pub fn scalar(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        let dtypes: Vec<DType> = operands.iter().map(|r| self.dtype(*r)).collect();
        self.typed(op, operands, op.result(&dtypes))
    }

    /// Like [`NestBuilder::scalar`]. If the instruction does not take halves, they are converted
    /// to f32 and back.
    pub fn scalar_widened(&mut self, op: ScalarOp, operands: &[Reg]) -> Reg {
        let Some(dtype) = operands.last().map(|r| self.dtype(*r)) else {
            return self.scalar(op, operands);
        };
        if op.class().contains(dtype) || !dtype.is_half() {
            return self.scalar(op, operands);
        }
        let wide: Vec<Reg> = operands
            .iter()
            .map(|r| if self.dtype(*r).is_half() { self.convert(*r, DType::F32) } else { *r })
            .collect();
        let result = self.scalar(op, &wide);
        if op.is_comparison() { result } else { self.convert(result, dtype) }
    }

    /// `convert`; emits nothing if the value already has the dtype.
    pub fn convert(&mut self, value: Reg, dtype: DType) -> Reg {
        if self.dtype(value) == dtype {
            value
        } else {
            self.typed(ScalarOp::Convert, &[value], dtype)
        }
    }

    /// `bitcast`.
    pub fn bitcast(&mut self, value: Reg, dtype: DType) -> Reg {
        if self.dtype(value) == dtype {
            value
        } else {
            self.typed(ScalarOp::Bitcast, &[value], dtype)
        }
    }

    fn typed(&mut self, op: ScalarOp, operands: &[Reg], dtype: DType) -> Reg {
        let dtypes: Vec<DType> = operands.iter().map(|r| self.dtype(*r)).collect();
        if let Err(wrong) = op.check(&dtypes, dtype) {
            self.fail(wrong);
        } else {
            match fold(op, operands, dtype, |r| self.constants.get(&r).copied()) {
                Some(Folded::Constant(value)) => return self.constant(value),
                Some(Folded::Operand(reg)) => return reg,
                None => {}
            }
        }
        self.pure(Instr::Scalar { result: Reg(0), op, operands: operands.to_vec() }, dtype)
    }

    /// A constant.
    pub fn constant(&mut self, value: Scalar) -> Reg {
        let reg = self.pure(Instr::Const { result: Reg(0), value }, value.dtype());
        self.constants.insert(reg, value);
        reg
    }

    /// The value of an index expression, wrapped to an integer dtype.
    pub fn index(&mut self, value: &Affine, dtype: DType) -> Reg {
        let value = self.simplify(value);
        match value.as_constant() {
            Some(constant) if dtype.is_integer() => {
                self.constant(Scalar::from_i64(dtype, constant))
            }
            _ => self.pure(Instr::Index { result: Reg(0), value }, dtype),
        }
    }

    /// Whether all guards hold.
    pub fn test(&mut self, guards: &[Guard]) -> Reg {
        let guards = self.simplify_guards(guards);
        if guards.is_empty() {
            return self.constant(true.into());
        }
        self.pure(Instr::Test { result: Reg(0), guards }, DType::Bool)
    }

    /// The element at `indices`, which are in bounds.
    pub fn load(&mut self, buffer: BufferId, indices: &[Affine]) -> Reg {
        self.access_load(buffer, indices, &[], None, false)
    }

    /// The element at `indices` where all guards hold, else `fill`.
    pub fn load_guarded(
        &mut self,
        buffer: BufferId,
        indices: &[Affine],
        guards: &[Guard],
        fill: Reg,
    ) -> Reg {
        self.access_load(buffer, indices, guards, Some(fill), false)
    }

    /// The element at `indices`, each clamped to its dimension.
    pub fn load_clamped(&mut self, buffer: BufferId, indices: &[Affine]) -> Reg {
        self.access_load(buffer, indices, &[], None, true)
    }

    fn access_load(
        &mut self,
        buffer: BufferId,
        indices: &[Affine],
        guards: &[Guard],
        fill: Option<Reg>,
        clamp: bool,
    ) -> Reg {
        let access = self.access(buffer, indices, guards, clamp);
        // Guards that always hold were removed. Without guards there is no fill.
        let fill = fill.filter(|_| !access.guards.is_empty());
        let dtype = self.nest.buffers[buffer].dtype;
        let instr = Instr::Load { result: Reg(0), access, fill };
        if self.stored.contains(&buffer) {
            self.emit(instr, &[dtype])[0]
        } else {
            self.pure(instr, dtype)
        }
    }

    /// Stores `value` at `indices`.
    pub fn store(&mut self, buffer: BufferId, indices: &[Affine], value: Reg) {
        self.store_guarded(buffer, indices, &[], value);
    }

    /// Stores `value` at `indices` where all guards hold.
    pub fn store_guarded(
        &mut self,
        buffer: BufferId,
        indices: &[Affine],
        guards: &[Guard],
        value: Reg,
    ) {
        let access = self.access(buffer, indices, guards, false);
        self.stored.insert(buffer);
        self.known.retain(
            |(instr, _), _| !matches!(instr, Instr::Load { access, .. } if access.buffer == buffer),
        );
        self.emit(Instr::Store { access, value, total: None }, &[]);
    }

    /// Stores at `indices` the total of `value` over the rows of a [band](super::Total).
    pub fn store_total(&mut self, buffer: BufferId, indices: &[Affine], value: Reg, total: Total) {
        let access = self.access(buffer, indices, &[], false);
        self.emit(Instr::Store { access, value, total: Some(Box::new(total)) }, &[]);
    }

    fn access(
        &mut self,
        buffer: BufferId,
        indices: &[Affine],
        guards: &[Guard],
        clamp: bool,
    ) -> Access {
        let indices = indices.iter().map(|i| self.simplify(i)).collect();
        Access { buffer, indices, guards: self.simplify_guards(guards), clamp }
    }

    fn simplify(&self, expression: &Affine) -> Affine {
        Ranges::new(&self.nest, &[]).simplify(expression)
    }

    /// The guards without those that always hold and without duplicates.
    fn simplify_guards(&self, guards: &[Guard]) -> Vec<Guard> {
        let ranges = Ranges::new(&self.nest, &[]);
        let mut kept: Vec<Guard> = Vec::new();
        for guard in guards {
            let guard = Guard { index: ranges.simplify(&guard.index), ..*guard };
            let always = ranges.of(&guard.index).within(guard.low.into(), guard.high.into());
            if !always && !kept.contains(&guard) {
                kept.push(guard);
            }
        }
        kept
    }

    /// Scans along the last inner axis.
    pub fn prefix(&mut self, values: &[Reg], combine: Combine, reverse: bool) -> Vec<Reg> {
        let dtypes = combine.dtypes();
        let instr = Instr::Prefix(Prefix {
            results: vec![Reg(0); dtypes.len()],
            values: values.to_vec(),
            combine,
            reverse,
        });
        self.emit(instr, &dtypes)
    }

    /// Reduces over all inner axes. The results may be used in later phases.
    pub fn reduce(&mut self, values: &[Reg], combine: Combine, tree: Tree) -> Vec<Reg> {
        let results: Vec<Reg> =
            combine.dtypes().into_iter().map(|d| self.nest.registers.push(d)).collect();
        let reduction =
            Reduction { results: results.clone(), values: values.to_vec(), combine, tree };
        match self.nest.phases.last_mut() {
            Some(phase) => phase.reductions.push(reduction),
            None => self.fail("a reduction before the first phase"),
        }
        results
    }

    /// Emits an instruction without effects, or reuses the result of an identical one.
    fn pure(&mut self, instr: Instr, dtype: DType) -> Reg {
        let key = (instr, dtype);
        if let Some(reg) = self.known.get(&key) {
            return *reg;
        }
        let result = self.emit(key.0.clone(), &[dtype])[0];
        self.known.insert(key, result);
        result
    }

    fn emit(&mut self, mut instr: Instr, dtypes: &[DType]) -> Vec<Reg> {
        let defined: Vec<Reg> = dtypes.iter().map(|d| self.nest.registers.push(*d)).collect();
        instr.results_mut().copy_from_slice(&defined);
        match self.nest.phases.last_mut() {
            Some(phase) => phase.body.push(instr),
            None => self.fail("an instruction before the first phase"),
        }
        defined
    }

    /// Keeps the first mistake, for [`NestBuilder::finish`] to return.
    fn fail(&mut self, wrong: impl Into<String>) {
        if self.error.is_none() {
            let phase = self.nest.phases.len().saturating_sub(1);
            let context = format!("nest @{}, phase {phase}", self.nest.name);
            self.error = Some(Diagnostic::new(wrong).context(context));
        }
    }

    /// The nest without dead code, numbered and verified.
    pub fn finish(self) -> Result<Nest> {
        let nest = self.finish_unverified()?;
        verify(&nest)?;
        Ok(nest)
    }

    /// The nest without dead code, numbered, but not verified: for a caller that changes it
    /// first.
    pub fn finish_unverified(self) -> Result<Nest> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.nest.without_dead_code().renumber()),
        }
    }
}

/// `name` with the characters that the text format does not allow replaced.
fn sanitised(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '_' })
        .collect();
    let clean: Vec<&str> = clean.split('.').filter(|part| !part.is_empty()).collect();
    if clean.is_empty() { "x".into() } else { clean.join(".") }
}

/// `name`, or `name` with the first number that makes it unique.
fn free(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.into();
    }
    let mut numbered = (2..).map(|n| format!("{name}_{n}"));
    numbered.find(|n| !taken(n)).expect("finitely many names are taken")
}

impl Nest {
    /// Removes instructions and reductions that reach no parameter, and then phases that are
    /// empty.
    #[must_use]
    pub fn without_dead_code(&self) -> Nest {
        let mut nest = self.clone();
        // A round may leave a row storage without loads, whose stores are then dead. The chain of
        // such storages is finite.
        loop {
            let loaded = nest.loaded_buffers();
            let before: usize = nest.phases.iter().map(|p| p.body.len()).sum();
            nest.remove_dead(&loaded);
            if nest.phases.iter().map(|p| p.body.len()).sum::<usize>() == before {
                nest.phases.retain(|p| !p.body.is_empty() || !p.reductions.is_empty());
                return nest;
            }
        }
    }

    fn loaded_buffers(&self) -> BTreeSet<BufferId> {
        let instrs = self.phases.iter().flat_map(|p| &p.body);
        instrs
            .filter_map(|instr| match instr {
                Instr::Load { access, .. } => Some(access.buffer),
                _ => None,
            })
            .collect()
    }

    fn remove_dead(&mut self, loaded: &BTreeSet<BufferId>) {
        let buffers = &self.buffers;
        let lost = |id: BufferId| {
            !loaded.contains(&id) && buffers.get(id).is_some_and(|b| b.role == BufferRole::Row)
        };
        let mut used: BTreeSet<Reg> = BTreeSet::new();
        for phase in self.phases.iter_mut().rev() {
            phase.reductions.retain(|r| {
                let live = r.results.iter().any(|r| used.contains(r));
                used.extend(r.values.iter().filter(|_| live));
                live
            });
            let mut body = Vec::new();
            while let Some(instr) = phase.body.pop() {
                let live = match &instr {
                    Instr::Store { access, .. } => !lost(access.buffer),
                    other => other.results().iter().any(|r| used.contains(r)),
                };
                if live {
                    instr.visit_operands(&mut |r| {
                        used.insert(r);
                    });
                    body.push(instr);
                }
            }
            body.reverse();
            phase.body = body;
        }
    }
}
