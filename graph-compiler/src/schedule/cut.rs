//! The least memory while a step runs, over all orders.
//!
//! In any order the steps before a given step form a set that contains its predecessors, none of
//! its successors, and with each step all predecessors of that step. The values that are written
//! in the set and read outside it are in memory. The set with the fewest bytes is a minimum cut.
//! Each value has a node, with an edge of its bytes from the node of its writer, and unbounded
//! edges to its readers. A step has unbounded edges to the steps that it depends on. So the least
//! load of a step is known exactly, with a set of steps that attains it. The greatest of these
//! loads is a lower bound for every order.

use super::flow::{Network, SINK, SOURCE, UNBOUNDED};
use super::task_graph::TaskGraph;
use super::timeline::Timeline;
use std::ops::Range;

/// A minimum cut: the steps before a step.
pub(super) struct Cut {
    /// The load of the step after the cut.
    pub load: u64,
    /// For each moment of the window, whether its step is in front: the smallest such set, and
    /// the largest.
    pub ways: [Vec<bool>; 2],
}

/// The side of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Front,
    Behind,
    /// On the side of this node.
    Node(usize),
}

/// The minimum cut for the step at a moment, if only steps of a window around it may move. None
/// if the effort does not suffice.
pub(super) fn cut(
    timeline: &Timeline<'_>,
    at: usize,
    window: &Range<usize>,
    left: &mut u64,
) -> Option<Cut> {
    let graph = timeline.graph;
    let mut network = Network::new();
    let sides = Sides::new(timeline, at, window, &mut network, left);
    let k = timeline.order[at];
    let own = &graph.steps[k];
    // Values live before the window and not read in it stay.
    let mut fixed = timeline.alive[window.start] + own.workspace + graph.bytes(&own.writes);
    let mut seen = vec![false; graph.values.len()];
    for moment in window.clone() {
        let step = &graph.steps[timeline.order[moment]];
        if let Side::Node(node) = sides.of(timeline.order[moment]) {
            for before in &step.before {
                if let Side::Node(other) = sides.of(*before) {
                    network.edge(node, other, UNBOUNDED);
                }
            }
        }
        for v in step.reads.iter().chain(&step.writes) {
            let value = &graph.values[*v];
            if std::mem::replace(&mut seen[*v], true) || value.writer == k {
                continue;
            }
            if timeline.moment[value.writer] < window.start {
                fixed -= value.bytes;
            }
            let from = match sides.of(value.writer) {
                Side::Behind => continue,
                Side::Front => SOURCE,
                Side::Node(node) => node,
            };
            if value.kept || value.readers.iter().any(|r| sides.of(*r) == Side::Behind) {
                match from {
                    SOURCE => fixed += value.bytes,
                    node => network.edge(node, SINK, value.bytes),
                }
            } else {
                join(&mut network, &sides, from, graph, *v, k);
            }
        }
    }
    let mut over = None;
    for (write, read) in &own.in_place {
        let value = &graph.values[*read];
        let lives = |r: &usize| *r != k && sides.of(*r) == Side::Behind;
        if over == Some(write) || value.kept || value.readers.iter().any(lives) {
            continue;
        }
        // Its bytes are saved if all other readers are in front.
        over = Some(write);
        fixed -= value.bytes;
        join(&mut network, &sides, SOURCE, graph, *read, k);
    }
    *left = left.saturating_sub((network.size() + graph.values.len() / 16) as u64);
    let load = fixed + network.flow(left)?;
    let front = |cut: &Vec<bool>| {
        let is_front = |moment: usize| match sides.of(timeline.order[moment]) {
            Side::Front => true,
            Side::Behind => false,
            Side::Node(node) => cut[node],
        };
        window.clone().map(is_front).collect()
    };
    Some(Cut { load, ways: network.cuts().each_ref().map(front) })
}

/// Adds edges for a value whose bytes count unless all its readers except step `k` are on the
/// side of `from`.
fn join(
    network: &mut Network,
    sides: &Sides<'_>,
    from: usize,
    graph: &TaskGraph,
    v: usize,
    k: usize,
) {
    let value = &graph.values[v];
    let mut readers =
        value.readers.iter().filter(|r| **r != k).filter_map(|r| match sides.of(*r) {
            Side::Node(node) => Some(node),
            Side::Front | Side::Behind => None,
        });
    let (first, second) = (readers.next(), readers.next());
    match (first, second) {
        (None, _) => {}
        (Some(only), None) => network.edge(from, only, value.bytes),
        (Some(first), Some(second)) => {
            let node = network.node();
            network.edge(from, node, value.bytes);
            for reader in [first, second].into_iter().chain(readers) {
                network.edge(node, reader, UNBOUNDED);
            }
        }
    }
}

/// The sides of all steps.
struct Sides<'a> {
    timeline: &'a Timeline<'a>,
    window: &'a Range<usize>,
    /// The side of each moment's step in the window.
    sides: Vec<Side>,
}

impl<'a> Sides<'a> {
    /// Predecessors of the step at a moment are in front; the step and its successors are behind;
    /// others get nodes.
    fn new(
        timeline: &'a Timeline<'a>,
        at: usize,
        window: &'a Range<usize>,
        network: &mut Network,
        left: &mut u64,
    ) -> Self {
        let steps = &timeline.graph.steps;
        let mut sides = vec![Side::Node(SOURCE); window.len()];
        sides[at - window.start] = Side::Behind;
        for k in &timeline.order[window.clone()] {
            *left = left.saturating_sub((steps[*k].before.len() + steps[*k].after.len()) as u64);
        }
        for moment in (window.start..at).rev() {
            let is_front = |a: &usize| match timeline.moment[*a] {
                later if later < at => sides[later - window.start] == Side::Front,
                later => later == at,
            };
            let front = steps[timeline.order[moment]].after.iter().any(is_front);
            sides[moment - window.start] =
                if front { Side::Front } else { Side::Node(network.node()) };
        }
        for moment in at + 1..window.end {
            let is_behind = |b: &usize| {
                let earlier = timeline.moment[*b];
                earlier >= at && sides[earlier - window.start] == Side::Behind
            };
            let behind = steps[timeline.order[moment]].before.iter().any(is_behind);
            sides[moment - window.start] =
                if behind { Side::Behind } else { Side::Node(network.node()) };
        }
        Sides { timeline, window, sides }
    }

    fn of(&self, k: usize) -> Side {
        match self.timeline.moment[k] {
            moment if moment < self.window.start => Side::Front,
            moment if moment >= self.window.end => Side::Behind,
            moment => self.sides[moment - self.window.start],
        }
    }
}
