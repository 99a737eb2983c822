//! Small problems by hand, and properties of every schedule.

mod chain;
mod chains;
mod exact;
mod integer;
mod states;
mod training;
pub(super) mod varied;

use super::bound::bound;
use super::check::check;
use super::computation::{Computation, Cost, NEVER, Schedule};
use super::samples::{numbers, random, tape};
use super::timeline::{Prepared, Timeline};
use super::weigh::Scale;
use super::{effort, frontier, solve};

/// A wide value computed from a narrow one, and read at the beginning and the end. In between
/// there is another wide one.
fn sandwich() -> Computation {
    let mut p = Computation::default();
    let [narrow, wide, sum, other, less, last] = [1, 100, 1, 100, 1, 1].map(|bytes| p.value(bytes));
    p.step(1, &[], &[narrow]);
    p.step(5, &[narrow], &[wide]);
    p.step(1, &[wide], &[sum]);
    p.step(1, &[sum], &[other]);
    p.step(1, &[other], &[less]);
    p.step(1, &[wide, less], &[last]);
    p.values[last].output = true;
    p
}

/// The peak and cost of a schedule that the check accepts.
fn checked(p: &Computation, schedule: &Schedule) -> Cost {
    check(p, schedule).unwrap()
}

#[test]
fn a_wide_value_is_made_again() {
    let p = sandwich();
    assert_eq!(checked(&p, &p.given()), Cost { peak: 201, added: 0, repetitions: 0 });
    let schedule = solve(&p, 110, effort(&p)).unwrap();
    assert_eq!(schedule.executions, [0, 1, 2, 3, 4, 1, 5]);
    assert_eq!(checked(&p, &schedule), Cost { peak: 102, added: 5, repetitions: 1 });
}

#[test]
fn a_budget_that_suffices_costs_nothing() {
    let p = sandwich();
    assert_eq!(solve(&p, 201, 0).unwrap(), p.given());
    assert_eq!(solve(&p, u64::MAX, 0).unwrap(), p.given());
}

#[test]
fn what_is_out_of_reach_gets_the_least_peak() {
    let mut p = sandwich();
    let least = solve(&p, 50, effort(&p)).unwrap_err();
    assert_eq!(least.cost.peak, 102);
    assert_eq!(checked(&p, &least.schedule), least.cost);
    assert_eq!(bound(&p), 102);
    p.steps[1].barrier = NEVER;
    assert_eq!(
        solve(&p, 150, effort(&p)).unwrap_err().cost,
        Cost { peak: 201, added: 0, repetitions: 0 }
    );
    assert_eq!(bound(&p), 201);
}

#[test]
fn a_barrier_ends_repetition() {
    let mut p = sandwich();
    for (barrier, added) in [(5, Some(5)), (4, None)] {
        p.steps[1].barrier = barrier;
        assert_eq!(solve(&p, 110, effort(&p)).ok().map(|s| checked(&p, &s).added), added);
    }
}

#[test]
fn wrong_schedules_are_found() {
    let mut p = sandwich();
    p.steps[1].barrier = 4;
    let wrong = |executions: &[usize]| {
        check(&p, &Schedule { executions: executions.to_vec() }).unwrap_err()
    };
    assert_eq!(wrong(&[0, 2]), "step 2 runs before step 1 has run");
    assert_eq!(wrong(&[0, 1, 2, 3, 4]), "step 5 does not run");
    assert_eq!(wrong(&[0, 1, 2, 3, 4, 1, 5]), "execution 5 repeats step 1 behind its barrier");
    assert_eq!(wrong(&[9]), "execution 0 is of step 9, which does not exist");
    let mut late = Computation::default();
    let value = late.value(1);
    late.step(1, &[value], &[]);
    late.step(1, &[], &[value]);
    assert_eq!(
        check(&late, &late.given()).unwrap_err(),
        "execution 0 reads value 0 before step 1 has made it"
    );
    late.step(1, &[], &[value]);
    assert_eq!(check(&late, &late.given()).unwrap_err(), "steps 1 and 2 both write value 0");
    let mut strange = Computation::default();
    strange.step(1, &[7], &[]);
    assert!(
        check(&strange, &strange.given()).unwrap_err().contains("value 7, which does not exist")
    );
}

#[test]
fn changes_are_weighed_as_they_are() {
    for seed in 0..40 {
        let p = if seed % 2 == 0 { random(seed, 30) } else { tape(seed, 15) };
        let prepared = Prepared::new(&p);
        let budget = checked(&p, &p.given()).peak as i64 * 2 / 3;
        let mut timeline = Timeline::new(&prepared, p.given().executions, budget);
        timeline.original = 1 + seed as i64 % 4;
        timeline.update();
        let mut scale = Scale::new(p.values.len());
        let mut chance = numbers(seed + 7);
        for _ in 0..60 {
            let excess = timeline.excess;
            let moment = chance(timeline.executions.len() as u64) as usize;
            let growth = if timeline.repeats(moment) && chance(2) == 0 {
                let growth = scale.remove(&timeline, moment);
                timeline.executions.remove(moment);
                growth
            } else {
                let group: Vec<usize> =
                    (0..timeline.done[moment]).filter(|_| chance(4) == 0).collect();
                let growth = scale.insert(&timeline, &group, moment);
                timeline.executions.splice(moment..moment, group);
                growth
            };
            timeline.update();
            assert_eq!(timeline.excess, excess + growth, "seed {seed}");
        }
    }
}

#[test]
fn a_profile_is_that_of_the_check() {
    for seed in 0..40 {
        let mut p = random(seed, 30);
        p.steps.iter_mut().for_each(|s| s.barrier = super::computation::ALWAYS);
        let prepared = Prepared::new(&p);
        let mut chance = numbers(seed);
        let executions: Vec<usize> = (0..30)
            .flat_map(|s| (0..s).filter(|_| chance(9) == 0).chain([s]).collect::<Vec<_>>())
            .collect();
        let timeline = Timeline::new(&prepared, executions, 1);
        let cost = checked(&p, &Schedule { executions: timeline.executions.clone() });
        assert_eq!((cost.peak as i64, cost.added), (timeline.peak, timeline.added));
    }
}

#[test]
fn a_frontier_falls_and_is_the_same_twice() {
    for seed in 0..12 {
        let p = if seed % 2 == 0 { random(seed, 40) } else { tape(seed, 20) };
        let top = checked(&p, &p.given()).peak;
        let budgets: Vec<u64> = (0..=10).map(|n| top * n / 10).collect();
        let answers = frontier(&p, &budgets, effort(&p) / 8);
        assert_eq!(answers, frontier(&p, &budgets, effort(&p) / 8));
        let mut last = u64::MAX;
        for (budget, answer) in budgets.iter().zip(&answers) {
            match answer {
                Ok(schedule) => {
                    let cost = checked(&p, schedule);
                    assert!(
                        cost.peak <= *budget && cost.added <= last,
                        "seed {seed}: {cost:?} for {budget}"
                    );
                    last = cost.added;
                }
                Err(least) => {
                    assert_eq!(checked(&p, &least.schedule), least.cost);
                    assert!(least.cost.peak > *budget && bound(&p) <= least.cost.peak);
                    assert_eq!(last, u64::MAX);
                }
            }
        }
    }
}
