//! Bundles: buffers that are placed as if they were one.
//!
//! Two buffers of one lifespan may lie one on the other, and two of one size, of which one is born as the other dies, in the same bytes. Either pair is a buffer like others, and
//! may be one of a pair itself. So are the rectangles that Wang builds of what is to be cut (*Two algorithms for constrained two-dimensional cutting stock problems*, 1983).
//!
//! What was one piece, and cut from edge to edge, is put together again like this, unless different places were cut at one moment; of most else, fewer buffers are left.
//! But a solution of bundles is one of the whole, and not the other way round: where bundles have none, nothing is known.

use super::problem::{Buffer, Problem, Solution};
use std::cmp::Reverse;

/// Rounds at most, each of which nests bundles by two more; and what all rounds together look at, in buffers for each buffer.
const ROUNDS: u64 = 256;
const EFFORT: u64 = 1 << 31;
/// Of those who might go together, but might as well not, a round bundles one in so many.
const DOUBTS: usize = 8;
/// In parts of 1024, by how much those who follow one another may be off, in ways that take turns.
const TOLERANCES: [u64; 4] = [0, 0, 20, 80];
/// Those who die or are born at a moment, of which all parts are looked at.
const PARTS: usize = 8;

/// A problem of bundles.
pub struct Bundled {
    /// The bundles as buffers. The load is that of the whole at any moment, or above it, where what is alike follows one another.
    pub problem: Problem,
    /// What each stands for.
    bundles: Vec<Bundle>,
}

/// Which of those that might go together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that can only have been one, if everything was.
    Certain,
    /// Some of the others, too.
    Few(u64),
    All,
}

enum Bundle {
    /// A buffer of the whole, with its size.
    One(usize, u64),
    /// Each on the one before.
    Stack(Vec<Bundle>),
    /// One after another in the same bytes.
    Chain(Vec<Bundle>),
}

impl Bundled {
    /// Bundles what goes together, until there is nothing more. Fixed offsets stay alone, as do sizes that are no multiples of their alignment.
    ///
    /// Where it is in doubt what goes together, different ways find different bundles: the first, 0, takes all at once, and the others begin with what is certain.
    pub fn new(problem: &Problem, way: u64) -> Self {
        let bundles = problem.buffers.iter().enumerate().map(|(n, b)| Bundle::One(n, b.size)).collect();
        let mut all = Bundled { problem: problem.clone(), bundles };
        let tolerance = TOLERANCES[way as usize % TOLERANCES.len()];
        let count = 1 + problem.buffers.len() as u64;
        let rounds = (EFFORT / count.saturating_mul(count)).clamp(8, ROUNDS);
        for round in 0..rounds {
            let before = all.bundles.len();
            if way == 0 {
                all.stack(Which::All);
                all.chain(Which::All);
            } else {
                all.chain(Which::Certain);
                all.stack(Which::Certain);
                // The doubtful only if nothing is certain, for they may make something so.
                for chains in [!(way + round).is_multiple_of(2), (way + round).is_multiple_of(2)] {
                    match () {
                        () if all.bundles.len() < before => {}
                        () if chains => all.chain(Which::Few(way)),
                        () => all.stack(Which::Few(way)),
                    }
                }
            }
            if all.bundles.len() == before && tolerance > 0 {
                all.chain_alike(tolerance);
            }
            if all.bundles.len() == before {
                break;
            }
        }
        all
    }

    /// The solution of the whole that a solution of the bundles is.
    pub fn unbundled(&self, whole: &Problem, solution: &Solution) -> Solution {
        let mut offsets = vec![0; whole.buffers.len()];
        for (bundle, offset) in self.bundles.iter().zip(&solution.offsets) {
            bundle.place(*offset, &mut offsets);
        }
        Solution { offsets, height: solution.height }
    }

    /// Makes one of all that have the same lifespan.
    fn stack(&mut self, which: Which) {
        let buffers = &self.problem.buffers;
        let key = |n: usize| (buffers[n].lower, buffers[n].upper, buffers[n].alignment);
        let mut order: Vec<usize> = (0..buffers.len()).filter(|n| may_be_bundled(&buffers[*n])).collect();
        order.sort_by_key(|n| (key(*n), *n));
        let cuts = Cuts::new(buffers);
        let mut groups: Vec<&[usize]> = order
            .chunk_by(|a, b| key(*a) == key(*b))
            .filter(|group| group.len() > 1)
            .filter(|group| group.iter().try_fold(0u64, |sum, n| sum.checked_add(buffers[*n].size)).is_some())
            .filter(|group| {
                which != Which::Certain
                    || [key(group[0]).0, key(group[0]).1].iter().all(|moment| cuts.at(*moment).is_one())
            })
            .collect();
        if let Which::Few(way) = which {
            groups.sort_by_cached_key(|group| {
                (Reverse(thrown(way, group[0], buffers[group[0]].lifespan())), group[0])
            });
            groups.truncate((groups.len() / DOUBTS).max(1));
        }
        let groups: Vec<Vec<usize>> = groups.into_iter().map(<[usize]>::to_vec).collect();
        self.bundle(&groups, Bundle::Stack, |first, next| first.size += next.size);
    }

    /// Makes one of those that follow one another at the same size, where no others do.
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
            pairs.sort_by_cached_key(|pair| (Reverse(thrown(way, pair[0], buffers[pair[0]].size)), *pair));
            pairs.truncate((pairs.len() / DOUBTS).max(1));
        }
        self.follow(&pairs);
    }

    /// Makes one of those that follow one another at almost the same size, of a few: the larger of either takes bytes that the smaller one does not need.
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
                let off = (u128::from(pair[1].size - pair[0].size) << 10) / u128::from(pair[1].size);
                let off = u64::try_from(off).expect("a part of a whole");
                if off <= tolerance {
                    let [dies, born] = if pair[0].is_birth { [1, 0] } else { [0, 1] }.map(|n| pair[n].n);
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

    /// Makes chains of pairs.
    fn follow(&mut self, pairs: &[[usize; 2]]) {
        let mut next = vec![None; self.bundles.len()];
        let mut follows = vec![false; self.bundles.len()];
        for [dies, born] in pairs {
            next[*dies] = Some(*born);
            follows[*born] = true;
        }
        let begins = (0..next.len()).filter(|n| !follows[*n] && next[*n].is_some());
        let chains: Vec<Vec<usize>> =
            begins.map(|n| std::iter::successors(Some(n), |n| next[*n]).collect()).collect();
        self.bundle(&chains, Bundle::Chain, |first, next| {
            first.upper = next.upper;
            first.size = first.size.max(next.size);
        });
    }

    /// Puts one bundle in the place of the first of each group.
    fn bundle(
        &mut self,
        groups: &[Vec<usize>],
        made: fn(Vec<Bundle>) -> Bundle,
        join: fn(&mut Buffer, &Buffer),
    ) {
        let mut bundles: Vec<Option<Bundle>> =
            std::mem::take(&mut self.bundles).into_iter().map(Some).collect();
        for group in groups {
            let parts = group.iter().map(|n| bundles[*n].take().expect("groups have no bundle in common"));
            let bundle = made(parts.collect());
            bundles[group[0]] = Some(bundle);
            let mut buffer = self.problem.buffers[group[0]];
            group[1..].iter().for_each(|n| join(&mut buffer, &self.problem.buffers[*n]));
            self.problem.buffers[group[0]] = buffer;
        }
        let mut left = bundles.iter().map(Option::is_some);
        self.problem.buffers.retain(|_| left.next().expect("there are as many bundles as buffers"));
        self.bundles = bundles.into_iter().flatten().collect();
    }
}

/// A measure by which one is preferred to others; in later ways chance has a say in it (the last steps of Steele, Lea and Flood's *SplitMix*, 2014).
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

/// All changes, in order.
struct Cuts(Vec<Change>);

/// The changes at a moment.
struct Cut<'a>(&'a [Change]);

impl Cuts {
    fn new(buffers: &[Buffer]) -> Self {
        let bundled = buffers.iter().enumerate().filter(|(_, b)| may_be_bundled(b));
        let both = bundled.flat_map(|(n, b)| {
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
    /// True if no part of those who die takes the bytes of a part of those who are born, but all of all: so they lie side by side, if the problem is a piece that was cut.
    fn is_one(&self) -> bool {
        let sizes = |births: bool| self.0.iter().filter(move |c| c.is_birth == births).map(|c| c.size);
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

fn may_be_bundled(buffer: &Buffer) -> bool {
    buffer.lives() && buffer.fixed.is_none() && buffer.size.is_multiple_of(buffer.alignment)
}

impl Bundle {
    /// Gives offsets to the buffers it stands for; returns where it ends.
    fn place(&self, offset: u64, offsets: &mut [u64]) -> u64 {
        match self {
            Bundle::One(n, size) => {
                offsets[*n] = offset;
                offset + size
            }
            Bundle::Stack(parts) => parts.iter().fold(offset, |end, part| part.place(end, offsets)),
            Bundle::Chain(parts) => {
                parts.iter().fold(offset, |end, part| part.place(offset, offsets).max(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::greedy;
    use crate::memory::assign::samples::{planted, problem};
    use proptest::prelude::*;

    #[test]
    fn what_was_cut_from_edge_to_edge_is_one_again() {
        // Two halves, one of them cut across, and one of these in two moments.
        let p = problem(&[(0, 8, 10), (0, 8, 3), (0, 5, 7), (5, 8, 7)]);
        let bundled = Bundled::new(&p, 0);
        assert_eq!(bundled.problem, problem(&[(0, 8, 20)]));
        let s = bundled.unbundled(&p, &Solution { offsets: vec![5], height: 25 });
        assert_eq!((p.conflict(&s), s.offsets[2]), (None, s.offsets[3]));
        for seed in 0..20 {
            let (p, height) = planted(seed, 300);
            let bundled = Bundled::new(&p, 0);
            assert!(bundled.problem.buffers.len() * 10 < p.buffers.len());
            assert_eq!(max_load(&bundled.problem), height);
        }
    }

    #[test]
    fn what_is_certain_goes_first() {
        // Two pieces were cut at 4, at one height each. The upper was cut across before: at the moments of the lower that is in doubt, but not at 9.
        let p = problem(&[(0, 4, 5), (4, 9, 5), (0, 4, 7), (4, 6, 7), (6, 9, 7)]);
        for way in 0..4 {
            assert_eq!(Bundled::new(&p, way).problem, problem(&[(0, 9, 12)]));
        }
    }

    #[test]
    fn what_is_alike_follows_one_another_if_it_may() {
        let p = problem(&[(0, 4, 1000), (4, 9, 990)]);
        assert_eq!(Bundled::new(&p, 0).problem, p);
        let bundled = Bundled::new(&p, 2);
        assert_eq!(bundled.problem, problem(&[(0, 9, 1000)]));
        let s = bundled.unbundled(&p, &Solution { offsets: vec![3], height: 1003 });
        assert_eq!((p.conflict(&s), s.offsets), (None, vec![3, 3]));
    }

    #[test]
    fn what_may_not_move_or_would_not_fit_stays_alone() {
        let mut p = problem(&[(0, 8, 10), (0, 8, 10), (8, 9, 10)]);
        p.buffers[0].fixed = Some(3);
        p.buffers[1].alignment = 4;
        assert_eq!(Bundled::new(&p, 0).problem, p);
        // Either of two might follow.
        let p = problem(&[(0, 8, 10), (8, 9, 10), (8, 10, 10)]);
        assert_eq!(Bundled::new(&p, 0).problem, p);
    }

    proptest! {
        #[test]
        fn a_solution_of_bundles_is_one_of_the_whole(
            rows in prop::collection::vec((0u64..9, 1u64..9, 0u64..9, 1u64..3), 0..60)
        ) {
            let mut p = Problem::default();
            for (lower, lifespan, size, alignment) in rows {
                p.push(Buffer { alignment, ..Buffer::new(lower, lower + lifespan, size) });
            }
            for way in 0..8 {
                let bundled = Bundled::new(&p, way);
                let load = max_load(&bundled.problem);
                let tolerance = TOLERANCES[way as usize % TOLERANCES.len()];
                prop_assert!(load == max_load(&p) || tolerance > 0 && load > max_load(&p));
                let s = bundled.unbundled(&p, &greedy::solve(&bundled.problem));
                prop_assert_eq!(p.conflict(&s), None);
            }
        }
    }
}
