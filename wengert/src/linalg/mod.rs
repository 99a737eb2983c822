//! Linear algebra in the graph: [`Cg`] solves systems of which only products are known.

mod cg;

pub use cg::{Cg, Preconditioner};
