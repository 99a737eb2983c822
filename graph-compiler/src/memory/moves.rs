//! Copies of values that have several homes, or whose home was not free when they were computed.
//!
//! Copies of source buffers to outputs come first, before anything is overwritten. All others
//! come last. Among these, a variable is overwritten only after its old value was copied to the
//! variables that take it. Where variables exchange values in a cycle, one old value is saved in
//! the arena.

use super::homes::{Homes, bytes};
use crate::kernels::{BufferId, Kernels};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::plan::Space;

/// A copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub buffer: BufferId,
    /// The source: the temporary copy of the buffer instead of the buffer itself.
    pub from_temporary: bool,
    /// The destination; None is a temporary in the arena.
    pub to: Option<Space>,
}

/// All copies of a plan.
#[derive(Default, Debug)]
pub(super) struct Moves {
    /// Before the first kernel.
    pub first: Vec<Move>,
    /// After the last kernel.
    pub last: Vec<Move>,
}

/// The copies that remain after each buffer with sinks was written to its home.
pub(super) fn moves(kernels: &Kernels, homes: &Homes) -> Moves {
    let mut moves = Moves::default();
    let mut pending: Vec<Move> = Vec::new();
    for (buffer, sinks) in homes.sinks.iter().filter(|(b, _)| bytes(kernels, *b) > 0) {
        for to in sinks.iter().copied().filter(|to| homes.home[buffer] != Some(*to)) {
            let step = Move { buffer, from_temporary: false, to: Some(to) };
            match to {
                Space::Variable(_) => pending.push(step),
                _ if homes.is_source[buffer] => moves.first.push(step),
                _ => moves.last.push(step),
            }
        }
    }
    in_order(homes, pending, &mut moves.last);
    moves
}

/// Orders copies to variables so that none overwrites a value that another still reads. The first
/// of the ready copies goes next. Each is visited once or twice, so the time is that of sorting.
fn in_order(homes: &Homes, mut pending: Vec<Move>, ordered: &mut Vec<Move>) {
    let target = |m: &Move| m.to.expect("pending copies go to variables");
    let to: BTreeMap<Space, usize> =
        pending.iter().enumerate().map(|(n, m)| (target(m), n)).collect();
    // The copies that read the old value of a variable.
    let mut readers: BTreeMap<Space, BTreeSet<usize>> = BTreeMap::new();
    for (n, step) in pending.iter().enumerate().filter(|(_, m)| homes.is_source[m.buffer]) {
        readers
            .entry(homes.home[step.buffer].expect("what is there has a home"))
            .or_default()
            .insert(n);
    }
    let mut waiting: BTreeSet<usize> = (0..pending.len()).collect();
    let mut free: BTreeSet<usize> =
        waiting.iter().copied().filter(|n| !readers.contains_key(&target(&pending[*n]))).collect();
    while let Some(first) = waiting.first().copied() {
        let Some(n) = free.pop_first() else {
            // Every target is read: a cycle. One old value is saved in a temporary.
            let reading = readers.remove(&target(&pending[first])).expect("its target is read");
            let saved = pending[*reading.first().expect("it has readers")].buffer;
            ordered.push(Move { buffer: saved, from_temporary: false, to: None });
            reading.into_iter().for_each(|m| pending[m].from_temporary = true);
            free.insert(first);
            continue;
        };
        waiting.remove(&n);
        let step = pending[n];
        let space = homes.home[step.buffer]
            .filter(|_| homes.is_source[step.buffer] && !step.from_temporary);
        if let Some(space) = space
            && let Some(reading) = readers.get_mut(&space)
        {
            reading.remove(&n);
            if reading.is_empty() {
                readers.remove(&space);
                free.extend(to.get(&space).filter(|m| waiting.contains(m)));
            }
        }
        ordered.push(step);
    }
}
