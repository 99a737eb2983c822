//! Ops that run a user's function, given as a region, and the derivative rules that the user
//! gives for it.
//!
//! - [`FunctionCall`] is a plain call; it is differentiated by differentiating the region, unless
//!   it is *opaque*.
//! - [`CustomJvp`] comes with its tangent rule, [`CustomVjp`] with its forward and backward half.
//! - [`CustomLinearSolve`] comes with a solver; its derivative is that of the system it solves.
//! - [`Transposed`] occurs in linear programs only: the tangent of a `custom_vjp` before
//!   transposition.
//! - [`Checkpoint`] is an ordinary function whose values a derivative mostly recomputes.
//!
//! Compiling a function replaces all of them by their first region (a system by its solver), and
//! drops the rules. Until then, and in files, a function keeps the derivative that its author
//! gave it.
//!
//! Operands are the function's arguments, then `captures` values that its closures use. A rule
//! gives no derivatives for captures, so they must be constants with respect to the variables of
//! differentiation; the drivers reject them otherwise. (Systems are differentiated in their
//! captures, which are the coefficients.)

use crate::op::attribute::{Attribute, Field};
use crate::op::prelude::*;

/// The facets of an op whose results are the first outputs of its first region.
macro_rules! by_first_region {
    ($regions:literal) => {
        fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
            $crate::op::control::lockstep::alone(e, |l| self.lockstep(l))
        }

        fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
            let (ranks, count) = (l.all(), l.results.len());
            let mut outputs = (l.run)(0, &ranks, l.operands)?;
            outputs.iter_mut().for_each(|given| given.truncate(count));
            Ok(outputs)
        }

        fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
            let (region, count) = (&l.regions[0], l.results.len());
            Compute::Decompose(Box::new(move |operands| {
                let mut outputs = crate::build::inline::inline_or_poison(region, operands);
                outputs.truncate(count);
                outputs
            }))
        }

        const REGIONS: RangeInclusive<usize> = $regions..=$regions;

        const VARIES: Varies = Varies::ByRegions;
    };
}

mod call;
mod checkpoint;
mod jvp;
mod linear_solve;
mod transposed;
mod vjp;

pub use call::FunctionCall;
pub use checkpoint::{Checkpoint, CheckpointName, Keep, OptimizationBarrier};
pub use jvp::CustomJvp;
pub use linear_solve::CustomLinearSolve;
pub use transposed::Transposed;
pub use vjp::CustomVjp;

/// The name of a function that an op runs, `@name` in text, for errors.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FunctionName(pub String);

impl Field for FunctionName {
    fn to_attribute(&self) -> Attribute {
        Attribute::Function(self.0.clone())
    }
    fn from_attribute(attribute: Attribute) -> Result<Self> {
        match attribute {
            Attribute::Function(name) => Ok(FunctionName(name)),
            other => {
                Err(Diagnostic::new(format!("expected a function such as `@f`, found {other:?}")))
            }
        }
    }
}

/// Checks the types of a region's inputs or outputs.
fn same_types(what: &str, found: &[TensorType], wanted: &[TensorType]) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let (found, wanted) = (listed(found), listed(wanted));
    Err(Diagnostic::new(format!("{what} have types ({found}), not ({wanted})")))
}

/// The arguments among the operands: all except the last `captures`.
fn arguments(operands: &[TensorType], captures: usize) -> Result<&[TensorType]> {
    let count = operands.len().checked_sub(captures).ok_or_else(|| {
        Diagnostic::new(format!("has {captures} captures, but only {} operands", operands.len()))
    })?;
    Ok(&operands[..count])
}

/// The types that have tangents.
fn floats(types: &[TensorType]) -> impl Iterator<Item = TensorType> + '_ {
    types.iter().filter(|ty| ty.dtype.is_float()).cloned()
}

fn inputs(region: &Body) -> Vec<TensorType> {
    region.types(&region.inputs)
}

fn outputs(region: &Body) -> Vec<TensorType> {
    region.types(&region.outputs)
}
