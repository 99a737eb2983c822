//! Solutions by sweeps over time: bytes are taken from a list of gaps at births, and returned at
//! deaths.
//!
//! One sweep takes O(n log n). The heuristics of `greedy` inspect all buffers that
//! overlap in time, for each buffer. But a sweep does not look ahead, so short-lived buffers
//! fragment the bytes of long-lived ones. Hence there is one sweep for each priority. It places the
//! buffers of this priority around those of higher priorities, whose births it knows. Buffers with
//! short live ranges overlap few births, so many priorities cost little more than one.

use super::problem::{Problem, Solution};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The priority of buffers with fixed offsets, which are placed before all sweeps.
const FIXED: u8 = u8::MAX;

/// For problems without alignments and fixed offsets. Each buffer takes the smallest sufficient
/// gap, among equals the lowest, in order of birth; of buffers born together the larger comes
/// first.
pub fn solve(problem: &Problem) -> Solution {
    let priorities = vec![0; problem.buffers.len()];
    Sweeps::new(problem)
        .solve(&priorities, &mut u64::MAX.clone())
        .expect("this effort does not end")
}

/// A problem that can be swept several times.
///
/// Buffers with fixed offsets must not overlap each other.
pub struct Sweeps<'a> {
    problem: &'a Problem,
    /// Buffers that take bytes at some moment, by birth; of those born together the larger first.
    births: Vec<u32>,
    /// The same, by death.
    deaths: Vec<u32>,
}

impl<'a> Sweeps<'a> {
    /// Sorts births and deaths.
    pub fn new(problem: &'a Problem) -> Self {
        let of = |n: &u32| &problem.buffers[*n as usize];
        let all = u32::try_from(problem.buffers.len())
            .expect("a problem has fewer buffers than memory has bytes");
        let mut births: Vec<u32> = (0..all).filter(|n| of(n).lives()).collect();
        let mut deaths = births.clone();
        births.sort_by_key(|n| (of(n).lower, Reverse(of(n).size), *n));
        deaths.sort_by_key(|n| (of(n).upper, *n));
        Sweeps { problem, births, deaths }
    }

    /// Places all buffers, those of higher priorities first. None if the effort, in inspected gaps
    /// and buffers, ends before.
    pub fn solve(&self, priorities: &[u8], left: &mut u64) -> Option<Solution> {
        let buffers = &self.problem.buffers;
        let given = |n: usize| buffers[n].fixed.is_some() || !buffers[n].lives();
        let offsets = buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
        let ends = (0..buffers.len())
            .filter(|n| given(*n))
            .map(|n| buffers[n].fixed.unwrap_or(0).saturating_add(buffers[n].size));
        let mut solution = Solution { offsets, height: ends.max().unwrap_or(0) };
        let priority = |n: &u32| match buffers[*n as usize].fixed {
            Some(_) => FIXED,
            None => priorities[*n as usize].min(FIXED - 1),
        };
        let mut all: Vec<u8> =
            self.births.iter().map(priority).filter(|priority| *priority < FIXED).collect();
        all.sort_unstable();
        all.dedup();
        for current in all.into_iter().rev() {
            *left = left.checked_sub(self.births.len() as u64 / 4)?;
            let births: Vec<(usize, bool)> = self
                .births
                .iter()
                .filter(|n| priority(n) >= current)
                .map(|n| (*n as usize, priority(n) > current))
                .collect();
            let deaths = self.deaths.iter().filter(|n| priority(n) >= current).map(|n| *n as usize);
            self.sweep(&births, deaths, &mut solution, left)?;
        }
        Some(solution)
    }

    /// One sweep: places the buffers that are not placed yet.
    fn sweep(
        &self,
        births: &[(usize, bool)],
        deaths: impl Iterator<Item = usize>,
        solution: &mut Solution,
        left: &mut u64,
    ) -> Option<()> {
        let buffers = &self.problem.buffers;
        let placed: Vec<usize> =
            births.iter().filter(|(_, placed)| *placed).map(|(n, _)| *n).collect();
        // Number of placed buffers that are born already.
        let mut born = 0;
        let mut deaths = deaths.peekable();
        let mut gaps = Gaps::new();
        let mut ahead: Vec<(u64, u64)> = Vec::new();
        for n in births.iter().filter(|(_, placed)| !placed).map(|(n, _)| *n) {
            let buffer = &buffers[n];
            // Processes deaths and births of placed buffers up to this birth in order of time,
            // deaths first.
            loop {
                let birth = placed
                    .get(born)
                    .map(|m| buffers[*m].lower)
                    .filter(|birth| *birth <= buffer.lower);
                let until = birth.unwrap_or(buffer.lower);
                if let Some(dead) = deaths.next_if(|m| buffers[*m].upper <= until) {
                    gaps.give(solution.offsets[dead], buffers[dead].size);
                } else if birth.is_some() {
                    let m = placed[born];
                    gaps.reserve(solution.offsets[m], buffers[m].size);
                    born += 1;
                } else {
                    break;
                }
            }
            ahead.clear();
            let until = placed[born..].iter().take_while(|m| buffers[**m].lower < buffer.upper);
            ahead.extend(
                until.map(|m| (solution.offsets[*m], solution.offsets[*m] + buffers[*m].size)),
            );
            *left = left.checked_sub(1 + ahead.len() as u64)?;
            join(&mut ahead);
            let offset = gaps.fitting(buffer.size, buffer.alignment, &ahead, left)?;
            gaps.reserve(offset, buffer.size);
            solution.offsets[n] = offset;
            solution.height = solution.height.max(offset + buffer.size);
        }
        Some(())
    }
}

/// Sorts intervals, and merges those that overlap or touch.
pub(super) fn join(intervals: &mut Vec<(u64, u64)>) {
    intervals.sort_unstable();
    intervals.dedup_by(|next, last| {
        let joined = next.0 <= last.1;
        if joined {
            last.1 = last.1.max(next.1);
        }
        joined
    });
}

/// Free bytes; the last gap has no end.
struct Gaps {
    /// The end of each gap by its offset. No two gaps touch.
    ends: BTreeMap<u64, u64>,
    /// Sizes and offsets of the gaps.
    sizes: BTreeSet<(u64, u64)>,
}

impl Gaps {
    fn new() -> Self {
        let mut gaps = Gaps { ends: BTreeMap::new(), sizes: BTreeSet::new() };
        gaps.insert(0, u64::MAX);
        gaps
    }

    fn insert(&mut self, from: u64, to: u64) {
        self.ends.insert(from, to);
        self.sizes.insert((to - from, from));
    }

    fn remove(&mut self, from: u64, to: u64) {
        self.ends.remove(&from);
        self.sizes.remove(&(to - from, from));
    }

    /// The lowest offset in the smallest gap that has `size` bytes free of `ahead`. None if the
    /// effort ends before.
    fn fitting(
        &self,
        size: u64,
        alignment: u64,
        ahead: &[(u64, u64)],
        left: &mut u64,
    ) -> Option<u64> {
        let up =
            |offset: u64| if alignment == 1 { offset } else { offset.next_multiple_of(alignment) };
        for (room, from) in self.sizes.range((size, 0)..) {
            *left = left.checked_sub(1)?;
            let end = from + room;
            let mut offset = up(*from);
            let first = ahead.partition_point(|(_, to)| *to <= offset);
            for (from, to) in &ahead[first..] {
                if *from >= offset + size || *from >= end {
                    break;
                }
                *left = left.checked_sub(1)?;
                offset = up(offset.max(*to));
            }
            if offset + size <= end {
                return Some(offset);
            }
        }
        unreachable!("the last gap has no end")
    }

    /// Takes free bytes.
    fn reserve(&mut self, offset: u64, size: u64) {
        let gap = self.ends.range(..=offset).next_back().map(|(from, to)| (*from, *to));
        let (from, to) = gap.expect("nobody takes bytes of another");
        self.remove(from, to);
        if from < offset {
            self.insert(from, offset);
        }
        if offset + size < to {
            self.insert(offset + size, to);
        }
    }

    fn give(&mut self, offset: u64, size: u64) {
        let (mut from, mut to) = (offset, offset + size);
        let below = self.ends.range(..offset).next_back().map(|(from, to)| (*from, *to));
        if let Some((start, end)) = below.filter(|(_, end)| *end == offset) {
            self.remove(start, end);
            from = start;
        }
        if let Some(end) = self.ends.get(&to).copied() {
            self.remove(to, end);
            to = end;
        }
        self.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::problem::Buffer;
    use crate::memory::assign::samples::problem;
    use proptest::prelude::*;

    #[test]
    fn what_lives_together_is_stacked_and_gaps_are_joined() {
        let p = problem(&[(0, 9, 10), (0, 9, 20), (0, 9, 5)]);
        assert_eq!(solve(&p), Solution { offsets: vec![20, 0, 30], height: 35 });
        // Two neighbours die, and one buffer takes the bytes of both.
        let p = problem(&[(0, 2, 10), (0, 2, 10), (0, 9, 5), (2, 5, 20)]);
        assert_eq!(solve(&p).height, 25);
        // The last gap grows at the top.
        let p = problem(&[(0, 2, 10), (2, 5, 30)]);
        assert_eq!(solve(&p).height, 30);
        assert_eq!(solve(&problem(&[(3, 3, 7), (0, 1, 0)])).height, 7);
    }

    #[test]
    fn a_lower_priority_is_placed_around_what_will_be_born() {
        // The last buffer overlaps the first two in time. The second is placed above the first,
        // though that is not necessary.
        let p = problem(&[(0, 4, 10), (3, 9, 10), (2, 5, 10)]);
        let s = Sweeps::new(&p).solve(&[1, 1, 0], &mut 100).unwrap();
        assert_eq!(s, Solution { offsets: vec![0, 10, 20], height: 30 });
        assert_eq!(Sweeps::new(&p).solve(&[1, 1, 0], &mut 2), None);
        // Between two later births, aligned.
        let mut p = problem(&[(2, 9, 10), (3, 9, 10), (0, 9, 5)]);
        p.buffers[0].fixed = Some(0);
        p.buffers[1].fixed = Some(18);
        p.buffers[2].alignment = 4;
        let s = Sweeps::new(&p).solve(&[0; 3], &mut 100).unwrap();
        assert_eq!((s.offsets[2], s.height), (12, 28));
    }

    proptest! {
        #[test]
        fn any_priorities_are_a_solution(
            rows in prop::collection::vec((0u64..40, 1u64..20, 0u64..50, 1u64..5, 0u8..6), 0..80)
        ) {
            let mut p = Problem::default();
            for (lower, lifespan, size, alignment, _) in &rows {
                p.push(Buffer {
                    alignment: *alignment,
                    ..Buffer::new(*lower, lower + lifespan, *size)
                });
            }
            let priorities: Vec<u8> = rows.iter().map(|row| row.4).collect();
            let s = Sweeps::new(&p).solve(&priorities, &mut 1_000_000).unwrap();
            prop_assert_eq!(p.conflict(&s), None);
            prop_assert!(max_load(&p) <= s.height);
        }


        #[test]
        fn any_problem_is_solved(
            rows in prop::collection::vec((0u64..40, 1u64..20, 0u64..50), 0..80)
        ) {
            let p = problem(&rows.iter().map(|(l, d, s)| (*l, l + d, *s)).collect::<Vec<_>>());
            let s = solve(&p);
            prop_assert_eq!(p.conflict(&s), None);
            prop_assert!(max_load(&p) <= s.height);
        }
    }
}
