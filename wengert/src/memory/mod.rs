//! The static memory planner by itself: buffers with lifespans, offsets for them, their table and their picture.
//!
//! A [`Table`] is a CSV file in MiniMalloc's form. Its problem is [minimized](minimize) or [solved below a height](within), and the table is written with the offsets that
//! were found. Plans of functions are made by the same code ([`wengert_compiler::memory`]).
//!
//! A [`Point`] is a plan of a function's [frontier](wengert_compiler::pipeline::frontier): how much memory, and for how much time.

mod frontier;
mod picture;
mod table;

pub use frontier::{Point, frontier_picture};
pub use picture::picture;
pub use table::Table;
pub use wengert_compiler::memory::assign::bound::max_load;
pub use wengert_compiler::memory::assign::problem::{Buffer, Problem, Solution};
pub use wengert_compiler::memory::assign::search::{Found, within};
pub use wengert_compiler::memory::assign::{Minimized, minimize};
