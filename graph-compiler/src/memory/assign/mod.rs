//! Buffer assignment: offsets for buffers with live ranges, in the fewest bytes.
//!
//! The [`problem`] is that of MiniMalloc and of every static planner, and NP-hard. The max load
//! is a lower [`bound`]; solutions are measured by their distance from it.
//!
//! - `sweep` goes through time and places the buffers of one priority in O(n log n);
//!   `priority` chooses the priorities.
//! - `two_ended` places long-lived buffers from the ground and from a ceiling, so that the free
//!   bytes between stay contiguous. The ceiling is lowered step by step. `occupancy` finds the gaps
//!   for it.
//! - `greedy` places buffers in several orders, each into a gap. `arrange`, which lays out plans,
//!   begins with it.
//! - [`search`] finds offsets below a height or proves that there are none, within its effort.
//! - `coalesce` makes one block of buffers that fit together.
//! - [`minimize`] uses all of them: it splits a problem in time, and bounds the least height of
//!   each part from both sides.
//!
//! No clock is read: a result depends on the problem and the effort alone.

mod arrange;
pub mod bound;
mod coalesce;
mod greedy;
mod improve;
mod minimize;
mod occupancy;
mod priority;
pub mod problem;
#[cfg(test)]
mod samples;
pub mod search;
mod sweep;
mod two_ended;

pub use arrange::arrange;
pub use minimize::{Minimized, minimize};
