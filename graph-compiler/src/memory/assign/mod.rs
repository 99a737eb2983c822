//! Buffer assignment: offsets for buffers with lifespans, so that they take few bytes.
//!
//! The [`problem`] is that of MiniMalloc and of every static planner, and NP-hard. Its max load is a lower [`bound`]; what is found is measured by how far above it is.
//!
//! - [`sweep`] goes through time, at each time placing the buffers of one level in O(n log n); `levels` chooses levels.
//! - `sides` places what lives long from the ground and from a ceiling, so that what is free between stays in one piece; the ceiling is lowered. A `shelf` tells it where there is room.
//! - [`greedy`] places buffers in several orders, each into a gap, and improves on the best by counted effort. It is how `arrange` begins, with which plans are made.
//! - [`search`] finds offsets below a height or proves that there are none, as far as its effort goes.
//! - `bundle` makes one of buffers that go together.
//! - [`minimize`] uses all of them: it takes a problem apart in time, and narrows down each part's least height.
//!
//! Nothing here looks at a clock: a result depends on the problem and the effort alone.

mod arrange;
pub mod bound;
mod bundle;
pub mod greedy;
mod improve;
mod levels;
mod minimize;
pub mod problem;
#[cfg(test)]
mod samples;
pub mod search;
mod shelf;
mod sides;
pub mod sweep;

pub use arrange::arrange;
pub use minimize::{Minimized, minimize};
