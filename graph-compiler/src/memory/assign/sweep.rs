//! A solution in one sweep over time: bytes are taken from a list of gaps as buffers are born, and given back as they die.
//!
//! It knows nothing of what comes, so it is worse than the search of [`super::greedy`]; but it takes O(n log n), where a buffer that is placed
//! by the search looks at all that live beside it. Where there are many buffers it comes first, and if it reaches the max load there is
//! nothing to search for.

use super::problem::{Problem, Solution};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// For problems whose buffers may lie anywhere: gives each the smallest gap that is large enough, of equals the lowest, in order of birth; the larger of those born together first.
pub fn solve(problem: &Problem) -> Solution {
    let buffers = &problem.buffers;
    let mut births: Vec<usize> = (0..buffers.len()).filter(|i| buffers[*i].lives()).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|i| (buffers[*i].lower, Reverse(buffers[*i].size), *i));
    deaths.sort_by_key(|i| (buffers[*i].upper, *i));
    let mut deaths = deaths.into_iter().peekable();
    let mut offsets = vec![0; buffers.len()];
    // What lives at no moment is in nobody's way.
    let height = buffers.iter().filter(|b| b.lower >= b.upper).map(|b| b.size).max().unwrap_or(0);
    let mut gaps = Gaps::default();
    for i in births {
        while let Some(dead) = deaths.next_if(|j| buffers[*j].upper <= buffers[i].lower) {
            gaps.give(offsets[dead], buffers[dead].size);
        }
        offsets[i] = gaps.take(buffers[i].size);
    }
    Solution { offsets, height: height.max(gaps.top) }
}

/// Free bytes below the top.
#[derive(Default)]
struct Gaps {
    /// Sizes by offset; no two touch each other.
    sizes: BTreeMap<u64, u64>,
    /// The same, by size.
    fitting: BTreeSet<(u64, u64)>,
    top: u64,
}

impl Gaps {
    fn insert(&mut self, offset: u64, size: u64) {
        self.sizes.insert(offset, size);
        self.fitting.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.sizes.remove(&offset);
        self.fitting.remove(&(size, offset));
    }

    fn take(&mut self, size: u64) -> u64 {
        if let Some((room, offset)) = self.fitting.range((size, 0)..).next().copied() {
            self.remove(offset, room);
            if room > size {
                self.insert(offset + size, room - size);
            }
            return offset;
        }
        // At the top, together with the gap below it, if there is one.
        let last = self.sizes.last_key_value().map(|(offset, room)| (*offset, *room));
        let offset = match last.filter(|(offset, room)| offset + room == self.top) {
            Some((offset, room)) => {
                self.remove(offset, room);
                offset
            }
            None => self.top,
        };
        self.top = offset + size;
        offset
    }

    fn give(&mut self, mut offset: u64, mut size: u64) {
        let below = self.sizes.range(..offset).next_back().map(|(o, s)| (*o, *s));
        if let Some((start, room)) = below.filter(|(start, room)| start + room == offset) {
            self.remove(start, room);
            (offset, size) = (start, room + size);
        }
        if let Some(room) = self.sizes.get(&(offset + size)).copied() {
            self.remove(offset + size, room);
            size += room;
        }
        self.insert(offset, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::samples::problem;
    use proptest::prelude::*;

    #[test]
    fn what_lives_together_is_stacked_and_gaps_are_joined() {
        let p = problem(&[(0, 9, 10), (0, 9, 20), (0, 9, 5)]);
        assert_eq!(solve(&p), Solution { offsets: vec![20, 0, 30], height: 35 });
        // Two neighbours die, and one takes the bytes of both.
        let p = problem(&[(0, 2, 10), (0, 2, 10), (0, 9, 5), (2, 5, 20)]);
        assert_eq!(solve(&p).height, 25);
        // The last gap grows at the top.
        let p = problem(&[(0, 2, 10), (2, 5, 30)]);
        assert_eq!(solve(&p).height, 30);
        assert_eq!(solve(&problem(&[(3, 3, 7), (0, 1, 0)])).height, 7);
    }

    proptest! {
        #[test]
        fn any_problem_is_solved(rows in prop::collection::vec((0u64..40, 1u64..20, 0u64..50), 0..80)) {
            let p = problem(&rows.iter().map(|(l, d, s)| (*l, l + d, *s)).collect::<Vec<_>>());
            let s = solve(&p);
            prop_assert_eq!(p.conflict(&s), None);
            prop_assert!(max_load(&p) <= s.height);
        }
    }
}
