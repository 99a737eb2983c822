//! An exact search for offsets below a given height, or a proof that there are none.
//!
//! # Search space
//!
//! A solution in which no buffer can be lowered is *canonical*: each buffer rests on the ground
//! or on a buffer whose live range overlaps its own. If there is a solution, there is a canonical
//! one, and placing buffers by rising offset enumerates each canonical solution once. A state of
//! the search is the set of placed buffers. The *support* of an unplaced buffer is the highest
//! end of the placed buffers that it overlaps in time. The next buffer is placed on its support,
//! at or above the last offset; among equal offsets, in order of rank. A buffer whose support is
//! below the last offset waits until another buffer raises the support.
//!
//! A buffer is not tried above the end that another buffer would have on its own support: that
//! one would fit below it, and comes first.
//!
//! Fixed offsets and alignments raise supports: a buffer that a fixed one obstructs rests above
//! it.
//!
//! # Pruning
//!
//! - **Sections.** Between two changes of the live set, all live buffers overlap one another, so
//!   a section is a stack. Only sections that no other section contains are kept.
//! - **Release times.** In a stack, the buffers that cannot rest below some offset need the sum
//!   of their sizes above it. This is the bound of a single machine with release times (the
//!   supports) and one deadline (the height). It detects gaps that can no longer be filled long
//!   before the search reaches them.
//! - **Not first.** A buffer that cannot rest below all others of a section rests on one of them,
//!   so above the lowest of their ends. This raises release times and so strengthens the bound.
//!   The rule comes from scheduling (Carlier and Pinson, *An algorithm for solving the job-shop
//!   problem*, 1989).
//! - **Parts.** After a placement the unplaced buffers may fall into parts that do not overlap in
//!   time. Parts are solved one by one. If one part fails, no other solutions of the other
//!   parts are tried.
//! - **States.** Failed states are remembered: the unplaced buffers, their supports, and the last
//!   offset.
//!
//! The frame of the search, canonical solutions section by section, is that of Moffitt's
//! *MiniMalloc* (ASPLOS 2023). The bounds here are stronger.
//!
//! # Coalesced buffers
//!
//! [Blocks](super::coalesce) of buffers are searched first, since there are fewer of them. A
//! solution of the blocks is a solution of the whole problem. If the blocks have none, the
//! whole problem is searched.
//!
//! # Ranks
//!
//! The rank of buffers decides how many states a search visits before it finds a solution, and no
//! rank is good for all problems. So ranks take turns, each with a limited effort, and the effort
//! doubles after each round. Effort is counted in states, so the result depends on the problem
//! alone.

mod attempt;
mod instance;
#[cfg(test)]
mod tests;

use super::bound::max_load;
use super::coalesce::Coalesced;
use super::problem::{Problem, Solution};
use attempt::Attempt;
use instance::Instance;

/// States per rank in the first turn.
const FIRST_TURN: u64 = 100_000;
/// Most overlapping pairs of buffers for which a search is set up.
const MOST_PAIRS: usize = 1 << 22;

/// A state counts once per this many buffers.
pub(super) const MANY: u64 = 512;
/// Most ways of coalescing that are tried.
const WAYS: u64 = 12;

/// The outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Offsets with no end above the height.
    Solution(Solution),
    /// There are no such offsets.
    Nothing,
    /// The effort ended before an answer.
    Unknown,
}

/// Searches for offsets with which no buffer ends above `height`. Visits at most `left` states,
/// and subtracts those visited.
///
/// Buffers with fixed offsets must not overlap each other.
pub fn within(problem: &Problem, height: u64, left: &mut u64) -> Found {
    by_ways(problem, height, WAYS, left)
}

/// [`within`] with at most `most` ways of coalescing.
pub(super) fn by_ways(problem: &Problem, height: u64, most: u64, left: &mut u64) -> Found {
    let count = problem.buffers.len() as u64;
    if max_load(problem) > height {
        return Found::Nothing;
    }
    if *left == 0 {
        return Found::Unknown;
    }
    // The cost of reading all buffers and finding their overlaps or blocks.
    let once = if most == 0 { 0 } else { count * (1 + count / MANY) / 8 };
    let Some(rest) = left.checked_sub(once) else {
        *left = 0;
        return Found::Unknown;
    };
    *left = rest;
    let whole = Instance::new(problem, height, MOST_PAIRS);
    if whole.as_ref().is_some_and(Instance::is_too_low) {
        return Found::Nothing;
    }
    let ranks = whole.as_ref().map_or(Vec::new(), Instance::ranks);
    let mut turn = FIRST_TURN.min(*left / 16 + 100);
    let mut ways: Vec<Way> = Vec::new();
    for count in 2.. {
        // Each turn adds a way of coalescing.
        for number in ways.len() as u64..count.min(most) {
            *left -= once.min(*left);
            ways.push(Way::new(problem, height, number));
        }
        for way in &mut ways {
            let Some(instance) = &way.instance else { continue };
            match take_turns(instance, &way.ranks, turn, left) {
                Found::Solution(solution) => {
                    return Found::Solution(way.coalesced.expanded(problem, &solution));
                }
                // The whole problem may still have a solution.
                Found::Nothing => way.instance = None,
                Found::Unknown => {}
            }
        }
        match whole.as_ref().map(|instance| take_turns(instance, &ranks, turn, left)) {
            None if ways.iter().all(|way| way.instance.is_none()) => break,
            None | Some(Found::Unknown) if *left == 0 => break,
            None | Some(Found::Unknown) => {}
            Some(found) => return found,
        }
        turn = turn.saturating_mul(2);
    }
    Found::Unknown
}

/// One way of coalescing.
struct Way {
    coalesced: Coalesced,
    /// None if nothing was coalesced, or if the blocks have no solution.
    instance: Option<Instance>,
    ranks: Vec<Vec<u32>>,
}

impl Way {
    fn new(problem: &Problem, height: u64, number: u64) -> Self {
        let coalesced = Coalesced::new(problem, number);
        let some = coalesced.problem.buffers.len() < problem.buffers.len();
        let instance =
            some.then(|| Instance::new(&coalesced.problem, height, MOST_PAIRS)).flatten();
        let instance = instance.filter(|instance| !instance.is_too_low());
        Way { coalesced, ranks: instance.as_ref().map_or(Vec::new(), Instance::ranks), instance }
    }
}

/// One turn of each rank.
fn take_turns(instance: &Instance, ranks: &[Vec<u32>], turn: u64, left: &mut u64) -> Found {
    // A state of many buffers counts several times.
    let weight = 1 + instance.len() as u64 / MANY;
    for rank in ranks {
        let mut attempt = Attempt::new(instance, rank, turn.min(*left).div_ceil(weight));
        let found = attempt.run();
        *left -= (attempt.states() * weight).min(*left);
        match found {
            Some(Some(offsets)) => return Found::Solution(instance.solution(&offsets)),
            Some(None) => return Found::Nothing,
            None if *left == 0 => break,
            None => {}
        }
    }
    Found::Unknown
}
