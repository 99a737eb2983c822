//! The list of all passes, from a bound function to a plan, in the order in which they run.
//!
//! [`PIPELINE`] has four parts:
//!
//! 1. **Graph** passes rewrite the bound function, which has no dimension variables, and fix the
//!    computed bits. Each spends **fuel**, one unit for each change it makes, and stops when its
//!    fuel is spent; this is how a miscompilation is bisected.
//! 2. **Kernels**: from a body to kernels. They run for the function's body and, by one of them,
//!    for the body of each region. They decide where values are computed.
//! 3. **Order**: the order of kernels, for the function and, by one of them, for each region.
//! 4. **Layout**: the address of every buffer, for a given order. They run again for each order
//!    that a memory budget makes planning try.
//!
//! A pass declares how it may change results ([`Keeps`]). `tests/validation` checks this for
//! graph passes: it interprets random functions before and after each. The verifier of graphs
//! runs after every graph pass that made a change, that of kernels after the kernels, and that of
//! plans after the layout.

mod compile;
mod explain;
mod graph;
mod kernels;
mod list;
mod trial;

pub use crate::pass::{Keeps, Pass};
pub use compile::{
    Bound, Compiled, Options, Sources, Traced, compile, compile_kernels, compile_traced, frontier,
    plan_kernels,
};
pub use explain::{Explained, Fate};
pub(crate) use graph::Step;
pub use graph::{Context, GraphPass};
pub use list::passes;
pub(crate) use list::{PIPELINE, Pipeline};
