//! A kernel whose rows are each done by a [team](super::team) of threads, phase by phase.
//!
//! **Phases.** Each phase has its own mapping of iterations to threads ([`Mode`]):
//!
//! - *spread*: iteration e goes to lane `e % lanes`, as in the [`Tree`](wengert_core::nest::Tree)
//!   of its reductions. A thread owns as many neighbouring lanes as a vector access takes. See
//!   [`super::spread`].
//! - *replicated*: a phase without inner axes; every thread does the same, and the first one
//!   stores.
//! - *scan*: a phase with prefixes whose combiners are exact in any order, done by the lanes of a
//!   warp together. See [`super::scan`].
//! - *lines*: another phase with prefixes; each thread does whole lines.
//! - *single*: the fallback; the first thread does the phase alone, and broadcasts the results.
//!
//! **Directions.** A phase that may take its steps in any order begins where the phase before it
//! ended, whose last elements are still in the L2 cache ([`super::direction`]).
//!
//! **Order.** The team synchronises between two phases if one of them writes memory that the
//! other accesses: row storage, which is in shared memory, or memory that is updated in place.

use super::direction::directions;
use super::emit::{Copy, Emit, NestReg};
use super::place::Place;
use super::scan;
use super::shape;
use super::spread::Spread;
use super::team::{Layout, MAX_GRID, Storage, Team, exchange_size, place};
use crate::architecture::{STATIC_SHARED, WARP};
use crate::ptx::{
    Binary, Compare, Kernel, Operand, Reg, Rounding, SharedArray, Special, Ternary, Type, Width,
};
use crate::scalar;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Id;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Affine, BufferId, BufferRole, Instr, Nest, Phase};
use wengert_core::{DType, Result, Scalar};

/// The shared array for row storage, if the storage is small enough.
pub(super) const STORAGE: &str = "rows";

/// Mapping of a phase's iterations to the threads of a team.
pub(super) enum Mode {
    Spread(Spread),
    Replicated,
    Scan,
    Lines,
    Single,
}

/// Bytes of row storage of one row, each buffer aligned.
pub(super) fn storage_bytes(nest: &Nest) -> usize {
    let rows = nest.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row);
    rows.map(|(_, b)| {
        b.shape.iter().product::<usize>().saturating_mul(b.dtype.size()).saturating_add(15) / 16
            * 16
    })
    .fold(0, usize::saturating_add)
}

/// Maximum shared memory for exchanging values, in bytes.
pub(super) fn exchange_bytes(nest: &Nest, layout: Layout) -> usize {
    if layout.in_warp() {
        return 0;
    }
    let of = |phase: &Phase| {
        let size = |d: DType| exchange_size(d).next_multiple_of(8);
        let tuples: usize =
            phase.reductions.iter().flat_map(|r| r.combine.dtypes()).map(size).sum();
        match mode(nest, layout, phase, &[]) {
            Mode::Spread(spread) => {
                tuples * (spread.exchanged * layout.block() as usize + layout.rows as usize)
            }
            _ => {
                let body =
                    phase.body.iter().flat_map(Instr::results).map(|r| size(nest.registers[*r]));
                (tuples + body.sum::<usize>()) * layout.rows as usize
            }
        }
    };
    nest.phases.iter().map(of).max().unwrap_or(0)
}

/// Whether a phase stores to memory that it loads from.
fn updates(nest: &Nest, phase: &Phase, in_place: &[(usize, usize)]) -> bool {
    let (loads, stores) = touched(nest, phase, in_place);
    loads.intersection(&stores).next().is_some()
}

/// The buffers that a phase loads and stores. A parameter in place counts as its result.
fn touched(
    nest: &Nest,
    phase: &Phase,
    in_place: &[(usize, usize)],
) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
    if phase.iterations(nest) == 0 {
        return (loads, stores);
    }
    for instr in &phase.body {
        let (set, access) = match instr {
            Instr::Load { access, .. } => (&mut loads, access),
            Instr::Store { access, .. } => (&mut stores, access),
            _ => continue,
        };
        let buffer = access.buffer.index();
        let result =
            in_place.iter().find(|(operand, _)| *operand == buffer).map_or(buffer, |(_, r)| *r);
        set.insert(result);
    }
    (loads, stores)
}

/// The mode of a phase.
pub(super) fn mode(
    nest: &Nest,
    layout: Layout,
    phase: &Phase,
    in_place: &[(usize, usize)],
) -> Mode {
    let prefix = shape::prefixes(phase).next().is_some();
    if phase.axes.is_empty() {
        let one = phase.reductions.is_empty() && !updates(nest, phase, in_place);
        return if one { Mode::Replicated } else { Mode::Single };
    }
    if prefix {
        if scan::takes(layout, phase) {
            return Mode::Scan;
        }
        let last = phase.axes.last().map_or(1, |a| nest.axes[*a].extent.max(1));
        let lines = phase.iterations(nest) / last;
        return if phase.reductions.is_empty() && lines > 1 { Mode::Lines } else { Mode::Single };
    }
    match Spread::new(nest, layout, phase) {
        Some(spread) => Mode::Spread(spread),
        None => Mode::Single,
    }
}

/// The whole kernel. Returns the number of blocks, at most `limit`, and the bytes of dynamic
/// shared memory.
pub(super) fn kernel(
    emit: &mut Emit<'_>,
    layout: Layout,
    groups: &[MergedAxis],
    in_place: &[(usize, usize)],
    limit: u64,
) -> Result<(u32, u32)> {
    let nest = emit.nest;
    let total: u64 = groups.iter().map(|g| g.extent as u64).product();
    let needed = total.div_ceil(layout.rows.into());
    let blocks = needed.min(limit).min(MAX_GRID);
    let (mut team, dynamic) = Team::new(emit, layout, nest, in_place);
    // With room for one step beyond the end.
    let wide = (needed + blocks).saturating_mul(layout.rows.into()) >= 1 << 31;
    let first = block_number(emit, wide);
    emit.stride(first, needed, blocks, |emit, block| {
        team.block(emit, block, total, groups)?;
        // The next row's storage overwrites this one's.
        if blocks < needed {
            team.wait(emit);
        }
        Ok(())
    })?;
    team.declare(emit);
    Ok((u32::try_from(blocks).expect("bounded"), dynamic))
}

impl<'a> Team<'a> {
    /// The thread's part in its team. Also returns the bytes of dynamic shared memory.
    pub fn new(
        emit: &mut Emit<'_>,
        layout: Layout,
        nest: &'a Nest,
        in_place: &'a [(usize, usize)],
    ) -> (Self, u32) {
        let linear = emit.code.mov(Type::U32, Special::TidX);
        let minor = if layout.columns { layout.teams() } else { layout.threads };
        let low = emit.code.binary(Binary::And, Type::B32, linear, i64::from(minor) - 1);
        let high =
            emit.code.binary(Binary::Shr, Type::U32, linear, i64::from(minor.trailing_zeros()));
        let (thread, number) = if layout.columns { (high, low) } else { (low, high) };
        let axis = emit.axis_in("team", layout.threads as usize, thread);
        let members = if layout.in_warp() && layout.threads < WARP {
            let lane =
                emit.code.binary(Binary::And, Type::B32, linear, i64::from(WARP - layout.threads));
            let mask = emit.code.mov(Type::B32, (1i64 << layout.threads) - 1);
            Operand::Reg(emit.code.binary(Binary::Shl, Type::B32, mask, lane))
        } else {
            Operand::Int(-1)
        };
        let mut team = Team {
            layout,
            nest,
            in_place,
            thread,
            axis,
            team: number,
            linear,
            members,
            exchange: None,
            results: None,
            storage: Storage::default(),
        };
        let dynamic = team.arrays(emit);
        (team, dynamic)
    }

    /// Declares the arrays in shared memory for exchanges, once their sizes are known.
    pub fn declare(&self, emit: &mut Emit<'_>) {
        for (name, array) in [("exchange", self.exchange), ("results", self.results)] {
            if let Some((_, bytes)) = array {
                // Its address is taken even if no values are exchanged.
                let bytes = bytes.max(1).next_multiple_of(16);
                let bytes = u32::try_from(bytes).expect("a schedule fits into shared memory");
                emit.shared.push(SharedArray { name: name.into(), align: 16, bytes });
            }
        }
    }
}

impl Team<'_> {
    /// Allocates the arrays in shared memory; returns the bytes of dynamic shared memory.
    fn arrays(&mut self, emit: &mut Emit<'_>) -> u32 {
        if !self.layout.in_warp() && exchange_bytes(self.nest, self.layout) > 0 {
            let exchange = emit.code.mov(Type::B32, Operand::Symbol("exchange".into()));
            let results = emit.code.mov(Type::B32, Operand::Symbol("results".into()));
            self.exchange = Some((exchange, 0));
            self.results = Some((results, 0));
        }
        let bytes = storage_bytes(self.nest);
        let all = bytes * self.layout.rows as usize;
        let is_static = all + exchange_bytes(self.nest, self.layout) <= STATIC_SHARED as usize;
        let all = u32::try_from(all).expect("a schedule fits into shared memory");
        let base = if is_static {
            emit.shared.extend((all > 0).then(|| SharedArray {
                name: STORAGE.into(),
                align: 16,
                bytes: all,
            }));
            STORAGE
        } else {
            Kernel::DYNAMIC
        };
        let mut at = 0i64;
        self.storage = Storage { array: base, bytes: bytes as i64, at: BTreeMap::new() };
        for (id, buffer) in self.nest.buffers.iter().filter(|(_, b)| b.role == BufferRole::Row) {
            let size = buffer.shape.iter().product::<usize>() * buffer.dtype.size();
            let start = if size == 0 {
                // It is empty and never read.
                emit.code.mov(Type::B32, 0)
            } else {
                let start = emit.code.mov(Type::B32, Operand::Symbol(base.into()));
                let start = emit.code.binary(Binary::Add, Type::S32, start, at);
                emit.code.ternary(Ternary::Mad, Type::S32, self.team, bytes as i64, start)
            };
            emit.places.push(Place::Shared { base: start });
            self.storage.at.insert(id, at);
            at += size.next_multiple_of(16) as i64;
        }
        if is_static { 0 } else { all }
    }

    /// The rows of a block.
    fn block(
        &mut self,
        emit: &mut Emit<'_>,
        block: Reg,
        total: u64,
        groups: &[MergedAxis],
    ) -> Result<()> {
        let vector = self.layout.vector as usize;
        let teams = i64::from(self.layout.teams());
        let wide = block.width == Width::B64;
        let number = if teams == 1 {
            block
        } else if wide {
            let low = emit.code.convert(Rounding::Exact, Type::U64, Type::U32, self.team);
            emit.code.ternary(Ternary::Mad, Type::S64, block, teams, low)
        } else {
            emit.code.ternary(Ternary::Mad, Type::S32, block, teams, self.team)
        };
        let all = total / vector as u64;
        let whole = all.is_multiple_of(self.layout.teams().into());
        let ty = if wide { Type::S64 } else { Type::S32 };
        let active = (!whole).then(|| emit.code.compare(Compare::Lt, ty, number, all as i64));
        let mut extents: Vec<usize> = groups.iter().map(|g| g.extent).collect();
        if let Some(last) = extents.last_mut() {
            *last /= vector;
        }
        let axes = emit.decompose(number, "row", &extents);
        let mut first = emit.origin();
        for (n, (group, axis)) in groups.iter().zip(&axes).enumerate() {
            let width = if n + 1 == groups.len() { vector as i64 } else { 1 };
            first[innermost(group)] = Affine::axis(*axis).scale(width);
        }
        let row = |k: usize| {
            let mut axes = first.clone();
            if let Some(last) = groups.last() {
                axes[innermost(last)] = axes[innermost(last)].offset(k as i64);
            }
            axes
        };
        let rows: Vec<Vec<Affine>> = (0..vector).map(row).collect();
        self.active_rows(emit, &rows, active)
    }

    /// One row, if it is active.
    pub fn row(
        &mut self,
        emit: &mut Emit<'_>,
        axes: Vec<Affine>,
        active: Option<Reg>,
    ) -> Result<()> {
        self.active_rows(emit, &[axes], active)
    }

    fn active_rows(
        &mut self,
        emit: &mut Emit<'_>,
        rows: &[Vec<Affine>],
        active: Option<Reg>,
    ) -> Result<()> {
        // Threads of a warp diverge independently. Threads of a block meet at barriers, so rows
        // beyond the end run too, without accessing memory.
        if self.layout.in_warp() {
            return emit.when_any(active, |emit| self.phases(emit, rows, None));
        }
        self.phases(emit, rows, active)
    }

    fn phases(
        &mut self,
        emit: &mut Emit<'_>,
        rows: &[Vec<Affine>],
        active: Option<Reg>,
    ) -> Result<()> {
        emit.row = vec![vec![None; self.nest.registers.len()]; rows.len()];
        let copy = |axes: &Vec<Affine>| Copy { axes: axes.clone(), active, stores: None };
        let rows: Vec<Copy> = rows.iter().map(copy).collect();
        let modes = self.nest.phases.iter().map(|p| mode(self.nest, self.layout, p, self.in_place));
        let modes: Vec<Mode> = modes.collect();
        let directions = directions(&modes);
        for (number, (phase, mode)) in self.nest.phases.iter().zip(&modes).enumerate() {
            match mode {
                Mode::Replicated => {
                    let first = emit.guard(&Affine::axis(self.axis), 0, 1);
                    let storing = |row: &Copy| Copy { stores: first, ..row.clone() };
                    emit.sequential(phase, &rows.iter().map(storing).collect::<Vec<_>>())?;
                }
                Mode::Spread(spread) => {
                    self.spread(emit, phase, spread, &rows, directions[number])?;
                }
                // A team with several rows has no such phases: see `takes_vectors`.
                Mode::Scan => self.scan(emit, phase, &rows[0])?,
                Mode::Lines => self.lines(emit, phase, &rows[0])?,
                Mode::Single => self.single(emit, number, phase, &rows)?,
            }
            if self.must_wait(number) {
                self.wait(emit);
            }
        }
        Ok(())
    }

    /// Whether a later phase depends on memory that this one accesses.
    fn must_wait(&self, number: usize) -> bool {
        let (loads, stores) = touched(self.nest, &self.nest.phases[number], self.in_place);
        self.nest.phases[number + 1..].iter().any(|later| {
            let (later_loads, later_stores) = touched(self.nest, later, self.in_place);
            stores.iter().any(|b| later_loads.contains(b))
                || loads.iter().any(|b| later_stores.contains(b))
                || stores.iter().any(|b| later_stores.contains(b) && self.is_row(*b))
        })
    }

    fn is_row(&self, buffer: usize) -> bool {
        self.nest.buffers[BufferId::new(buffer)].role == BufferRole::Row
    }

    /// Lines of a phase with prefixes, distributed over the threads.
    fn lines(&self, emit: &mut Emit<'_>, phase: &Phase, copy: &Copy) -> Result<()> {
        let groups = shape::inner(self.nest, phase);
        let (last, others) = groups.split_last().expect("there are lines");
        let lines: usize = others.iter().map(|g| g.extent).product();
        if lines * last.extent == 0 {
            return Ok(());
        }
        emit.begin_body(1);
        emit.mark_outer();
        let threads = self.layout.threads as usize;
        let turn = emit.axis("turn", lines.div_ceil(threads));
        emit.repeat(turn, false, |emit| {
            let line = Affine::axis(turn).scale(threads as i64).add(&Affine::axis(self.axis));
            let there = emit.guard(&line, 0, lines as i64);
            emit.when_any(there, |emit| {
                let mut copy = copy.clone();
                place(&mut copy, others, &line);
                emit.line(phase, last, copy)
            })
        })
    }

    /// A phase by the first thread alone.
    fn single(
        &mut self,
        emit: &mut Emit<'_>,
        number: usize,
        phase: &Phase,
        rows: &[Copy],
    ) -> Result<()> {
        let used = used_after(self.nest, number);
        let results: Vec<NestReg> =
            row_registers(phase).into_iter().filter(|r| used.contains(r)).collect();
        let results: Vec<(usize, NestReg)> =
            (0..rows.len()).flat_map(|row| results.iter().map(move |r| (row, *r))).collect();
        let dtypes: Vec<DType> = results.iter().map(|(_, r)| self.nest.registers[*r]).collect();
        let values: Vec<Reg> =
            dtypes.iter().map(|d| scalar::constant(&mut emit.code, Scalar::zero(*d))).collect();
        let before = emit.row.clone();
        let first = emit.code.compare(Compare::Eq, Type::U32, self.thread, 0);
        emit.when(first, |emit| {
            emit.sequential(phase, rows)?;
            let found: Vec<Reg> = results.iter().map(|(row, r)| emit.value(*row, *r)).collect();
            emit.assign(&dtypes, &values, &found);
            Ok(())
        })?;
        emit.row = before;
        let values = self.tell(emit, &dtypes, &values, true);
        for ((row, result), value) in results.iter().zip(values) {
            emit.row[*row][result.index()] = Some(value);
        }
        Ok(())
    }
}

/// The number of the block, in 64 bits if `wide`.
pub(super) fn block_number(emit: &mut Emit<'_>, wide: bool) -> Reg {
    let block = emit.code.mov(Type::U32, Special::CtaidX);
    if wide { emit.code.convert(Rounding::Exact, Type::U64, Type::U32, block) } else { block }
}

/// The innermost axis of merged axes.
pub(super) fn innermost(group: &MergedAxis) -> usize {
    group.axes.last().expect("no group is empty").index()
}

/// The registers of the row that a phase defines.
fn row_registers(phase: &Phase) -> Vec<NestReg> {
    let reductions = phase.reductions.iter().flat_map(|r| r.results.iter().copied());
    let body = phase.body.iter().flat_map(|i| i.results().iter().copied());
    if phase.axes.is_empty() { body.chain(reductions).collect() } else { reductions.collect() }
}

/// The registers that later phases read.
fn used_after(nest: &Nest, number: usize) -> BTreeSet<NestReg> {
    let mut used = BTreeSet::new();
    for phase in &nest.phases[number + 1..] {
        for instr in &phase.body {
            instr.visit_operands(&mut |r| {
                used.insert(r);
            });
        }
        used.extend(phase.reductions.iter().flat_map(|r| r.values.iter().copied()));
    }
    used
}
