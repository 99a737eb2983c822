//! The operations between ranks, and the messages of which each consists.
//!
//! Buffers are owned: an operation takes its input by value and gives its result back when it has
//! ended. So no borrowed memory is in use while an operation runs, and a request may be dropped at
//! any time. The one exception is [`Operation::Exchange`], whose input is [lent](Lent).

use crate::error::{Error, Kind, Result};
use crate::lent::Lent;
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

#[cfg(test)]
mod tests {
    use super::*;

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
