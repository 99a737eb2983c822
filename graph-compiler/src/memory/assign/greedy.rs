//! Heuristics: buffers are placed one after another, each into a gap between those already
//! placed.
//!
//! No order is good for every problem, so there are several, each with both rules for choosing a
//! gap ([`Ways`]). Effort is counted, so the result depends on the problem alone.

use super::problem::{Buffer, Problem, Solution};
use std::cmp::Reverse;

/// Above this number of buffers a sweep runs first.
const MANY: usize = 1000;

type Key = (Reverse<u128>, Reverse<u64>, u64);

/// Keys by which buffers are placed, least first. For large problems the effort ends after the
/// first key.
const ORDERS: [fn(&Buffer) -> Key; 4] = [
    |b| (Reverse(b.lifespan().into()), Reverse(b.size), b.lower),
    |b| (Reverse(u128::from(b.size) * u128::from(b.lifespan())), Reverse(b.size), b.lower),
    |b| (Reverse(b.size.into()), Reverse(b.lifespan()), b.lower),
    |b| (Reverse(u128::from(u64::MAX - b.lower)), Reverse(b.size), b.upper),
];

/// The rules tried with each order.
const FITS: [Fit; 2] = [Fit::Best, Fit::Lowest];

/// The rule for choosing a gap.
#[derive(Clone, Copy)]
enum Fit {
    /// The smallest sufficient gap; among equals the lowest.
    Best,
    /// The lowest sufficient gap.
    Lowest,
}

/// True if the effort may end before one order is complete, since a sweep then gives the
/// solution.
pub fn is_large(problem: &Problem) -> bool {
    problem.buffers.len() > MANY && problem.is_plain()
}

/// All orders, each with both rules.
pub struct Ways<'a> {
    placer: Placer<'a>,
    /// The last order tried.
    order: Vec<usize>,
    /// Number of ways tried.
    taken: usize,
}

impl<'a> Ways<'a> {
    /// No way has been tried yet.
    pub fn new(problem: &'a Problem) -> Self {
        Ways { placer: Placer::new(problem), order: Vec::new(), taken: 0 }
    }

    /// The solution of the next order and rule. None if there is no further one, or if all ways
    /// so far have inspected more than `effort` nodes and neighbours. The first way always gives
    /// a solution, unless the problem is [large](is_large).
    pub fn next(&mut self, effort: u64) -> Option<Solution> {
        let problem = self.placer.problem;
        let key = ORDERS.get(self.taken / FITS.len())?;
        if self.taken > 0 && self.placer.effort > effort {
            return None;
        }
        if self.taken.is_multiple_of(FITS.len()) {
            self.order = (0..problem.buffers.len()).collect();
            self.order.sort_by_key(|i| (key(&problem.buffers[*i]), *i));
        }
        let fit = FITS[self.taken % FITS.len()];
        self.taken += 1;
        self.placer.place(&self.order, fit, is_large(problem).then_some(effort))
    }
}

/// Finds the placed buffers whose live ranges overlap that of a buffer: a tree over the buffers
/// in order of birth. Each node holds the latest death below it.
struct Placer<'a> {
    problem: &'a Problem,
    /// Buffers in order of birth, and the position of each buffer in it.
    births: Vec<usize>,
    position: Vec<usize>,
    /// Latest death of a placed buffer below each node (0: none); the leaves are the second half.
    deaths: Vec<u64>,
    leaves: usize,
    effort: u64,
}

impl<'a> Placer<'a> {
    fn new(problem: &'a Problem) -> Self {
        let mut births: Vec<usize> = (0..problem.buffers.len()).collect();
        births.sort_by_key(|i| (problem.buffers[*i].lower, *i));
        let mut position = vec![0; births.len()];
        for (p, i) in births.iter().enumerate() {
            position[*i] = p;
        }
        let leaves = births.len().next_power_of_two();
        Placer { problem, births, position, deaths: vec![0; 2 * leaves], leaves, effort: 0 }
    }

    /// Places all buffers in this order. None if the effort exceeds the limit before the end.
    fn place(&mut self, order: &[usize], fit: Fit, limit: Option<u64>) -> Option<Solution> {
        self.deaths.fill(0);
        for (i, buffer) in self.problem.buffers.iter().enumerate() {
            if buffer.fixed.is_some() && buffer.size > 0 {
                self.insert(i);
            }
        }
        let mut offsets: Vec<u64> =
            self.problem.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
        let mut height = 0;
        let mut occupied: Vec<(u64, u64)> = Vec::new();
        for i in order {
            if limit.is_some_and(|limit| self.effort > limit) {
                return None;
            }
            let Buffer { size, alignment, fixed, .. } = self.problem.buffers[*i];
            if fixed.is_none() && size > 0 {
                occupied.clear();
                self.neighbours(*i, &offsets, &mut occupied);
                occupied.sort_unstable();
                self.effort += occupied.len() as u64;
                offsets[*i] = gap(&occupied, [size, alignment], fit);
                self.insert(*i);
            }
            height = height.max(offsets[*i].saturating_add(size));
        }
        Some(Solution { offsets, height })
    }

    fn insert(&mut self, i: usize) {
        let mut node = self.leaves + self.position[i];
        let death = self.problem.buffers[i].upper;
        while node > 0 && self.deaths[node] < death {
            self.deaths[node] = death;
            node /= 2;
        }
    }

    /// The bytes of the placed buffers whose live ranges overlap that of buffer `i`.
    fn neighbours(&mut self, i: usize, offsets: &[u64], occupied: &mut Vec<(u64, u64)>) {
        let buffers = &self.problem.buffers;
        let (lower, upper) = (buffers[i].lower, buffers[i].upper);
        let end = self.births.partition_point(|j| buffers[*j].lower < upper);
        let mut stack = vec![(1, 0, self.leaves)];
        while let Some((node, from, to)) = stack.pop() {
            self.effort += 1;
            if from >= end || self.deaths[node] <= lower {
                continue;
            }
            if to - from == 1 {
                let j = self.births[from];
                occupied.push((offsets[j], offsets[j] + buffers[j].size));
            } else {
                let middle = from.midpoint(to);
                stack.push((2 * node, from, middle));
                stack.push((2 * node + 1, middle, to));
            }
        }
    }
}

/// The first aligned byte of the gap that `fit` chooses among sorted, possibly overlapping
/// intervals.
fn gap(occupied: &[(u64, u64)], [size, alignment]: [u64; 2], fit: Fit) -> u64 {
    let mut end = 0;
    let mut best: Option<(u64, u64)> = None;
    for (from, to) in occupied {
        if *from > end && from - end >= size {
            if matches!(fit, Fit::Lowest) {
                return end;
            }
            if best.is_none_or(|(room, _)| from - end < room) {
                best = Some((from - end, end));
            }
        }
        end = end.max(to.next_multiple_of(alignment));
    }
    best.map_or(end, |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::samples::{planted, problem};
    use proptest::prelude::*;

    /// The lowest solution of all ways.
    fn solve(problem: &Problem) -> Solution {
        let mut ways = Ways::new(problem);
        std::iter::from_fn(|| ways.next(u64::MAX)).min_by_key(|s| s.height).unwrap()
    }

    #[test]
    fn buffers_that_never_meet_share_bytes() {
        let p = problem(&[(0, 2, 100), (2, 4, 100), (4, 9, 64)]);
        let s = solve(&p);
        assert_eq!((s.height, s.offsets), (100, vec![0, 0, 0]));
    }

    #[test]
    fn a_gap_is_used() {
        let p = problem(&[(0, 10, 10), (0, 5, 20), (5, 10, 20), (0, 10, 5)]);
        assert_eq!(solve(&p).height, 35);
    }

    #[test]
    fn nothing_to_place() {
        assert_eq!(solve(&problem(&[])), Solution::default());
        assert_eq!(solve(&problem(&[(0, 1, 0), (0, 1, 7)])).height, 7);
    }

    #[test]
    fn planted_towers_come_out_near_their_height() {
        for seed in 0..20 {
            let (p, height) = planted(seed, 150);
            assert_eq!(max_load(&p), height);
            let s = solve(&p);
            assert_eq!(p.conflict(&s), None);
            let gap = s.height as f64 / height as f64;
            assert!(gap <= 1.4, "seed {seed}: {gap}");
        }
    }

    #[test]
    fn a_broken_solution_is_found() {
        let p = problem(&[(0, 2, 10), (1, 3, 10), (2, 4, 10)]);
        let good = solve(&p);
        assert_eq!(p.conflict(&good), None);
        let with = |offsets: Vec<u64>, height| Solution { offsets, height };
        assert_eq!(p.conflict(&with(vec![0, 9, 30], 40)), Some((0, 1)));
        assert_eq!(p.conflict(&with(vec![0, 10, 30], 39)), Some((2, 2)));
        assert_eq!(p.conflict(&with(vec![0, 10], 40)), Some((2, 2)));
    }

    proptest! {
        #[test]
        fn any_problem_is_solved(
            rows in prop::collection::vec((0u64..40, 1u64..20, 0u64..50), 0..60)
        ) {
            let p = problem(&rows.iter().map(|(l, d, s)| (*l, l + d, *s)).collect::<Vec<_>>());
            let s = solve(&p);
            prop_assert_eq!(p.conflict(&s), None);
            let total: u64 = p.buffers.iter().map(|b| b.size).sum();
            prop_assert!(max_load(&p) <= s.height && s.height <= total);
            prop_assert_eq!(solve(&p), s);
        }
    }
}
