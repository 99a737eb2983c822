//! Comparison of collectives between ranks.
//!
//! All ranks of a communicator have to call the same collectives in the same order. If they do not,
//! messages of one collective are taken for those of another, or ranks wait for ever. With
//! [`crate::Options::check`], a rank sends a [`Signature`] of its collective to each other rank
//! and compares the signatures that it gets. A difference is an error that names both calls.
//!
//! The messages have a tag of their own and go by the same transport. So the comparison works for
//! every transport, and for collectives that do not block.

use crate::error::{Error, Kind};
use crate::operation::Operation;
use std::fmt;

/// Bytes of a signature in a message.
pub(crate) const LEN: usize = 32;

/// What one rank tells another about a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Signature {
    /// How many collectives of the communicator came before.
    number: u64,
    /// Which operation: an index of [`NAMES`].
    name: u32,
    /// The root of a broadcast, else 0.
    root: u32,
    /// Bytes that the rank sends to the other.
    to: u64,
    /// Bytes that it expects from the other.
    from: u64,
}

/// Names of the collectives.
const NAMES: [&str; 6] =
    ["all_to_all", "all_to_all_counts", "exchange", "all_gather", "broadcast", "barrier"];

impl Signature {
    /// The signature that `rank` sends to `peer`.
    pub fn of(
        operation: &Operation,
        number: u64,
        rank: usize,
        peer: usize,
        size: usize,
    ) -> Signature {
        let name = NAMES.iter().position(|name| *name == operation.name());
        let root = match operation {
            Operation::Broadcast { root, .. } => *root as u32,
            _ => 0,
        };
        let (to, from) = operation.between(rank, peer, size);
        let name = name.expect("only collectives are compared") as u32;
        Signature { number, name, root, to: to as u64, from: from as u64 }
    }

    /// As the bytes of a message.
    pub fn to_bytes(self) -> Vec<u8> {
        let words = [self.number, (self.name as u64) << 32 | self.root as u64, self.to, self.from];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// From the bytes of a message. Any bytes are a signature; an unknown name equals no other.
    pub fn from_bytes(bytes: &[u8]) -> Signature {
        let word = |i: usize| {
            let bytes = bytes[8 * i..8 * i + 8].try_into();
            u64::from_le_bytes(bytes.expect("a message of four words, by its receive's length"))
        };
        let (name, root) = ((word(1) >> 32) as u32, word(1) as u32);
        Signature { number: word(0), name, root, to: word(2), from: word(3) }
    }

    /// True if the two ranks call the same collective.
    pub fn agrees_with(self, other: Signature) -> bool {
        self == Signature { to: other.from, from: other.to, ..other }
    }

    /// The error of a rank whose collective differs from that of another. Ranks are those of the
    /// world.
    pub fn mismatch(self, rank: usize, other: Signature, peer: usize) -> Error {
        let of = |me: usize, signature: Signature, to: usize| {
            let Signature { number, to: sends, from, .. } = signature;
            format!(
                "rank {me} calls {signature} as collective {number} ({sends} bytes to rank {to}, \
                 {from} bytes from it)"
            )
        };
        let message = format!("{}; {}", of(rank, self, peer), of(peer, other, rank));
        Error::new(Kind::Mismatch, message)
            .help(
                "all ranks of a communicator call the same collectives in the same order, with \
                 the same number of bytes",
            )
            .about([peer])
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(self.name as usize) {
            Some(&"broadcast") => write!(f, "broadcast from rank {}", self.root),
            Some(name) => f.write_str(name),
            None => f.write_str("an unknown operation"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_pass_through_bytes_and_agree_across() {
        let operation = |send: &[usize], receive: &[usize]| Operation::AllToAllCounts {
            bytes: vec![0; send.iter().sum()],
            send: send.to_vec(),
            receive: receive.to_vec(),
        };
        let first = Signature::of(&operation(&[1, 2], &[1, 9]), 4, 0, 1, 2);
        let second = Signature::of(&operation(&[9, 3], &[2, 3]), 4, 1, 0, 2);
        assert_eq!((first.to, first.from), (2, 9));
        assert!(first.agrees_with(second) && second.agrees_with(first));
        assert!(!first.agrees_with(first));
        let read = Signature::from_bytes(&first.to_bytes());
        assert_eq!((read, first.to_bytes().len()), (first, LEN));
    }

    #[test]
    fn every_difference_is_found_and_both_calls_are_named() {
        let broadcast = |root, len| {
            let bytes = if root == 0 { vec![0; len] } else { vec![] };
            Signature::of(&Operation::Broadcast { root, bytes, len }, 3, 0, 1, 2)
        };
        let barrier = |number| Signature::of(&Operation::Barrier, number, 1, 0, 2);
        let others = [barrier(3), barrier(4), broadcast(1, 8), broadcast(0, 9)];
        for other in others {
            assert!(!broadcast(0, 8).agrees_with(other), "{other:?}");
        }
        assert!(!barrier(3).agrees_with(barrier(4)));
        let text = broadcast(0, 8).mismatch(5, barrier(4), 6).to_string();
        let wanted = "rank 5 calls broadcast from rank 0 as collective 3 (8 bytes to rank 6, \
                      0 bytes from it); rank 6 calls barrier as collective 4 (0 bytes to rank 5, \
                      0 bytes from it)\nhelp: ";
        assert!(text.starts_with(wanted), "{text}");
    }
}
