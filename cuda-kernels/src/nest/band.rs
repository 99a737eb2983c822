//! Nests with totals: rows that are done band by band.
//!
//! A block of threads does a band. Its teams are the lanes of the totals' tree: team t does the
//! rows t, t + lanes, …, one after the other. Each team has accumulators in shared memory, one for
//! each element of each total. A row adds its values to them in the phase that computes the values,
//! where iteration e always belongs to the same thread ([`super::spread`]), so a team needs no
//! barrier between its rows for that. After the last row the lanes are combined in halves, and the
//! totals are stored.
//!
//! So a row is loaded once, and summed while it is in registers. A norm's gradient is an example:
//! the gradients of its scale and its bias are sums of what each row computes anyway.

use super::choose::{Schedule, takes_teams, threads_of_row};
use super::emit::{Copy, Emit};
use super::phases::{Mode, block_number, innermost, mode};
use super::shape;
use super::team::{Layout, MAX_GRID, Team, place};
use super::vector::Vector;
use crate::architecture::{Architecture, MAX_BLOCK};
use crate::ptx::{Binary, Inst, Operand, Reg, Space, Ternary, Type};
use std::collections::BTreeMap;
use wengert_core::nest::merge::MergedAxis;
use wengert_core::nest::{Access, Affine, Buffer, BufferId, BufferRole, Instr, Nest, Phase, Total};
use wengert_core::{Id, Result};

/// The store of a total.
struct TotalStore<'a> {
    phase: &'a Phase,
    access: &'a Access,
    total: &'a Total,
}

/// The totals of a nest.
fn totals(nest: &Nest) -> Vec<TotalStore<'_>> {
    let all = nest.phases.iter().flat_map(|phase| {
        phase.body.iter().filter_map(move |instr| match instr {
            Instr::Store { access, total: Some(total), .. } => {
                Some(TotalStore { phase, access, total })
            }
            _ => None,
        })
    });
    all.collect()
}

/// The accumulators of totals, as accesses at the point of their phase, by the totals' buffers.
pub(super) type Accumulators = BTreeMap<BufferId, Access>;

/// The nest with a row storage for the accumulators of each total.
pub(super) fn with_accumulators(nest: &Nest) -> (Nest, Accumulators) {
    let mut more = nest.clone();
    let mut accumulators = Accumulators::new();
    for TotalStore { phase, access, .. } in totals(nest) {
        let shape = phase.axes.iter().map(|axis| nest.axes[*axis].extent).collect();
        let buffer = more.buffers.push(Buffer {
            name: format!("total{}", accumulators.len()),
            dtype: nest.buffers[access.buffer].dtype,
            shape,
            pitch: None,
            role: BufferRole::Row,
        });
        let indices = phase.axes.iter().map(|axis| Affine::axis(*axis)).collect();
        let own = Access { buffer, indices, guards: Vec::new(), clamp: false };
        accumulators.insert(access.buffer, own);
    }
    (more, accumulators)
}

/// The number of lanes, if all totals have the same.
fn lanes(nest: &Nest) -> Option<u32> {
    let totals = totals(nest);
    let lanes = totals.first()?.total.tree.lanes;
    totals.iter().all(|store| store.total.tree.lanes == lanes).then_some(lanes)
}

/// Whether a nest with totals can have this schedule.
pub(super) fn takes(nest: &Nest, architecture: Architecture, schedule: &Schedule) -> bool {
    let Schedule::Team { threads, rows } = *schedule else { return false };
    let layout = Layout::team(threads, rows);
    // The same thread adds to an accumulator in each row.
    let is_spread =
        |store: &TotalStore<'_>| matches!(mode(nest, layout, store.phase, &[]), Mode::Spread(_));
    lanes(nest) == Some(rows)
        && threads.saturating_mul(rows) <= MAX_BLOCK
        && takes_teams(&with_accumulators(nest).0, architecture, layout)
        && totals(nest).iter().all(is_spread)
}

/// The schedule for a nest with totals, if it can have one.
pub(super) fn schedule(nest: &Nest, architecture: Architecture) -> Option<Schedule> {
    let rows = lanes(nest)?;
    let best = threads_of_row(nest).max(2);
    let more = (0..).map(|doublings| best << doublings).take_while(|n| *n <= MAX_BLOCK);
    let fewer = (1..).map(|halvings| best >> halvings).take_while(|n| *n >= 2);
    let all = more.chain(fewer).map(|threads| Schedule::Team { threads, rows });
    all.into_iter().find(|schedule| takes(nest, architecture, schedule))
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
    let band = nest.band().expect("the nest has totals");
    let (rows, lanes) = (nest.axes[band].extent, layout.rows as usize);
    // No group has the rows of a band and another axis. An axis of one row has no group.
    let others = if rows > 1 { &groups[..groups.len() - 1] } else { groups };
    let extents: Vec<usize> = others.iter().map(|group| group.extent).collect();
    let needed: u64 = extents.iter().map(|extent| *extent as u64).product();
    let blocks = needed.min(limit).min(MAX_GRID);
    let (mut team, dynamic) = Team::new(emit, layout, nest, in_place);
    let lane = emit.axis_in("lane", lanes, team.team);
    let first = block_number(emit, needed + blocks >= 1 << 31);
    emit.stride(first, needed, blocks, |emit, number| {
        let axes = emit.decompose(number, "band", &extents);
        let mut origin = emit.origin();
        for (group, axis) in others.iter().zip(&axes) {
            origin[innermost(group)] = Affine::axis(*axis);
        }
        team.clear(emit, &origin);
        let turn = emit.axis("turn", rows.div_ceil(lanes));
        emit.repeat(turn, false, |emit| {
            let row = Affine::axis(turn).scale(lanes as i64).add(&Affine::axis(lane));
            let active = emit.guard(&row, 0, rows as i64);
            let mut axes = origin.clone();
            axes[band.index()] = row;
            team.row(emit, axes, active)?;
            // The next row's storage overwrites this one's.
            team.wait(emit);
            Ok(())
        })?;
        emit.code.push(Inst::Barrier);
        team.finish(emit, &origin)?;
        if blocks < needed {
            emit.code.push(Inst::Barrier);
        }
        Ok(())
    })?;
    team.declare(emit);
    Ok((u32::try_from(blocks).expect("bounded"), dynamic))
}

impl Team<'_> {
    /// Initialises the team's accumulators.
    fn clear(&mut self, emit: &mut Emit<'_>, origin: &[Affine]) {
        for store in totals(self.nest) {
            let own = emit.accumulators[&store.access.buffer].clone();
            let threads = (self.layout.threads, self.axis);
            each(emit, &store, threads, origin, |emit, _, copy| {
                let identity = emit.identity(&store.total.combine);
                emit.store(&own, identity, &[copy]);
                Ok(())
            })
            .expect("a store has code");
            // Rows change it in a loop.
            emit.forget(own.buffer);
        }
        self.wait(emit);
    }

    /// Combines the accumulators of all teams, and stores the totals.
    fn finish(&mut self, emit: &mut Emit<'_>, origin: &[Affine]) -> Result<()> {
        let threads = self.layout.block();
        let axis = emit.axis_in("thread", threads as usize, self.linear);
        for store in totals(self.nest) {
            let own = emit.accumulators[&store.access.buffer].buffer;
            let dtype = self.nest.buffers[own].dtype;
            let starts: Vec<Reg> =
                (0..self.layout.rows).map(|lane| self.start_of(emit, own, lane)).collect();
            each(emit, &store, (threads, axis), origin, |emit, element, copy| {
                let number = emit.narrow(element);
                let load = |emit: &mut Emit<'_>, start: &Reg| {
                    let size = dtype.size() as i64;
                    let base = emit.code.ternary(Ternary::Mad, Type::S32, number, size, *start);
                    let (space, read_only) = (Space::Shared, false);
                    let vector =
                        Vector { space, read_only, base, offset: 0, predicate: None, dtype };
                    vector.load(&mut emit.code, &[None])[0]
                };
                let mut lanes: Vec<Reg> = starts.iter().map(|start| load(emit, start)).collect();
                while lanes.len() > 1 {
                    let half = lanes.len() / 2;
                    for lane in 0..half {
                        let (a, b) = ([lanes[lane]], [lanes[lane + half]]);
                        lanes[lane] = emit.combine(&store.total.combine, &a, &b)?[0];
                    }
                    lanes.truncate(half);
                }
                emit.store(store.access, lanes, &[copy]);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The address of a team's row storage.
    fn start_of(&self, emit: &mut Emit<'_>, buffer: BufferId, team: u32) -> Reg {
        let start = emit.code.mov(Type::B32, Operand::Symbol(self.storage.array.into()));
        let at = self.storage.at[&buffer] + i64::from(team) * self.storage.bytes;
        emit.code.binary(Binary::Add, Type::S32, start, at)
    }
}

/// Code for each element of a total, by threads with an axis for their number.
fn each(
    emit: &mut Emit<'_>,
    store: &TotalStore<'_>,
    (threads, axis): (u32, wengert_core::nest::AxisId),
    origin: &[Affine],
    body: impl FnOnce(&mut Emit<'_>, &Affine, Copy) -> Result<()>,
) -> Result<()> {
    let inner = shape::inner(emit.nest, store.phase);
    let count = store.phase.iterations(emit.nest);
    if count == 0 {
        return Ok(());
    }
    emit.begin_body(1);
    emit.mark_outer();
    let turn = emit.axis("turn", count.div_ceil(threads as usize));
    emit.repeat(turn, false, |emit| {
        let element = Affine::axis(turn).scale(threads.into()).add(&Affine::axis(axis));
        let active = emit.guard(&element, 0, count as i64);
        emit.when_any(active, |emit| {
            let mut copy = Copy { axes: origin.to_vec(), active: None, stores: None };
            place(&mut copy, &inner, &element);
            body(emit, &element, copy)
        })
    })
}
