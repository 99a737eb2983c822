//! Copies: of values that have more than one destination, or whose destination was not free when they were made.
//!
//! Copies to outputs of what is there from the beginning come first, before anything is overwritten; all others come
//! last. Among the last, a variable is overwritten only after its old value has been copied to those variables that take it over;
//! where variables change places in a circle, one old value waits in the arena.

use super::homes::{Homes, bytes};
use crate::kernels::{BufferId, Kernels};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::plan::Space;

/// A copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub buffer: BufferId,
    /// From where: where the buffer lies, or the temporary that was made of it.
    pub from_temporary: bool,
    /// To where; nothing is a temporary in the arena.
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

/// The copies that are left to do when each buffer with sinks has been written to its home.
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

/// Puts copies to variables in an order in which none overwrites what another still reads: of those that may go, the first. Each is looked at once or
/// twice, so the time is that of sorting them.
fn in_order(homes: &Homes, mut pending: Vec<Move>, ordered: &mut Vec<Move>) {
    let target = |m: &Move| m.to.expect("pending copies go to variables");
    let to: BTreeMap<Space, usize> = pending.iter().enumerate().map(|(n, m)| (target(m), n)).collect();
    // The copies that read the old value of a variable.
    let mut readers: BTreeMap<Space, BTreeSet<usize>> = BTreeMap::new();
    for (n, step) in pending.iter().enumerate().filter(|(_, m)| homes.is_source[m.buffer]) {
        readers.entry(homes.home[step.buffer].expect("what is there has a home")).or_default().insert(n);
    }
    let mut waiting: BTreeSet<usize> = (0..pending.len()).collect();
    let mut free: BTreeSet<usize> =
        waiting.iter().copied().filter(|n| !readers.contains_key(&target(&pending[*n]))).collect();
    while let Some(first) = waiting.first().copied() {
        let Some(n) = free.pop_first() else {
            // Every target is read: a circle. One old value steps aside.
            let reading = readers.remove(&target(&pending[first])).expect("its target is read");
            let saved = pending[*reading.first().expect("it has readers")].buffer;
            ordered.push(Move { buffer: saved, from_temporary: false, to: None });
            reading.into_iter().for_each(|m| pending[m].from_temporary = true);
            free.insert(first);
            continue;
        };
        waiting.remove(&n);
        let step = pending[n];
        let space = homes.home[step.buffer].filter(|_| homes.is_source[step.buffer] && !step.from_temporary);
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
