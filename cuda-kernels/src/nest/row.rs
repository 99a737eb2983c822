//! One thread for a row, or for a few neighbouring rows.
//!
//! Threads are numbered along the rows, with the axis along which most accesses are contiguous
//! last, so that the lanes of a warp access neighbours. A thread does as many rows along that
//! axis as its vector has elements. Inner loops are sequential, and reductions are those of
//! [`super::reduce`]. This schedule serves elementwise nests, where a row is an element, and
//! reductions over an outer axis with rows enough to fill the machine. It takes every nest.

use super::emit::{Copy, Emit};
use super::place::Place;
use super::reduce::Reducer;
use super::shape;
use crate::ptx::{Binary, Compare, Reg, Rounding, Special, Ternary, Type, Width};
use wengert_core::Id;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Affine, AxisId, BufferRole, Instr, Phase};
use wengert_core::{Diagnostic, Result};

/// Maximum number of bytes of a thread's arrays (CUDA C++ Programming Guide, "Technical
/// Specifications": 512 KiB).
const LOCAL_BYTES: usize = 512 << 10;

/// The iteration space of the threads: the groups of parallel axes, the last one in steps of a
/// vector.
pub(super) struct Rows {
    pub groups: Vec<MergedAxis>,
    pub vector: usize,
}

impl Rows {
    /// Number of threads, each for a vector of rows.
    pub fn threads(&self) -> u64 {
        let (last, others) = match self.groups.split_last() {
            Some((last, others)) => (last.extent.div_ceil(self.vector), others),
            None => (1, &[][..]),
        };
        others.iter().fold(last as u64, |n, g| n * g.extent as u64)
    }

    /// Whether the last vector of a line may be incomplete.
    pub fn has_tail(&self) -> bool {
        self.groups.last().is_some_and(|g| !g.extent.is_multiple_of(self.vector))
    }
}

/// Whether a vector of rows is aligned in every line, so that it may be used.
pub(super) fn takes_vector(groups: &[MergedAxis], vector: usize) -> bool {
    match groups {
        [] => vector == 1,
        [only] => only.extent >= vector,
        [.., last] => last.extent.is_multiple_of(vector),
    }
}

/// The whole kernel; returns the number of blocks, at most `limit`.
pub(super) fn kernel(emit: &mut Emit<'_>, rows: &Rows, threads: u32, limit: u64) -> Result<u32> {
    let total = rows.threads();
    let blocks = total.div_ceil(threads.into()).min(limit);
    let step = blocks * u64::from(threads);
    emit.local_storage()?;
    // With room for one step beyond the end.
    let wide = total + step >= 1 << 31;
    let thread = emit.thread_number(threads, wide);
    emit.stride(thread, total, step, |emit, thread| emit.rows(rows, thread))?;
    Ok(u32::try_from(blocks).expect("bounded"))
}

impl Emit<'_> {
    /// Zero for every axis of the nest: correct for axes of extent 1 and axes that are not in
    /// scope.
    pub fn origin(&self) -> Vec<Affine> {
        vec![Affine::default(); self.nest.axes.len()]
    }

    /// Splits a number into axes, one for each group, the last one fastest, and computes their
    /// registers.
    pub fn decompose(&mut self, number: Reg, name: &str, extents: &[usize]) -> Vec<AxisId> {
        let wide = number.width == Width::B64;
        let (ty, unsigned) = if wide { (Type::S64, Type::U64) } else { (Type::S32, Type::U32) };
        let mut axes = Vec::new();
        let mut rest = number;
        for (n, extent) in extents.iter().enumerate().rev() {
            let (register, next) = if n == 0 {
                (rest, rest)
            } else {
                let extent = *extent as i64;
                let quotient = self.code.binary(Binary::Div, unsigned, rest, extent);
                let multiple = self.code.binary(Binary::Mul, ty, quotient, extent);
                (self.code.binary(Binary::Sub, ty, rest, multiple), quotient)
            };
            rest = next;
            axes.push((n, *extent, register));
        }
        axes.reverse();
        axes.into_iter()
            .map(|(n, extent, register)| self.axis_in(&format!("{name}{n}"), extent, register))
            .collect()
    }

    /// The number of this thread in the grid.
    pub fn thread_number(&mut self, threads: u32, wide: bool) -> Reg {
        let block = self.code.mov(Type::U32, Special::CtaidX);
        let thread = self.code.mov(Type::U32, Special::TidX);
        if wide {
            let thread = self.code.convert(Rounding::Exact, Type::U64, Type::U32, thread);
            return self.code.ternary(
                Ternary::MadWide,
                Type::U32,
                block,
                i64::from(threads),
                thread,
            );
        }
        self.code.ternary(Ternary::Mad, Type::S32, block, i64::from(threads), thread)
    }

    /// Code for each number below `total` that this thread (or block) does, beginning with
    /// `first`; a grid-stride loop if the grid is smaller than `total`.
    pub fn stride(
        &mut self,
        first: Reg,
        total: u64,
        step: u64,
        body: impl FnOnce(&mut Self, Reg) -> Result<()>,
    ) -> Result<()> {
        let ty = if first.width == Width::B64 { Type::S64 } else { Type::S32 };
        let end = self.code.label();
        let none = self.code.compare(Compare::Ge, ty, first, total as i64);
        self.code.branch_if(none, end);
        let begin = self.code.label();
        let loops = step < total;
        if loops {
            self.code.place(begin);
        }
        self.open();
        body(self, first)?;
        self.close();
        if loops {
            self.code.binary_into(first, Binary::Add, ty, first, step as i64);
            let more = self.code.compare(Compare::Lt, ty, first, total as i64);
            self.code.branch_if(more, begin);
        }
        self.code.place(end);
        Ok(())
    }

    /// Arrays of the thread for row storage.
    pub fn local_storage(&mut self) -> Result<()> {
        let rows = self.nest.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row);
        let storages: Vec<_> = rows
            .map(|(_, b)| (b.dtype, b.shape.iter().product::<usize>(), b.name.clone()))
            .collect();
        let bytes: usize = storages.iter().map(|(d, n, _)| n.saturating_mul(d.size())).sum();
        if bytes > LOCAL_BYTES / 2 {
            return Err(Diagnostic::new(format!(
                "nest @{}: {bytes} bytes of row storage do not fit on a GPU",
                self.nest.name
            ))
            .help("plan for a target with less row storage"));
        }
        for (dtype, elements, _) in storages {
            let base = self.local_array("row", dtype, elements.max(1));
            self.places.push(Place::Local { base });
        }
        Ok(())
    }

    /// All phases, by one thread for a vector of rows.
    pub fn rows(&mut self, rows: &Rows, thread: Reg) -> Result<()> {
        let (axes, last) = match rows.groups.split_last() {
            None => (vec![], None),
            Some((last, others)) => {
                let mut extents: Vec<usize> = others.iter().map(|g| g.extent).collect();
                extents.push(last.extent.div_ceil(rows.vector));
                (self.decompose(thread, "row", &extents), Some(last))
            }
        };
        let mut origin = self.origin();
        for (group, axis) in rows.groups.iter().zip(&axes) {
            origin[group.axes.last().expect("no group is empty").index()] = Affine::axis(*axis);
        }
        let (Some(last), Some(axis)) = (last, axes.last().copied()) else {
            return self.copies_of_rows(vec![Copy { axes: origin, active: None, stores: None }]);
        };
        let inner = last.axes.last().expect("no group is empty").index();
        let vector = rows.vector as i64;
        let place = |k: i64| {
            let mut axes = origin.clone();
            axes[inner] = Affine::axis(axis).scale(vector).offset(k);
            axes
        };
        let copies: Vec<Copy> =
            (0..vector).map(|k| Copy { axes: place(k), active: None, stores: None }).collect();
        if !rows.has_tail() {
            return self.copies_of_rows(copies);
        }
        let whole = (last.extent / rows.vector) as i64;
        let (short, end) = (self.code.label(), self.code.label());
        if whole > 0 {
            let full =
                self.guard(&Affine::axis(axis), 0, whole).expect("the last one is cut short");
            self.code.branch_unless(full, short);
            self.open();
            self.copies_of_rows(copies.clone())?;
            self.close();
            self.code.branch(end);
        }
        self.code.place(short);
        self.open();
        let mut rest = Vec::new();
        for copy in copies.into_iter().take(last.extent % rows.vector) {
            rest.push(copy);
        }
        self.copies_of_rows(rest)?;
        self.close();
        self.code.place(end);
        Ok(())
    }

    fn copies_of_rows(&mut self, copies: Vec<Copy>) -> Result<()> {
        self.row = vec![vec![None; self.nest.registers.len()]; copies.len()];
        for phase in &self.nest.phases {
            self.sequential(phase, &copies)?;
        }
        Ok(())
    }

    /// One phase, by this thread alone, for all copies of its row.
    pub fn sequential(&mut self, phase: &Phase, rows: &[Copy]) -> Result<()> {
        if self.unrolled(phase, rows)? {
            return Ok(());
        }
        let count = phase.iterations(self.nest);
        let groups = shape::inner(self.nest, phase);
        self.begin_body(rows.len());
        self.mark_outer();
        let axes: Vec<AxisId> = groups
            .iter()
            .map(|g| self.axis(&self.nest.axes[g.axes[0]].name.clone(), g.extent))
            .collect();
        let mut copies = rows.to_vec();
        for copy in &mut copies {
            for (group, axis) in groups.iter().zip(&axes) {
                let innermost = group.axes.last().expect("no group is empty");
                copy.axes[innermost.index()] = Affine::axis(*axis);
            }
        }
        let reductions: Vec<Reducer<'_>> =
            phase.reductions.iter().map(|r| Reducer::new(self, r, rows.len(), count)).collect();
        if count > 0 {
            if !axes.is_empty() {
                self.prepare_phase(phase, &copies);
            }
            self.loops(phase, &copies, &axes, &reductions)?;
        }
        if phase.axes.is_empty() {
            let body = std::mem::take(&mut self.body);
            for (row, body) in self.row.iter_mut().zip(body) {
                for (known, new) in row.iter_mut().zip(body) {
                    *known = known.or(new);
                }
            }
        }
        for reducer in reductions {
            reducer.finish(self, count)?;
        }
        self.body.clear();
        Ok(())
    }

    /// Hoists loop-invariant code of a phase.
    pub fn prepare_phase(&mut self, phase: &Phase, copies: &[Copy]) {
        for instr in &phase.body {
            if let Instr::Load { access, .. } | Instr::Store { access, .. } = instr {
                for (n, copy) in copies.iter().enumerate() {
                    self.prepare(access, copy, n);
                }
            }
            if let Instr::Const { value, .. } = instr {
                self.constant(*value);
            }
        }
    }

    fn loops(
        &mut self,
        phase: &Phase,
        copies: &[Copy],
        axes: &[AxisId],
        reducers: &[Reducer<'_>],
    ) -> Result<()> {
        let Some((axis, inner)) = axes.split_first() else {
            self.instructions(phase, copies)?;
            return reducers.iter().try_for_each(|r| r.push(self));
        };
        let mut reverse = false;
        if inner.is_empty() {
            self.prefixes.clear();
            for prefix in shape::prefixes(phase) {
                reverse |= prefix.reverse;
                let states = (0..copies.len()).map(|_| self.identity(&prefix.combine)).collect();
                self.prefixes.push(states);
            }
        }
        self.repeat(*axis, reverse, |emit| emit.loops(phase, copies, inner, reducers))
    }

    /// One line of a phase with prefixes.
    pub fn line(&mut self, phase: &Phase, last: &MergedAxis, mut copy: Copy) -> Result<()> {
        let innermost = *last.axes.last().expect("no group is empty");
        let axis = self.axis(&self.nest.axes[innermost].name.clone(), last.extent);
        copy.axes[innermost.index()] = Affine::axis(axis);
        self.loops(phase, &[copy], &[axis], &[])
    }
}
