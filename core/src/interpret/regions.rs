//! The regions of an equation, as passed to its op's `evaluate` facet.

use super::{Array, Real, run_body};
use crate::diagnostic::Result;
use crate::graph::Region;
use crate::location::LocationTable;
use std::sync::LazyLock;

/// The regions of an equation with the locations of their function.
#[derive(Clone, Copy)]
pub struct Regions<'a> {
    /// The bodies.
    pub bodies: &'a [Region],
    /// The locations of their equations.
    pub locations: &'a LocationTable,
    /// Whether values are rounded to their dtypes.
    pub rounds: bool,
}

static NOWHERE: LazyLock<LocationTable> = LazyLock::new(LocationTable::default);

impl<'a> Regions<'a> {
    /// Regions without locations, e.g. those of a sample; values are rounded.
    pub fn of(bodies: &'a [Region]) -> Self {
        Regions { bodies, locations: &NOWHERE, rounds: true }
    }

    /// Runs region number `index`.
    pub fn run<R: Real>(&self, index: usize, operands: &[Array<R>]) -> Result<Vec<Array<R>>> {
        run_body(&self.bodies[index], self.locations, self.rounds, operands)
    }
}
