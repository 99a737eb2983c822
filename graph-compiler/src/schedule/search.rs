//! Search for a lower peak by local moves.
//!
//! At the greatest load, the minimum cut says which steps are best before that moment and which
//! after it. Steps on the wrong side are moved across; all others keep their order. Then each
//! moved step settles where the load grows least. If this creates a peak elsewhere, the search
//! continues from there for a few moves, even without a gain.
//!
//! It ends when the minimum cut at the peak's step is no lower than the peak, which proves that
//! no order is better, or when the effort is spent. The result depends on the start, so the
//! search starts from each rule's order in turn. Effort counts inspected items, so a function is
//! always ordered in the same way.

use super::cut::cut;
use super::ready::{Rule, backward, forward};
use super::task_graph::TaskGraph;
use super::timeline::Timeline;
use std::ops::Range;

/// Moments before and after a peak whose steps may be moved.
const REACH: usize = 1000;
/// Consecutive moves without a gain.
const PATIENCE: usize = 4;

/// The effort of a search: some 15 milliseconds for a thousand kernels, and at most 25 for any
/// number, so that compile time stays linear.
fn effort(steps: usize) -> u64 {
    (4000 * steps as u64).min(6_000_000)
}

/// The result of a search.
pub(super) struct Found {
    pub peak: u64,
    pub order: Vec<usize>,
    /// True if no order is better.
    pub proven: bool,
}

/// The greatest peak that counts as equal to `peak`. A few small values that are computed early,
/// so that no step waits for them, do not justify another order.
fn about(peak: u64) -> u64 {
    peak + peak / 512
}

/// The orders of all rules with their peaks, the best first. Orders of about the least peak keep
/// the order of the rules.
pub(super) fn by_rules(graph: &TaskGraph) -> Vec<(u64, Vec<usize>)> {
    let rules = [Rule::FreeFirst, Rule::AsGiven, Rule::LeastGrowth];
    let (forward, backward) = (rules.map(|r| forward(graph, r)), rules.map(|r| backward(graph, r)));
    let laid_out = |order: Vec<usize>| (Timeline::new(graph, order.clone()).worth().0, order);
    let mut orders: Vec<(u64, Vec<usize>)> =
        forward.into_iter().chain(backward).map(laid_out).collect();
    let least = orders.iter().map(|(peak, _)| *peak).min().unwrap_or(0);
    // The sort is stable.
    orders.sort_by_key(|(peak, _)| if *peak <= about(least) { 0 } else { *peak });
    orders.dedup();
    orders
}

/// The best order found.
pub(super) fn search(graph: &TaskGraph) -> Found {
    let mut left = effort(graph.steps.len());
    let mut best: Option<Found> = None;
    for (_, order) in by_rules(graph) {
        // Each start may spend half of the effort left by those before it.
        let mut share = left / 2;
        left -= share;
        let mut timeline = Timeline::new(graph, order);
        let proven = improve(&mut timeline, &mut share);
        left += share;
        let peak = timeline.worth().0;
        if best.as_ref().is_none_or(|best| about(peak) < best.peak) {
            best = Some(Found { peak, order: timeline.order, proven });
        }
        if proven {
            break;
        }
    }
    best.expect("there is at least one rule")
}

/// Searches for a better order until the effort is spent; the result is never worse. True if no
/// order is better.
fn improve(timeline: &mut Timeline<'_>, left: &mut u64) -> bool {
    let count = timeline.order.len();
    let mut best = (timeline.worth(), timeline.order.clone());
    let (mut now, mut idle) = (best.0, 0);
    let mut proven = false;
    while idle <= PATIENCE && *left > 0 {
        *left = left.saturating_sub(count as u64 / 8);
        let Some(at) = timeline.loads.iter().position(|load| *load == now.0) else { break };
        let window = at.saturating_sub(REACH)..(at + REACH + 1).min(count);
        let Some(cut) = cut(timeline, at, &window, left) else { break };
        if cut.load >= best.0.0 {
            proven = window == (0..count);
            break;
        }
        let [fewest, most] = &cut.ways;
        let ways = [Some(fewest), Some(most).filter(|most| *most != fewest)];
        let tried =
            ways.into_iter().flatten().filter_map(|way| attempt(timeline, at, &window, way, left));
        // The first of equal orders.
        let Some((worth, order)) = tried.min_by_key(|(worth, _)| *worth) else { break };
        timeline.order[window.clone()].copy_from_slice(&order);
        *left = left.saturating_sub(timeline.lay_out(window.start, window.end));
        now = worth;
        if worth < best.0 {
            best.0 = worth;
            best.1.copy_from_slice(&timeline.order);
            idle = 0;
        } else {
            idle += 1;
        }
    }
    timeline.order = best.1;
    timeline.lay_out(0, count);
    proven
}

/// Moves the window's steps to their sides of a cut. Returns the order and its worth; the
/// timeline is unchanged.
fn attempt(
    timeline: &mut Timeline<'_>,
    at: usize,
    window: &Range<usize>,
    front: &[bool],
    left: &mut u64,
) -> Option<((u64, usize), Vec<usize>)> {
    let before = timeline.order[window.clone()].to_vec();
    let k = timeline.order[at];
    let of = |is_front: bool| {
        let moments =
            window.clone().filter(move |m| front[*m - window.start] == is_front && *m != at);
        moments.map(|m| before[m - window.start])
    };
    let moved = |m: &usize| *m != at && front[*m - window.start] != (*m < at);
    let moved: Vec<usize> =
        window.clone().filter(moved).map(|m| before[m - window.start]).collect();
    if moved.is_empty() {
        return None;
    }
    let order: Vec<usize> = of(true).chain([k]).chain(of(false)).collect();
    timeline.order[window.clone()].copy_from_slice(&order);
    *left = left.saturating_sub(timeline.lay_out(window.start, window.end));
    // Steps moved later settle from the last to the first, steps moved earlier from the first to
    // the last: so they make room for each other.
    for step in moved.iter().rev() {
        if timeline.moment[*step] > timeline.moment[k] {
            timeline.settle(*step, timeline.moment[k] + 1, window.end, left);
        }
    }
    for step in &moved {
        if timeline.moment[*step] < timeline.moment[k] {
            timeline.settle(*step, window.start, timeline.moment[k], left);
        }
    }
    let settled = (timeline.worth(), timeline.order[window.clone()].to_vec());
    timeline.order[window.clone()].copy_from_slice(&before);
    *left = left.saturating_sub(timeline.lay_out(window.start, window.end));
    Some(settled)
}
