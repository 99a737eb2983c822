//! The static memory planner as a tool: buffers with live ranges, offsets for them, their table
//! and their picture.
//!
//! A [`Table`] is a CSV file in MiniMalloc's form. Its problem is [minimized](minimize) or
//! [solved below a height](within), and the table is written with the resulting offsets. Plans of
//! functions use the same code ([`wengert_compiler::memory`]).
//!
//! A [`Point`] is a plan of a function's [frontier](wengert_compiler::pipeline::frontier): its
//! memory and its time.

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
