//! Schedules within budgets.
//!
//! All schedules found enter one pool, which keeps those that no other beats in both peak and
//! cost. A budget gets the cheapest schedule of the pool that fits, so a greater budget never
//! costs more than a smaller one.

use super::bound::bound;
use super::computation::{Computation, Cost, Schedule};
use super::few::{Few, Outcome};
use super::fit::Workshop;
use super::segments;
use super::timeline::{Prepared, Timeline};
use super::trim::First;

/// The answer if no schedule within a budget was found: the schedule of the least peak.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Least {
    /// Its cost.
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

/// State of one solver.
struct Solver<'a> {
    prepared: &'a Prepared<'a>,
    workshop: Workshop,
    /// The exact search, for problems with few values.
    few: Option<Few<'a>>,
    /// By rising peak and falling cost.
    pool: Vec<Found>,
    /// Schedules in segments, computed on first use.
    segments: Option<Vec<Found>>,
}

/// Up to this many steps an exhaustive search is affordable.
const FEW: u64 = 24;

/// An effort that finds good schedules of a computation, about linear in its steps and in time.
/// Problems of few steps get an effort for exhaustive search, most of which is seldom used.
pub fn effort(computation: &Computation) -> u64 {
    match computation.steps.len() as u64 {
        ..=FEW => 40_000_000,
        steps => 40_000 * (steps + 50),
    }
}

/// The cheapest schedule found whose peak is at most `budget`. `effort` counts inspected items,
/// of about two nanoseconds each. [`super::check::check`] must accept the problem's given
/// schedule.
///
/// # Errors
///
/// The schedule of the least peak that was found, if that is above the budget.
pub fn solve(computation: &Computation, budget: u64, effort: u64) -> Result<Schedule, Least> {
    frontier(computation, &[budget], effort).pop().expect("there is an answer for each budget")
}

/// The answers of [`solve`] for several budgets, in their order. A greater budget never costs
/// more. `effort` is per budget.
pub fn frontier(
    computation: &Computation,
    budgets: &[u64],
    effort: u64,
) -> Vec<Result<Schedule, Least>> {
    let prepared = Prepared::new(computation);
    answers(&prepared, Few::new(&prepared), budgets, effort)
}

/// The answers of [`frontier`] without the exact search, as for a computation of many steps.
#[cfg(test)]
pub(super) fn searched(
    computation: &Computation,
    budgets: &[u64],
    effort: u64,
) -> Vec<Result<Schedule, Least>> {
    answers(&Prepared::new(computation), None, budgets, effort)
}

fn answers(
    prepared: &Prepared<'_>,
    few: Option<Few<'_>>,
    budgets: &[u64],
    effort: u64,
) -> Vec<Result<Schedule, Least>> {
    let computation = prepared.computation;
    let workshop = Workshop::new(prepared);
    let mut solver = Solver { prepared, workshop, few, pool: Vec::new(), segments: None };
    let budgets: Vec<i64> = budgets.iter().map(|b| i64::try_from(*b).unwrap_or(i64::MAX)).collect();
    let mut falling = budgets.clone();
    falling.sort_unstable_by(|a, b| b.cmp(a));
    let mut start = Timeline::new(prepared, computation.given().executions, i64::MAX);
    solver.keep(&start);
    let bound = bound(computation) as i64;
    for budget in &falling {
        start.executions = computation.given().executions;
        solver.look(&mut start, *budget, bound, effort);
    }
    for budget in falling.iter().rev() {
        // A schedule found for a smaller budget may repeat more than this budget needs.
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
        let repetitions = least.executions.len() - self.prepared.computation.steps.len();
        let cost = Cost { peak: least.peak as u64, added: least.added, repetitions };
        Err(Least { cost, schedule: Schedule { executions: least.executions.clone() } })
    }

    /// Adds a schedule to the pool, unless one in the pool is as good.
    fn keep(&mut self, timeline: &Timeline<'_>) {
        let (peak, added) = (timeline.peak, timeline.added);
        if self.best(peak).is_some_and(|f| f.added <= added) {
            return;
        }
        self.pool.retain(|f| f.peak < peak || f.added < added);
        let at = self.pool.partition_point(|f| f.peak < peak);
        self.pool.insert(at, Found { peak, added, executions: timeline.executions.clone() });
    }

    /// Searches for schedules within a budget; if none is found, for those of the least peak.
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
        // Bisects between the bound and the least peak found.
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

    /// Searches for the cheapest of all schedules. True if nothing better can be found for a
    /// budget.
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

    /// Polishes the cheapest schedule of the pool that fits, or else the one of the least peak.
    fn polish(&mut self, timeline: &mut Timeline<'_>, budget: i64, limit: u64) {
        let from = self
            .best(budget)
            .or(self.pool.first())
            .expect("the given schedule was put into the pool");
        timeline.executions.clone_from(&from.executions);
        timeline.budget = budget;
        self.workshop.update(timeline);
        self.workshop.polish(timeline, limit);
        self.keep(timeline);
    }

    /// Fits schedules to a budget from several starts: the given schedule, the schedule found for
    /// a greater budget, and segments.
    fn start(&mut self, timeline: &mut Timeline<'_>, budget: i64, effort: u64) {
        timeline.budget = budget;
        let given = self.prepared.computation.given().executions;
        let mut starts = vec![(given.clone(), 1), (given, 16)];
        // The pool is ordered by peak: this is the least peak that does not fit.
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
            // A start that repeats much more than needed is skipped.
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

    /// The segment schedules closest to a budget: the four cheapest that fit, and the three of
    /// least peak that do not.
    fn segments(&mut self, budget: i64) -> Vec<Found> {
        let all = self.segments.get_or_insert_with(|| {
            let schedules = segments::schedules(self.prepared).into_iter();
            let timelines =
                schedules.map(|executions| Timeline::new(self.prepared, executions, i64::MAX));
            timelines
                .map(|t| Found { peak: t.peak, added: t.added, executions: t.executions })
                .collect()
        });
        let mut fit: Vec<&Found> = all.iter().filter(|f| f.peak <= budget).collect();
        let mut rest: Vec<&Found> = all.iter().filter(|f| f.peak > budget).collect();
        fit.sort_by_key(|f| f.added);
        rest.sort_by_key(|f| f.peak);
        fit.into_iter().take(4).chain(rest.into_iter().take(3)).cloned().collect()
    }

    /// Fits the timeline's schedule, and keeps the results.
    fn fit(&mut self, timeline: &mut Timeline<'_>, effort: u64) {
        self.keep(timeline);
        let limit = self.workshop.effort() + effort;
        // Needless repetitions take memory that needed ones could use.
        self.workshop.trim(timeline, First::DearestForBytes, limit);
        self.workshop.fit(timeline, limit);
        self.keep(timeline);
        if timeline.excess == 0 {
            self.workshop.trim(timeline, First::Dearest, limit + effort);
            self.keep(timeline);
        }
    }
}
