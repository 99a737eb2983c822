//! The iterations of a phase, spread over a team.
//!
//! Iteration e of a phase, in row-major order of its inner axes, belongs to lane `e % lanes`. A
//! thread t owns the lanes `(g · threads + t) · v + u` for u < v, the elements of a vector
//! access, and g < groups: neighbouring threads access neighbouring vectors, and `groups` of them
//! are in flight. A thread does its iterations in order, each lane with an accumulator of its
//! own; a phase without an inexact reduction may also take them in descending order. Then lanes are
//! combined in halves exactly as the [`Tree`] says: first those of one thread that are
//! `threads · v` apart, then those of threads, by shuffles or through shared memory, and last the v
//! of the first thread.
//!
//! Short rows are emitted without a loop: every iteration of a thread is a copy, all its loads
//! are in flight, and the next phase finds their values in registers. Long rows are a loop over
//! whole steps, some of them side by side, and a rest whose last copies are predicated.
//!
//! A thread of a column team may do several rows. Then each iteration is a copy for each of them,
//! the rows last, and so are the lanes.
//!
//! A reduction whose combiner is exact whatever the order (integer sums; minima, maxima, logic)
//! takes any tree.

use super::direction::Direction;
use super::emit::{Copy, Emit};
use super::halves::{Lane, Lanes, are_simple, combine_all, dtypes, identities};
use super::phases::storage_bytes;
use super::shape::{self, is_exact, is_plain};
use super::staged;
use super::team::{Layout, Team, place};
use crate::ptx::Reg;
use crate::scalar::{self, value_type};
use wengert_core::Id;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Access, Affine, Instr, Nest, Phase, Term, Tree};
use wengert_core::{DType, Result};

/// Maximum number of copies that are emitted side by side.
const COPIES: usize = 32;
/// Maximum number of copies times instructions of a body; bounds the size of the code.
const CODE: usize = 1024;
/// Bytes that a thread has in flight in a loop. More would take the registers of other threads.
const FLIGHT: usize = 32;
/// The same where a multiprocessor has few threads: in a column team, and where shared memory keeps
/// a long row.
const FEW_FLIGHT: usize = 64;

/// Distribution of a phase over a team.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Spread {
    /// Participating threads.
    pub threads: usize,
    /// Neighbouring iterations of a thread: the vector width.
    pub vector: usize,
    /// Rows of a thread.
    pub rows: usize,
    /// Vectors of a thread in one step.
    pub groups: usize,
    /// Iterations.
    pub count: usize,
    /// Iterations of a block of the trees; `count` if there is one block only.
    pub block: usize,
    /// Lanes of a thread that are combined with those of other threads, of all its rows: `vector`
    /// for each row, or 1 where any order will do.
    pub exchanged: usize,
    /// Whether the iterations may be done in any order.
    pub any_order: bool,
    /// The inner axes.
    inner: Vec<MergedAxis>,
}

/// The common tree of a phase's reductions: none where they do not agree, `None` inside where any
/// tree will do.
fn common_tree(phase: &Phase, count: usize) -> Option<Option<Tree>> {
    let mut common: Option<Tree> = None;
    for reduction in phase.reductions.iter().filter(|r| !is_exact(&r.combine)) {
        let block = if reduction.tree.block as usize >= count { 0 } else { reduction.tree.block };
        let tree = Tree { block, ..reduction.tree };
        if *common.get_or_insert(tree) != tree {
            return None;
        }
    }
    Some(common)
}

/// Maximum vector width of accesses along the last inner axis.
fn alignable(nest: &Nest, phase: &Phase, inner: &[MergedAxis]) -> usize {
    let Some(last) = inner.last() else { return 1 };
    let usable = |access: &Access, axis| {
        !access.clamp || access.indices.iter().all(|index| is_plain(index, axis))
    };
    let fits = |width| inner.len() == 1 || last.extent.is_multiple_of(width);
    shape::widest(nest, &phase.body, last, usable, fits)
}

impl Spread {
    /// None if the phase cannot be spread over such a team.
    pub fn new(nest: &Nest, layout: Layout, phase: &Phase) -> Option<Spread> {
        let count = phase.iterations(nest);
        let tree = common_tree(phase, count)?;
        let inner = shape::inner(nest, phase);
        let team = layout.threads as usize;
        let mut vector = if layout.columns { 1 } else { alignable(nest, phase, &inner) };
        // Every thread should have work.
        while vector > 1 && count < team * vector {
            vector /= 2;
        }
        let (threads, groups) = match tree {
            Some(tree) => {
                let lanes = tree.lanes as usize;
                while vector > 1 && lanes < team * vector {
                    vector /= 2;
                }
                let threads = team.min(lanes);
                (threads, lanes / (threads * vector))
            }
            None => {
                let steps = count.div_ceil(team * vector).max(1);
                // A power of two, like the number of lanes.
                let flight = (8 / vector).clamp(1, steps);
                (team, 1 << flight.ilog2())
            }
        };
        let block = tree.map_or(count, |t| if t.block == 0 { count } else { t.block as usize });
        let rows = layout.vector as usize;
        let any_order = tree.is_none();
        let exchanged = if any_order { rows } else { vector * rows };
        let spread =
            Spread { threads, vector, rows, groups, count, block, exchanged, any_order, inner };
        let used = spread.copies_of(block.min(count)).min(groups * vector * rows);
        (groups * vector * rows <= 4 * COPIES && used <= COPIES).then_some(spread)
    }

    /// Iterations of a step.
    fn step(&self) -> usize {
        self.threads * self.vector * self.groups
    }

    /// Copies of a thread for `count` iterations.
    fn copies_of(&self, count: usize) -> usize {
        let vectors = count.div_ceil(self.vector);
        vectors.div_ceil(self.threads) * self.vector * self.rows
    }

    /// Steps in a turn of a loop over `whole` steps: so many that `flight` bytes are in flight.
    fn side_by_side(&self, nest: &Nest, phase: &Phase, whole: usize, flight: usize) -> usize {
        // The rows of a thread are neighbours along the last parallel axis. They share a load
        // whose address does not depend on it.
        let rows = |access: &Access| {
            let differs = nest.parallel.last().is_some_and(|row| {
                access.expressions().any(|index| {
                    let mut found = false;
                    index.visit_terms(&mut |term| found |= *term == Term::Axis(*row));
                    found
                })
            });
            if differs { self.rows } else { 1 }
        };
        let loads = phase.body.iter().filter_map(|instr| match instr {
            Instr::Load { access, .. } => {
                Some(rows(access) * nest.buffers[access.buffer].dtype.size())
            }
            _ => None,
        });
        let bytes = self.groups * self.vector * loads.sum::<usize>();
        if bytes == 0 {
            return 1;
        }
        let copies = self.groups * self.vector * self.rows;
        let cost = shape::cost(nest, phase).max(1);
        let mut steps = 1;
        while steps * bytes < flight
            && 2 * steps * copies <= COPIES.min(CODE / cost)
            && 2 * steps <= whole
        {
            steps *= 2;
        }
        steps
    }
}

/// A phase, and how a thread does it.
struct Part<'a> {
    phase: &'a Phase,
    spread: &'a Spread,
    /// The rows of the thread.
    rows: &'a [Copy],
    direction: Direction,
}

impl Team<'_> {
    /// A phase whose iterations are spread over the team; its results become registers of the row.
    pub fn spread(
        &mut self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        spread: &Spread,
        rows: &[Copy],
        direction: Direction,
    ) -> Result<()> {
        let part = Part { phase, spread, rows, direction };
        let blocks = spread.count / spread.block.max(1);
        let rest = spread.count - blocks * spread.block;
        if blocks <= 1 && rest == 0 {
            let results = self.part(emit, &part, &Affine::default(), spread.count)?;
            self.define(emit, phase, &results);
            return Ok(());
        }
        // Blocks in order; the first one initialises the total.
        let dtypes = dtypes(phase);
        let one = || dtypes.iter().map(|d| value_type(*d));
        let total: Lanes =
            (0..spread.rows).map(|_| one().map(|ty| emit.code.reg_of(ty)).collect()).collect();
        let first = self.part(emit, &part, &Affine::default(), spread.block)?;
        for (total, first) in total.iter().zip(&first) {
            emit.assign(&dtypes, total, first);
        }
        if blocks > 1 {
            let outer = emit.axis("block", blocks - 1);
            emit.repeat(outer, false, |emit| {
                let start = Affine::axis(outer).offset(1).scale(spread.block as i64);
                let results = self.part(emit, &part, &start, spread.block)?;
                self.add(emit, phase, &total, &results)
            })?;
        }
        if rest > 0 {
            let start = Affine::constant((blocks * spread.block) as i64);
            let results = self.part(emit, &part, &start, rest)?;
            self.add(emit, phase, &total, &results)?;
        }
        self.define(emit, phase, &total);
        Ok(())
    }

    fn add(
        &self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        total: &Lanes,
        results: &Lanes,
    ) -> Result<()> {
        for (total, results) in total.iter().zip(results) {
            let sum = combine_all(emit, phase, total, results)?;
            emit.assign(&dtypes(phase), total, &sum);
        }
        Ok(())
    }

    /// Makes the reduced values registers of the rows.
    fn define(&self, emit: &mut Emit<'_>, phase: &Phase, results: &Lanes) {
        for (row, values) in emit.row.iter_mut().zip(results) {
            let registers = phase.reductions.iter().flat_map(|r| &r.results);
            for (register, value) in registers.zip(values) {
                row[register.index()] = Some(*value);
            }
        }
    }

    /// `count` iterations from `start` on, and their reduced values for each row.
    fn part(
        &mut self,
        emit: &mut Emit<'_>,
        part: &Part<'_>,
        start: &Affine,
        count: usize,
    ) -> Result<Lanes> {
        let Part { phase, spread, .. } = *part;
        let lanes = spread.groups * spread.vector * spread.rows;
        let dtypes = dtypes(phase);
        emit.mark_outer();
        let copies = spread.copies_of(count);
        let short = copies <= COPIES && copies * shape::cost(self.nest, phase) <= CODE;
        // The lanes of a loop are variables.
        let started = !(short && are_simple(phase));
        let mut accumulators: Vec<Lane> =
            (0..lanes).map(|_| started.then(|| identities(emit, phase))).collect();
        if short {
            // Without a loop, and so without variables.
            let all = self.copies(emit, part, start, count.div_ceil(spread.step()), count);
            emit.begin_body(all.len());
            let only: Vec<Copy> = all.iter().map(|(_, c)| c.clone()).collect();
            emit.instructions(phase, &only)?;
            for (n, (lane, c)) in all.iter().enumerate() {
                let next = self.accumulate(emit, phase, n, c.active, &accumulators[*lane])?;
                accumulators[*lane] = Some(next);
            }
        } else {
            let few = self.layout.columns || storage_bytes(self.nest) > staged::LEAST;
            let flight = if few { FEW_FLIGHT } else { FLIGHT };
            let steps = spread.side_by_side(self.nest, phase, count / spread.step(), flight);
            let size = steps * spread.step();
            let turns = count / size;
            let rest = |emit: &mut Emit<'_>, this: &Self| -> Result<()> {
                let rest = count - turns * size;
                if rest == 0 {
                    return Ok(());
                }
                let from = start.offset((turns * size) as i64);
                let all = this.copies(emit, part, &from, rest.div_ceil(spread.step()), rest);
                emit.open();
                this.step(emit, phase, &all, &dtypes, &accumulators)?;
                emit.close();
                Ok(())
            };
            if part.direction == Direction::Backward {
                rest(emit, self)?;
            }
            if turns > 0 {
                let turn = emit.axis("turn", turns);
                let from = Affine::axis(turn).scale(size as i64).add(start);
                self.prepare(emit, part, &from);
                emit.repeat(turn, part.direction == Direction::Backward, |emit| {
                    let all = self.copies(emit, part, &from, steps, size);
                    self.step(emit, phase, &all, &dtypes, &accumulators)
                })?;
            }
            if part.direction == Direction::Forward {
                rest(emit, self)?;
            }
        }
        emit.body.clear();
        self.reduce(emit, phase, spread, accumulators, started)
    }

    /// One step; lanes are variables.
    fn step(
        &self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        all: &[(usize, Copy)],
        dtypes: &[DType],
        variables: &[Lane],
    ) -> Result<()> {
        emit.begin_body(all.len());
        let only: Vec<Copy> = all.iter().map(|(_, c)| c.clone()).collect();
        emit.instructions(phase, &only)?;
        for (n, (lane, c)) in all.iter().enumerate() {
            let next = self.accumulate(emit, phase, n, c.active, &variables[*lane])?;
            let variable = variables[*lane].as_ref().expect("lanes of a loop begin with a value");
            emit.assign(dtypes, variable, &next);
        }
        Ok(())
    }

    /// The loop-invariant part of the addresses of a loop's accesses, whose iterations begin at
    /// `from`.
    fn prepare(&self, emit: &mut Emit<'_>, part: &Part<'_>, from: &Affine) {
        let element = from.add(&Affine::axis(self.axis).scale(part.spread.vector as i64));
        let mut first = part.rows[0].clone();
        place(&mut first, &part.spread.inner, &element);
        emit.begin_body(1);
        emit.prepare_phase(part.phase, &[first]);
    }

    /// The copies of `steps` steps for the iterations `from + 0..count`, with their lanes. Copies
    /// beyond the end for every thread are left out; those beyond it for some threads are
    /// predicated.
    fn copies(
        &self,
        emit: &mut Emit<'_>,
        part: &Part<'_>,
        from: &Affine,
        steps: usize,
        count: usize,
    ) -> Vec<(usize, Copy)> {
        let Part { spread, rows, .. } = *part;
        let (threads, vector) = (spread.threads, spread.vector);
        let idle = (threads < self.layout.threads as usize)
            .then(|| emit.guard(&Affine::axis(self.axis), 0, threads as i64))
            .flatten();
        let mut all = Vec::new();
        for step in 0..steps {
            for group in 0..spread.groups {
                let base = (step * spread.groups + group) * threads * vector;
                let inside = Affine::axis(self.axis).scale(vector as i64);
                for u in 0..vector {
                    if base + u >= count {
                        continue;
                    }
                    let number = inside.offset((base + u) as i64);
                    let mut predicates: Vec<Reg> = rows[0].active.into_iter().chain(idle).collect();
                    if base + (threads - 1) * vector + u >= count {
                        // If vectors end where the row ends, a vector is in range or out of range
                        // as a whole.
                        let tested = if count.is_multiple_of(vector) {
                            inside.offset(base as i64)
                        } else {
                            number.clone()
                        };
                        predicates.extend(emit.guard(&tested, 0, count as i64));
                    }
                    let active = emit.all(predicates);
                    for (r, row) in rows.iter().enumerate() {
                        let mut one = row.clone();
                        one.active = active;
                        place(&mut one, &spread.inner, &from.add(&number));
                        all.push(((group * vector + u) * rows.len() + r, one));
                    }
                }
            }
        }
        all
    }

    /// The values of a copy, combined with those of its lane before it. The lane stays as it is if
    /// the copy is not active.
    fn accumulate(
        &self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        copy: usize,
        active: Option<Reg>,
        lane: &Lane,
    ) -> Result<Vec<Reg>> {
        let values = phase.reductions.iter().flat_map(|r| &r.values);
        let values: Vec<Reg> = values.map(|r| emit.value(copy, *r)).collect();
        let next = match lane {
            Some(lane) => combine_all(emit, phase, lane, &values)?,
            None => values,
        };
        let Some(active) = active else { return Ok(next) };
        let before = lane.clone().unwrap_or_else(|| identities(emit, phase));
        let choose = next.iter().zip(&before).zip(dtypes(phase)).map(|((next, old), dtype)| {
            if next == old {
                *old
            } else {
                scalar::select(&mut emit.code, dtype, active, *next, *old)
            }
        });
        Ok(choose.collect())
    }
}
