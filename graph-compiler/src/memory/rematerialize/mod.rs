//! Rematerialisation: less memory for more time.
//!
//! A training step keeps the results of its forward half until the backward half reads them, last
//! in, first out. So nearly all of them are live at the turn. A result can be dropped and
//! computed again. This module decides which steps to repeat, and when, so that a schedule fits
//! in a number of bytes at the least additional cost. It knows steps, values, bytes and costs,
//! and nothing of kernels.
//!
//! # The problem
//!
//! A [`computation`] is a list of steps in a fixed order, each with a cost, operands and results.
//! Repetitions are inserted between them. Every step has run once before it is repeated, so the
//! operands of a repetition have always been computed. Hence *any* set of repetitions gives a
//! correct schedule: the older instance of a repeated result dies at its last reader before the
//! repetition, and operands live on to it. The task is to find the cheapest set that fits.
//! Checkmate (Jain et al. 2020) has the same set of schedules and solves an integer program. Here
//! a heuristic search is used, because a compiler has seconds, not hours.
//!
//! [`check::check`] replays a schedule independently of the solver. It returns its peak and cost,
//! or a fault.
//!
//! # Chains
//!
//! The optimal schedules of chains are known: for equal steps by a formula, for differing steps by
//! dynamic programming over stretches. The tests have both (`tests/chain.rs`, `tests/varied.rs`),
//! and measure the general solver against them.
//!
//! # The general solver
//!
//! - `timeline` holds a schedule: when each value is live, and the *excess*, the sum of the bytes
//!   above the budget. `weigh` computes the effect of a change on the excess without applying it.
//!   A change touches the intervals of a few values, and most blocks of a profile lie entirely
//!   above or below the budget. So weighing takes less than a microsecond, however long the
//!   schedule is.
//! - `group` selects the steps to repeat for one value: its own step, and preceding steps whose
//!   results are cheaper to recompute than to hold at a price of memory. At price 0 a group is
//!   one step; at a higher price it is a layer.
//! - `fit` inserts the groups of the greatest relief for their cost until nothing is above the
//!   budget. *Dynamic tensor rematerialization* (Kirisame et al. 2021) evicts tensors by this
//!   rule; here the gains are exact instead of estimated, since the future is known.
//! - `segments` starts from the other end: everything is recomputed, segment by segment.
//! - `trim` removes needless repetitions. It also looks for cheaper schedules by removing some
//!   repetitions and fitting again.
//! - `few` searches small problems exhaustively, and proves optimality.
//! - `solve` tries the starts, and keeps all schedules found by peak and cost, so a greater
//!   budget never costs more.
//!
//! [`bound`] is a lower bound of the peak. Effort counts inspected items; no clock is read, and
//! equal problems have equal schedules.

pub mod bound;
pub mod check;
pub mod computation;
mod few;
mod fit;
mod group;
#[cfg(test)]
mod samples;
mod segments;
mod solve;
mod timeline;
mod trim;
mod weigh;

pub use solve::{Least, effort, frontier, solve};

#[cfg(test)]
mod tests;
