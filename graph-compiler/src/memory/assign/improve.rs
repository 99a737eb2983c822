//! Lowers solutions of large problems: some buffers are removed and placed again around all
//! others by the exact [search](super::search).
//!
//! A buffer that ends above a target is to be placed below it. Alone it rarely fits, so some
//! buffers that overlap it in time are removed too: at first those that are easy to move, then
//! more, and others. This is large neighbourhood search (Shaw, *Using constraint programming and
//! local search methods to solve vehicle routing problems*, 1998), whose neighbourhoods are small
//! enough to be searched completely.

use super::problem::{Buffer, Problem, Solution};
use super::search::{Found, by_ways};

/// Buffers that are placed again together: at first, and at most.
const FEW: usize = 8;
const MOST: usize = 96;
/// States per removed buffer that a search may visit.
const STATES: u64 = 40;
/// Neighbourhoods of one size that are tried for a buffer.
const TRIES: usize = 3;

/// Lowers a solution as far as the effort allows, but not below `bound`.
pub fn improve(problem: &Problem, solution: &mut Solution, bound: u64, left: &mut u64) {
    let mut random = Random(0x5EED);
    // Each step is 1 / 2^caution of the distance to the bound.
    let mut caution = 0u32;
    while solution.height > bound && *left > 0 && caution < 12 {
        let step = ((solution.height - bound) >> caution).max(1);
        let target = solution.height - step;
        let mut tried = solution.clone();
        if lower(problem, &mut tried, target, &mut random, left) {
            tried.height = height(problem, &tried);
            *solution = tried;
            caution = caution.saturating_sub(1);
        } else {
            // The moved buffers give another starting point.
            tried.height = height(problem, &tried);
            if tried.height <= solution.height {
                *solution = tried;
            }
            caution += 1;
        }
    }
}

fn height(problem: &Problem, solution: &Solution) -> u64 {
    let ends = problem.buffers.iter().zip(&solution.offsets).map(|(b, offset)| offset + b.size);
    ends.max().unwrap_or(0)
}

/// Places all buffers below the target; true on success.
fn lower(
    problem: &Problem,
    solution: &mut Solution,
    target: u64,
    random: &mut Random,
    left: &mut u64,
) -> bool {
    let above = |solution: &Solution| {
        let ends = problem.buffers.iter().zip(&solution.offsets).map(|(b, offset)| offset + b.size);
        let mut above: Vec<usize> = (0..problem.buffers.len())
            .zip(ends)
            .filter(|(_, end)| *end > target)
            .map(|(n, _)| n)
            .collect();
        // The hardest to place first.
        above.sort_by_key(|n| {
            std::cmp::Reverse((problem.buffers[*n].size, problem.buffers[*n].lifespan()))
        });
        above
    };
    for offender in above(solution) {
        let mut size = FEW;
        loop {
            let mut done = false;
            for _ in 0..TRIES {
                if *left == 0 {
                    return false;
                }
                done = replaced(problem, solution, offender, size, target, random, left);
                if done {
                    break;
                }
            }
            match () {
                () if done => break,
                () if size >= MOST => return false,
                () => size *= 2,
            }
        }
    }
    true
}

/// Places a buffer below the target, together with others; true on success.
fn replaced(
    problem: &Problem,
    solution: &mut Solution,
    offender: usize,
    size: usize,
    target: u64,
    random: &mut Random,
    left: &mut u64,
) -> bool {
    let buffers = &problem.buffers;
    let own = &buffers[offender];
    let mut beside: Vec<(u64, usize)> = Vec::new();
    for (n, buffer) in buffers.iter().enumerate() {
        if n != offender && buffer.lives() && buffer.fixed.is_none() && buffer.meets(own) {
            // A buffer that is live long before or after the offender is harder to move. A random
            // factor varies the choice, not only among equals.
            let beyond =
                own.lower.saturating_sub(buffer.lower) + buffer.upper.saturating_sub(own.upper);
            beside.push(((beyond + 1).saturating_mul(1 + random.below(16)), n));
        }
    }
    let count = size.min(beside.len());
    if count > 0 && count < beside.len() {
        beside.select_nth_unstable(count - 1);
    }
    let mut free = vec![false; buffers.len()];
    free[offender] = true;
    beside[..count].iter().for_each(|(_, n)| free[*n] = true);
    let taken: Vec<usize> = (0..buffers.len()).filter(|n| free[*n]).collect();
    let lower = taken.iter().map(|n| buffers[*n].lower).min().unwrap_or(0);
    let upper = taken.iter().map(|n| buffers[*n].upper).max().unwrap_or(0);
    let mut part = Problem { buffers: taken.iter().map(|n| buffers[*n]).collect() };
    for (n, buffer) in buffers.iter().enumerate() {
        let offset = solution.offsets[n];
        if !free[n]
            && buffer.lives()
            && buffer.lower < upper
            && lower < buffer.upper
            && offset < target
        {
            // Bytes above the target obstruct no buffer.
            part.push(Buffer {
                size: buffer.size.min(target - offset),
                fixed: Some(offset),
                alignment: 1,
                ..*buffer
            });
        }
    }
    let given = (STATES * taken.len() as u64).min(*left);
    let mut rest = given;
    let found = by_ways(&part, target, 0, &mut rest);
    // Finding the neighbours and their obstacles counts as effort, too.
    let looked = buffers.len() / 256 + taken.len() * (part.buffers.len() / 64);
    *left -= (given - rest + 1 + looked as u64).min(*left);
    let Found::Solution(found) = found else { return false };
    for (n, offset) in taken.iter().zip(&found.offsets) {
        solution.offsets[*n] = *offset;
    }
    true
}

/// Pseudo-random numbers (the last steps of Steele, Lea and Flood's *SplitMix*, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % bound
    }
}
