//! Schedules for budgets.
//!
//! Every schedule that is found on the way goes into one pool, in which only those stay that no other beats in both peak and cost. What a budget gets is the
//! cheapest of the pool that fits, so a greater budget never costs more than a smaller one.

use super::bound::bound;
use super::few::{Few, Outcome};
use super::fit::Workshop;
use super::problem::{Cost, Problem, Schedule};
use super::segments;
use super::timeline::{Prepared, Timeline};
use super::trim::First;

/// The answer if there is no schedule for a budget, as far as was looked: the one with the least peak.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Least {
    /// What it costs.
    pub cost: Cost,
    /// The schedule.
    pub schedule: Schedule,
}

/// A schedule of the pool.
#[derive(Clone, Debug)]
struct Found {
    peak: i64,
    added: u64,
    executions: Vec<usize>,
}

/// What one solver works with.
struct Solver<'a> {
    prepared: &'a Prepared<'a>,
    workshop: Workshop,
    /// For problems that are small enough.
    few: Option<Few<'a>>,
    /// By rising peak and falling cost.
    pool: Vec<Found>,
    /// Schedules in segments, once they have been asked for.
    segments: Option<Vec<Found>>,
}

/// Up to so many steps it pays to look at everything there is.
const FEW: u64 = 24;

/// An effort that finds good schedules of a problem: about linear in its steps, and in time. Of few steps more is looked at, most of which is seldom needed.
pub fn effort(problem: &Problem) -> u64 {
    match problem.steps.len() as u64 {
        ..=FEW => 40_000_000,
        steps => 40_000 * (steps + 50),
    }
}

/// A schedule whose peak is at most `budget`, as cheap as was found, or the one with the least peak. `effort` is counted in things looked at, about two nanoseconds each. The problem is one of
/// which [`super::check::check`] accepts the given schedule.
///
/// # Errors
///
/// The schedule with the least peak that was found, if that is above the budget.
pub fn solve(problem: &Problem, budget: u64, effort: u64) -> Result<Schedule, Least> {
    frontier(problem, &[budget], effort).pop().expect("there is an answer for each budget")
}

/// Answers as [`solve`]'s for several budgets, in their order. A greater budget never costs more. `effort` is for each.
pub fn frontier(problem: &Problem, budgets: &[u64], effort: u64) -> Vec<Result<Schedule, Least>> {
    let prepared = Prepared::new(problem);
    answers(&prepared, Few::new(&prepared), budgets, effort)
}

/// Answers as [`frontier`]'s, as for a problem of too many steps for an exact search.
#[cfg(test)]
pub(super) fn searched(problem: &Problem, budgets: &[u64], effort: u64) -> Vec<Result<Schedule, Least>> {
    answers(&Prepared::new(problem), None, budgets, effort)
}

fn answers(
    prepared: &Prepared<'_>,
    few: Option<Few<'_>>,
    budgets: &[u64],
    effort: u64,
) -> Vec<Result<Schedule, Least>> {
    let problem = prepared.problem;
    let workshop = Workshop::new(prepared);
    let mut solver = Solver { prepared, workshop, few, pool: Vec::new(), segments: None };
    let budgets: Vec<i64> = budgets.iter().map(|b| i64::try_from(*b).unwrap_or(i64::MAX)).collect();
    let mut falling = budgets.clone();
    falling.sort_unstable_by(|a, b| b.cmp(a));
    let mut start = Timeline::new(prepared, problem.given().executions, i64::MAX);
    solver.keep(&start);
    let bound = bound(problem) as i64;
    for budget in &falling {
        start.executions = problem.given().executions;
        solver.look(&mut start, *budget, bound, effort);
    }
    for budget in falling.iter().rev() {
        // What a smaller budget has found may be far from what this one needs.
        if let Some(found) = solver.best(*budget) {
            let mut timeline = Timeline::new(prepared, found.executions.clone(), *budget);
            solver.workshop.trim(&mut timeline, First::Dearest, u64::MAX);
            solver.keep(&timeline);
        }
    }
    budgets.iter().map(|budget| solver.answer(*budget)).collect()
}

impl Solver<'_> {
    /// The cheapest schedule of the pool that fits.
    fn best(&self, budget: i64) -> Option<&Found> {
        self.pool[..self.pool.partition_point(|f| f.peak <= budget)].last()
    }

    fn answer(&self, budget: i64) -> Result<Schedule, Least> {
        if let Some(found) = self.best(budget) {
            return Ok(Schedule { executions: found.executions.clone() });
        }
        let least = self.pool.first().expect("the given schedule was put into the pool");
        let repetitions = least.executions.len() - self.prepared.problem.steps.len();
        let cost = Cost { peak: least.peak as u64, added: least.added, repetitions };
        Err(Least { cost, schedule: Schedule { executions: least.executions.clone() } })
    }

    /// Puts a schedule into the pool, unless one there is as good.
    fn keep(&mut self, timeline: &Timeline<'_>) {
        let (peak, added) = (timeline.peak, timeline.added);
        if self.best(peak).is_some_and(|f| f.added <= added) {
            return;
        }
        self.pool.retain(|f| f.peak < peak || f.added < added);
        let at = self.pool.partition_point(|f| f.peak < peak);
        self.pool.insert(at, Found { peak, added, executions: timeline.executions.clone() });
    }

    /// Looks for schedules for a budget, and if there are none, for those with the least peak.
    fn look(&mut self, timeline: &mut Timeline<'_>, budget: i64, bound: i64, effort: u64) {
        if self.best(budget).is_some_and(|f| f.added == 0) {
            return;
        }
        let end = self.workshop.effort() + effort;
        if budget >= bound {
            self.start(timeline, budget, effort * 2 / 3);
            let left = end.saturating_sub(self.workshop.effort());
            if !self.settle(timeline, budget, left / 4 * 3) {
                self.polish(timeline, budget, end);
            }
        }
        if self.best(budget).is_some() {
            return;
        }
        // Halving the way between the bound and what was reached.
        let mut below = bound.max(budget);
        for _ in 0..6 {
            let reached = self.pool.first().map_or(i64::MAX, |f| f.peak);
            let aim = below + (reached - below) / 2;
            if aim >= reached {
                return;
            }
            self.start(timeline, aim, effort / 6);
            if self.best(aim).is_none() && !self.settle(timeline, aim, effort / 12) {
                self.polish(timeline, aim, self.workshop.effort() + effort / 12);
            }
            if self.best(aim).is_none() {
                below = aim;
            }
        }
    }

    /// Looks for the cheapest schedule of all. True if nothing is left to be found for a budget.
    fn settle(&mut self, timeline: &mut Timeline<'_>, budget: i64, effort: u64) -> bool {
        let ceiling = self.best(budget).map_or(u64::MAX, |f| f.added);
        let Some(few) = &mut self.few else { return false };
        let (outcome, spent) = few.cheapest(budget.max(0) as u64, ceiling, effort);
        self.workshop.spend(spent);
        match outcome {
            Outcome::Cheapest(executions) => {
                timeline.executions = executions;
                timeline.budget = budget;
                self.workshop.update(timeline);
                self.keep(timeline);
                true
            }
            Outcome::Nothing => true,
            Outcome::GivenUp => false,
        }
    }

    /// Polishes the cheapest schedule of the pool that fits, or the nearest to those.
    fn polish(&mut self, timeline: &mut Timeline<'_>, budget: i64, limit: u64) {
        let from = self.best(budget).or(self.pool.first()).expect("the given schedule was put into the pool");
        timeline.executions.clone_from(&from.executions);
        timeline.budget = budget;
        self.workshop.update(timeline);
        self.workshop.polish(timeline, limit);
        self.keep(timeline);
    }

    /// Fits schedules of several kinds to a budget: from nothing, from what a greater budget has found, from segments.
    fn start(&mut self, timeline: &mut Timeline<'_>, budget: i64, effort: u64) {
        timeline.budget = budget;
        let given = self.prepared.problem.given().executions;
        let mut starts = vec![(given.clone(), 1), (given, 16)];
        // The pool is ordered by peak: this is the nearest to those that fit.
        let near = self.pool.partition_point(|f| f.peak <= budget);
        starts.extend(self.pool.get(near).map(|f| (f.executions.clone(), 1)));
        let segments = self.segments(budget);
        let share = effort / (starts.len() + segments.len()) as u64 + 1;
        let mut nearest: Option<(i64, Vec<usize>)> = None;
        for (executions, original) in
            starts.into_iter().chain(segments.into_iter().map(|s| (s.executions, 4)))
        {
            timeline.executions = executions;
            timeline.original = original;
            self.workshop.update(timeline);
            // What repeats much more than is needed is a bad beginning.
            if self.best(budget).is_some_and(|f| timeline.added / 2 > f.added) {
                continue;
            }
            self.fit(timeline, share);
            if timeline.excess > 0 && nearest.as_ref().is_none_or(|n| timeline.peak < n.0) {
                nearest = Some((timeline.peak, timeline.executions.clone()));
            }
        }
        if self.best(budget).is_none()
            && let Some((_, executions)) = nearest
        {
            timeline.executions = executions;
            timeline.original = 16;
            self.workshop.update(timeline);
            self.fit(timeline, effort / 3);
        }
    }

    /// The schedules in segments that are nearest to a budget: some that fit, some that do not.
    fn segments(&mut self, budget: i64) -> Vec<Found> {
        let all = self.segments.get_or_insert_with(|| {
            let schedules = segments::schedules(self.prepared).into_iter();
            let timelines = schedules.map(|executions| Timeline::new(self.prepared, executions, i64::MAX));
            timelines.map(|t| Found { peak: t.peak, added: t.added, executions: t.executions }).collect()
        });
        let mut fit: Vec<&Found> = all.iter().filter(|f| f.peak <= budget).collect();
        let mut rest: Vec<&Found> = all.iter().filter(|f| f.peak > budget).collect();
        fit.sort_by_key(|f| f.added);
        rest.sort_by_key(|f| f.peak);
        fit.into_iter().take(4).chain(rest.into_iter().take(3)).cloned().collect()
    }

    /// Fits a schedule that was laid out, and keeps what comes of it.
    fn fit(&mut self, timeline: &mut Timeline<'_>, effort: u64) {
        self.keep(timeline);
        let limit = self.workshop.effort() + effort;
        // What is not needed is not to stand in the way of what is.
        self.workshop.trim(timeline, First::DearestForBytes, limit);
        self.workshop.fit(timeline, limit);
        self.keep(timeline);
        if timeline.excess == 0 {
            self.workshop.trim(timeline, First::Dearest, limit + effort);
            self.keep(timeline);
        }
    }
}
