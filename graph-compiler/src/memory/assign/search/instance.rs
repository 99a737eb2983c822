//! A problem in the form of the search.

use crate::memory::assign::problem::{Problem, Solution};
use crate::memory::assign::sweep::join;
use std::cmp::Reverse;
use std::ops::Range;

/// The buffers to be placed: those that take bytes at some moment and have no fixed offset; and
/// their sections.
pub(super) struct Instance {
    /// Their numbers in the problem.
    numbers: Vec<usize>,
    /// The offsets of all other buffers.
    others: Solution,
    pub height: u64,
    pub sizes: Vec<u64>,
    /// Their alignments.
    alignments: Vec<u64>,
    /// For each buffer the bytes of fixed buffers that it overlaps in time, sorted and merged.
    obstacles: Vec<Vec<(u64, u64)>>,
    /// Lengths of their live ranges in moments.
    lifespans: Vec<u64>,
    /// The sections in which each is live.
    pub sections: Vec<Range<usize>>,
    /// The total size in each section.
    pub loads: Vec<u64>,
    /// For each buffer those that it overlaps in time.
    pub neighbours: Vec<Vec<u32>>,
}

impl Instance {
    /// None if more than `most` pairs overlap, or the load of a section overflows.
    pub fn new(problem: &Problem, height: u64, most: usize) -> Option<Self> {
        let is_placed =
            |n: &usize| problem.buffers[*n].lives() && problem.buffers[*n].fixed.is_none();
        let numbers: Vec<usize> = (0..problem.buffers.len()).filter(is_placed).collect();
        let buffers: Vec<_> = numbers.iter().map(|n| problem.buffers[*n]).collect();
        // A section that no other contains begins with a birth, and the next change is a death.
        // Deaths come before births.
        let mut changes: Vec<(u64, bool)> =
            buffers.iter().flat_map(|b| [(b.lower, true), (b.upper, false)]).collect();
        changes.sort_unstable();
        let pairs = changes.windows(2).filter(|pair| pair[0].1 && !pair[1].1);
        let begins: Vec<u64> = pairs.map(|pair| pair[0].0).collect();
        let at = |moment: u64| begins.partition_point(|begin| *begin < moment);
        let sections: Vec<Range<usize>> =
            buffers.iter().map(|b| at(b.lower)..at(b.upper)).collect();
        let mut living: Vec<Vec<u32>> = vec![Vec::new(); begins.len()];
        let mut loads = vec![0u64; begins.len()];
        let mut pairs = 0usize;
        for (n, of) in sections.iter().enumerate() {
            for section in of.clone() {
                loads[section] = loads[section].checked_add(buffers[n].size)?;
                pairs = pairs.saturating_add(living[section].len());
                living[section].push(u32::try_from(n).ok()?);
            }
            if pairs > most {
                return None;
            }
        }
        let neighbours = sections.iter().enumerate().map(|(n, of)| {
            let mut met: Vec<u32> = living[of.clone()].iter().flatten().copied().collect();
            met.sort_unstable();
            met.dedup();
            met.retain(|other| *other as usize != n);
            met
        });
        let neighbours = neighbours.collect();
        let others: Solution = Solution {
            offsets: problem.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect(),
            height: problem
                .buffers
                .iter()
                .filter(|b| b.fixed.is_some() || !b.lives())
                .map(|b| b.fixed.unwrap_or(0).saturating_add(b.size))
                .max()
                .unwrap_or(0),
        };
        let all_fixed: Vec<_> =
            problem.buffers.iter().filter(|o| o.fixed.is_some() && o.lives()).collect();
        let obstacles = buffers.iter().map(|b| {
            let fixed = all_fixed.iter().filter(|o| o.meets(b));
            let mut taken: Vec<(u64, u64)> = fixed
                .map(|o| (o.fixed.unwrap_or(0), o.fixed.unwrap_or(0).saturating_add(o.size)))
                .collect();
            join(&mut taken);
            taken
        });
        let obstacles = obstacles.collect();
        Some(Instance {
            height,
            alignments: buffers.iter().map(|b| b.alignment).collect(),
            obstacles,
            sizes: buffers.iter().map(|b| b.size).collect(),
            lifespans: buffers.iter().map(|b| b.lifespan()).collect(),
            numbers,
            sections,
            loads,
            neighbours,
            others,
        })
    }

    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// The lowest offset from `least` on that alignment and fixed offsets allow.
    #[inline]
    pub fn lifted(&self, n: usize, least: u64) -> u64 {
        let alignment = self.alignments[n];
        let up =
            |offset: u64| if alignment == 1 { offset } else { offset.next_multiple_of(alignment) };
        let mut offset = up(least);
        for (from, to) in &self.obstacles[n] {
            if offset < *to && *from < offset.saturating_add(self.sizes[n]) {
                offset = up(*to);
            }
        }
        offset
    }

    /// True if the load of one section exceeds the height.
    pub fn is_too_low(&self) -> bool {
        self.others.height > self.height || self.loads.iter().any(|load| *load > self.height)
    }

    /// For each way of ranking, the rank of each buffer; low ranks come first.
    ///
    /// Keys: the greatest load of the buffer's sections (T), size times live range (A), live
    /// range (W).
    pub fn ranks(&self) -> Vec<Vec<u32>> {
        let total = |n: usize| {
            self.loads[self.sections[n].clone()].iter().copied().max().unwrap_or(0).into()
        };
        let width = |n: usize| u128::from(self.lifespans[n]);
        let area = |n: usize| u128::from(self.lifespans[n]) * u128::from(self.sizes[n]);
        let ways: [&dyn Fn(usize) -> [u128; 3]; 4] = [
            &|n| [total(n), width(n), area(n)],
            &|n| [total(n), area(n), width(n)],
            &|n| [width(n), area(n), total(n)],
            &|n| [area(n), width(n), total(n)],
        ];
        let rank = |key: &&dyn Fn(usize) -> [u128; 3]| {
            let mut order: Vec<usize> = (0..self.len()).collect();
            order.sort_by_key(|n| (Reverse(key(*n)), *n));
            let mut rank = vec![0; order.len()];
            order.iter().zip(0..).for_each(|(n, position)| rank[*n] = position);
            rank
        };
        ways.iter().map(rank).collect()
    }

    /// Converts the offsets of these buffers to a solution of the problem.
    pub fn solution(&self, offsets: &[u64]) -> Solution {
        let mut solution = self.others.clone();
        for ((number, offset), size) in self.numbers.iter().zip(offsets).zip(&self.sizes) {
            solution.offsets[*number] = *offset;
            solution.height = solution.height.max(offset + size);
        }
        solution
    }
}
