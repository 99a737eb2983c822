//! Training steps.

use super::super::computation::Computation;
use super::super::samples::{transformer, unet};
use super::super::{effort, frontier, solve};
use super::checked;

/// The cost of repetitions in thousandths of a computation's cost, for budgets in percent of the
/// peak without repetitions.
fn thousandths(p: &Computation, percent: &[u64]) -> Vec<u64> {
    let top = checked(p, &p.given()).peak;
    let budgets: Vec<u64> = percent.iter().map(|n| top * n / 100).collect();
    let costs = budgets.iter().zip(frontier(p, &budgets, effort(p))).map(|(budget, answer)| {
        let cost =
            checked(p, &answer.unwrap_or_else(|l| panic!("{budget} instead of {:?}", l.cost)));
        assert!(cost.peak <= *budget);
        cost.added * 1000 / p.total()
    });
    costs.collect()
}

#[test]
fn transformers() {
    for (layers, most) in [(6, [20, 120, 300]), (12, [20, 110, 250]), (24, [20, 100, 220])] {
        let found = thousandths(&transformer(layers, 6 << 20), &[80, 50, 30]);
        assert!(found.iter().zip(most).all(|(f, most)| *f <= most), "{layers} layers: {found:?}");
    }
}

#[test]
fn long_skips() {
    let found = thousandths(&unet(5, 1 << 20), &[80, 60]);
    assert!(found[0] <= 100 && found[1] <= 250, "{found:?}");
}

#[test]
fn thousands_of_steps() {
    let p = transformer(60, 6 << 20);
    let budget = checked(&p, &p.given()).peak / 2;
    let cost = checked(&p, &solve(&p, budget, effort(&p)).unwrap());
    assert!(cost.peak <= budget && cost.added * 100 <= p.total() * 15, "{cost:?} of {}", p.total());
}
