//! The least height, narrowed down from both sides.

use super::bound::max_load;
use super::greedy;
use super::improve::improve;
use super::problem::{Problem, Solution};
use super::search::{Found, within};

/// What has been found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Minimized {
    /// The best solution.
    pub solution: Solution,
    /// No solution is lower than this.
    pub bound: u64,
}

impl Minimized {
    /// True if no solution is lower.
    pub fn is_least(&self) -> bool {
        self.solution.height == self.bound
    }
}

/// Shares of the effort that a height is given, at first.
const SHARES: u64 = 16;

/// Looks for a solution that is as low as possible; the searches look at `effort` states at most, all together.
///
/// Buffers with fixed offsets must not overlap each other.
pub fn minimize(problem: &Problem, effort: u64) -> Minimized {
    let parts = parts(problem);
    let mut solution =
        Solution { offsets: problem.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect(), height: 0 };
    let mut solved: Vec<Narrowed> = parts.iter().map(|part| Narrowed::new(part.take(problem))).collect();
    let mut left = effort;
    // What is below the highest bound need not be lower.
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

/// A part of a problem: buffers none of which meets one of another part.
struct Part(Vec<usize>);

impl Part {
    fn take(&self, problem: &Problem) -> Problem {
        Problem { buffers: self.0.iter().map(|n| problem.buffers[*n]).collect() }
    }
}

/// Cuts a problem where nothing lives through a moment.
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

/// A part with what is known of its least height.
struct Narrowed {
    problem: Problem,
    solution: Solution,
    bound: u64,
    /// Heights are multiples of this.
    unit: u64,
}

impl Narrowed {
    fn new(problem: Problem) -> Self {
        let solution = greedy::solve(&problem);
        let bound = max_load(&problem);
        let numbers = problem.buffers.iter().flat_map(|b| [b.size, b.fixed.unwrap_or(0)]);
        let unit = if problem.buffers.iter().all(|b| b.alignment == 1) { numbers.fold(0, gcd) } else { 1 };
        Narrowed { problem, solution, bound, unit: unit.max(1) }
    }

    /// Lowers the solution to `enough`, if the effort is sufficient, or the bound is raised to where it is.
    fn narrow(&mut self, enough: u64, left: &mut u64) {
        let given = *left / 4;
        let mut rest = given;
        improve(&self.problem, &mut self.solution, self.bound.max(enough), &mut rest);
        *left -= given - rest;
        // Below this, a search has given up or found nothing.
        let mut below = self.bound.max(enough);
        let mut share = (*left / SHARES).max(1);
        while *left > 0 && self.solution.height > self.bound.max(enough) {
            if below >= self.solution.height {
                // Every height was tried: once more, with more effort each.
                below = self.bound.max(enough);
                share = share.saturating_mul(4);
            }
            let height = self.tried(below);
            let given = share.min(*left);
            let mut rest = given;
            let found = within(&self.problem, height, &mut rest);
            *left -= given - rest;
            match found {
                Found::Solution(solution) => self.solution = solution,
                Found::Nothing => {
                    self.bound = self.bound.max(height + self.unit);
                    below = below.max(self.bound);
                }
                // It is too large to be searched at all.
                Found::Unknown if rest == given => return,
                Found::Unknown => below = height + self.unit,
            }
        }
    }

    /// The height that is tried next: the least at first, then half way up.
    fn tried(&self, below: u64) -> u64 {
        if below == self.bound {
            return below;
        }
        let steps = (self.solution.height - below) / self.unit;
        below + steps / 2 * self.unit
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
