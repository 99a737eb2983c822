//! Priorities for [sweeps](super::sweep): long-lived buffers first, and before these the buffers
//! that ended too high.
//!
//! Most buffers of a training step are live for a few moments. Most bytes belong to long-lived
//! buffers, which die in the reverse order of their births. These fit together if no short-lived
//! buffer is placed between them. So they get a priority of their own; several thresholds of *long*
//! are tried.
//!
//! A buffer that ends above the bound in the best of these solutions is raised to a higher
//! priority, and all buffers are placed again (Joslin and Clements, *"Squeaky wheel" optimization*,
//! 1999). So of the short-lived buffers only those at the greatest load are placed first.

use super::problem::{Problem, Solution};
use super::sweep::Sweeps;

/// Halvings of the longest live range that give the threshold of *long*. Those that are good for
/// most problems come first, since the effort may end before the others.
const HALVINGS: [u32; 18] = [6, 9, 4, 11, 7, 5, 8, 3, 10, 12, 2, 1, 13, 0, 14, 15, 16, 17];
/// Most solutions from which priorities are raised.
const BEGINNINGS: usize = 20;
/// Rounds without improvement after which the next one is tried.
const PATIENCE: usize = 20;

/// The lowest solution found by priorities; stops at a height of `bound`. `left` counts inspected
/// buffers and gaps.
///
/// None if the effort does not suffice for one solution. Buffers with fixed offsets must not
/// overlap each other.
pub fn solve(problem: &Problem, bound: u64, left: &mut u64) -> Option<Solution> {
    let sweeps = Sweeps::new(problem);
    let buffers = &problem.buffers;
    let longest = buffers.iter().filter(|b| b.lives()).map(|b| b.lifespan()).max().unwrap_or(0);
    let mut tried: Vec<(Solution, Vec<u8>)> = Vec::new();
    let mut counts: Vec<usize> = Vec::new();
    for halvings in HALVINGS {
        let long = longest >> halvings;
        let priorities: Vec<u8> =
            buffers.iter().map(|b| if b.lives() && b.lifespan() > long { 3 } else { 2 }).collect();
        let count = priorities.iter().filter(|priority| **priority == 3).count();
        if counts.contains(&count) {
            continue;
        }
        counts.push(count);
        let Some(solution) = sweeps.solve(&priorities, left) else { break };
        if solution.height <= bound {
            return Some(solution);
        }
        tried.push((solution, priorities));
    }
    tried.sort_by_key(|(solution, _)| solution.height);
    let mut best = tried.first()?.0.clone();
    for (mut current, mut priorities) in tried.into_iter().take(BEGINNINGS) {
        let (mut own, mut failures) = (current.height, 0);
        for round in 0.. {
            for (n, buffer) in buffers.iter().enumerate() {
                if current.offsets[n] + buffer.size > bound {
                    priorities[n] = priorities[n].saturating_add(1 + round % 3);
                }
            }
            let Some(next) = sweeps.solve(&priorities, left) else { return Some(best) };
            current = next;
            if current.height < best.height {
                best = current.clone();
            }
            failures = if current.height < own { 0 } else { failures + 1 };
            own = own.min(current.height);
            if best.height <= bound {
                return Some(best);
            }
            if failures == PATIENCE || round == u8::MAX {
                break;
            }
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::assign::bound::max_load;
    use crate::memory::assign::samples::{problem, training};
    use crate::memory::assign::sweep;

    #[test]
    fn what_lives_shortly_is_kept_from_between_what_lives_long() {
        // One sweep puts the second buffer above the first, so short-lived buffers end up on both
        // sides of it.
        let p = problem(&[(0, 2, 4), (1, 9, 10), (3, 5, 4), (4, 8, 4)]);
        assert_eq!(max_load(&p), 18);
        let s = solve(&p, 18, &mut 1000).unwrap();
        assert_eq!((p.conflict(&s), s.height), (None, 18));
    }

    #[test]
    fn priorities_are_better_than_one_sweep_and_end_with_the_effort() {
        for seed in 0..4 {
            let p = training(seed, 60, seed % 2 == 0, 10);
            let bound = max_load(&p);
            let mut left = 10_000_000;
            let s = solve(&p, bound, &mut left).unwrap();
            assert_eq!(p.conflict(&s), None);
            assert!(s.height < sweep::solve(&p).height && s.height as f64 <= 1.01 * bound as f64);
            assert_eq!(solve(&p, bound, &mut 100), None);
            let some = solve(&p, bound, &mut 20_000).unwrap();
            assert_eq!(p.conflict(&some), None);
            assert!(s.height <= some.height);
        }
    }
}
