//! Nests on the CPU: a tile interpreter.
//!
//! A nest is compiled to **steps** over **blocks**: runs of up to 1,024 neighbouring elements or
//! rows, with native code up to 8,192. A step runs one instruction for all lanes of a block, by
//! one call of a kernel (`crate::kernels`). So the dispatch is paid once for hundreds of
//! elements, and a block's registers stay in L1. The stages:
//!
//! - `band`: totals of bands of rows become loads and stores.
//! - `lower`: accesses become flat offsets, axes are merged.
//! - `schedule`: lanes are elements of a row, or rows, whichever costs less.
//! - `direct`: loads and stores that need no copy.
//! - `analyse`: the registers that are the same in all lanes, and the outermost loop each can be
//!   hoisted to.
//! - `product`: products `select(z = 0, 0, x · y)` become one instruction.
//! - `group`: instructions that native code supports become a step of native code
//!   ([`crate::native`]), where the machine has AVX-512; `fuse`: elsewhere, runs of arithmetic
//!   become chains.
//! - `compile`: every instruction is hoisted to the outermost loop it can stand in; registers get
//!   blocks. Loads of contiguous memory cost nothing (the register's block *is* the memory) if no
//!   write clobbers that memory before the last use. A stored value is computed in its place.
//! - `run`: the loops; `repeat`: those that only run native code.
//! - `transpose`: nests that only exchange axes bypass all these stages.
//!
//! **Why native code.** A kernel step writes and reads a block for every value. The baseline is a
//! loop that rustc compiles for the same chain (512K elements of f32, and 16K, which fit in L2).
//! Steps of kernels took 1.09 and 1.15 times as long for `(x·w + b)·x + r`, which is one
//! super-instruction, but 1.63 and 3.3 times for a chain of eight operations that is none. Native
//! code takes 1.05 and 1.14 times as long for the latter. No list of super-instructions covers
//! all chains. A GELU, whose polynomials stay in registers, takes half the time. Instructions
//! without a rule in native code stay steps of kernels, in the same block. So a nest may mix both
//! kinds, and the address computation exists once.
//!
//! The bits are those of the nest interpreter, whatever the schedule, the vector instructions and
//! the number of threads: lanes interact only in reductions, and those follow the nest's tree.

mod address;
mod analyse;
mod band;
mod combine;
mod compile;
mod condition;
mod direct;
mod follow;
mod frame;
mod fuse;
mod group;
mod layout;
mod lower;
mod product;
mod program;
mod repeat;
mod run;
mod schedule;
mod sum;
mod transpose;

use crate::kernels::moves::{Run, runs};
use crate::memory::{ALIGNMENT, Buffer, Span, Workspace, check_count, spans};
use crate::native;
use crate::pool::TaskPanicked;
use crate::simd::Simd;
use address::VectorAxes;
use band::Bands;
use combine::Progress;
pub(crate) use follow::{Follower, Part};
use frame::Frame;
use layout::Layout;
use lower::FlatNest;
use program::{Loop, PhaseProgram, Step};
use repeat::Repeat;
use transpose::Transposition;
use wengert_core::nest::{BufferRole, Nest, verify};
use wengert_core::plan::{NestId, Plan};
use wengert_core::{Diagnostic, Verified};

/// A nest, ready to run.
#[derive(Debug)]
pub struct CompiledNest {
    name: String,
    parameters: Vec<Parameter>,
    phases: Vec<PhaseProgram>,
    begin: Vec<Step>,
    fixed: Vec<Step>,
    outer: Vec<Loop>,
    /// The last of these loops, if it only runs native code.
    repeat: Option<Repeat>,
    /// Set if the nest has totals.
    bands: Option<Bands>,
    /// Set if the nest only exchanges axes.
    transposition: Option<Transposition>,
    rows: Option<VectorAxes>,
    lanes: usize,
    homes: Vec<usize>,
    tables: Vec<Vec<i64>>,
    /// How the elements lie that the tables lead to.
    runs: Vec<Vec<Run>>,
    simd: Simd,
    axes: usize,
    reductions: usize,
    index_lanes: usize,
    /// Offsets of a frame's tables in scratch memory.
    counters: usize,
    pointers: usize,
    indices: usize,
    masks: usize,
    progress: usize,
    scratch: usize,
    units: usize,
    /// Most units of a task.
    grain: usize,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    bytes: usize,
    align: usize,
    written: bool,
}

/// Lanes · steps of a task: some twenty microseconds.
const TASK: usize = 1 << 17;

impl CompiledNest {
    /// Compiles a nest.
    ///
    /// Error: the nest breaks an invariant ([`verify()`]); the machine lacks the vector
    /// instructions; or scratch memory would exceed the address space.
    pub fn new(nest: &Nest, simd: Simd) -> Result<Self, Diagnostic> {
        Self::with_options(nest, simd, None, native::choose(simd)?)
    }

    /// Compiles a nest of a verified plan.
    ///
    /// Error: as for [`new`](Self::new).
    pub(crate) fn of_plan(
        plan: &Verified<Plan>,
        id: NestId,
        simd: Simd,
    ) -> Result<Self, Diagnostic> {
        Self::verified(&plan.nests[id], simd, None, native::choose(simd)?)
    }

    /// Compiles a nest for tests: lanes are rows (true, if the nest has parallel axes) or
    /// elements (false), with native code or without.
    ///
    /// Error: as for [`new`](Self::new).
    #[doc(hidden)]
    pub fn with_options(
        nest: &Nest,
        simd: Simd,
        by_rows: Option<bool>,
        native: bool,
    ) -> Result<Self, Diagnostic> {
        verify(nest)?;
        Self::verified(nest, simd, by_rows, native)
    }

    fn verified(
        nest: &Nest,
        simd: Simd,
        by_rows: Option<bool>,
        native: bool,
    ) -> Result<Self, Diagnostic> {
        if !simd.is_available() {
            return Err(Diagnostic::new(format!("this machine does not have {}", simd.name())));
        }
        let spelled = band::spelled_out(nest);
        let (nest, bands) = match &spelled {
            Some((nest, bands)) => (nest, Some(*bands)),
            None => (nest, None),
        };
        // Lanes of a block must not be rows of a band, whose order counts.
        let by_rows = if bands.is_some() { Some(false) } else { by_rows };
        let lowered = FlatNest::new(nest);
        let compiled = match compile::compile(&lowered, simd, by_rows, native) {
            Err(error) if native => {
                tracing::warn!("nest @{} is interpreted: {error}", nest.name);
                compile::compile(&lowered, simd, by_rows, false)?
            }
            other => other?,
        };
        let mut layout: Layout = compiled.layout;
        let lanes = compiled.lanes;
        let word = size_of::<i64>();
        let outer_units: usize = compiled.outer.iter().map(|l| l.extent).product();
        let blocks = compiled.rows.as_ref().map_or(1, |v| v.positions().div_ceil(lanes));
        let units = outer_units * blocks;
        let axes = nest.axes.len();
        let mut result = CompiledNest {
            name: nest.name.clone(),
            parameters: nest.parameters().map(|(_, b)| Parameter::new(b)).collect(),
            grain: 1,
            counters: layout.array([axes, word]),
            pointers: layout.array([nest.registers.len(), word]),
            indices: layout.array([compiled.depth, lanes, word]),
            masks: layout.array([lanes]),
            progress: layout.array([compiled.reductions, size_of::<Progress>()]),
            scratch: 0,
            phases: compiled.phases,
            begin: compiled.begin,
            fixed: compiled.fixed,
            outer: compiled.outer,
            repeat: None,
            transposition: if by_rows.is_none() { Transposition::of(&lowered, simd) } else { None },
            rows: compiled.rows,
            lanes,
            homes: compiled.homes,
            runs: compiled.tables.iter().map(|table| runs(table)).collect(),
            tables: compiled.tables,
            bands,
            simd,
            axes,
            reductions: compiled.reductions,
            index_lanes: compiled.depth * lanes,
            units,
        };
        result.scratch = layout.end().map_err(|e| e.context(format!("nest @{}", nest.name)))?;
        result.repeat = Repeat::of_rows(&result);
        result.grain = (TASK / result.work().max(1)).clamp(1, units.max(1));
        result.grain = result.whole_bands(result.grain);
        Ok(result)
    }

    /// Name of the nest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of scratch memory that each thread needs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    /// At least so many units that a task has whole bands.
    fn whole_bands(&self, units: usize) -> usize {
        self.bands.map_or(units, |bands| units.next_multiple_of(bands.rows))
    }

    /// Lanes · steps of a unit.
    fn work(&self) -> usize {
        let rows = self.rows.as_ref().map_or(1, |v| v.positions().min(self.lanes));
        let phases = self.phases.iter().map(|phase| {
            let loops = phase.loops.iter().fold(1usize, |n, l| n.saturating_mul(l.extent.max(1)));
            let along = phase.vector.as_ref().map_or(rows, |v| v.positions().max(1));
            // The fixed cost of a step is that of some forty lanes.
            let blocks = along.div_ceil(self.lanes);
            let steps = phase.levels[phase.levels.len() - 1].iter().map(|step| match step {
                Step::Native(native) => (native.size / 2).max(1),
                _ => 1,
            });
            let lanes = along.saturating_add(blocks.saturating_mul(40));
            steps.sum::<usize>().saturating_mul(loops).saturating_mul(lanes)
        });
        phases.fold(0, usize::saturating_add)
    }

    /// Runs the nest on buffers for its parameters, in order, using the threads and the scratch
    /// memory of the workspace.
    ///
    /// Error: a buffer has another number of bytes than its parameter, is not aligned to its
    /// elements, or is not writable; the workspace has too little scratch memory or other vector
    /// instructions; or a task panicked.
    pub fn run(&self, workspace: &Workspace, buffers: &mut [Buffer<'_>]) -> Result<(), Diagnostic> {
        let spans = spans(buffers);
        // SAFETY: the buffers are borrowed for longer than this call, and exclusively. So no
        // other code writes their bytes, nor reads those that may be written. Two buffers that
        // share a byte are both borrowed for reading.
        unsafe { self.run_on(workspace, &spans) }
    }

    /// [`run`](Self::run) on memory outside the borrow checker.
    ///
    /// A written span may alias that of a parameter that is only read; no others may overlap.
    /// Error: as for `run`; or two spans overlap otherwise.
    ///
    /// # Safety
    ///
    /// During the call, each span is initialised and valid to read, and to write if it says so.
    /// No other code writes it, nor reads it if the nest writes it. Parameters share a span only
    /// if the nest reads each element before it writes it, in the same iteration
    /// ([`wengert_core::nest::may_alias`]).
    pub(crate) unsafe fn run_on(
        &self,
        workspace: &Workspace,
        spans: &[Span],
    ) -> Result<(), Diagnostic> {
        let aliased =
            self.check(workspace, spans).map_err(|e| e.context(format!("nest @{}", self.name)))?;
        if self.units == 0 {
            return Ok(());
        }
        let failed = |e: TaskPanicked| Diagnostic::new(format!("nest @{}: {e}", self.name));
        if let Some(transposition) = self.transposition.as_ref().filter(|_| aliased == 0) {
            let parts = transposition.parts();
            let grain = (TASK / transposition.elements().max(1)).clamp(1, parts.max(1));
            let run = |_, task: usize| {
                let [source, result] = [transposition.source, transposition.result];
                let [source, result] = [source, result].map(|k| spans[k].pointer());
                // SAFETY: the nest was verified, the spans are checked and share no memory, and
                // each part belongs to one task.
                unsafe {
                    transposition.run(source, result, task * grain..parts.min((task + 1) * grain))
                };
            };
            return workspace.pool().parallel_for(parts.div_ceil(grain), run).map_err(failed);
        }
        let (tasks, threads) = (self.units.div_ceil(self.grain), workspace.pool().threads());
        // Shares of equal size: the products and nests before and after are divided alike.
        let tasks = if tasks > 1 { tasks.next_multiple_of(threads) } else { 1 };
        let grain = self.whole_bands(self.units.div_ceil(tasks));
        let run = |thread: usize, task: usize| {
            let mut scratch = workspace.scratch(thread);
            let mut runner = self.runner(&mut scratch, spans, aliased);
            runner.begin();
            let from = task * grain;
            runner.units(from..self.units.min(from + grain));
        };
        workspace.pool().parallel_for(self.units.div_ceil(grain), run).map_err(failed)
    }

    /// Checks the preconditions of a run; returns the parameters that share memory with another,
    /// as bits.
    fn check(&self, workspace: &Workspace, buffers: &[Span]) -> Result<u64, Diagnostic> {
        check_count(self.parameters.len(), buffers)?;
        if workspace.simd() < self.simd {
            return Err(Diagnostic::new("the workspace is for fewer vector instructions"));
        }
        workspace.check(self.scratch, 0)?;
        let mut aliased = 0u64;
        for (k, (buffer, parameter)) in buffers.iter().zip(&self.parameters).enumerate() {
            buffer.check(&parameter.name, parameter.bytes, parameter.align, parameter.written)?;
            if !parameter.written {
                continue;
            }
            for (j, (other, of)) in buffers.iter().zip(&self.parameters).enumerate() {
                if j == k || !buffer.overlaps(other) {
                    continue;
                }
                let same = buffer.pointer() == other.pointer() && buffer.bytes() == other.bytes();
                if of.written || !same {
                    let text =
                        format!("the buffers of `{}` and `{}` overlap", parameter.name, of.name);
                    return Err(Diagnostic::new(text));
                }
                aliased |= 1u64.checked_shl(k as u32).unwrap_or(0)
                    | 1u64.checked_shl(j as u32).unwrap_or(0);
            }
        }
        Ok(aliased)
    }

    /// A thread's view of its scratch memory.
    fn runner<'a>(
        &'a self,
        scratch: &'a mut [u8],
        spans: &'a [Span],
        aliased: u64,
    ) -> run::Runner<'a> {
        let base = scratch.as_mut_ptr();
        let fits = scratch.len() >= self.scratch && base.addr().is_multiple_of(ALIGNMENT);
        assert!(fits, "checked before the run");
        let at = |offset: usize| base.wrapping_add(offset);
        // SAFETY: the layout gave each of these slices its own bytes of the scratch memory,
        // aligned to 64, disjoint from the memory that is reached by `base`, such as the homes of
        // registers. All bytes are initialised, and every pattern is a valid element. The borrow
        // of the scratch memory lasts as long as the frame.
        unsafe {
            use std::slice::from_raw_parts_mut as slice;
            run::Runner {
                nest: self,
                progress: slice(at(self.progress).cast::<Progress>(), self.reductions),
                frame: Frame {
                    counters: slice(at(self.counters).cast(), self.axes),
                    pointers: slice(at(self.pointers).cast(), self.homes.len()),
                    buffers: spans,
                    aliased,
                    scratch: base,
                    indices: slice(at(self.indices).cast(), self.index_lanes),
                    masks: slice(at(self.masks), self.lanes),
                    tables: &self.tables,
                    runs: &self.runs,
                    lanes: self.lanes,
                    position: 0,
                    phase: 0,
                    count: 1,
                    padded: crate::kernels::CHUNK,
                },
            }
        }
    }
}

impl Parameter {
    fn new(buffer: &wengert_core::nest::Buffer) -> Self {
        Parameter {
            name: buffer.name.clone(),
            bytes: buffer.bytes(),
            align: buffer.dtype.size(),
            written: buffer.role != BufferRole::In,
        }
    }
}

#[cfg(test)]
mod tests;
