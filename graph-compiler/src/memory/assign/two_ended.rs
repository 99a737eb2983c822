//! Two-ended placement under a ceiling, by the moments at which memory is almost full.
//!
//! In the backward pass of a training step, activations die in the reverse order of their births
//! while long-lived gradients are born. A gradient on top of the activations fragments memory: the
//! gap that a dead activation leaves below the gradient only fits buffers of at most its size, and
//! if sizes differ by a few percent, it stays empty. A ceiling gives memory a second end:
//! long-lived buffers are stacked downwards from the ceiling, and the free bytes between the two
//! stacks stay contiguous.
//!
//! The placement does not know which buffers are gradients. A buffer goes to the end of its gap
//! whose neighbour outlives the buffer. If both neighbours do, the buffer goes to the one that dies
//! first. So a neighbour leaves no hole beside the buffer, and deaths along a stack are in order.
//!
//! A moment is *tight* if its load is almost the greatest. Other moments have room for holes, so
//! births and deaths are numbered by the count of tight moments before them. All buffers that are
//! live at the first tight moment then have the same birth, and are stacked in the order of their
//! deaths, whatever the order of their births. The same holds backwards in time.
//!
//! A buffer takes the smallest gap that is large enough. Buffers that are live for many tight
//! moments are placed first. A buffer that ends above the ceiling is placed before all others in
//! the next round, as in [`priority`](super::priority). When no buffer ends above the ceiling, the
//! ceiling is lowered.

use super::bound::load;
use super::occupancy::{Occupancy, Placed};
use super::problem::{Buffer, Problem, Solution};
use std::cmp::Reverse;

/// A moment is tight if its load is at least `bound - bound / TIGHT`.
const TIGHT: u64 = 20;
/// The first ceiling is `bound + bound / SLACK`. A solution below the ceiling halves the distance.
const SLACK: u64 = 105;
/// Rounds without improvement after which the next way is tried.
const PATIENCE: u32 = 10;
/// Ways: the direction of time, and the number of halvings of the longest live range that gives
/// the threshold of *long*.
const WAYS: [(Direction, u32); 14] = {
    use Direction::{Backwards, Forwards};
    [
        (Forwards, 2),
        (Backwards, 2),
        (Forwards, 5),
        (Backwards, 5),
        (Forwards, 1),
        (Backwards, 1),
        (Forwards, 3),
        (Backwards, 3),
        (Forwards, 8),
        (Backwards, 8),
        (Forwards, 4),
        (Backwards, 4),
        (Forwards, 6),
        (Backwards, 6),
    ]
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forwards,
    Backwards,
}

/// The lowest solution found; stops at a height of `bound`. `left` is the remaining effort, in
/// units of about 60 nanoseconds.
///
/// None if the effort does not suffice for one solution. Buffers with fixed offsets must not
/// overlap each other.
pub fn solve(problem: &Problem, bound: u64, left: &mut u64) -> Option<Solution> {
    let mut best: Option<Solution> = None;
    let mut slack = 0u32;
    // The distance of a ceiling from the bound is a multiple of the unit of all sizes. So buffers
    // stacked from the ceiling have the same alignment as those stacked from offset 0.
    let unit = problem.unit();
    let ceiling = |slack: u32| {
        bound.saturating_add((bound / SLACK).checked_shr(slack).unwrap_or(0) / unit * unit)
    };
    for (direction, halvings) in WAYS {
        let line = Line::new(problem, bound, direction);
        let mut priorities = line.priorities(halvings);
        let (mut own, mut failures) = (u64::MAX, 0);
        for round in 0.. {
            let now = ceiling(slack);
            let Some(solution) = line.place(&priorities, now, left) else { return best };
            failures = if solution.height < own { 0 } else { failures + 1 };
            own = own.min(solution.height);
            for ((priority, buffer), offset) in
                priorities.iter_mut().zip(&problem.buffers).zip(&solution.offsets)
            {
                if offset.saturating_add(buffer.size) > now {
                    *priority += 1 + round % 3;
                }
            }
            if best.as_ref().is_none_or(|best| solution.height < best.height) {
                best = Some(solution);
            }
            let height = best.as_ref().map_or(0, |best| best.height);
            if height <= bound {
                return best;
            }
            while ceiling(slack) >= height {
                slack += 1;
                failures = 0;
            }
            if failures >= PATIENCE {
                break;
            }
        }
    }
    best
}

/// The buffers of a problem on a line of moments that runs forwards or backwards.
struct Line<'a> {
    problem: &'a Problem,
    /// Number of distinct births and deaths.
    moments: u32,
    /// Birth and death of each buffer, numbered by distinct moments.
    spans: Vec<(u32, u32)>,
    /// Birth and death of each buffer, numbered by tight moments.
    tight: Vec<(u32, u32)>,
}

impl<'a> Line<'a> {
    fn new(problem: &'a Problem, bound: u64, direction: Direction) -> Self {
        // The load changes at births and deaths only, but not at each of them.
        let mut moments: Vec<u64> =
            problem.buffers.iter().flat_map(|b| [b.lower, b.upper]).collect();
        moments.sort_unstable();
        moments.dedup();
        let mut loads = load(problem).into_iter().peekable();
        let mut now = 0;
        let mut before = Vec::with_capacity(moments.len());
        let mut count = 0u32;
        for moment in &moments {
            before.push(count);
            while let Some((_, load)) = loads.next_if(|(at, _)| at <= moment) {
                now = load;
            }
            count += u32::from(now >= bound - bound / TIGHT);
        }
        let last = u32::try_from(moments.len()).expect("a problem has fewer than 2³² moments");
        let span = |buffer: &Buffer| {
            [buffer.lower, buffer.upper]
                .map(|moment| moments.partition_point(|other| *other < moment))
        };
        let (mut spans, mut tight) = (Vec::new(), Vec::new());
        for buffer in &problem.buffers {
            let [from, to] = span(buffer);
            let numbers = (from as u32, to as u32);
            let counts = (before[from], before[to]);
            match direction {
                Direction::Forwards => {
                    spans.push(numbers);
                    tight.push(counts);
                }
                Direction::Backwards => {
                    spans.push((last - numbers.1, last - numbers.0));
                    tight.push((count - counts.1, count - counts.0));
                }
            }
        }
        Line { problem, moments: last, spans, tight }
    }

    /// Priority 1 for long-lived buffers, 0 for the others.
    fn priorities(&self, halvings: u32) -> Vec<u32> {
        let lifespans = self.tight.iter().map(|(birth, death)| death - birth);
        let long = lifespans.clone().max().unwrap_or(0) >> halvings;
        lifespans.map(|lifespan| u32::from(lifespan > long)).collect()
    }

    /// Places all buffers, those of higher priorities first. None if the effort does not suffice.
    fn place(&self, priorities: &[u32], ceiling: u64, left: &mut u64) -> Option<Solution> {
        let buffers = &self.problem.buffers;
        let mut order: Vec<usize> = (0..buffers.len()).filter(|n| buffers[*n].lives()).collect();
        order.sort_by_key(|n| {
            let ((birth, death), buffer) = (self.tight[*n], &buffers[*n]);
            let first =
                (Reverse(buffer.fixed.is_some()), Reverse(priorities[*n]), birth, Reverse(death));
            (first, self.spans[*n].0, Reverse(buffer.size), *n)
        });
        let mut solution =
            Solution { offsets: buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect(), height: 0 };
        let mut occupancy = Occupancy::new(order.len(), self.moments, ceiling);
        for n in order {
            let (buffer, (lower, upper)) = (&buffers[n], self.spans[n]);
            let place = Placed { lower, upper, from: 0, to: buffer.size, death: self.tight[n].1 };
            let offset = match buffer.fixed {
                Some(offset) => offset,
                None => occupancy.fitting(&place, buffer.alignment, left)?,
            };
            occupancy.insert(&Placed {
                from: offset,
                to: offset.saturating_add(buffer.size),
                ..place
            });
            solution.offsets[n] = offset;
        }
        let ends =
            buffers.iter().zip(&solution.offsets).map(|(b, offset)| offset.saturating_add(b.size));
        solution.height = ends.max().unwrap_or(0);
        Some(solution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::samples::{is_solved, laid_over, problem, training};
    use proptest::prelude::*;

    #[test]
    fn long_lived_buffers_are_stacked_from_the_ceiling() {
        // Activations die last in, first out. Each buffer born meanwhile is a little larger than
        // the one that dies at its birth.
        let p = problem(&[
            (0, 9, 100),
            (1, 8, 100),
            (2, 7, 100),
            (2, 4, 103),
            (7, 12, 101),
            (8, 12, 102),
        ]);
        let s = solve(&p, max_load(&p), &mut 10_000).unwrap();
        assert_eq!((p.conflict(&s), s.height), (None, 403));
    }

    #[test]
    fn only_tight_moments_count() {
        // The first three are live at 9. The first of them to be born is the first to die, and
        // its successor takes its bytes.
        let p = problem(&[(0, 10, 5), (1, 12, 7), (2, 11, 6), (10, 12, 5), (11, 13, 6)]);
        let line = Line::new(&p, max_load(&p), Direction::Forwards);
        assert_eq!(line.tight[..3], [(0, 1), (0, 3), (0, 2)]);
        let backwards = Line::new(&p, max_load(&p), Direction::Backwards);
        assert_eq!(backwards.tight[..3], [(2, 3), (0, 3), (1, 3)]);
        assert_eq!(backwards.spans[0].1 - backwards.spans[0].0, line.spans[0].1 - line.spans[0].0);
        let s = solve(&p, max_load(&p), &mut 10_000).unwrap();
        assert_eq!((p.conflict(&s), s.height), (None, 18));
    }

    #[test]
    fn jittered_and_overlaid_training_steps_come_within_a_percent_of_their_load() {
        for seed in 0..4 {
            let alone = training(seed, 40, seed % 2 == 0, 5 + seed);
            let over = laid_over(seed, 6, 12, 10);
            for p in [alone, over] {
                let bound = max_load(&p);
                let s = solve(&p, bound, &mut 1_000_000).unwrap();
                assert!(is_solved(&p, &s));
                assert!(s.height * 100 <= bound * 101, "{seed}: {} of {bound}", s.height);
            }
        }
    }

    #[test]
    fn placement_ends_with_the_effort() {
        let p = training(3, 20, true, 10);
        let bound = max_load(&p);
        assert_eq!(solve(&p, bound, &mut 100), None);
        let heights = [30_000, 100_000, 1_000_000].map(|effort| {
            let s = solve(&p, bound, &mut effort.clone()).unwrap();
            assert_eq!(
                (p.conflict(&s), &solve(&p, bound, &mut effort.clone()).unwrap()),
                (None, &s)
            );
            s.height
        });
        assert!(heights.is_sorted_by(|a, b| a >= b), "{heights:?}");
    }

    #[test]
    fn offsets_are_multiples_of_the_unit_of_sizes() {
        for seed in 0..4 {
            let mut p = training(seed, 20, true, 10);
            p.buffers.iter_mut().for_each(|b| b.size *= 64);
            // Efforts so small that some solutions come from a higher ceiling.
            for effort in [2_000, 10_000, 100_000] {
                let s = solve(&p, max_load(&p), &mut effort.clone());
                let offsets = s.into_iter().flat_map(|s| s.offsets);
                assert_eq!(offsets.filter(|offset| !offset.is_multiple_of(64)).count(), 0);
            }
        }
    }

    proptest! {
        #[test]
        fn with_obstacles_and_alignments_there_is_a_solution(
            rows in prop::collection::vec((0u64..40, 0u64..20, 0u64..50, 1u64..5), 0..60),
            fixed in 0u64..100,
        ) {
            let mut p = Problem::default();
            for (lower, lifespan, size, alignment) in rows {
                p.push(Buffer { alignment, ..Buffer::new(lower, lower + lifespan, size) });
            }
            p.push(Buffer { fixed: Some(fixed), ..Buffer::new(10, 30, 20) });
            let s = solve(&p, max_load(&p), &mut 20_000).unwrap();
            prop_assert_eq!(p.conflict(&s), None);
            prop_assert!(max_load(&p) <= s.height);
        }
    }
}
