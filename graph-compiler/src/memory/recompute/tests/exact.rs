//! Against exhaustion: the cheapest schedule of small problems by Dijkstra's algorithm.
//!
//! A state is how many steps have run first, and which values are alive. An execution needs its operands alive; whatever is alive may be dropped.

use super::super::bound::bound;
use super::super::problem::{NEVER, Problem};
use super::super::samples::{random, tape};
use super::super::{effort, frontier};
use super::checked;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What repetitions cost at least within a budget.
fn least(p: &Problem, budget: u64) -> Option<u64> {
    let mask = |values: &mut dyn Iterator<Item = usize>| values.fold(0u64, |m, v| m | 1u64 << v);
    let written = mask(&mut p.steps.iter().flat_map(|s| s.writes.iter().copied()));
    let outputs = written & mask(&mut (0..p.values.len()).filter(|v| p.values[*v].output));
    let reads: Vec<u64> = p.steps.iter().map(|s| written & mask(&mut s.reads.iter().copied())).collect();
    let writes: Vec<u64> = p.steps.iter().map(|s| mask(&mut s.writes.iter().copied())).collect();
    let bytes = |alive: u64| -> u64 {
        (0..p.values.len()).filter(|v| alive >> v & 1 == 1).map(|v| p.values[v].bytes).sum()
    };
    let mut best: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let mut open = BinaryHeap::from([Reverse((0u64, 0usize, 0u64))]);
    best.insert((0, 0), 0);
    while let Some(Reverse((cost, done, alive))) = open.pop() {
        if best[&(done, alive)] < cost {
            continue;
        }
        if done == p.steps.len() && outputs & !alive == 0 {
            return Some(cost);
        }
        let mut go = |cost: u64, done: usize, alive: u64| {
            let known = best.entry((done, alive)).or_insert(u64::MAX);
            if cost < *known {
                *known = cost;
                open.push(Reverse((cost, done, alive)));
            }
        };
        for value in (0..p.values.len()).filter(|v| alive >> v & 1 == 1) {
            go(cost, done, alive & !(1u64 << value));
        }
        for step in 0..p.steps.len().min(done + 1) {
            let about = &p.steps[step];
            let allowed = step == done || about.barrier != NEVER && done <= about.barrier;
            if !allowed || reads[step] & !alive != 0 || bytes(alive | writes[step]) + about.workspace > budget
            {
                continue;
            }
            let again = if step == done { 0 } else { about.cost };
            go(cost + again, done.max(step + 1), alive | writes[step]);
        }
    }
    None
}

/// Ten budgets from the least possible to what no repetition needs, for which the solver is compared with exhaustion. Gives what the repetitions cost, and what they cost at least.
fn compare(p: &Problem) -> (u64, u64) {
    let top = checked(p, &p.given()).peak;
    let (mut low, mut high) = (bound(p), top);
    while low < high {
        let middle = low + (high - low) / 2;
        match least(p, middle) {
            Some(_) => high = middle,
            None => low = middle + 1,
        }
    }
    let budgets: Vec<u64> = (0..10).map(|n| low + (top - low) * n / 10).collect();
    let mut sums = (0, 0);
    for (budget, answer) in budgets.iter().zip(frontier(p, &budgets, effort(p) / 2)) {
        let exact = least(p, *budget).expect("a budget above the least possible one");
        let found = checked(p, &answer.unwrap_or_else(|l| panic!("{budget} is possible, not {:?}", l.cost)));
        assert!(found.peak <= *budget && exact <= found.added);
        // Within a twentieth of the whole cost, for each budget.
        assert!(
            20 * (found.added - exact) <= p.total() + exact,
            "{} instead of {exact} of {}",
            found.added,
            p.total()
        );
        sums = (sums.0 + found.added, sums.1 + exact);
    }
    sums
}

#[test]
fn any_steps() {
    let mut sums = (0, 0);
    for seed in 0..30 {
        let (found, exact) = compare(&random(seed, 5 + seed as usize % 6));
        sums = (sums.0 + found, sums.1 + exact);
    }
    assert!(sums.0 * 100 <= sums.1 * 105, "{sums:?}");
}

#[test]
fn forwards_and_backwards() {
    let mut sums = (0, 0);
    for seed in 0..20 {
        let (found, exact) = compare(&tape(seed, 3 + seed as usize % 4));
        sums = (sums.0 + found, sums.1 + exact);
    }
    assert!(sums.0 * 100 <= sums.1 * 105, "{sums:?}");
}
