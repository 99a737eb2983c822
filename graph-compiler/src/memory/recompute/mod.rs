//! Rematerialisation: memory for time.
//!
//! A training step keeps what its forward half makes until the backward half reads it, last in, first out; so at the turn nearly everything lies in memory. What
//! a step has made can be dropped and made again. This room says which steps to repeat, and when, so that a schedule fits in a number of bytes and costs as little more as possible. It knows steps, values, bytes and costs; what they
//! stand for is others' affair.
//!
//! # The problem
//!
//! A [`problem`] is a list of steps in an order that stays, each with a cost, operands and results. Repetitions go in between. Since every step has run once before it is
//! repeated, an operand of a repetition has always been made, and *any* repetitions make a schedule that is right: the older instance of a repeated result ends at its last
//! reader before the repetition, operands live on to it. What is to be found is the set that is cheapest among those that fit. Checkmate (Jain et al. 2020) has the same
//! set of schedules and gives it to an integer program; here it is searched, because a compiler has seconds, not hours.
//!
//! [`check::check`] follows a schedule without any of what is below, and says its peak and its cost, or what is wrong.
//!
//! # Chains
//!
//! Of a chain the best schedules are known: of equal steps by a formula, [`chain`], of differing ones by a program over stretches, [`varied`]. Both are also measures of the general solver.
//!
//! # The general solver
//!
//! - `timeline` lays a schedule out: which values are alive when, and the *excess*, the sum of what loads are above the budget. `weigh` says what a change does to the excess without making it; a change touches
//!   the intervals of a few values, and most of a profile lies above the budget or below it in whole blocks. So a weighing takes less than a microsecond, however long the
//!   schedule is.
//! - `group` says what to repeat for one value: its step, and those before it whose results are cheaper to make than to hold, at a price of memory. One value at a price of 0, a layer at a higher one.
//! - `fit` inserts the groups that relieve most for their cost until nothing is above the budget. This is the rule by which a tensor is evicted in *Dynamic tensor
//!   rematerialization* (Kirisame et al. 2021), with exact instead of estimated gains, since the future is known.
//! - `segments` starts from the other end: everything is made again, segment by segment.
//! - `trim` takes out what is not needed, and looks for cheaper ways by taking out some and fitting again.
//! - `few` looks at everything there is, where that is little, and says when nothing is left to be found.
//! - `solve` tries the starts, and keeps all that was found by peak and cost, so that a greater budget never costs more.
//!
//! [`bound`] is a peak that no schedule goes below. Effort is counted in what is looked at; nothing here looks at a clock, and equal problems have equal schedules.

pub mod bound;
pub mod chain;
pub mod check;
mod few;
mod fit;
mod group;
pub mod problem;
#[cfg(test)]
mod samples;
mod segments;
mod solve;
mod timeline;
mod trim;
pub mod varied;
mod weigh;

pub use solve::{Least, effort, frontier, solve};

#[cfg(test)]
mod tests;
