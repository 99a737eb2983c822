//! Collectives on the CPU: bytes go through the transport, and every rank adds by itself.
//!
//! A reduction is divided among the ranks of the group. Each rank receives its share of every
//! operand by an all-to-all, combines the shares in the tree that the
//! [contract](wengert_core::call::Collective) defines, and receives the other shares of the result
//! by an all-gather. Operands of few bytes, and those of two ranks, are gathered whole and combined
//! by every rank: the bits are the same, and one exchange is saved. Two ranks send no more bytes
//! that way than in two exchanges.
//!
//! This module says what is exchanged and what becomes of it. [`crate::transfers`] exchanges: a
//! call starts its transfer and waits for it. Unlike other calls, collectives allocate in a run:
//! operations of the transport own their buffers, since another rank may still read them after an
//! error. Large operands are lent instead of copied: nothing changes them before the wait
//! ([`CompiledCollective::is_lent`]).

mod combine;

use super::{Arguments, Compile, Kernels};
use crate::memory::Workspace;
use crate::ranks::Group;
use combine::{Combine, combine};
use std::cmp::Ordering;
use std::ops::Range;
use wengert_core::Diagnostic;
use wengert_core::call::{Collective, CollectiveKind};
use wengert_transport::{Lent, Operation};

/// A reduction of at most so many bytes, those of all ranks together, is one exchange.
const SMALL: usize = 1 << 14;

/// A collective that exchanges data, ready to be started.
#[derive(Clone, Debug)]
pub(crate) struct CompiledCollective {
    call: Collective,
    /// For reductions.
    combine: Option<Combine>,
}

impl Compile for Collective {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        Ok(Box::new(CompiledCollective::new(self)?))
    }
}

impl Kernels for CompiledCollective {
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let ranks = workspace.ranks();
        let [result] = arguments.buffers.last_chunk().expect("a call has a result");
        // SAFETY: the run has checked that the result may be written, and that it overlaps no
        // operand. No other thread takes part in this call.
        let result = unsafe { std::slice::from_raw_parts_mut(result.pointer(), result.bytes()) };
        if self.call.kind == CollectiveKind::AxisIndex {
            let position = ranks.group(&self.call.over)?.position;
            let position = i32::try_from(position).expect("a mesh has at most 2²⁰ ranks");
            result.copy_from_slice(&position.to_ne_bytes());
            return Ok(());
        }
        let operand = &arguments.buffers[0];
        // SAFETY: the run has checked that the operand may be read, and nothing writes it now.
        let operand =
            unsafe { std::slice::from_raw_parts(operand.pointer().cast_const(), operand.bytes()) };
        // SAFETY: no other step runs until the wait, or until the run has failed and abandons its
        // transfers.
        unsafe { ranks.start(None, self, operand)? };
        ranks.wait(None, result)
    }
}

/// Whether a collective has two exchanges in a group of `ranks`.
pub(crate) fn has_two_exchanges(call: &Collective, ranks: usize) -> bool {
    use CollectiveKind::{Max, Min, Sum};
    let bytes = call.part() * call.dtype.size();
    matches!(call.kind, Sum | Max | Min) && ranks > 2 && bytes.saturating_mul(ranks) > SMALL
}

impl CompiledCollective {
    /// Error: ranks do not combine this dtype.
    pub fn new(call: &Collective) -> Result<Self, Diagnostic> {
        let combine = match call.kind.is_reduction() {
            true => Some(combine(call.dtype)?),
            false => None,
        };
        Ok(CompiledCollective { call: call.clone(), combine })
    }

    /// Whether it has two exchanges in this group.
    pub fn has_two_exchanges(&self, group: &Group) -> bool {
        has_two_exchanges(&self.call, group.size)
    }

    /// The axes along which the ranks exchange.
    pub fn over(&self) -> &[String] {
        &self.call.over
    }

    /// Whether the first exchange sends from the operand, and leaves a rank's own part there.
    /// Otherwise it has a copy, and the own part is in what the rank receives.
    fn is_lent(&self, group: &Group) -> bool {
        use CollectiveKind::{AllGather, Max, Min, Sum, SumScatter};
        match self.call.kind {
            Sum | Max | Min if has_two_exchanges(&self.call, group.size) => true,
            // Among more ranks, libraries of MPI gather few bytes faster than by messages.
            Sum | Max | Min | AllGather => group.size == 2,
            // The parts are contiguous.
            SumScatter => self.call.outer == 1,
            _ => false,
        }
    }

    /// The part of the operand for each rank, in a first exchange that [is lent](Self::is_lent).
    fn for_ranks(&self, group: &Group, operand: &[u8]) -> Vec<Range<usize>> {
        let part = self.call.part() * self.call.dtype.size();
        match self.call.kind {
            CollectiveKind::SumScatter => {
                (0..group.size).map(|rank| rank * part..(rank + 1) * part).collect()
            }
            _ if has_two_exchanges(&self.call, group.size) => {
                let ends = self.shares(group).into_iter().scan(0, |at, share| {
                    *at += share;
                    Some(*at - share..*at)
                });
                ends.collect()
            }
            _ => vec![0..operand.len(); group.size],
        }
    }

    /// The first exchange. `buffer` gives an empty buffer, for what is sent.
    pub fn first(
        &self,
        group: &Group,
        operand: Lent,
        buffer: impl FnOnce(usize) -> Vec<u8>,
    ) -> Operation {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let Group { position, size, .. } = *group;
        if self.is_lent(group) {
            let send = self.for_ranks(group, &operand);
            let mut receive = vec![send[position].len(); size];
            receive[position] = 0;
            return Operation::Exchange { bytes: operand, send, receive };
        }
        let part = self.call.part() * self.call.dtype.size();
        let mut bytes = buffer(operand.len());
        match self.call.kind {
            Sum | Max | Min | AllGather => {
                bytes.extend_from_slice(&operand);
                Operation::AllGather { bytes, counts: vec![operand.len(); size] }
            }
            SumScatter | AllToAll => {
                apart(&operand, self.call.outer, size, &mut bytes);
                Operation::AllToAllCounts {
                    bytes,
                    send: vec![part; size],
                    receive: vec![part; size],
                }
            }
            Permute => {
                let (mut send, mut receive) = (vec![0; size], vec![0; size]);
                for (source, destination) in &self.call.perm {
                    if *source == position {
                        send[*destination] = part;
                    }
                    if *destination == position {
                        receive[*source] = part;
                    }
                }
                if send.iter().any(|bytes| *bytes > 0) {
                    bytes.extend_from_slice(&operand);
                }
                Operation::AllToAllCounts { bytes, send, receive }
            }
            AxisIndex => unreachable!("nothing is exchanged for it"),
        }
    }

    /// The second exchange of a reduction that has two, from what the first has received. `bytes`
    /// is empty, and for what is sent.
    pub fn second(
        &self,
        group: &Group,
        operand: &[u8],
        received: &[u8],
        mut bytes: Vec<u8>,
    ) -> Operation {
        let counts = self.shares(group);
        bytes.resize(counts[group.position], 0);
        self.combine(&self.parts(group, operand, received), &mut bytes);
        Operation::AllGather { bytes, counts }
    }

    /// Writes the result, from the operand and the start of what the last exchange has received.
    pub fn finish(&self, group: &Group, operand: &[u8], received: &[u8], result: &mut [u8]) {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let Collective { kind, outer, rows, .. } = self.call;
        match kind {
            Sum | Max | Min if has_two_exchanges(&self.call, group.size) => {
                result.copy_from_slice(&received[..result.len()]);
            }
            Sum | Max | Min | SumScatter => {
                self.combine(&self.parts(group, operand, received), result);
            }
            AllGather => together(&self.parts(group, operand, received), outer, result),
            AllToAll => together(&self.parts(group, operand, received), rows, result),
            Permute => {
                let receives =
                    self.call.perm.iter().any(|(_, destination)| *destination == group.position);
                match receives {
                    true => result.copy_from_slice(&received[..result.len()]),
                    false => result.fill(0),
                }
            }
            AxisIndex => unreachable!("nothing is exchanged for it"),
        }
    }

    /// What each rank has for this one in the first exchange.
    fn parts<'a>(&self, group: &Group, operand: &'a [u8], received: &'a [u8]) -> Vec<&'a [u8]> {
        if !self.is_lent(group) {
            let part = self.call.part() * self.call.dtype.size();
            return (0..group.size).map(|rank| &received[rank * part..][..part]).collect();
        }
        let own = &operand[self.for_ranks(group, operand)[group.position].clone()];
        let of_rank = |rank: usize| match rank.cmp(&group.position) {
            Ordering::Less => &received[rank * own.len()..][..own.len()],
            Ordering::Equal => own,
            Ordering::Greater => &received[(rank - 1) * own.len()..][..own.len()],
        };
        (0..group.size).map(of_rank).collect()
    }

    /// Bytes of this rank's share in a reduction of two exchanges.
    pub fn share(&self, group: &Group) -> usize {
        self.shares(group)[group.position]
    }

    /// Bytes of the share of each rank in a reduction of two exchanges.
    fn shares(&self, group: &Group) -> Vec<usize> {
        let (elements, element) = (self.call.part(), self.call.dtype.size());
        let share = elements.div_ceil(group.size);
        let of_rank = |rank: usize| elements.saturating_sub(rank * share).min(share) * element;
        (0..group.size).map(of_rank).collect()
    }

    fn combine(&self, operands: &[&[u8]], result: &mut [u8]) {
        let combine = self.combine.expect("a reduction was compiled with it");
        combine(self.call.kind, operands, result);
    }
}

/// The parts of an array `[outer, parts, ·]`, one after another.
fn apart(array: &[u8], outer: usize, parts: usize, all: &mut Vec<u8>) {
    let row = array.len() / (outer * parts).max(1);
    for part in 0..parts {
        for o in 0..outer {
            all.extend_from_slice(&array[(o * parts + part) * row..][..row]);
        }
    }
}

/// The inverse of [`apart`], from the parts.
fn together(parts: &[&[u8]], outer: usize, array: &mut [u8]) {
    let row = array.len() / (outer * parts.len()).max(1);
    for o in 0..outer {
        for (at, part) in parts.iter().enumerate() {
            array[(o * parts.len() + at) * row..][..row].copy_from_slice(&part[o * row..][..row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_apart_and_together() {
        // [2, 3, 2]
        let array: Vec<u8> = (0..12).collect();
        let mut all = Vec::new();
        apart(&array, 2, 3, &mut all);
        assert_eq!(all, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let mut back = vec![0; 12];
        together(&all.chunks(4).collect::<Vec<_>>(), 2, &mut back);
        assert_eq!(back, array);
    }
}
