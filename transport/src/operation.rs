//! The operations between ranks, and the messages of which each consists.
//!
//! Buffers are owned: an operation takes its input by value and gives its result back when it has
//! ended. So no borrowed memory is in use while an operation runs, and a request may be dropped at
//! any time. The one exception is [`Operation::Exchange`], whose input is [lent](Lent).

use crate::error::{Error, Kind, Result};
use crate::lent::{Input, Lent};
use std::fmt;
use std::ops::Range;

/// The largest tag of a message. Larger tags belong to collectives: MPI promises 32,767 tags.
pub const MAX_TAG: u32 = (1 << 14) - 1;

/// Tags of the messages of a collective: this bit, and the last bits of its number.
const COLLECTIVE: u32 = 1 << 14;
/// Tags of the messages that compare collectives.
const CHECK: u32 = COLLECTIVE | 1 << 13;
/// The bits of a collective's number that are in its tag. Messages with one tag keep their order,
/// so tags may repeat.
const NUMBER: u64 = (1 << 13) - 1;

/// The tag of the messages of a collective.
pub(crate) fn collective_tag(number: u64) -> u32 {
    COLLECTIVE | (number & NUMBER) as u32
}

/// The tag of the messages that compare a collective.
pub(crate) fn check_tag(number: u64) -> u32 {
    CHECK | (number & NUMBER) as u32
}

/// An operation of one rank. Ranks are those of the communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A message to one rank. The result is `bytes`, given back.
    Send {
        /// The receiver, which may be this rank.
        to: usize,
        /// At most [`MAX_TAG`].
        tag: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A message from one rank, with the same tag, of exactly `len` bytes. Messages of one rank
    /// with one tag arrive in the order in which they were sent.
    Receive {
        /// The sender.
        from: usize,
        /// At most [`MAX_TAG`].
        tag: u32,
        /// Bytes of the message.
        len: usize,
    },
    /// Block i of `bytes` goes to rank i; block i of the result is from rank i. All blocks of all
    /// ranks have the same size.
    AllToAll {
        /// As many blocks as there are ranks.
        bytes: Vec<u8>,
    },
    /// As [`Operation::AllToAll`], with blocks of different sizes.
    AllToAllCounts {
        /// The blocks, in order of the ranks.
        bytes: Vec<u8>,
        /// Bytes for each rank.
        send: Vec<usize>,
        /// Bytes from each rank: the sender's entry of `send` for this rank.
        receive: Vec<usize>,
    },
    /// Sends a part of `bytes` to each other rank. The result is what the other ranks have sent to
    /// this one, in order of the ranks. A rank sends itself nothing.
    Exchange {
        /// Bytes that stay with their owner.
        bytes: Lent,
        /// The part for each rank; that for the rank itself is ignored.
        send: Vec<Range<usize>>,
        /// Bytes from each rank: the length of the sender's part for this rank; 0 from itself.
        receive: Vec<usize>,
    },
    /// The `bytes` of all ranks, in order of the ranks.
    AllGather {
        /// This rank's part.
        bytes: Vec<u8>,
        /// Bytes of each rank's part, the same list on all ranks.
        counts: Vec<usize>,
    },
    /// The bytes of the root, on all ranks.
    Broadcast {
        /// The rank that has the bytes.
        root: usize,
        /// The bytes on the root, and nothing elsewhere.
        bytes: Vec<u8>,
        /// Their number, on all ranks.
        len: usize,
    },
    /// Ends when all ranks have called it.
    Barrier,
}

impl Operation {
    /// Its name in errors.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Send { .. } => "send",
            Operation::Receive { .. } => "receive",
            Operation::AllToAll { .. } => "all_to_all",
            Operation::AllToAllCounts { .. } => "all_to_all_counts",
            Operation::Exchange { .. } => "exchange",
            Operation::AllGather { .. } => "all_gather",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Barrier => "barrier",
        }
    }

    /// True if all ranks of the communicator have to call it.
    pub fn is_collective(&self) -> bool {
        !matches!(self, Operation::Send { .. } | Operation::Receive { .. })
    }

    /// Bytes of its result.
    pub fn receives(&self) -> usize {
        match self {
            Operation::Send { bytes, .. } | Operation::AllToAll { bytes } => bytes.len(),
            Operation::Receive { len, .. } | Operation::Broadcast { len, .. } => *len,
            Operation::AllToAllCounts { receive: counts, .. }
            | Operation::Exchange { receive: counts, .. }
            | Operation::AllGather { counts, .. } => {
                counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
            }
            Operation::Barrier => 0,
        }
    }

    /// Checks the arguments that one rank can check.
    pub(crate) fn verify(&self, rank: usize, size: usize) -> Result<()> {
        let wrong = |text: String, help: &str| Err(Error::new(Kind::Argument, text).help(help));
        let lists = |name: &str, list: &[usize], bytes: usize| {
            if list.len() != size {
                let found = list.len();
                return wrong(
                    format!("`{name}` has {found} entries for {size} ranks"),
                    "give one number of bytes for each rank of the communicator",
                );
            }
            let total = list.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
            match total {
                Some(total) if total == bytes || name == "receive" => Ok(()),
                Some(total) => wrong(
                    format!("`{name}` adds up to {total} bytes, the buffer has {bytes}"),
                    "the buffer has the blocks for all ranks, one after the other",
                ),
                None => wrong(format!("`{name}` adds up to more than memory has"), "check it"),
            }
        };
        let peer = |name: &str, peer: usize| match peer < size {
            true => Ok(()),
            false => wrong(
                format!("`{name}` is rank {peer} of {size} ranks"),
                "ranks are counted from 0, within the communicator",
            ),
        };
        let in_range = |tag: u32| match tag <= MAX_TAG {
            true => Ok(()),
            false => wrong(format!("tag {tag} is too large"), "tags are at most 16383"),
        };
        match self {
            Operation::Send { to, tag, .. } => peer("to", *to).and(in_range(*tag)),
            Operation::Receive { from, tag, .. } => peer("from", *from).and(in_range(*tag)),
            Operation::AllToAll { bytes } if !bytes.len().is_multiple_of(size) => wrong(
                format!("{} bytes are not {size} equal blocks", bytes.len()),
                "use `all_to_all_counts` for blocks of different sizes",
            ),
            Operation::AllToAll { .. } | Operation::Barrier => Ok(()),
            Operation::AllToAllCounts { bytes, send, receive } => {
                lists("send", send, bytes.len())?;
                lists("receive", receive, 0)?;
                match send[rank] == receive[rank] {
                    true => Ok(()),
                    false => wrong(
                        format!(
                            "rank {rank} sends itself {} bytes and receives {}",
                            send[rank], receive[rank]
                        ),
                        "both lists have the same entry for the rank itself",
                    ),
                }
            }
            Operation::Exchange { bytes, send, receive } => {
                let lens: Vec<usize> = send.iter().map(Range::len).collect();
                let total = lens.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
                lists("send", &lens, total)?;
                lists("receive", receive, 0)?;
                let outside = send.iter().find(|part| part.end > bytes.len());
                match (outside, receive[rank]) {
                    (None, 0) => Ok(()),
                    (Some(part), _) => wrong(
                        format!("`send` has {part:?}, the buffer has {} bytes", bytes.len()),
                        "each part is a range of the buffer",
                    ),
                    (None, own) => wrong(
                        format!("rank {rank} receives {own} bytes from itself"),
                        "an exchange is with the other ranks",
                    ),
                }
            }
            Operation::AllGather { bytes, counts } => {
                lists("counts", counts, counts.iter().fold(0, |sum, n| sum.saturating_add(*n)))?;
                match counts[rank] == bytes.len() {
                    true => Ok(()),
                    false => wrong(
                        format!(
                            "this rank has {} bytes, `counts` says {}",
                            bytes.len(),
                            counts[rank]
                        ),
                        "`counts` has the bytes of each rank's part",
                    ),
                }
            }
            Operation::Broadcast { root, bytes, len } => {
                peer("root", *root)?;
                match bytes.len() == if rank == *root { *len } else { 0 } {
                    true => Ok(()),
                    false => wrong(
                        format!("rank {rank} gives {} bytes of {len}", bytes.len()),
                        "the root gives all bytes, other ranks give none",
                    ),
                }
            }
        }
    }

    /// Bytes that this rank sends to `peer`, and expects from it.
    pub(crate) fn between(&self, rank: usize, peer: usize, size: usize) -> (usize, usize) {
        match self {
            Operation::Send { to, bytes, .. } => (if *to == peer { bytes.len() } else { 0 }, 0),
            Operation::Receive { from, len, .. } => (0, if *from == peer { *len } else { 0 }),
            Operation::AllToAll { bytes } => (bytes.len() / size, bytes.len() / size),
            Operation::AllToAllCounts { send, receive, .. } => (send[peer], receive[peer]),
            Operation::Exchange { send, receive, .. } => match peer == rank {
                true => (0, 0),
                false => (send[peer].len(), receive[peer]),
            },
            Operation::AllGather { counts, .. } => (counts[rank], counts[peer]),
            Operation::Broadcast { root, len, .. } => (
                if rank == *root && peer != rank { *len } else { 0 },
                if peer == *root && peer != rank { *len } else { 0 },
            ),
            Operation::Barrier => (0, 0),
        }
    }

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

/// The operation without its buffers, in errors: `all_gather of 3 + 5 bytes`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Operation::Send { to, tag, bytes } => {
                write!(f, "{name} of {} bytes to rank {to} with tag {tag}", bytes.len())
            }
            Operation::Receive { from, tag, len } => {
                write!(f, "{name} of {len} bytes from rank {from} with tag {tag}")
            }
            Operation::AllToAll { bytes } => write!(f, "{name} of {} bytes", bytes.len()),
            Operation::AllToAllCounts { bytes, receive, .. } => {
                let receive = receive.iter().sum::<usize>();
                write!(f, "{name} of {} bytes to {receive} bytes", bytes.len())
            }
            Operation::Exchange { bytes, receive, .. } => {
                let receive = receive.iter().sum::<usize>();
                write!(f, "{name} of {} bytes to {receive} bytes", bytes.len())
            }
            Operation::AllGather { bytes, counts } => {
                let all = counts.iter().sum::<usize>();
                write!(f, "{name} of {} of {all} bytes", bytes.len())
            }
            Operation::Broadcast { root, len, .. } => {
                write!(f, "{name} of {len} bytes from rank {root}")
            }
            Operation::Barrier => f.write_str(name),
        }
    }
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

    #[test]
    fn wrong_arguments_are_named() {
        let wrong = [
            (Operation::Send { to: 3, tag: 0, bytes: vec![] }, "`to` is rank 3 of 3 ranks"),
            (Operation::Receive { from: 9, tag: 0, len: 0 }, "`from` is rank 9 of 3 ranks"),
            (Operation::Send { to: 0, tag: 1 << 14, bytes: vec![] }, "tag 16384 is too large"),
            (Operation::AllToAll { bytes: vec![0; 7] }, "7 bytes are not 3 equal blocks"),
            (
                Operation::AllToAllCounts { bytes: vec![], send: vec![0], receive: vec![0; 3] },
                "`send` has 1 entries for 3 ranks",
            ),
            (
                Operation::AllToAllCounts { bytes: vec![1], send: vec![0; 3], receive: vec![0; 3] },
                "`send` adds up to 0 bytes, the buffer has 1",
            ),
            (
                Operation::AllToAllCounts {
                    bytes: vec![],
                    send: vec![0; 3],
                    receive: vec![0, usize::MAX, 1],
                },
                "`receive` adds up to more than memory has",
            ),
            (
                Operation::AllToAllCounts {
                    bytes: vec![1],
                    send: vec![0, 1, 0],
                    receive: vec![0, 2, 0],
                },
                "rank 1 sends itself 1 bytes and receives 2",
            ),
            (
                Operation::AllGather { bytes: vec![1], counts: vec![1, 2, 3] },
                "this rank has 1 bytes, `counts` says 2",
            ),
            (Operation::Broadcast { root: 0, bytes: vec![1], len: 1 }, "rank 1 gives 1 bytes of 1"),
        ];
        for (operation, text) in wrong {
            let error = operation.verify(1, 3).expect_err(text);
            assert_eq!(error.kind(), Kind::Argument);
            assert!(error.to_string().starts_with(text), "{error}");
            assert!(error.to_string().contains("help: "), "{error}");
        }
    }

    #[test]
    fn tags_of_collectives_are_no_tags_of_messages_and_fit_mpi() {
        for number in [0, 1, NUMBER, NUMBER + 1, u64::MAX] {
            let (of_data, of_check) = (collective_tag(number), check_tag(number));
            assert!(MAX_TAG < of_data && of_data < of_check && of_check <= 32767);
        }
        assert_ne!(collective_tag(1), collective_tag(2));
    }
}
