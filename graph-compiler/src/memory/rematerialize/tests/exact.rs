//! Comparison with the cheapest schedules, at ten budgets from the least possible peak to the one
//! that needs no repetition.
//!
//! Two oracles give their cost: the integer program of [`super::integer`] and the search of
//! [`super::states`]. They share only the problem, so they check each other where both apply. The
//! search handles larger problems. At each budget the solver must be within a twentieth of the
//! cheapest schedule's whole cost, and close to it in the cost of repetitions.

use super::super::computation::{Computation, Schedule};
use super::super::samples::{random, residual, tape};
use super::super::solve::searched;
use super::super::{Least, effort, frontier, solve};
use super::checked;
use super::integer;
use super::states::States;

/// Ratios of the cost of repetitions to the least one, where that is not 0.
#[derive(Default)]
struct Ratios {
    logarithms: f64,
    count: usize,
    worst: f64,
}

impl Ratios {
    fn put(&mut self, found: u64, least: u64) {
        if least > 0 {
            let ratio = found as f64 / least as f64;
            self.logarithms += ratio.ln();
            self.count += 1;
            self.worst = self.worst.max(ratio);
        }
    }

    /// The geometric mean.
    fn mean(&self) -> f64 {
        (self.logarithms / self.count as f64).exp()
    }
}

/// Ten budgets from the least possible peak to the peak without repetitions, and the least cost
/// of repetitions at each.
fn ten(p: &Computation) -> (Vec<u64>, Vec<u64>) {
    let top = checked(p, &p.given()).peak;
    let states = States::new(p);
    let low = states.least(top);
    let budgets: Vec<u64> = (0..10).map(|n| low + (top - low) * n / 9).collect();
    let least =
        budgets.iter().map(|b| states.cheapest(*b).expect("a budget of a schedule")).collect();
    (budgets, least)
}

/// Checks that each answer is within a twentieth of the least whole cost.
fn near(
    p: &Computation,
    (budgets, least): (&[u64], &[u64]),
    answers: Vec<Result<Schedule, Least>>,
    ratios: &mut Ratios,
) {
    for ((budget, least), answer) in budgets.iter().zip(least).zip(answers) {
        let found = checked(
            p,
            &answer.unwrap_or_else(|l| panic!("{budget} is possible, not {:?}", l.cost)),
        );
        assert!(found.peak <= *budget && *least <= found.added);
        let (found, total) = (found.added, p.total());
        assert!(
            20 * (found - least) <= total + least,
            "{budget}: {found} instead of {least} of {total}"
        );
        ratios.put(found, *least);
    }
}

/// The first problems of a kind that fit into less than their peak without repetitions.
fn some(
    count: usize,
    computations: impl Iterator<Item = Computation>,
) -> impl Iterator<Item = Computation> {
    let tight = |p: &Computation| {
        let top = checked(p, &p.given()).peak;
        States::new(p).least(top) < top
    };
    computations.filter(tight).take(count)
}

/// The integer program's cost of repetitions for each budget.
fn programmed(p: &Computation, budgets: &[u64], passes: usize) -> Vec<Option<u64>> {
    let mut costs: Vec<Option<u64>> = Vec::new();
    for (n, budget) in budgets.iter().enumerate() {
        let again = n.checked_sub(1).filter(|m| budgets[*m] == *budget).map(|m| costs[m]);
        costs.push(again.unwrap_or_else(|| {
            let cost = checked(p, &integer::cheapest(p, *budget, passes)?);
            assert!(cost.peak <= *budget);
            Some(cost.added)
        }));
    }
    costs
}

#[test]
fn oracles_agree() {
    let computations = some(5, (0..).map(|seed| random(seed, 6 + seed as usize % 3)));
    let computations =
        computations.chain(some(5, (0..).map(|seed| tape(seed, 3 + seed as usize % 3))));
    for p in computations.chain(some(2, (0..).map(|seed| residual(seed, 1)))) {
        let (budgets, least) = ten(&p);
        let least: Vec<_> = least.into_iter().map(Some).collect();
        assert_eq!(programmed(&p, &budgets, 2), least);
        assert_eq!(integer::cheapest(&p, budgets[0] - 1, 2), None);
        // One pass is Checkmate's order within a stage, which two passes include. It seldom costs
        // more.
        let one = programmed(&p, &budgets, 1);
        assert!(one.iter().zip(&least).all(|(one, least)| one.is_none() || least <= one));
    }
}

#[test]
fn a_stage_in_the_given_order_may_not_do() {
    // Two narrow values, each computed from a wide one; the wide ones come first. Neither narrow
    // value fits beside the turn. Both are recomputed after it, with room for one wide value at a
    // time.
    let mut p = Computation::default();
    let [wide, other, narrow, less, turn, sum] = [10, 10, 4, 4, 1, 1].map(|bytes| p.value(bytes));
    p.step(1, &[], &[wide]);
    p.step(1, &[], &[other]);
    p.step(1, &[wide], &[narrow]);
    p.step(1, &[other], &[less]);
    p.step(1, &[], &[turn]);
    p.steps[4].workspace = 20;
    p.step(1, &[turn, narrow, less], &[sum]);
    p.values[sum].output = true;
    let budgets = [29, 25, 24, 9];
    let costs = budgets.map(|b| States::new(&p).cheapest(b));
    assert_eq!(costs, [Some(0), Some(2), Some(4), None]);
    assert_eq!(programmed(&p, &budgets, 2), costs);
    assert_eq!(programmed(&p, &budgets, 1), [Some(0), Some(2), None, None]);
    assert_eq!(checked(&p, &solve(&p, 24, effort(&p)).unwrap()).added, 4);
}

#[test]
fn near_the_integer_program() {
    let mut ratios = Ratios::default();
    let computations = some(2, (20..).map(|seed| tape(seed, 7 + seed as usize % 2)));
    let computations = computations.chain(some(2, (1..).map(|seed| residual(seed, 2))));
    for p in computations.chain(some(5, (40..).map(|seed| random(seed, 9 + seed as usize % 3)))) {
        // First with one pass, as in Checkmate, which seldom costs more; where it does, with two.
        let (budgets, least) = ten(&p);
        let one = programmed(&p, &budgets, 1);
        for ((budget, least), one) in budgets.iter().zip(&least).zip(one) {
            assert!(one.is_none_or(|one| *least <= one));
            if one != Some(*least) {
                assert_eq!(programmed(&p, &[*budget], 2), [Some(*least)]);
            }
        }
        near(&p, (&budgets, &least), frontier(&p, &budgets, effort(&p)), &mut ratios);
    }
    assert!(ratios.mean() <= 1.0 + 1e-9, "{} {}", ratios.mean(), ratios.worst);
}

#[test]
fn up_to_twenty_steps() {
    let mut ratios = Ratios::default();
    let computations = some(8, (20..).map(|seed| tape(seed, 7 + seed as usize % 4)));
    let computations =
        computations.chain(some(6, (4..).map(|seed| residual(seed, 2 + seed as usize % 2))));
    for p in computations.chain(some(8, (40..).map(|seed| random(seed, 11 + seed as usize % 4)))) {
        let (budgets, least) = ten(&p);
        near(&p, (&budgets, &least), frontier(&p, &budgets, effort(&p)), &mut ratios);
    }
    assert!(ratios.count > 100 && ratios.mean() <= 1.005, "{} {}", ratios.mean(), ratios.worst);
}

#[test]
fn what_serves_many_steps_serves_few() {
    let mut ratios = Ratios::default();
    let computations = some(15, (0..).map(|seed| random(seed, 5 + seed as usize % 6)));
    let computations =
        computations.chain(some(12, (0..).map(|seed| tape(seed, 3 + seed as usize % 4))));
    for p in computations.chain(some(4, (0..).map(|seed| residual(seed, 2)))) {
        let (budgets, least) = ten(&p);
        near(&p, (&budgets, &least), searched(&p, &budgets, 600_000), &mut ratios);
    }
    assert!(ratios.count > 100 && ratios.mean() <= 1.01, "{} {}", ratios.mean(), ratios.worst);
}
