//! A program taken apart: the part of it that is at fault.
//!
//! - [`nan`] finds the first equation that makes a NaN or an infinity.
//! - [`bisect`] narrows a wrong result down to a pass, a derivative rule, or the first equation
//!   whose value differs on a device.
//! - [`reduce`] shrinks a failing function to a minimal one that fails in the same way.
//! - [`diff`] lists the differences of two functions or two plans.
//! - [`walk`] runs a function in the interpreter and shows every equation with its values.
//!
//! All of them work on a function without dimension variables and on one value for each input.
//! They are deterministic.

pub mod bisect;
pub mod cut;
pub mod diff;
pub mod nan;
pub mod reduce;
mod shrink;
pub mod walk;

use std::fmt;
use wengert_core::graph::Equation;
use wengert_core::{Location, LocationTable};

/// Where an equation comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Its op.
    pub op: &'static str,
    /// The source line.
    pub location: Location,
    /// The rules that derived the equation from that line, outermost first, then the line.
    pub description: String,
}

impl Origin {
    /// The origin of an equation.
    pub fn of(equation: &Equation, locations: &LocationTable) -> Origin {
        Origin {
            op: equation.op.name(),
            location: locations.origin(equation.location).clone(),
            description: locations.describe(equation.location),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at {}", self.op, self.description)
    }
}

/// The index of an element by its position in row-major order.
pub fn index(shape: &[usize], flat: usize) -> Vec<usize> {
    let mut rest = flat;
    let digits = shape.iter().rev().map(|extent| {
        let digit = rest % extent.max(&1);
        rest /= extent.max(&1);
        digit
    });
    let mut index: Vec<usize> = digits.collect();
    index.reverse();
    index
}
