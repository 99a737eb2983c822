//! Coalesces buffers into **blocks**, which are placed as one buffer.
//!
//! Two buffers of one live range may be stacked. Two buffers of one size, of which one is born
//! when the other dies, may be chained in the same bytes. Either pair acts as one buffer, and may
//! be part of another pair. Wang builds the rectangles of a cutting problem in the same way (*Two
//! algorithms for constrained two-dimensional cutting stock problems*, 1983).
//!
//! A rectangle that was cut from edge to edge is reassembled by this, unless different places
//! were cut at one moment. Most other problems become smaller. A solution of the blocks is a
//! solution of the whole problem, but the converse does not hold: if the blocks have no
//! solution, the whole problem may still have one.

use super::problem::{Buffer, Problem, Solution};
use std::cmp::Reverse;

/// Most rounds, each of which nests blocks two deeper; and the effort of all rounds together,
/// in buffers visited per buffer.
const ROUNDS: u64 = 256;
const EFFORT: u64 = 1 << 31;
/// A round coalesces one in this many ambiguous groups.
const DOUBTS: usize = 8;
/// Relative size difference in parts of 1024 up to which buffers are chained. Ways cycle through
/// these.
const TOLERANCES: [u64; 4] = [0, 0, 20, 80];
/// Most deaths or births at a moment for which all subsets are enumerated.
const PARTS: usize = 8;

/// A problem of blocks.
pub struct Coalesced {
    /// The blocks as buffers. At every moment their load is that of the whole problem, or more
    /// if buffers of different sizes were chained.
    pub problem: Problem,
    /// The block of each buffer of `problem`.
    blocks: Vec<Block>,
}

/// The candidate groups that are coalesced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Forced groups: they were one piece if the problem is a rectangle that was cut.
    Certain,
    /// Some of the ambiguous groups.
    Few(u64),
    All,
}

enum Block {
    /// A buffer of the whole problem, with its size.
    One(usize, u64),
    /// Each part on top of the one before.
    Stack(Vec<Block>),
    /// Parts one after another in the same bytes.
    Chain(Vec<Block>),
}

impl Coalesced {
    /// Coalesces buffers until no more can be coalesced. Buffers with fixed offsets stay alone, as
    /// do those whose size is not a multiple of their alignment.
    ///
    /// Where the grouping is ambiguous, different ways find different blocks. Way 0 takes all
    /// groups at once. The others take forced groups first.
    pub fn new(problem: &Problem, way: u64) -> Self {
        let blocks =
            problem.buffers.iter().enumerate().map(|(n, b)| Block::One(n, b.size)).collect();
        let mut all = Coalesced { problem: problem.clone(), blocks };
        let tolerance = TOLERANCES[way as usize % TOLERANCES.len()];
        let count = 1 + problem.buffers.len() as u64;
        let rounds = (EFFORT / count.saturating_mul(count)).clamp(8, ROUNDS);
        for round in 0..rounds {
            let before = all.blocks.len();
            if way == 0 {
                all.stack(Which::All);
                all.chain(Which::All);
            } else {
                all.chain(Which::Certain);
                all.stack(Which::Certain);
                // Ambiguous groups are taken only if none is forced, since one may make others
                // forced.
                for chains in [!(way + round).is_multiple_of(2), (way + round).is_multiple_of(2)] {
                    match () {
                        () if all.blocks.len() < before => {}
                        () if chains => all.chain(Which::Few(way)),
                        () => all.stack(Which::Few(way)),
                    }
                }
            }
            if all.blocks.len() == before && tolerance > 0 {
                all.chain_alike(tolerance);
            }
            if all.blocks.len() == before {
                break;
            }
        }
        all
    }

    /// Converts a solution of the blocks to a solution of the whole problem.
    pub fn expanded(&self, whole: &Problem, solution: &Solution) -> Solution {
        let mut offsets = vec![0; whole.buffers.len()];
        for (block, offset) in self.blocks.iter().zip(&solution.offsets) {
            block.place(*offset, &mut offsets);
        }
        Solution { offsets, height: solution.height }
    }

    /// Stacks all buffers that have the same live range.
    fn stack(&mut self, which: Which) {
        let buffers = &self.problem.buffers;
        let key = |n: usize| (buffers[n].lower, buffers[n].upper, buffers[n].alignment);
        let mut order: Vec<usize> =
            (0..buffers.len()).filter(|n| may_be_coalesced(&buffers[*n])).collect();
        order.sort_by_key(|n| (key(*n), *n));
        let cuts = Cuts::new(buffers);
        let mut groups: Vec<&[usize]> = order
            .chunk_by(|a, b| key(*a) == key(*b))
            .filter(|group| group.len() > 1)
            .filter(|group| {
                group.iter().try_fold(0u64, |sum, n| sum.checked_add(buffers[*n].size)).is_some()
            })
            .filter(|group| {
                which != Which::Certain
                    || [key(group[0]).0, key(group[0]).1]
                        .iter()
                        .all(|moment| cuts.at(*moment).is_one())
            })
            .collect();
        if let Which::Few(way) = which {
            groups.sort_by_cached_key(|group| {
                (Reverse(thrown(way, group[0], buffers[group[0]].lifespan())), group[0])
            });
            groups.truncate((groups.len() / DOUBTS).max(1));
        }
        let groups: Vec<Vec<usize>> = groups.into_iter().map(<[usize]>::to_vec).collect();
        self.replace(&groups, Block::Stack, |first, next| first.size += next.size);
    }

    /// Chains buffers of equal size, of which one dies when the other is born, if no third of
    /// that size is born or dies then.
    fn chain(&mut self, which: Which) {
        let buffers = &self.problem.buffers;
        let cuts = Cuts::new(buffers);
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for cut in cuts.0.chunk_by(|a, b| a.moment == b.moment).map(Cut) {
            let alone = cut.0.len() == 2;
            if alone || which != Which::Certain {
                for pair in cut.0.chunk_by(|a, b| a.size == b.size) {
                    if let [dies, born] = pair
                        && !dies.is_birth
                        && born.is_birth
                        && buffers[dies.n].alignment == buffers[born.n].alignment
                    {
                        pairs.push([dies.n, born.n]);
                    }
                }
            }
        }
        if let Which::Few(way) = which {
            pairs.sort_by_cached_key(|pair| {
                (Reverse(thrown(way, pair[0], buffers[pair[0]].size)), *pair)
            });
            pairs.truncate((pairs.len() / DOUBTS).max(1));
        }
        self.follow(&pairs);
    }

    /// Chains some pairs of almost equal size. The larger one may take bytes that the smaller one
    /// does not need.
    fn chain_alike(&mut self, tolerance: u64) {
        let buffers = &self.problem.buffers;
        let cuts = Cuts::new(buffers);
        let mut alike: Vec<(u64, [usize; 2])> = Vec::new();
        for cut in cuts.0.chunk_by(|a, b| a.moment == b.moment) {
            for pair in cut.windows(2) {
                if pair[0].is_birth == pair[1].is_birth
                    || buffers[pair[0].n].alignment != buffers[pair[1].n].alignment
                {
                    continue;
                }
                let off =
                    (u128::from(pair[1].size - pair[0].size) << 10) / u128::from(pair[1].size);
                let off = u64::try_from(off).expect("a part of a whole");
                if off <= tolerance {
                    let [dies, born] =
                        if pair[0].is_birth { [1, 0] } else { [0, 1] }.map(|n| pair[n].n);
                    alike.push((off, [dies, born]));
                }
            }
        }
        alike.sort_unstable();
        alike.truncate((alike.len() / DOUBTS).max(1));
        let mut taken = vec![[false; 2]; buffers.len()];
        alike.retain(|(_, [dies, born])| {
            let free = !taken[*dies][0] && !taken[*born][1];
            if free {
                (taken[*dies][0], taken[*born][1]) = (true, true);
            }
            free
        });
        self.follow(&alike.into_iter().map(|(_, pair)| pair).collect::<Vec<_>>());
    }

    /// Joins pairs to chains and blocks them.
    fn follow(&mut self, pairs: &[[usize; 2]]) {
        let mut next = vec![None; self.blocks.len()];
        let mut follows = vec![false; self.blocks.len()];
        for [dies, born] in pairs {
            next[*dies] = Some(*born);
            follows[*born] = true;
        }
        let begins = (0..next.len()).filter(|n| !follows[*n] && next[*n].is_some());
        let chains: Vec<Vec<usize>> =
            begins.map(|n| std::iter::successors(Some(n), |n| next[*n]).collect()).collect();
        self.replace(&chains, Block::Chain, |first, next| {
            first.upper = next.upper;
            first.size = first.size.max(next.size);
        });
    }

    /// Replaces the first member of each group with the block, and removes the others.
    fn replace(
        &mut self,
        groups: &[Vec<usize>],
        made: fn(Vec<Block>) -> Block,
        join: fn(&mut Buffer, &Buffer),
    ) {
        let mut blocks: Vec<Option<Block>> =
            std::mem::take(&mut self.blocks).into_iter().map(Some).collect();
        for group in groups {
            let parts =
                group.iter().map(|n| blocks[*n].take().expect("groups have no block in common"));
            let block = made(parts.collect());
            blocks[group[0]] = Some(block);
            let mut buffer = self.problem.buffers[group[0]];
            group[1..].iter().for_each(|n| join(&mut buffer, &self.problem.buffers[*n]));
            self.problem.buffers[group[0]] = buffer;
        }
        let mut left = blocks.iter().map(Option::is_some);
        self.problem.buffers.retain(|_| left.next().expect("there are as many blocks as buffers"));
        self.blocks = blocks.into_iter().flatten().collect();
    }
}

/// A priority for choosing groups. From way 2 on it is random (the last steps of Steele, Lea and
/// Flood's *SplitMix*, 2014).
fn thrown(way: u64, n: usize, measure: u64) -> u64 {
    let x = way.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(n as u64);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    if way == 1 { measure } else { measure.saturating_mul((x ^ (x >> 31)) % 16) }
}

/// A birth or a death.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    moment: u64,
    size: u64,
    is_birth: bool,
    n: usize,
}

/// All changes, in order of time.
struct Cuts(Vec<Change>);

/// The changes at a moment.
struct Cut<'a>(&'a [Change]);

impl Cuts {
    fn new(buffers: &[Buffer]) -> Self {
        let coalesced = buffers.iter().enumerate().filter(|(_, b)| may_be_coalesced(b));
        let both = coalesced.flat_map(|(n, b)| {
            [(b.lower, true), (b.upper, false)].map(|(moment, is_birth)| Change {
                moment,
                size: b.size,
                is_birth,
                n,
            })
        });
        let mut changes: Vec<Change> = both.collect();
        changes.sort_unstable();
        Cuts(changes)
    }

    fn at(&self, moment: u64) -> Cut<'_> {
        let from = self.0.partition_point(|change| change.moment < moment);
        let many = self.0[from..].partition_point(|change| change.moment == moment);
        Cut(&self.0[from..from + many])
    }
}

impl Cut<'_> {
    /// True if no proper subset of the deaths has the same total size as a proper subset of the
    /// births. Then, in a rectangle that was cut, all of them occupy one contiguous piece.
    fn is_one(&self) -> bool {
        let sizes =
            |births: bool| self.0.iter().filter(move |c| c.is_birth == births).map(|c| c.size);
        let (deaths, births) = (sizes(false).count(), sizes(true).count());
        if deaths.min(births) <= 1 {
            return true;
        }
        if deaths.max(births) > PARTS {
            return false;
        }
        let sums = |births: bool| {
            let sizes: Vec<u64> = sizes(births).collect();
            let part = |mask: u32| {
                let chosen = sizes.iter().enumerate().filter(|(n, _)| mask >> n & 1 == 1);
                chosen.fold(0u64, |sum, (_, size)| sum.saturating_add(*size))
            };
            let mut sums: Vec<u64> = (1..(1u32 << sizes.len()) - 1).map(part).collect();
            sums.sort_unstable();
            sums
        };
        let born = sums(true);
        sums(false).iter().all(|sum| born.binary_search(sum).is_err())
    }
}

fn may_be_coalesced(buffer: &Buffer) -> bool {
    buffer.lives() && buffer.fixed.is_none() && buffer.size.is_multiple_of(buffer.alignment)
}

impl Block {
    /// Assigns offsets to the buffers of the block; returns its end.
    fn place(&self, offset: u64, offsets: &mut [u64]) -> u64 {
        match self {
            Block::One(n, size) => {
                offsets[*n] = offset;
                offset + size
            }
            Block::Stack(parts) => parts.iter().fold(offset, |end, part| part.place(end, offsets)),
            Block::Chain(parts) => {
                parts.iter().fold(offset, |end, part| part.place(offset, offsets).max(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::arrange;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::samples::{planted, problem};
    use proptest::prelude::*;

    #[test]
    fn what_was_cut_from_edge_to_edge_is_one_again() {
        // Two halves. One is cut across, and one part of it is cut in time.
        let p = problem(&[(0, 8, 10), (0, 8, 3), (0, 5, 7), (5, 8, 7)]);
        let coalesced = Coalesced::new(&p, 0);
        assert_eq!(coalesced.problem, problem(&[(0, 8, 20)]));
        let s = coalesced.expanded(&p, &Solution { offsets: vec![5], height: 25 });
        assert_eq!((p.conflict(&s), s.offsets[2]), (None, s.offsets[3]));
        for seed in 0..20 {
            let (p, height) = planted(seed, 300);
            let coalesced = Coalesced::new(&p, 0);
            assert!(coalesced.problem.buffers.len() * 10 < p.buffers.len());
            assert_eq!(max_load(&coalesced.problem), height);
        }
    }

    #[test]
    fn what_is_certain_goes_first() {
        // A rectangle was cut at time 4, both pieces at one height each, and one upper part again
        // at 6. The grouping is ambiguous at 4, but not at 9.
        let p = problem(&[(0, 4, 5), (4, 9, 5), (0, 4, 7), (4, 6, 7), (6, 9, 7)]);
        for way in 0..4 {
            assert_eq!(Coalesced::new(&p, way).problem, problem(&[(0, 9, 12)]));
        }
    }

    #[test]
    fn what_is_alike_follows_one_another_if_it_may() {
        let p = problem(&[(0, 4, 1000), (4, 9, 990)]);
        assert_eq!(Coalesced::new(&p, 0).problem, p);
        let coalesced = Coalesced::new(&p, 2);
        assert_eq!(coalesced.problem, problem(&[(0, 9, 1000)]));
        let s = coalesced.expanded(&p, &Solution { offsets: vec![3], height: 1003 });
        assert_eq!((p.conflict(&s), s.offsets), (None, vec![3, 3]));
    }

    #[test]
    fn what_may_not_move_or_would_not_fit_stays_alone() {
        let mut p = problem(&[(0, 8, 10), (0, 8, 10), (8, 9, 10)]);
        p.buffers[0].fixed = Some(3);
        p.buffers[1].alignment = 4;
        assert_eq!(Coalesced::new(&p, 0).problem, p);
        // Either of two buffers might follow.
        let p = problem(&[(0, 8, 10), (8, 9, 10), (8, 10, 10)]);
        assert_eq!(Coalesced::new(&p, 0).problem, p);
    }

    proptest! {
        #[test]
        fn a_solution_of_blocks_is_one_of_the_whole(
            rows in prop::collection::vec((0u64..9, 1u64..9, 0u64..9, 1u64..3), 0..60)
        ) {
            let mut p = Problem::default();
            for (lower, lifespan, size, alignment) in rows {
                p.push(Buffer { alignment, ..Buffer::new(lower, lower + lifespan, size) });
            }
            for way in 0..8 {
                let coalesced = Coalesced::new(&p, way);
                let load = max_load(&coalesced.problem);
                let tolerance = TOLERANCES[way as usize % TOLERANCES.len()];
                prop_assert!(load == max_load(&p) || tolerance > 0 && load > max_load(&p));
                let s = coalesced.expanded(&p, &arrange(&coalesced.problem, 0));
                prop_assert_eq!(p.conflict(&s), None);
            }
        }
    }
}
