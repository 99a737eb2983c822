//! Composites and calls: ops that are neither loops over scalars nor claimed by the target.
//!
//! An op whose `compute` facet is a decomposition is replaced by it. So is a call that the target
//! does not claim. Loops remain, and calls that the back end executes. This pass runs before any
//! pass that looks at elements, so numerics are fixed here: whether a product is a call or a loop
//! depends on the target alone.

mod addends;
mod decompose;
mod float8;
mod follow;
mod outs;
mod windows;

pub(crate) use addends::addends;
pub(crate) use decompose::{EXPAND, decompose, inline_regions, inline_rules, inline_wrappers};
pub(crate) use float8::{float8, sources as float8_sources};
pub(crate) use follow::follow;
pub(crate) use outs::outs;
pub(crate) use windows::windows;
