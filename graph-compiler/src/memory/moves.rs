//! Copies: of values that have more than one destination, or whose destination was not free when they were made.
//!
//! Copies to outputs of what is there from the beginning come first, before anything is overwritten; all others come
//! last. Among the last, a variable is overwritten only after its old value has been copied to those variables that take it over;
//! where variables change places in a circle, one old value waits in the arena.

use super::homes::{Homes, bytes};
use crate::kernels::{BufferId, Kernels};
use std::collections::BTreeMap;
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
    // The variable whose old value a pending copy reads.
    let read = |m: &Move| homes.home[m.buffer].filter(|_| homes.is_source[m.buffer] && !m.from_temporary);
    let target = |m: &Move| m.to.expect("pending copies go to variables");
    let mut readers: BTreeMap<Space, usize> = BTreeMap::new();
    for space in pending.iter().filter_map(read) {
        *readers.entry(space).or_default() += 1;
    }
    while !pending.is_empty() {
        if let Some(n) = pending.iter().position(|m| readers.get(&target(m)).is_none_or(|count| *count == 0))
        {
            let step = pending.remove(n);
            if let Some(count) = read(&step).and_then(|space| readers.get_mut(&space)) {
                *count -= 1;
            }
            moves.last.push(step);
            continue;
        }
        // Every target is read: a circle. One old value steps aside.
        let wanted = target(&pending[0]);
        let saved = pending.iter().find(|m| read(m) == Some(wanted)).expect("its count is above 0").buffer;
        moves.last.push(Move { buffer: saved, from_temporary: false, to: None });
        pending.iter_mut().filter(|m| m.buffer == saved).for_each(|m| m.from_temporary = true);
        readers.remove(&wanted);
    }
    moves
}
