//! The regions of an equation, as its op's `evaluate` facet sees them.

use super::{Array, Real, evaluate};
use crate::diagnostic::Result;
use crate::graph::Region;
use crate::location::LocationTable;
use std::sync::LazyLock;

/// The regions of an equation with the locations of the function they belong to.
#[derive(Clone, Copy)]
pub struct Regions<'a> {
    /// The bodies.
    pub bodies: &'a [Region],
    /// Where their equations come from.
    pub locations: &'a LocationTable,
}

static NOWHERE: LazyLock<LocationTable> = LazyLock::new(LocationTable::default);

impl<'a> Regions<'a> {
    /// Regions that come from nowhere in particular, e.g. a sample's.
    pub fn of(bodies: &'a [Region]) -> Self {
        Regions { bodies, locations: &NOWHERE }
    }

    /// Runs region number `index`.
    pub fn run<R: Real>(&self, index: usize, operands: &[Array<R>]) -> Result<Vec<Array<R>>> {
        evaluate(&self.bodies[index], self.locations, operands)
    }
}
