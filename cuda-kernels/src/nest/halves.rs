//! The lanes of a reduction, combined in halves as its [`Tree`](wengert_core::nest::Tree) says.
//!
//! A thread has several lanes, and lane l meets lane l + h for h = lanes/2, …, 1. Lanes of one
//! thread meet first, then those of threads at a distance, and last the neighbouring lanes of a
//! vector.
//!
//! **Shared out.** Threads of a warp that meet with V lanes each need not bring all of them to one
//! thread. One thread gives the upper half of its lanes and keeps the lower one, the other thread
//! does the opposite, and each combines V/2 pairs. After log₂ V distances each thread has one lane.
//! Then the halves that went to different threads meet, at the same distances in the same order.
//! For 8 lanes and 32 threads this takes 12 shuffles, where 8 at each of 5 distances would take 40.
//! Every lane meets the lane that the tree says, but in one of two threads as the left operand and
//! in the other one as the right operand. So combiners have to be commutative.
//!
//! **Starts.** The tree begins each lane with the identity. A lane here begins with its first
//! element, and a lane without elements is left out, where this changes no bit. It changes none
//! for minima, maxima, products, logic and sums of integers. A sum of floats may become −0 without
//! the identity, which is +0. Its lanes are then equal but for the sign of zeros, and so are the
//! sums of lanes; adding the identity to the result gives +0 again.

use super::emit::Emit;
use super::spread::Spread;
use super::team::Team;
use crate::architecture::WARP;
use crate::ptx::{Binary, Compare, Reg, Shuffle, Type};
use crate::scalar;
use wengert_core::nest::{Combine, Phase};
use wengert_core::{DType, Result};

/// What a lane has combined so far, the tuples of all reductions; `None` before its first element.
pub(super) type Lane = Option<Vec<Reg>>;

/// Accumulators: for each lane of a thread, the concatenated tuples of all reductions. The rows of
/// a lane are neighbours.
pub(super) type Lanes = Vec<Vec<Reg>>;

/// Dtypes of the tuples of all reductions.
pub(super) fn dtypes(phase: &Phase) -> Vec<DType> {
    phase.reductions.iter().flat_map(|r| r.combine.dtypes()).collect()
}

/// Whether operands may change places, and whether a lane may begin with its first element, up to
/// the sign of a sum's zero.
fn is_simple(combine: &Combine) -> bool {
    matches!(combine.name(), Some("sum" | "prod" | "max" | "min" | "and" | "or"))
}

/// Whether all combiners of a phase are simple.
pub(super) fn are_simple(phase: &Phase) -> bool {
    phase.reductions.iter().all(|reduction| is_simple(&reduction.combine))
}

/// Combines the tuples of each reduction.
pub(super) fn combine_all(
    emit: &mut Emit<'_>,
    phase: &Phase,
    left: &[Reg],
    right: &[Reg],
) -> Result<Vec<Reg>> {
    let mut results = Vec::new();
    for reduction in &phase.reductions {
        let part = results.len()..results.len() + reduction.results.len();
        results.extend(emit.combine(&reduction.combine, &left[part.clone()], &right[part])?);
    }
    Ok(results)
}

/// Combines the lanes of a thread in halves until `least` of them are left.
fn combine_halves(
    emit: &mut Emit<'_>,
    phase: &Phase,
    lanes: &mut Vec<Lane>,
    least: usize,
) -> Result<()> {
    while lanes.len() > least {
        let upper = lanes.split_off(lanes.len() / 2);
        for (lower, upper) in lanes.iter_mut().zip(upper) {
            *lower = match (lower.take(), upper) {
                (Some(lower), Some(upper)) => Some(combine_all(emit, phase, &lower, &upper)?),
                (lower, upper) => lower.or(upper),
            };
        }
    }
    Ok(())
}

/// The identities of all reductions.
pub(super) fn identities(emit: &mut Emit<'_>, phase: &Phase) -> Vec<Reg> {
    phase.reductions.iter().flat_map(|r| emit.identity(&r.combine)).collect()
}

/// Adds the identity to sums of floats whose lanes began without it.
fn settle(emit: &mut Emit<'_>, phase: &Phase, lane: &mut [Reg]) -> Result<()> {
    let mut at = 0;
    for reduction in &phase.reductions {
        let end = at + reduction.results.len();
        let float = reduction.combine.identity.iter().all(|value| value.dtype().is_float());
        if float && reduction.combine.name() == Some("sum") {
            let identity = emit.identity(&reduction.combine);
            let sum = emit.combine(&reduction.combine, &lane[at..end], &identity)?;
            lane[at..end].copy_from_slice(&sum);
        }
        at = end;
    }
    Ok(())
}

impl Team<'_> {
    /// Combines all lanes of the team in halves; every thread gets the results of each row.
    /// `started`: each lane began with the identity.
    pub fn reduce(
        &mut self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        spread: &Spread,
        mut lanes: Vec<Lane>,
        started: bool,
    ) -> Result<Lanes> {
        if phase.reductions.is_empty() {
            return Ok(Vec::new());
        }
        emit.code.comment("lanes in halves");
        debug_assert!(spread.groups.is_power_of_two());
        let dtypes = dtypes(phase);
        combine_halves(emit, phase, &mut lanes, spread.exchanged)?;
        let mut distance = spread.threads / 2;
        let exchanges = distance > 0;
        let mut lanes = present(emit, phase, lanes);
        let simple = are_simple(phase);
        let all: Vec<DType> = (0..spread.exchanged).flat_map(|_| dtypes.iter().copied()).collect();
        while distance > 0 && !(simple && self.shuffles(distance as u32)) {
            let brought = self.bring(emit, &all, &lanes.concat(), distance as u32);
            for (lane, other) in lanes.iter_mut().zip(brought.chunks(dtypes.len())) {
                *lane = combine_all(emit, phase, lane, other)?;
            }
            distance /= 2;
        }
        let near = distance > 0;
        if near {
            lanes = self.share_out(emit, phase, lanes, distance)?;
        }
        let mut lanes = lanes.into_iter().map(Some).collect();
        combine_halves(emit, phase, &mut lanes, spread.rows)?;
        let mut lanes = present(emit, phase, lanes);
        if !started {
            for lane in &mut lanes {
                settle(emit, phase, lane)?;
            }
        }
        if near && self.layout.in_warp() && spread.threads == self.layout.threads as usize {
            return Ok(lanes);
        }
        let settled = exchanges && (self.layout.columns || spread.threads > 32);
        let all: Vec<DType> = (0..spread.rows).flat_map(|_| dtypes.iter().copied()).collect();
        let told = self.tell(emit, &all, &lanes.concat(), !settled);
        Ok(told.chunks(dtypes.len()).map(<[Reg]>::to_vec).collect())
    }

    /// Whether threads at this distance exchange by shuffles.
    pub fn shuffles(&self, distance: u32) -> bool {
        self.layout.in_warp() || (!self.layout.columns && distance < WARP)
    }

    /// Combines the lanes of threads at this distance in a warp and at all smaller ones. Each
    /// thread has the results, of the lanes that are left when there are more of them than
    /// threads.
    fn share_out(
        &self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        mut lanes: Lanes,
        distance: usize,
    ) -> Result<Lanes> {
        let dtypes = dtypes(phase);
        let distances = || (0..=distance.ilog2()).rev().map(|bit| 1 << bit);
        let mut apart = Vec::new();
        for distance in distances() {
            let mut given = lanes.clone();
            if lanes.len() > 1 {
                let bit = emit.code.binary(Binary::And, Type::B32, self.thread, distance);
                let far = emit.code.compare(Compare::Ne, Type::U32, bit, 0);
                let upper = lanes.split_off(lanes.len() / 2);
                given.clear();
                for (lower, upper) in lanes.iter_mut().zip(upper) {
                    let mut choose = |far_one: &[Reg], near_one: &[Reg]| -> Vec<Reg> {
                        let pairs = dtypes.iter().zip(far_one.iter().zip(near_one));
                        pairs
                            .map(|(d, (a, b))| scalar::select(&mut emit.code, *d, far, *a, *b))
                            .collect()
                    };
                    given.push(choose(lower, &upper));
                    *lower = choose(&upper, lower);
                }
                apart.push(distance);
            }
            self.meet(emit, phase, &mut lanes, &given, distance)?;
        }
        for distance in apart {
            let given = lanes.clone();
            self.meet(emit, phase, &mut lanes, &given, distance)?;
        }
        Ok(lanes)
    }

    /// Combines lanes with those that the thread at this distance gives.
    fn meet(
        &self,
        emit: &mut Emit<'_>,
        phase: &Phase,
        lanes: &mut Lanes,
        given: &Lanes,
        distance: i64,
    ) -> Result<()> {
        let dtypes = dtypes(phase);
        for (lane, given) in lanes.iter_mut().zip(given) {
            let other = self.shuffled(emit, &dtypes, given, Shuffle::Butterfly, distance);
            *lane = combine_all(emit, phase, lane, &other)?;
        }
        Ok(())
    }
}

/// The lanes, with the identity where there are no elements.
fn present(emit: &mut Emit<'_>, phase: &Phase, lanes: Vec<Lane>) -> Lanes {
    lanes.into_iter().map(|lane| lane.unwrap_or_else(|| identities(emit, phase))).collect()
}
