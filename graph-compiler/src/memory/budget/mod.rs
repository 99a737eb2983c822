//! Budgets: a function in fewer bytes than all its values need side by side.
//!
//! [`recompute`](super::recompute) knows which steps to repeat so that a schedule stays below a number of bytes; this room asks it for a function's kernels, and lays out what it answers like
//! any other order of kernels.
//!
//! What the solver weighs is a model: operands and results of a step lie side by side, and an arena is as high as its max load. A plan does better, since results take the bytes of operands that die, and may do
//! a little worse, since buffers must lie in one piece. So what counts is the arena of the plan, and the budget that is given to the solver is corrected by what came out, a few times.

mod run;
mod steps;

pub(super) use run::Run;

use super::recompute::check::check;
use super::recompute::problem::Schedule;
use super::recompute::{self, effort};
use super::{Laid, Part};
use crate::pipeline::within;
use steps::Steps;
use wengert_core::Result;

/// How often a budget is corrected.
const ROUNDS: usize = 6;
/// What of a budget may be left unused for the sake of time.
const NEAR: f64 = 0.985;

/// What a search has found.
pub(super) enum Found<'k> {
    /// A layout within the budget.
    Fits(Laid<'k>),
    /// The least that was found.
    Least(Laid<'k>),
}

/// Kernels about to be given budgets.
pub(super) struct Budgets {
    steps: Steps,
    /// Bytes that the model takes for the order as it is.
    peak: u64,
}

impl Budgets {
    /// Those of a part, in its order.
    pub fn new(part: &mut Part<'_, '_>) -> Result<Budgets> {
        let (kernels, target) = (part.kernels, part.target);
        let steps = Steps::new(kernels, &part.order, target, &part.workspaces, &mut part.nests)?;
        let given = check(&steps.problem, &steps.problem.given());
        let peak = given.expect("kernels were verified: what is read was made before").peak;
        Ok(Budgets { steps, peak })
    }

    /// The cheapest layout whose arena has at most `budget` bytes. `given` is the one without repetitions, which has more.
    pub fn fit<'k>(&self, part: &mut Part<'k, '_>, given: &Laid<'k>, budget: u64) -> Result<Found<'k>> {
        let problem = &self.steps.problem;
        let scaled = |bytes: u64, height: u64| bytes as f64 * budget as f64 / height.max(1) as f64;
        let mut aim = scaled(self.peak, given.arena.bytes);
        // The solver's budgets that were low enough, and those that were too high.
        let (mut low, mut high) = (0.0, self.peak as f64);
        let mut best: Option<(u64, Laid<'k>)> = None;
        for _ in 0..ROUNDS {
            let answer = within("recompute", || recompute::solve(problem, aim as u64, effort(problem)));
            let (schedule, least) = match answer {
                Ok(schedule) => (schedule, false),
                Err(least) => (least.schedule, true),
            };
            let (added, laid) = self.lay(part, &schedule)?;
            let height = laid.arena.bytes;
            if height <= budget {
                if best.as_ref().is_none_or(|(cost, _)| added < *cost) {
                    best = Some((added, laid));
                }
                low = aim;
                if height as f64 >= budget as f64 * NEAR {
                    break;
                }
            } else if least {
                return Ok(match best {
                    Some((_, laid)) => Found::Fits(laid),
                    None => Found::Least(laid),
                });
            } else {
                high = aim;
            }
            let proposed = aim * scaled(1, height);
            aim = if proposed > low && proposed < high { proposed } else { (low + high) / 2.0 };
            if high - low < high * (1.0 - NEAR) / 4.0 {
                break;
            }
        }
        match best {
            Some((_, laid)) => Ok(Found::Fits(laid)),
            None => {
                // Nothing that the solver thought to fit does; what it can do at the utmost may.
                let (_, laid) = self.lay(part, &self.least())?;
                Ok(if laid.arena.bytes <= budget { Found::Fits(laid) } else { Found::Least(laid) })
            }
        }
    }

    /// Layouts for budgets of the model in equal steps between the least and the given peak, by rising arena: each costs less than those before it.
    pub fn frontier<'k>(&self, part: &mut Part<'k, '_>, points: u64) -> Result<Vec<Laid<'k>>> {
        let problem = &self.steps.problem;
        let (floor, _) = self.cost(&self.least());
        let way = self.peak.saturating_sub(floor) / points;
        let aims: Vec<u64> = (0..points).map(|n| floor + n * way).collect();
        let answers = within("recompute", || recompute::frontier(problem, &aims, effort(problem)));
        let mut laid = Vec::new();
        for answer in answers {
            let schedule = answer.unwrap_or_else(|least| least.schedule);
            laid.push(self.lay(part, &schedule)?);
        }
        laid.sort_by_key(|(added, laid)| (laid.arena.bytes, *added));
        let mut cheapest = u64::MAX;
        laid.retain(|(added, _)| {
            let cheaper = *added < cheapest;
            cheapest = cheapest.min(*added);
            cheaper
        });
        Ok(laid.into_iter().map(|(_, laid)| laid).collect())
    }

    /// The schedule of the least peak that the solver finds.
    fn least(&self) -> Schedule {
        let problem = &self.steps.problem;
        within("recompute", || recompute::solve(problem, 0, effort(problem)))
            .unwrap_or_else(|least| least.schedule)
    }

    /// Lays a schedule out; with what it costs more.
    fn lay<'k>(&self, part: &mut Part<'k, '_>, schedule: &Schedule) -> Result<(u64, Laid<'k>)> {
        let (_, added) = self.cost(schedule);
        Ok((added, part.lay(self.steps.run(part.kernels, schedule))?))
    }

    /// Peak and added cost of a schedule.
    fn cost(&self, schedule: &Schedule) -> (u64, u64) {
        let cost = check(&self.steps.problem, schedule);
        let cost = cost.unwrap_or_else(|fault| panic!("recompute gives a schedule that is none: {fault}"));
        (cost.peak, cost.added)
    }
}
