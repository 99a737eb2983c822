//! The least that can be in memory while a step runs, in any order.
//!
//! Whatever the order, some steps come before a given one: those that it waits for, none that waits for it, and with each step all that it waits for itself.
//! In memory are the values that were made among them and are read outside. The set for which these are the fewest bytes is a least cut: a value joins the node of
//! the step that makes it, over an edge of its bytes, to a node of its own and from there, without bound, to all that read it; and a step that has to wait is tied to
//! what it waits for without bound. So the least load of a step is known exactly, together with a set of steps that has it, and the greatest of these loads is a bound
//! from below for every order.

use super::flow::{Network, SINK, SOURCE, UNBOUNDED};
use super::problem::Problem;
use super::timeline::Timeline;
use std::ops::Range;

/// What goes before a step.
pub(super) struct Cut {
    /// The load of the step behind it.
    pub load: u64,
    /// True for the moments of the window whose steps are in front: the fewest possible, and the most.
    pub ways: [Vec<bool>; 2],
}

/// Where a step is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Front,
    Behind,
    /// On the side of this node.
    Node(usize),
}

/// The least cut for the step at a moment, if only steps of a window around it are moved; none if the effort does not suffice.
pub(super) fn cut(timeline: &Timeline<'_>, at: usize, window: &Range<usize>, left: &mut u64) -> Option<Cut> {
    let problem = timeline.problem;
    let mut network = Network::new();
    let sides = Sides::new(timeline, at, window, &mut network, left);
    let k = timeline.order[at];
    let own = &problem.steps[k];
    // What was there before the window and is not read in it stays.
    let mut fixed = timeline.alive[window.start] + own.workspace + problem.bytes(&own.writes);
    let mut seen = vec![false; problem.values.len()];
    for moment in window.clone() {
        let step = &problem.steps[timeline.order[moment]];
        if let Side::Node(node) = sides.of(timeline.order[moment]) {
            for before in &step.before {
                if let Side::Node(other) = sides.of(*before) {
                    network.edge(node, other, UNBOUNDED);
                }
            }
        }
        for v in step.reads.iter().chain(&step.writes) {
            let value = &problem.values[*v];
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
                join(&mut network, &sides, from, problem, *v, k);
            }
        }
    }
    let mut over = None;
    for (write, read) in &own.in_place {
        let value = &problem.values[*read];
        let lives = |r: &usize| *r != k && sides.of(*r) == Side::Behind;
        if over == Some(write) || value.kept || value.readers.iter().any(lives) {
            continue;
        }
        // It is saved if all other readers are in front.
        over = Some(write);
        fixed -= value.bytes;
        join(&mut network, &sides, SOURCE, problem, *read, k);
    }
    *left = left.saturating_sub((network.size() + problem.values.len() / 16) as u64);
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

/// Edges for a value that is paid for unless all that read it, but for step `k`, are on the side of the one that makes it.
fn join(network: &mut Network, sides: &Sides<'_>, from: usize, problem: &Problem, v: usize, k: usize) {
    let value = &problem.values[v];
    let mut readers = value.readers.iter().filter(|r| **r != k).filter_map(|r| match sides.of(*r) {
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
    /// For each moment of the window.
    sides: Vec<Side>,
}

impl<'a> Sides<'a> {
    /// What the step at a moment waits for is in front, it and what waits for it behind; others get nodes.
    fn new(
        timeline: &'a Timeline<'a>,
        at: usize,
        window: &'a Range<usize>,
        network: &mut Network,
        left: &mut u64,
    ) -> Self {
        let steps = &timeline.problem.steps;
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
            sides[moment - window.start] = if front { Side::Front } else { Side::Node(network.node()) };
        }
        for moment in at + 1..window.end {
            let is_behind = |b: &usize| {
                let earlier = timeline.moment[*b];
                earlier >= at && sides[earlier - window.start] == Side::Behind
            };
            let behind = steps[timeline.order[moment]].before.iter().any(is_behind);
            sides[moment - window.start] = if behind { Side::Behind } else { Side::Node(network.node()) };
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
