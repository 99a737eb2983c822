//! List scheduling: takes the ready step of the least key, again and again.
//!
//! Forward, a step is ready when all steps that it depends on are placed. Backward from the end,
//! a step is ready when all steps that depend on it are placed. Backward, a step adds to the load
//! the operands that are not live yet, and subtracts its results. So a step that forward
//! scheduling places early, such as a weight gradient without a consumer, is placed late.

use super::task_graph::TaskGraph;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The comparison of ready steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// In the given order.
    AsGiven,
    /// Steps that shrink the load or grow it by next to nothing come first, by growth. Then the
    /// given order.
    FreeFirst,
    /// By growth of the load.
    LeastGrowth,
}

/// All steps that grow the load by next to nothing may together grow it by this part of the
/// largest value. Such a step is not delayed, since steps that depend on an optimiser's scalar
/// would be delayed with it.
const SMALL_PART: u64 = 64;

/// The key of a step under a rule, as a function of its growth of the load.
fn key(graph: &TaskGraph, rule: Rule) -> impl Fn(i128) -> i128 + use<> {
    let largest = graph.values.iter().map(|v| v.bytes).max().unwrap_or(0);
    let nothing = largest / SMALL_PART / graph.steps.len().max(1) as u64;
    move |growth| match rule {
        Rule::AsGiven => 0,
        Rule::FreeFirst => growth.min(i128::from(nothing) + 1),
        Rule::LeastGrowth => growth,
    }
}

/// The forward order of a rule.
pub(super) fn forward(graph: &TaskGraph, rule: Rule) -> Vec<usize> {
    let (steps, values) = (&graph.steps, &graph.values);
    let growth = key(graph, rule);
    let bytes = |v: usize| i128::from(values[v].bytes);
    // Number of remaining readers. The end of the function counts as one.
    let mut readers: Vec<usize> =
        values.iter().map(|v| v.readers.len() + usize::from(v.kept)).collect();
    let grows = |step: &super::task_graph::Step| {
        // A value without readers is freed at once.
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
            // The last reader frees it, unless that is the end of the function.
            let Some(last) = values[*read].readers.iter().copied().find(|r| !done[*r]) else {
                continue;
            };
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

/// The backward order of a rule.
pub(super) fn backward(graph: &TaskGraph, rule: Rule) -> Vec<usize> {
    let (steps, values) = (&graph.steps, &graph.values);
    let growth = key(graph, rule);
    let bytes = |v: usize| i128::from(values[v].bytes);
    let mut live: Vec<bool> = values.iter().map(|v| v.kept).collect();
    let grows = |step: &super::task_graph::Step| {
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
