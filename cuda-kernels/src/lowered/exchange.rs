//! Exchanges between ranks: which bytes of a buffer go to which rank.
//!
//! A collective is lowered to exchanges and kernels. An [`Exchange`] moves bytes and combines
//! nothing. It has no rank: the blocks follow from the position of a rank in its group and the
//! group's size when it runs ([`Exchange::blocks`]), so all ranks have the same commands.
//!
//! It is two commands, [`Command::Start`](super::Command::Start) and
//! [`Command::Wait`](super::Command::Wait). Between them the source must not change and the target
//! is undefined. A device moves the bytes beside its kernels, in a stream of its own.

use wengert_core::plan::Place;

/// An exchange among the ranks of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Its number in the plan.
    pub number: usize,
    /// Axes of the mesh. The ranks that differ along these only are a group.
    pub over: Vec<String>,
    /// The blocks.
    pub pattern: Pattern,
    /// The memory that is sent from.
    pub source: Place,
    /// The memory that is received into. It is written whole.
    pub target: Place,
}

/// Which blocks an exchange moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Block q of the source goes to the rank at position q. The blocks of all ranks arrive one
    /// after another.
    ///
    /// If the source has less than a block for each rank, the last blocks start earlier and
    /// overlap those before them, so that all have the same size.
    Deal {
        /// Bytes of a block.
        block: u64,
    },
    /// The inverse of [`Pattern::Deal`]: every rank gets the whole array of which the source of
    /// the rank at position q is block q. Bytes of overlapping blocks come from the first rank
    /// that has them.
    Collect {
        /// Bytes of a block.
        block: u64,
    },
    /// The whole source goes from the first position of a pair to the second. The target of a rank
    /// to which nothing is sent is zero.
    Permute(Vec<(usize, usize)>),
}

/// Bytes that a rank sends to another one or to itself, or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Position of the other rank in the group.
    pub peer: usize,
    /// First byte, from the beginning of the source or target.
    pub offset: u64,
    /// Length; more than 0.
    pub bytes: u64,
}

/// The blocks that one rank exchanges, in the order of the other ranks' positions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// What it sends, from the source.
    pub sent: Vec<Block>,
    /// What it receives, in the target.
    pub received: Vec<Block>,
}

impl Exchange {
    /// The blocks of the rank at `position` in a group of `size`. What one rank sends another is
    /// as long as what that one receives from it, on all ranks.
    pub fn blocks(&self, position: usize, size: usize) -> Blocks {
        let peers = 0..size;
        match &self.pattern {
            Pattern::Deal { block } => {
                let last = self.source.bytes - block;
                let sent =
                    |peer| Block { peer, offset: (peer as u64 * block).min(last), bytes: *block };
                let received = |peer| Block { peer, offset: peer as u64 * block, bytes: *block };
                Blocks {
                    sent: peers.clone().map(sent).collect(),
                    received: peers.map(received).collect(),
                }
            }
            Pattern::Collect { block } => {
                let whole = self.target.bytes;
                // The bytes of the block that no rank before has.
                let own = |rank: usize| {
                    let start = (rank as u64 * block).min(whole);
                    (start, (start + block).min(whole) - start)
                };
                let (start, bytes) = own(position);
                let offset = start - start.min(whole - block);
                let sent = |peer| Block { peer, offset, bytes };
                let received = |peer| {
                    let (offset, bytes) = own(peer);
                    Block { peer, offset, bytes }
                };
                let has_bytes = |block: &Block| block.bytes > 0;
                Blocks {
                    sent: peers.clone().map(sent).filter(has_bytes).collect(),
                    received: peers.map(received).filter(has_bytes).collect(),
                }
            }
            Pattern::Permute(pairs) => {
                let whole = |peer: usize| Block { peer, offset: 0, bytes: self.source.bytes };
                let to = pairs.iter().filter(|(from, _)| *from == position);
                let from = pairs.iter().filter(|(_, to)| *to == position);
                Blocks {
                    sent: to.map(|(_, to)| whole(*to)).collect(),
                    received: from.map(|(from, _)| whole(*from)).collect(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::plan::{Access, Space};

    fn exchange(pattern: Pattern, source: u64, target: u64) -> Exchange {
        let place = |bytes, access| Place {
            space: Space::Arena,
            offset: 0,
            strides: vec![],
            bytes,
            access,
            label: None,
        };
        Exchange {
            number: 0,
            over: vec!["data".into()],
            pattern,
            source: place(source, Access::Read),
            target: place(target, Access::Write),
        }
    }

    /// Moves the bytes of all ranks.
    fn run(exchange: &Exchange, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let size = sources.len();
        let all: Vec<Blocks> = (0..size).map(|rank| exchange.blocks(rank, size)).collect();
        let target = |rank: usize| {
            let mut target = vec![0; exchange.target.bytes as usize];
            for to in &all[rank].received {
                let mut from = all[to.peer].sent.iter().filter(|block| block.peer == rank);
                let sent = from.next().expect("what is received is sent");
                assert!(from.next().is_none() && sent.bytes == to.bytes, "{sent:?} {to:?}");
                let (from, length) = (sent.offset as usize, sent.bytes as usize);
                target[to.offset as usize..][..length]
                    .copy_from_slice(&sources[to.peer][from..][..length]);
            }
            target
        };
        let received: usize = all.iter().map(|blocks| blocks.received.len()).sum();
        assert_eq!(all.iter().map(|blocks| blocks.sent.len()).sum::<usize>(), received);
        (0..size).map(target).collect()
    }

    /// Blocks are dealt and collected for any number of ranks and elements, fewer elements than
    /// ranks included.
    #[test]
    fn collecting_is_the_inverse_of_dealing() {
        for ranks in 1..7usize {
            for bytes in 1..15u64 {
                let block = bytes.div_ceil(ranks as u64);
                let whole: Vec<u8> = (1..=bytes as u8).collect();
                let deal = exchange(Pattern::Deal { block }, bytes, block * ranks as u64);
                let dealt = run(&deal, &vec![whole.clone(); ranks]);
                // Each rank gets its block from all ranks, which here have the same bytes.
                let own = |all: &Vec<u8>| {
                    let blocks: Vec<&[u8]> = all.chunks(block as usize).collect();
                    assert!(blocks.iter().all(|other| *other == blocks[0]), "{all:?}");
                    blocks[0].to_vec()
                };
                let shares: Vec<Vec<u8>> = dealt.iter().map(own).collect();
                let collect = exchange(Pattern::Collect { block }, block, bytes);
                assert_eq!(run(&collect, &shares), vec![whole; ranks], "{bytes} of {ranks}");
            }
        }
    }

    #[test]
    fn blocks_go_where_the_pattern_says() {
        let sources: Vec<Vec<u8>> = vec![vec![1, 2, 3, 4], vec![5, 6, 7, 8]];
        let deal = exchange(Pattern::Deal { block: 2 }, 4, 4);
        assert_eq!(run(&deal, &sources), [[1, 2, 5, 6], [3, 4, 7, 8]]);
        let collect = exchange(Pattern::Collect { block: 4 }, 4, 8);
        assert_eq!(run(&collect, &sources), [[1, 2, 3, 4, 5, 6, 7, 8]; 2]);
        let permute = exchange(Pattern::Permute(vec![(0, 1)]), 4, 4);
        assert_eq!(run(&permute, &sources), [[0; 4], [1, 2, 3, 4]]);
    }
}
