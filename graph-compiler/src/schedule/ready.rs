//! List scheduling: of the steps that are ready, always the one with the least key.
//!
//! It goes forward, and a step is ready when all that it waits for are done; or from the end backward, and a step is ready when all that wait for it
//! have their places. Backward, the load grows by what a step reads and is not there yet, and shrinks by what it makes. So what is early as of itself, as
//! the gradient of a weight that nobody waits for, is late there.

use super::problem::Problem;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How ready steps are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// In the given order.
    AsGiven,
    /// First those that free at least what they take, the greatest gain first, or take next to nothing; then in the given order.
    FreeFirst,
    /// By what the load grows.
    LeastGrowth,
}

/// So small a part of the largest value is all that steps take together that each take next to nothing. What waits for a number of an optimiser is not to wait for the number's turn.
const SMALL_PART: u64 = 64;

/// What a rule looks at of a step, of what the load grows by it.
fn key(problem: &Problem, rule: Rule) -> impl Fn(i128) -> i128 + use<> {
    let largest = problem.values.iter().map(|v| v.bytes).max().unwrap_or(0);
    let nothing = largest / SMALL_PART / problem.steps.len().max(1) as u64;
    move |growth| match rule {
        Rule::AsGiven => 0,
        Rule::FreeFirst => growth.min(i128::from(nothing) + 1),
        Rule::LeastGrowth => growth,
    }
}

/// The order that a rule gives forward.
pub(super) fn forward(problem: &Problem, rule: Rule) -> Vec<usize> {
    let (steps, values) = (&problem.steps, &problem.values);
    let growth = key(problem, rule);
    let bytes = |v: usize| i128::from(values[v].bytes);
    // Readers to come, the end of the function among them.
    let mut readers: Vec<usize> = values.iter().map(|v| v.readers.len() + usize::from(v.kept)).collect();
    let grows = |step: &super::problem::Step| {
        // What nobody reads is free again at once.
        let stays: i128 = step.writes.iter().filter(|w| readers[**w] > 0).map(|w| bytes(*w)).sum();
        stays - step.reads.iter().filter(|r| readers[**r] == 1).map(|r| bytes(*r)).sum::<i128>()
    };
    let mut grows: Vec<i128> = steps.iter().map(grows).collect();
    let mut waits: Vec<usize> = steps.iter().map(|s| s.before.len()).collect();
    let first = (0..steps.len()).filter(|k| waits[*k] == 0);
    let mut ready: BTreeSet<(i128, usize)> = first.map(|k| (growth(grows[k]), k)).collect();
    let mut done = vec![false; steps.len()];
    let mut order = Vec::with_capacity(steps.len());
    while let Some((_, k)) = ready.pop_first() {
        order.push(k);
        done[k] = true;
        for read in &steps[k].reads {
            readers[*read] -= 1;
            if readers[*read] != 1 {
                continue;
            }
            // The last reader will free it, unless that is the end of the function.
            let Some(last) = values[*read].readers.iter().copied().find(|r| !done[*r]) else { continue };
            let waiting = ready.remove(&(growth(grows[last]), last));
            grows[last] -= bytes(*read);
            if waiting {
                ready.insert((growth(grows[last]), last));
            }
        }
        for next in &steps[k].after {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.insert((growth(grows[*next]), *next));
            }
        }
    }
    assert_eq!(order.len(), steps.len(), "schedule: dependencies have no cycle");
    order
}

/// The order that a rule gives backward.
pub(super) fn backward(problem: &Problem, rule: Rule) -> Vec<usize> {
    let (steps, values) = (&problem.steps, &problem.values);
    let growth = key(problem, rule);
    let bytes = |v: usize| i128::from(values[v].bytes);
    let mut live: Vec<bool> = values.iter().map(|v| v.kept).collect();
    let grows = |step: &super::problem::Step| {
        let reads: i128 = step.reads.iter().filter(|r| !live[**r]).map(|r| bytes(*r)).sum();
        let is_read = |w: &&usize| live[**w] || !values[**w].readers.is_empty();
        reads - step.writes.iter().filter(is_read).map(|w| bytes(*w)).sum::<i128>()
    };
    let mut grows: Vec<i128> = steps.iter().map(grows).collect();
    let mut waits: Vec<usize> = steps.iter().map(|s| s.after.len()).collect();
    let key = |grows: &[i128], k: usize| (growth(grows[k]), Reverse(k));
    let last = (0..steps.len()).filter(|k| waits[*k] == 0);
    let mut ready: BTreeSet<(i128, Reverse<usize>)> = last.map(|k| key(&grows, k)).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some((_, Reverse(k))) = ready.pop_first() {
        order.push(k);
        for read in &steps[k].reads {
            if std::mem::replace(&mut live[*read], true) {
                continue;
            }
            for other in values[*read].readers.iter().filter(|r| **r != k) {
                let waiting = ready.remove(&key(&grows, *other));
                grows[*other] -= bytes(*read);
                if waiting {
                    ready.insert(key(&grows, *other));
                }
            }
        }
        for before in &steps[k].before {
            waits[*before] -= 1;
            if waits[*before] == 0 {
                ready.insert(key(&grows, *before));
            }
        }
    }
    assert_eq!(order.len(), steps.len(), "schedule: dependencies have no cycle");
    order.reverse();
    order
}
