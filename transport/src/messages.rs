//! The messages of which an operation consists, and its buffers.

use crate::error::{Error, Result};
use crate::lent::Input;
use crate::operation::Operation;
use std::ops::Range;

impl Operation {
    /// The messages of which the operation consists, and the input and size of the result.
    ///
    /// Every pair of ranks exchanges its bytes directly. All-to-all and all-gather have to move
    /// these bytes in any case; a broadcast takes N−1 copies from the root's memory, which is as
    /// good as a tree where all ranks share one memory.
    pub(crate) fn messages(self, rank: usize, size: usize) -> Messages {
        let mut messages = Messages::default();
        let starts = |counts: &[usize]| {
            let mut at = 0;
            let ranges = counts.iter().map(|n| {
                at += n;
                at - n..at
            });
            ranges.collect::<Vec<_>>()
        };
        // A collective's own part is copied, not sent.
        let others = |messages: Vec<Range<usize>>| {
            messages.into_iter().enumerate().filter(|(peer, _)| *peer != rank).collect::<Vec<_>>()
        };
        match self {
            Operation::Send { to, bytes, .. } => {
                messages.sends.push((to, 0..bytes.len()));
                messages.returns_input = true;
                messages.input = Input::Owned(bytes);
            }
            Operation::Receive { from, len, .. } => {
                messages.receives.push((from, 0..len));
                messages.len = len;
            }
            Operation::AllToAll { bytes } => {
                let counts = vec![bytes.len() / size; size];
                let (send, receive) = (counts.clone(), counts);
                return Operation::AllToAllCounts { bytes, send, receive }.messages(rank, size);
            }
            Operation::AllToAllCounts { bytes, send, receive } => {
                let (from, into) = (starts(&send), starts(&receive));
                messages.copy = Some((from[rank].clone(), into[rank].clone()));
                messages.sends = others(from);
                messages.receives = others(into);
                messages.len = receive.iter().sum();
                messages.input = Input::Owned(bytes);
            }
            Operation::Exchange { bytes, send, receive } => {
                messages.sends = others(send);
                messages.receives = others(starts(&receive));
                messages.len = receive.iter().sum();
                messages.input = Input::Lent(bytes);
            }
            Operation::AllGather { bytes, counts } => {
                let into = starts(&counts);
                messages.copy = Some((0..bytes.len(), into[rank].clone()));
                messages.sends = others(vec![0..bytes.len(); size]);
                messages.receives = others(into);
                messages.len = counts.iter().sum();
                messages.input = Input::Owned(bytes);
            }
            Operation::Broadcast { root, bytes, len } if root == rank => {
                messages.sends = others(vec![0..len; size]);
                messages.returns_input = true;
                messages.input = Input::Owned(bytes);
            }
            Operation::Broadcast { root, len, .. } => {
                messages.receives.push((root, 0..len));
                messages.len = len;
            }
            Operation::Barrier => {
                messages.sends = others(vec![0..0; size]);
                messages.receives = messages.sends.clone();
            }
        }
        messages
    }
}

/// The messages of an operation of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Messages {
    /// What is sent.
    pub input: Input,
    /// Bytes of the result, unless the input is the result.
    pub len: usize,
    /// The receiver of each message, and its place in the input.
    pub sends: Vec<(usize, Range<usize>)>,
    /// The sender of each message, and its place in the result.
    pub receives: Vec<(usize, Range<usize>)>,
    /// What is copied from the input to the result.
    pub copy: Option<(Range<usize>, Range<usize>)>,
    /// The result is the input.
    pub returns_input: bool,
}

/// The buffers of an operation that has ended. Both may be used for others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Buffers {
    /// What was received, or the buffer of a send or of the root of a broadcast.
    pub result: Vec<u8>,
    /// What was sent, unless it is the result or was lent.
    pub input: Vec<u8>,
}

impl Buffers {
    /// The buffers of an operation of which `returns_input` is known.
    pub(crate) fn of(input: Input, result: Vec<u8>, returns_input: bool) -> Buffers {
        let input = input.into_buffer();
        let (result, input) = if returns_input { (input, result) } else { (result, input) };
        Buffers { result, input }
    }
}

/// A buffer of at least `len` bytes: the given one if it is long enough. Its bytes are those it
/// had, or zeros. Error: there is no memory for them.
pub(crate) fn at_least(len: usize, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
    if buffer.len() < len {
        buffer.clear();
        buffer
            .try_reserve_exact(len)
            .map_err(|error| Error::system(format!("reserve {len} bytes for a result"), error))?;
        buffer.resize(len, 0);
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operation of each rank of a collective, with counted bytes.
    fn on_all_ranks(kind: usize, size: usize, counts: &[usize]) -> Vec<Operation> {
        let one = |rank: usize| match kind {
            0 => Operation::AllToAll { bytes: vec![rank as u8; size * counts[0]] },
            1 => {
                let send: Vec<usize> = (0..size).map(|to| counts[rank * size + to]).collect();
                let receive = (0..size).map(|from| counts[from * size + rank]).collect();
                Operation::AllToAllCounts {
                    bytes: vec![rank as u8; send.iter().sum()],
                    send,
                    receive,
                }
            }
            2 => Operation::AllGather {
                bytes: vec![rank as u8; counts[rank]],
                counts: counts[..size].to_vec(),
            },
            3 => {
                let (root, len) = (counts[1] % size, counts[0]);
                let bytes = vec![7; if rank == root { len } else { 0 }];
                Operation::Broadcast { root, bytes, len }
            }
            _ => Operation::Barrier,
        };
        (0..size).map(one).collect()
    }

    proptest! {
        #[test]
        fn each_message_has_a_receive_and_results_are_filled(
            kind in 0..5usize,
            size in 1..6usize,
            counts in prop::collection::vec(0..50usize, 36),
        ) {
            let all = on_all_ranks(kind, size, &counts);
            for (rank, operation) in all.iter().enumerate() {
                operation.verify(rank, size).expect("arguments are right");
                for (peer, other) in all.iter().enumerate() {
                    let (to, from) = operation.between(rank, peer, size);
                    prop_assert_eq!((from, to), other.between(peer, rank, size));
                }
            }
            let messages: Vec<Messages> =
                all.into_iter().enumerate().map(|(rank, o)| o.messages(rank, size)).collect();
            for (rank, own) in messages.iter().enumerate() {
                let mut filled = vec![0; own.len];
                if let Some((from, into)) = &own.copy {
                    prop_assert_eq!(from.len(), into.len());
                    filled[into.clone()].iter_mut().for_each(|n| *n += 1);
                }
                for (from, into) in &own.receives {
                    let sent: Vec<_> =
                        messages[*from].sends.iter().filter(|(to, _)| *to == rank).collect();
                    prop_assert_eq!(sent.len(), 1);
                    prop_assert_eq!(sent[0].1.len(), into.len());
                    filled[into.clone()].iter_mut().for_each(|n| *n += 1);
                }
                prop_assert!(filled.iter().all(|n| *n == 1), "each byte is written once");
                prop_assert!(own.sends.iter().all(|(to, _)| *to != rank));
            }
            let sends: usize = messages.iter().map(|m| m.sends.len()).sum();
            prop_assert_eq!(sends, messages.iter().map(|m| m.receives.len()).sum::<usize>());
        }
    }
}
