//! Which schedule a nest gets.

use super::row::takes_vector;
use super::shape;
use crate::architecture::{Architecture, MAX_BLOCK, WARP};
use std::fmt;
use wengert_core::nest::{BufferRole, Nest};

/// By which threads a nest is computed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Schedule {
    /// A thread for each row, or for a vector of rows along the contiguous axis.
    Row {
        /// Threads of a block.
        threads: u32,
        /// Rows of a thread.
        vector: usize,
    },
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Row { threads, vector } => {
                write!(f, "a thread for each {vector} rows, {threads} a block")
            }
        }
    }
}

/// Whether the nest can have that schedule.
pub(super) fn fits(nest: &Nest, _architecture: Architecture, schedule: &Schedule) -> bool {
    match schedule {
        Schedule::Row { threads, vector } => {
            let storage = nest.buffers.iter().any(|(_, b)| b.role == BufferRole::Row);
            (1..=MAX_BLOCK).contains(threads)
                && (1..=16).contains(vector)
                && (*vector == 1 || (!storage && takes_vector(&shape::rows(nest), *vector)))
        }
    }
}

/// The schedule for a nest.
pub fn choose(nest: &Nest, architecture: Architecture) -> Schedule {
    let _ = (nest, architecture);
    Schedule::Row { threads: 4 * WARP, vector: 1 }
}
