//! Moving bodies from one function to another.

use super::{Body, Region};
use crate::location::LocationId;
use std::collections::HashMap;

/// Replaces the locations of one table by those of another.
pub(crate) struct Relocation<'a> {
    known: &'a HashMap<LocationId, LocationId>,
    /// Moved callees, by the address of the original body.
    moved: HashMap<usize, Region>,
}

impl<'a> Relocation<'a> {
    pub(crate) fn new(known: &'a HashMap<LocationId, LocationId>) -> Self {
        Relocation { known, moved: HashMap::new() }
    }

    pub(crate) fn body(&mut self, body: &Body) -> Body {
        let mut body = body.clone();
        for equation in &mut body.equations {
            equation.location =
                self.known.get(&equation.location).copied().unwrap_or(LocationId(0));
            for region in &mut equation.regions {
                let moved = match self.moved.get(&region.address()) {
                    Some(moved) => moved.clone(),
                    None => Region::from(self.body(region)),
                };
                self.moved.insert(region.address(), moved.clone());
                *region = moved;
            }
        }
        body
    }
}
