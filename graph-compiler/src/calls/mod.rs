//! Composites and calls: what becomes of ops that are neither loops over scalars nor claimed by the target.
//!
//! An op whose `compute` facet is a decomposition is replaced by it; so is one that is a call which the target does not claim.
//! What remains afterwards are loops, and calls that the back end executes. This is done before anything looks at elements, so
//! numerics are fixed here: whether a product is a call or a loop depends on the target alone.

mod decompose;
mod epilogue;
mod join;

pub(crate) use decompose::{EXPAND, decompose, inline_regions, inline_rules};
pub(crate) use epilogue::epilogues;
pub(crate) use join::join;
