//! Budgets: a function in fewer bytes than its layout without repetitions takes.
//!
//! [`recompute`](super::rematerialize) says which steps to repeat so that a schedule stays below a
//! number of bytes. This module asks it for schedules of a function's kernels, and lays each out
//! like any other order of kernels.
//!
//! The solver weighs a model: operands and results of a step do not share bytes, and the height
//! of an arena is its max load. A layout may take less, since results take the bytes of operands
//! that die, or slightly more, since buffers are contiguous. So a budget is compared with the
//! arena of the layout, never with the model.
//!
//! # The ladder
//!
//! The schedules of a function are one family, the [`Ladder`]. It depends on the kernels and the
//! target, not on the budget. A budget gets the cheapest rung whose layout fits. So:
//!
//! 1. A budget that is greater than a feasible one is feasible, and its plan costs no more.
//! 2. Each point of a frontier is a rung, so a budget of its bytes is feasible.
//! 3. The least budget, which the error names, is the least arena of all rungs.
//!
//! A search that starts from the budget finds a plan a few percent closer to it, but has none of
//! these properties.

mod steps;

use super::part::{Laid, Part};
use super::rematerialize::check::check;
use super::rematerialize::computation::{Cost, Schedule};
use super::rematerialize::{self, effort};
use crate::pass::within;
use steps::Steps;
use wengert_core::Result;

/// Rungs between the least peak that the solver finds and the peak without repetitions, at equal
/// distances.
const RUNGS: u64 = 24;
/// The effort for a rung is this part of the effort for a computation solved alone, since rungs
/// share the schedules that they find.
const SHARE: u64 = 4;

/// The cheapest layout within a budget.
pub(super) enum Found<'k> {
    /// The layout.
    Fits(Laid<'k>),
    /// No rung fits: the layout of the least arena.
    Least(Laid<'k>),
}

/// Schedules by rising cost. More cost buys less memory.
pub(super) struct Ladder {
    steps: Steps,
    /// By rising cost. Among rungs of equal cost, the lesser peak comes first.
    rungs: Vec<Schedule>,
}

impl Ladder {
    /// The ladder of a part, in its order of kernels.
    pub fn new(part: &mut Part<'_, '_>) -> Result<Ladder> {
        let (kernels, target) = (part.kernels, part.target);
        let steps = Steps::new(kernels, &part.order, target, &part.workspaces, &mut part.nests)?;
        let computation = &steps.computation;
        let cost = |schedule: &Schedule| -> Cost {
            let cost = check(computation, schedule);
            cost.unwrap_or_else(|fault| panic!("recompute gives a schedule that is none: {fault}"))
        };
        let mut rungs = within("recompute", || {
            let least = rematerialize::solve(computation, 0, effort(computation))
                .unwrap_or_else(|least| least.schedule);
            let (top, floor) = (cost(&computation.given()).peak, cost(&least).peak);
            let distance = top.saturating_sub(floor).div_ceil(RUNGS).max(1);
            let aims: Vec<u64> =
                (0..RUNGS).map(|n| floor + n * distance).filter(|aim| *aim < top).collect();
            let answers = rematerialize::frontier(computation, &aims, effort(computation) / SHARE);
            let mut schedules: Vec<Schedule> = answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(|least| least.schedule))
                .collect();
            schedules.push(least);
            schedules
        });
        rungs.retain(|schedule| cost(schedule).repetitions > 0);
        rungs.sort_by_cached_key(|schedule| {
            let Cost { peak, added, .. } = cost(schedule);
            (added, peak, schedule.executions.clone())
        });
        rungs.dedup();
        Ok(Ladder { steps, rungs })
    }

    /// The cheapest layout whose arena has at most `budget` bytes. None if the kernels cannot be
    /// repeated.
    pub fn fit<'k>(&self, part: &mut Part<'k, '_>, budget: u64) -> Result<Option<Found<'k>>> {
        let mut least: Option<Laid<'k>> = None;
        for rung in &self.rungs {
            let laid = self.lay(part, rung)?;
            if laid.arena.bytes <= budget {
                return Ok(Some(Found::Fits(laid)));
            }
            if least.as_ref().is_none_or(|least| laid.arena.bytes < least.arena.bytes) {
                least = Some(laid);
            }
        }
        Ok(least.map(Found::Least))
    }

    /// The layouts whose arena is smaller than that of every cheaper one, by rising arena: at
    /// most `points`, the smallest included.
    pub fn frontier<'k>(&self, part: &mut Part<'k, '_>, points: u64) -> Result<Vec<Laid<'k>>> {
        let mut laid: Vec<Laid<'k>> = Vec::new();
        for rung in &self.rungs {
            let next = self.lay(part, rung)?;
            if laid.last().is_none_or(|last| next.arena.bytes < last.arena.bytes) {
                laid.push(next);
            }
        }
        laid.reverse();
        // Evenly spread, from the smallest on.
        let (count, points) = (laid.len(), usize::try_from(points).unwrap_or(usize::MAX).max(1));
        let mut number = 0..count;
        let chosen = |n: usize| {
            count <= points || (n * points).div_ceil(count) != ((n + 1) * points).div_ceil(count)
        };
        laid.retain(|_| number.next().is_some_and(chosen));
        Ok(laid)
    }

    fn lay<'k>(&self, part: &mut Part<'k, '_>, schedule: &Schedule) -> Result<Laid<'k>> {
        part.lay(self.steps.run(part.kernels, schedule))
    }
}
