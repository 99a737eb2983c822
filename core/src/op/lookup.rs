//! Indices that come from data, and the range of indices that an op has elements for.
//!
//! No index is undefined behaviour: `gather` clamps it, `softmax_cross_entropy` gives NaN. An
//! index out of range is still a mistake, usually in the data. This facet names the operand that
//! holds such indices and the number of values in range, so that a checked run, and a check of
//! the data before training, can find the mistake. Ops for which an index out of range is not a
//! mistake (`gather` with a `fill`, `scatter`, `dynamic_slice`) have no lookup.

use crate::dim::Dim;

/// The indices of an op that looks elements up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The operand that holds the indices.
    pub operand: usize,
    /// Number of indices in range, counted from 0: one number for each component of an index
    /// vector.
    pub counts: Vec<Dim>,
    /// Whether the last axis of the indices is an index vector. If not, each element is an index
    /// and there is one count.
    pub vectors: bool,
}

impl Lookup {
    /// One count for every element of operand number `operand`.
    pub(super) fn elements(operand: usize, count: &Dim) -> Lookup {
        Lookup { operand, counts: vec![count.clone()], vectors: false }
    }
}
