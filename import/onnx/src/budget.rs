//! How much an import may make beyond what is in the file.
//!
//! A few bytes can ask for much: a window of a billion numbers, loops within loops, functions that
//! call each other twice, a list of extents that is joined with itself again and again. So what is
//! made at import takes units from a budget, and a model that asks for more is refused with the
//! node that asks. With this budget, an import takes at most a second and 256 MiB beside the file
//! (`tests/mutants`).

use std::cell::Cell;
use wengert_core::graph::Body;
use wengert_core::{Diagnostic, Op, Result};

/// The units of an import: numbers of a table.
pub(crate) const UNITS: u64 = 1 << 24;

/// The units of a node of a loop or function, and of a part of a tensor: an equation or more.
pub(crate) const NODE: u64 = 128;

/// The units of an extent that depends on variables, in a list that is joined.
pub(crate) const ENTRY: u64 = 64;

/// The units of a name that the body of a loop may use.
pub(crate) const NAME: u64 = 4;

/// The most units of the values of an op that is evaluated at import whatever is left: so much as
/// for shapes and axes.
const SHAPES: u64 = 1 << 10;

/// The most units of the values of one op that is evaluated at import.
const FOLDED: u64 = 1 << 21;

/// The units that are left.
pub(crate) struct Budget {
    left: Cell<u64>,
    /// For ops that are evaluated at import, which can also be left to the program.
    folding: Cell<u64>,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget { left: Cell::new(UNITS), folding: Cell::new(UNITS) }
    }

    /// Takes units.
    ///
    /// # Errors
    /// There are fewer.
    pub(crate) fn take(&self, units: u64) -> Result<()> {
        let left = self.left.get().checked_sub(units).ok_or_else(|| {
            Diagnostic::new("the import makes more than a model may ask for").help(format!(
                "tables that are made at import, such as positions of a resize and matrices of a \
                 transform, have at most {UNITS} elements in all; unrolled loops, functions and \
                 splits have at most {} nodes and parts in all",
                UNITS / NODE
            ))
        })?;
        self.left.set(left);
        Ok(())
    }

    /// Does something that is done again afterwards, so it takes no units.
    pub(crate) fn trial<T>(&self, work: impl FnOnce() -> T) -> T {
        let left = self.left.get();
        let result = work();
        self.left.set(left);
        result
    }

    /// Whether the equations of an op are evaluated at import. They take their units.
    pub(crate) fn folds(&self, body: &Body) -> bool {
        let units = units(body).unwrap_or(u64::MAX);
        if units <= SHAPES {
            return true;
        }
        match self.folding.get().checked_sub(units) {
            Some(left) if units <= FOLDED => {
                self.folding.set(left);
                true
            }
            _ => false,
        }
    }
}

/// The elements of all values, and a part of the multiplications of products and convolutions.
fn units(body: &Body) -> Option<u64> {
    let elements = |value| u64::try_from(body.ty(value).elements()?).ok();
    let mut units = 0u64;
    for equation in &body.equations {
        for value in &equation.results {
            units = units.checked_add(elements(*value)?)?;
        }
        let terms = match &equation.op {
            Op::DotGeneral(_) => {
                // Each operand is read as often as the other one and the result tell.
                let [left, right] = equation.operands[..] else { return None };
                elements(left)?.checked_mul(elements(right)?)?
            }
            Op::ConvGeneralDilated(_) => {
                elements(equation.results[0])?.checked_mul(elements(equation.operands[1])?)?
            }
            op if op.control().is_some() => return None,
            _ => 0,
        };
        units = units.checked_add(terms / 64)?;
    }
    Some(units)
}
