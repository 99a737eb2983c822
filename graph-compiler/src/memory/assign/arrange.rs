//! The assignment for plans: fast methods, until the max load is reached or the effort is spent.
//! [`two_ended`] gets most of the effort, since it is best at training steps.

use super::bound::max_load;
use super::coalesce::Coalesced;
use super::greedy::{self, Ways};
use super::problem::{Problem, Solution};
use super::search::{Found, by_ways};
use super::{priority, sweep, two_ended};

/// Ways of coalescing.
const WAYS: u64 = 2;
/// Nodes and neighbours inspected by an order per unit of effort.
const NODES: u64 = 5;

/// Places every buffer. Begins with the first order of `greedy`, or with a sweep if the problem
/// is large. With `effort`, of which a million units take some 50 milliseconds, other methods
/// follow.
///
/// Buffers with fixed offsets must not overlap each other.
pub fn arrange(problem: &Problem, effort: u64) -> Solution {
    let bound = max_load(problem);
    let mut ways = Ways::new(problem);
    let first = if greedy::is_large(problem) { Some(sweep::solve(problem)) } else { ways.next(0) };
    let mut best =
        Best { solution: first.expect("the first order ends unless a problem is large"), bound };
    if best.is_least() || effort == 0 {
        return best.solution;
    }
    let coalesced = Coalesced::new(problem, 0);
    let some = coalesced.problem.buffers.len() < problem.buffers.len();
    if some {
        best.improve(searched(problem, &coalesced, bound, effort / 16));
    }
    let mut left = effort / 8 * 5;
    if !best.is_least() {
        best.improve(two_ended::solve(problem, bound, &mut left));
    }
    if !best.is_least() {
        left = effort / 16;
        best.improve(priority::solve(problem, bound, &mut left));
    }
    if some && !best.is_least() {
        left += effort / 16;
        let other = priority::solve(&coalesced.problem, bound, &mut left);
        best.improve(other.map(|solution| coalesced.expanded(problem, &solution)));
        for way in 0..WAYS {
            if !best.is_least() {
                best.improve(searched(
                    problem,
                    &Coalesced::new(problem, way),
                    bound,
                    effort / 16 / WAYS,
                ));
            }
        }
    }
    while !best.is_least() {
        let Some(next) = ways.next(effort / 16 * NODES) else { break };
        best.improve(Some(next));
    }
    best.solution
}

struct Best {
    solution: Solution,
    bound: u64,
}

impl Best {
    fn is_least(&self) -> bool {
        self.solution.height <= self.bound
    }

    fn improve(&mut self, next: Option<Solution>) {
        if let Some(next) = next.filter(|next| next.height < self.solution.height) {
            self.solution = next;
        }
    }
}

/// A solution of blocks at the bound, if there are few enough blocks.
fn searched(problem: &Problem, coalesced: &Coalesced, bound: u64, effort: u64) -> Option<Solution> {
    let count = coalesced.problem.buffers.len();
    let mut states = effort / (1 + count as u64);
    // Each block takes at least one state.
    if states < 2 * count as u64 {
        return None;
    }
    match by_ways(&coalesced.problem, bound, 0, &mut states) {
        Found::Solution(solution) => Some(coalesced.expanded(problem, &solution)),
        Found::Nothing | Found::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::samples::{is_solved, planted, training};

    #[test]
    fn training_steps_take_hardly_more_than_their_max_load() {
        for seed in 0..4 {
            for (layers, accumulated, jitter) in
                [(12, true, 0), (12, false, 10), (50, true, 10), (550, true, 10)]
            {
                let p = training(seed, layers, accumulated, jitter);
                let s = arrange(&p, 4_000_000);
                assert_eq!(p.conflict(&s), None);
                assert!(layers > 50 || is_solved(&p, &s));
                let gap = s.height as f64 / max_load(&p) as f64;
                assert!(gap <= 1.01, "{seed}, {layers}: {gap}");
            }
        }
    }

    #[test]
    fn what_was_cut_is_put_together() {
        for seed in 0..10 {
            let (p, height) = planted(seed, 300 + 10 * seed as usize);
            let s = arrange(&p, 1_000_000);
            assert!(is_solved(&p, &s));
            assert_eq!(s.height, height);
        }
    }

    #[test]
    fn more_effort_is_not_worse_and_the_same_effort_is_the_same() {
        let p = training(7, 8, true, 10);
        let heights = [0, 1, 1000, 100_000, 1_000_000].map(|effort| {
            let s = arrange(&p, effort);
            assert_eq!((p.conflict(&s), &arrange(&p, effort)), (None, &s));
            s.height
        });
        assert!(heights[4] < heights[0], "{heights:?}");
        assert_eq!(arrange(&Problem::default(), 1000), Solution::default());
    }
}
