//! An exact search: offsets below a given height, or the proof that there are none.
//!
//! # What is searched
//!
//! A solution in which no buffer can be lowered is *canonical*: each buffer stands on the ground or on one that lives at one of its moments. There is a canonical solution
//! if there is any, and placing its buffers by rising offset is one sequence for each. So a state of the search is which buffers are placed; each of the others
//! has a *support*, the highest end of those placed that it meets, and the next one is put on its support, not below the last one (of equal offsets, in order of rank). Whoever
//! is left behind on a lower support has to wait until something is put there.
//!
//! A buffer need not be tried above the end that another one would have on its support: that one would fit below it, and come first.
//!
//! Fixed offsets and alignments lift supports: a buffer that something fixed is in the way of stands above that.
//!
//! # What is cut off
//!
//! - **Sections.** Between two changes of who lives, everybody alive meets everybody: a section is a stack. Only those sections count that are contained in no other.
//! - **Release times.** In a stack, those who cannot stand below some offset need that much room above it. That is the bound of a single machine with release times (the
//!   supports) and one deadline (the height), and it sees gaps that can no longer be filled long before they are reached.
//! - **Not first.** Who cannot stand below all others of a section stands on one of them, so above the lowest of their ends. It makes release times later, and so the
//!   bound better; it is taken from scheduling (Carlier and Pinson, *An algorithm for solving the job-shop problem*, 1989).
//! - **Parts.** Placing a buffer may leave buffers that fall apart in time; they are solved one by one, and where one fails there is no need to look at other solutions of the
//!   rest.
//! - **States.** What has failed is remembered: who is left, their supports, and the last offset.
//!
//! The frame of the search, canonical solutions section by section, is that of Moffitt's *MiniMalloc* (ASPLOS 2023); the bounds are stronger than its.
//!
//! # Bundles
//!
//! [Bundles](super::bundle) of buffers are searched first, since there are fewer of them. A solution of theirs is one of the whole; if there is none, the whole is searched.
//!
//! # Ranks
//!
//! By what buffers are ranked decides how soon a solution is found, and no rank is good for all problems. So they take turns, each with some effort, and then all with twice as much.
//! Effort is counted in states, so the result depends on the problem alone.

mod attempt;
mod instance;
#[cfg(test)]
mod tests;

use super::bound::max_load;
use super::bundle::Bundled;
use super::problem::{Problem, Solution};
use attempt::Attempt;
use instance::Instance;

/// States that a rank may look at in its first turn.
const FIRST_TURN: u64 = 100_000;
/// Pairs of buffers that meet; with more of them, there is no search.
const MOST_PAIRS: usize = 1 << 22;

/// Buffers for each of which a state counts once.
pub(super) const MANY: u64 = 512;
/// Ways of bundling that are tried at most.
const WAYS: u64 = 12;

/// What a search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Offsets, none of which ends above the height.
    Solution(Solution),
    /// There are none.
    Nothing,
    /// The effort has ended before.
    Unknown,
}

/// Looks for offsets with which no buffer ends above `height`, at as many states as are left, and takes off those that it has looked at.
///
/// Buffers with fixed offsets must not overlap each other.
pub fn within(problem: &Problem, height: u64, left: &mut u64) -> Found {
    by_ways(problem, height, WAYS, left)
}

/// The same with no more than so many ways of bundling.
pub(super) fn by_ways(problem: &Problem, height: u64, most: u64, left: &mut u64) -> Found {
    let count = problem.buffers.len() as u64;
    if max_load(problem) > height {
        return Found::Nothing;
    }
    if *left == 0 {
        return Found::Unknown;
    }
    // To look at all buffers, and whom they meet, or what they may be bundled to.
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
    let mut bundles: Vec<Bundles> = Vec::new();
    for ways in 2.. {
        // With every turn, there is another way.
        for way in bundles.len() as u64..ways.min(most) {
            *left -= once.min(*left);
            bundles.push(Bundles::new(problem, height, way));
        }
        for bundles in &mut bundles {
            let Some(instance) = &bundles.instance else { continue };
            match take_turns(instance, &bundles.ranks, turn, left) {
                Found::Solution(solution) => {
                    return Found::Solution(bundles.bundled.unbundled(problem, &solution));
                }
                // The whole may have one all the same.
                Found::Nothing => bundles.instance = None,
                Found::Unknown => {}
            }
        }
        match whole.as_ref().map(|instance| take_turns(instance, &ranks, turn, left)) {
            None if bundles.iter().all(|bundles| bundles.instance.is_none()) => break,
            None | Some(Found::Unknown) if *left == 0 => break,
            None | Some(Found::Unknown) => {}
            Some(found) => return found,
        }
        turn = turn.saturating_mul(2);
    }
    Found::Unknown
}

/// One way of bundling.
struct Bundles {
    bundled: Bundled,
    /// Nothing if there are as many as buffers, or no solution of them.
    instance: Option<Instance>,
    ranks: Vec<Vec<u32>>,
}

impl Bundles {
    fn new(problem: &Problem, height: u64, way: u64) -> Self {
        let bundled = Bundled::new(problem, way);
        let some = bundled.problem.buffers.len() < problem.buffers.len();
        let instance = some.then(|| Instance::new(&bundled.problem, height, MOST_PAIRS)).flatten();
        let instance = instance.filter(|instance| !instance.is_too_low());
        Bundles { bundled, ranks: instance.as_ref().map_or(Vec::new(), Instance::ranks), instance }
    }
}

/// One turn of each rank.
fn take_turns(instance: &Instance, ranks: &[Vec<u32>], turn: u64, left: &mut u64) -> Found {
    // A state of many buffers counts as several.
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
