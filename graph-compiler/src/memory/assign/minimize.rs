//! The least height, bounded from both sides.

use super::arrange::arrange;
use super::bound::max_load;
use super::coalesce::Coalesced;
use super::improve::improve;
use super::problem::{Problem, Solution};
use super::search::{Found, MANY, within};

/// The best solution and the best bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Minimized {
    /// The best solution.
    pub solution: Solution,
    /// A lower bound of the height of all solutions.
    pub bound: u64,
}

impl Minimized {
    /// True if no solution is lower.
    pub fn is_least(&self) -> bool {
        self.solution.height == self.bound
    }
}

/// Ways of coalescing whose solutions are improved.
const WAYS: u64 = 4;
/// The first share of the effort for a height is `left / SHARES`.
const SHARES: u64 = 16;
/// Effort of [`arrange`] per state of the search effort, and its maximum.
const ARRANGED: u64 = 64;
const MOST_ARRANGED: u64 = 48 << 20;
/// Units of that effort that take as long as one state.
const UNITS: u64 = 16;

/// Searches for a solution of the least height. All searches together visit at most `effort`
/// states.
///
/// Buffers with fixed offsets must not overlap each other.
pub fn minimize(problem: &Problem, effort: u64) -> Minimized {
    let parts = parts(problem);
    let mut solution = Solution {
        offsets: problem.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect(),
        height: 0,
    };
    let mut solved: Vec<Narrowed> =
        parts.iter().map(|part| Narrowed::new(part.take(problem), effort)).collect();
    let mut left = effort;
    // Parts below the highest bound need not be lowered.
    let mut bound = solved.iter().map(|part| part.bound).max().unwrap_or(0);
    for part in &mut solved {
        if part.solution.height > bound {
            part.narrow(bound, &mut left);
            bound = bound.max(part.bound);
        }
    }
    for (part, solved) in parts.iter().zip(&solved) {
        for (n, offset) in part.0.iter().zip(&solved.solution.offsets) {
            solution.offsets[*n] = *offset;
        }
        solution.height = solution.height.max(solved.solution.height);
    }
    Minimized { solution, bound }
}

/// A part of a problem: no buffer of it overlaps one of another part in time.
struct Part(Vec<usize>);

impl Part {
    fn take(&self, problem: &Problem) -> Problem {
        Problem { buffers: self.0.iter().map(|n| problem.buffers[*n]).collect() }
    }
}

/// Cuts a problem at the moments that no live range crosses.
fn parts(problem: &Problem) -> Vec<Part> {
    let mut order: Vec<usize> = (0..problem.buffers.len()).collect();
    order.sort_by_key(|n| (problem.buffers[*n].lower, *n));
    let mut parts: Vec<Part> = Vec::new();
    let mut end = 0;
    for n in order {
        let buffer = &problem.buffers[n];
        match parts.last_mut().filter(|_| buffer.lower < end) {
            Some(part) => part.0.push(n),
            None => parts.push(Part(vec![n])),
        }
        end = end.max(buffer.upper);
    }
    parts
}

/// A part with its best solution and bound.
struct Narrowed {
    problem: Problem,
    solution: Solution,
    bound: u64,
    /// Heights are multiples of this.
    unit: u64,
}

impl Narrowed {
    fn new(problem: Problem, effort: u64) -> Self {
        let solution = arrange(&problem, effort.saturating_mul(ARRANGED).min(MOST_ARRANGED));
        let bound = max_load(&problem);
        let unit = problem.unit();
        Narrowed { problem, solution, bound, unit }
    }

    /// Lowers the solution, until it is at `enough` or at the bound, or the effort is spent.
    fn narrow(&mut self, enough: u64, left: &mut u64) {
        self.search(self.bound.max(enough), *left / SHARES, left);
        if self.solution.height > self.bound.max(enough) {
            self.narrow_blocks(self.bound.max(enough), left);
        }
        spend(left, *left / 4, |rest| {
            improve(&self.problem, &mut self.solution, self.bound.max(enough), rest)
        });
        // Searches below this gave up or found nothing.
        let mut below = self.bound.max(enough);
        let mut share = (*left / SHARES).max(1);
        while *left > 0 && self.solution.height > self.bound.max(enough) {
            if below >= self.solution.height {
                // Every height was tried: repeat with more effort for each.
                below = self.bound.max(enough);
                share = share.saturating_mul(4);
            }
            let height = self.tried(below);
            let before = *left;
            match self.search(height, share, left) {
                Some(true) => {}
                Some(false) => below = below.max(self.bound),
                // The problem is too large to be searched.
                None if *left == before => return,
                None => below = height + self.unit,
            }
        }
    }

    /// Searches for a solution of this height. Returns whether there is one; None if the share of
    /// the effort does not decide that.
    fn search(&mut self, height: u64, share: u64, left: &mut u64) -> Option<bool> {
        match spend(left, share, |rest| within(&self.problem, height, rest)) {
            Found::Solution(solution) => {
                self.solution = solution;
                Some(true)
            }
            Found::Nothing => {
                self.bound = self.bound.max(height + self.unit);
                Some(false)
            }
            Found::Unknown => None,
        }
    }

    /// Lowers the solution if blocks have a lower one.
    fn narrow_blocks(&mut self, enough: u64, left: &mut u64) {
        let count = self.problem.buffers.len() as u64;
        for way in 0..WAYS {
            // The effort that a search counts for it.
            let Some(rest) = left.checked_sub(count * (1 + count / MANY) / 8) else { return };
            *left = rest;
            let coalesced = Coalesced::new(&self.problem, way);
            if coalesced.problem.buffers.len() >= self.problem.buffers.len()
                || self.solution.height <= enough
            {
                continue;
            }
            spend(left, *left / 8, |rest| {
                // Half of the share is left to `improve`. A unit of `arrange` is a fraction of a
                // state.
                *rest /= 2;
                let mut solution =
                    arrange(&coalesced.problem, rest.saturating_mul(UNITS).min(MOST_ARRANGED));
                improve(&coalesced.problem, &mut solution, enough, rest);
                if solution.height < self.solution.height {
                    self.solution = coalesced.expanded(&self.problem, &solution);
                }
            });
        }
    }

    /// The next height to try: the bound at first, then the middle of the remaining interval.
    fn tried(&self, below: u64) -> u64 {
        if below == self.bound {
            return below;
        }
        let steps = (self.solution.height - below) / self.unit;
        below + steps / 2 * self.unit
    }
}

/// Runs `on` with a share of the effort that is left, and subtracts what it spent.
fn spend<T>(left: &mut u64, share: u64, on: impl FnOnce(&mut u64) -> T) -> T {
    let given = share.min(*left);
    let mut rest = given;
    let result = on(&mut rest);
    *left -= given - rest;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::problem::Buffer;
    use crate::memory::assign::samples::{is_solved, planted, problem, wound};
    use proptest::prelude::*;

    /// The least height, by trying every offset of every buffer.
    fn exhausted(problem: &Problem) -> u64 {
        fn placed(problem: &Problem, offsets: &mut Vec<u64>, height: u64) -> bool {
            let n = offsets.len();
            let Some(buffer) = problem.buffers.get(n) else { return true };
            (0..=height.saturating_sub(buffer.size)).any(|offset| {
                let beside = |other: usize| {
                    let (o, at) = (&problem.buffers[other], offsets[other]);
                    !o.lives()
                        || !buffer.lives()
                        || !o.meets(buffer)
                        || at + o.size <= offset
                        || offset + buffer.size <= at
                };
                let good = offset + buffer.size <= height
                    && buffer.may_lie_at(offset)
                    && (0..n).all(beside);
                good && {
                    offsets.push(offset);
                    let done = placed(problem, offsets, height);
                    offsets.pop();
                    done
                }
            })
        }
        (0..)
            .find(|height| placed(problem, &mut Vec::new(), *height))
            .expect("there is always a solution")
    }

    proptest! {
        #[test]
        fn with_obstacles_and_alignments_the_least_height_is_found(
            rows in prop::collection::vec(
                (0u64..6, 1u64..4, 0u64..6, 1u64..4, prop::option::weighted(0.2, 0u64..6)),
                0..6,
            )
        ) {
            let mut p = Problem::default();
            for (lower, lifespan, size, alignment, fixed) in rows {
                let fixed = fixed.map(|n| n * alignment);
                let buffer =
                    Buffer { alignment, fixed, ..Buffer::new(lower, lower + lifespan, size) };
                let clashes = |o: &Buffer| {
                    let (Some(a), Some(b)) = (o.fixed, fixed) else { return false };
                    o.lives()
                        && buffer.lives()
                        && o.meets(&buffer)
                        && a < b + size
                        && b < a + o.size
                };
                if !p.buffers.iter().any(clashes) {
                    p.push(buffer);
                }
            }
            let found = minimize(&p, 1 << 16);
            prop_assert_eq!(p.conflict(&found.solution), None);
            prop_assert_eq!(found.solution.height, exhausted(&p));
            prop_assert!(found.is_least());
        }
    }

    #[test]
    fn what_never_meets_is_solved_by_itself() {
        // A tower, nothing for a while, and a lower tower that needs no effort.
        let (tower, height) = planted(1, 40);
        let mut p = tower.clone();
        for buffer in &tower.buffers {
            p.push(Buffer {
                lower: buffer.lower + (1 << 20),
                upper: buffer.upper + (1 << 20),
                size: buffer.size / 2,
                ..*buffer
            });
        }
        let found = minimize(&p, 1 << 18);
        assert_eq!((found.solution.height, found.is_least()), (height, true));
        assert_eq!(p.conflict(&found.solution), None);
    }

    #[test]
    fn what_was_not_cut_from_edge_to_edge_is_put_together() {
        for seed in 0..8 {
            let (p, height) = wound(seed, 30 + 10 * seed as usize);
            let found = minimize(&p, 200_000);
            assert!(is_solved(&p, &found.solution));
            assert_eq!((found.solution.height, found.is_least()), (height, true), "{seed}");
        }
    }

    #[test]
    fn a_bound_is_raised_to_the_least_height() {
        // Two short-lived buffers, one after the other, and a long-lived one that fits beside
        // neither at the same offset.
        let p = problem(&[(0, 2, 2), (2, 4, 3), (1, 3, 2), (0, 1, 2), (3, 4, 1)]);
        let found = minimize(&p, 1000);
        assert!(found.is_least() && p.conflict(&found.solution).is_none(), "{found:?}");
    }

    #[test]
    fn no_effort_gives_a_solution_all_the_same() {
        let (p, height) = planted(5, 200);
        let found = minimize(&p, 0);
        assert_eq!((p.conflict(&found.solution), found.bound), (None, height));
        assert_eq!(minimize(&p, 0), found);
    }

    #[test]
    fn many_buffers_come_near_to_their_bound() {
        let (p, height) = planted(7, 3000);
        let found = minimize(&p, 200_000);
        assert_eq!(p.conflict(&found.solution), None);
        assert!(found.solution.height < height + height / 100);
    }
}
