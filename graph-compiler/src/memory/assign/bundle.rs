//! Bundles: buffers that are placed as if they were one.
//!
//! Two buffers of one lifespan may lie one on the other, and two of one size, of which one is born as the other dies, in the same bytes. Either pair is a buffer like others, and
//! may be one of a pair itself. So are the rectangles that Wang builds of what is to be cut (*Two algorithms for constrained two-dimensional cutting stock problems*, 1983).
//!
//! What was one piece, and cut from edge to edge, is put together again like this, unless different places were cut at one moment; of most else, fewer buffers are left.
//! But a solution of bundles is one of the whole, and not the other way round: where bundles have none, nothing is known.

use super::problem::{Buffer, Problem, Solution};

/// Rounds at most; each nests bundles by two more.
const ROUNDS: usize = 64;

/// A problem of bundles.
pub struct Bundled {
    /// The bundles as buffers. The load is that of the whole at any moment.
    pub problem: Problem,
    /// What each stands for.
    bundles: Vec<Bundle>,
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
    pub fn new(problem: &Problem) -> Self {
        let bundles = problem.buffers.iter().enumerate().map(|(n, b)| Bundle::One(n, b.size)).collect();
        let mut all = Bundled { problem: problem.clone(), bundles };
        for _ in 0..ROUNDS {
            let before = all.bundles.len();
            all.stack();
            all.chain();
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
    fn stack(&mut self) {
        let buffers = &self.problem.buffers;
        let key = |n: usize| (buffers[n].lower, buffers[n].upper, buffers[n].alignment);
        let mut order: Vec<usize> = (0..buffers.len()).filter(|n| may_be_bundled(&buffers[*n])).collect();
        order.sort_by_key(|n| (key(*n), *n));
        let groups: Vec<Vec<usize>> = order
            .chunk_by(|a, b| key(*a) == key(*b))
            .filter(|group| group.len() > 1)
            .filter(|group| group.iter().try_fold(0u64, |sum, n| sum.checked_add(buffers[*n].size)).is_some())
            .map(<[usize]>::to_vec)
            .collect();
        self.bundle(&groups, Bundle::Stack, |first, next| first.size += next.size);
    }

    /// Makes one of those that follow one another at the same size, where no others do.
    fn chain(&mut self) {
        let buffers = &self.problem.buffers;
        let mut changes: Vec<((u64, u64, u64), bool, usize)> = Vec::with_capacity(2 * buffers.len());
        for (n, buffer) in buffers.iter().enumerate().filter(|(_, b)| may_be_bundled(b)) {
            changes.push(((buffer.lower, buffer.size, buffer.alignment), true, n));
            changes.push(((buffer.upper, buffer.size, buffer.alignment), false, n));
        }
        changes.sort_unstable();
        let mut next = vec![None; buffers.len()];
        let mut follows = vec![false; buffers.len()];
        for pair in changes.chunk_by(|a, b| a.0 == b.0) {
            if let [(_, false, dies), (_, true, born)] = pair {
                next[*dies] = Some(*born);
                follows[*born] = true;
            }
        }
        let begins = (0..buffers.len()).filter(|n| !follows[*n] && next[*n].is_some());
        let chains: Vec<Vec<usize>> =
            begins.map(|n| std::iter::successors(Some(n), |n| next[*n]).collect()).collect();
        self.bundle(&chains, Bundle::Chain, |first, next| first.upper = next.upper);
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
            Bundle::Chain(parts) => parts.iter().fold(offset, |_, part| part.place(offset, offsets)),
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
        let bundled = Bundled::new(&p);
        assert_eq!(bundled.problem, problem(&[(0, 8, 20)]));
        let s = bundled.unbundled(&p, &Solution { offsets: vec![5], height: 25 });
        assert_eq!((p.conflict(&s), s.offsets[2]), (None, s.offsets[3]));
        for seed in 0..20 {
            let (p, height) = planted(seed, 300);
            let bundled = Bundled::new(&p);
            assert!(bundled.problem.buffers.len() * 10 < p.buffers.len());
            assert_eq!(max_load(&bundled.problem), height);
        }
    }

    #[test]
    fn what_may_not_move_or_would_not_fit_stays_alone() {
        let mut p = problem(&[(0, 8, 10), (0, 8, 10), (8, 9, 10)]);
        p.buffers[0].fixed = Some(3);
        p.buffers[1].alignment = 4;
        assert_eq!(Bundled::new(&p).problem, p);
        // Either of two might follow.
        let p = problem(&[(0, 8, 10), (8, 9, 10), (8, 10, 10)]);
        assert_eq!(Bundled::new(&p).problem, p);
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
            let bundled = Bundled::new(&p);
            prop_assert_eq!(max_load(&bundled.problem), max_load(&p));
            let s = bundled.unbundled(&p, &greedy::solve(&bundled.problem));
            prop_assert_eq!(p.conflict(&s), None);
        }
    }
}
