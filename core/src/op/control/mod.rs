//! Control flow: ops that run a region some number of times.
//!
//! A static graph need not freeze control flow out. Three constructs keep it in the graph, where
//! it is typed, differentiated, mapped and planned like everything else:
//!
//! - [`Cond`] and [`Switch`] run one of several regions;
//! - [`Scan`] runs a region a number of times that is known beforehand, handing *carries* from
//!   step to step, taking *slices* of stacked operands and giving stacks of results;
//! - [`While`] runs a region as long as a condition holds.
//!
//! A region is closed: what it uses from outside is passed to it as an operand, behind all
//! others, and the same at every step: a *capture*. The Rust API ([`crate::graph::control`])
//! makes captures of whatever a closure uses.
//!
//! Loops that are written in other terms are made of these: a counted loop is a scan over the
//! numbers of its steps, `map` a scan without carries, `fold` a scan without stacks.
//!
//! Passes and drivers that have to know what a region is to its equation ask
//! [`super::Op::control`].

/// The facets that all constructs have alike: they are run, differentiated and mapped by way of
/// their regions.
macro_rules! by_regions {
    ($regions:expr) => {
        fn compute<'a>(
            &'a self,
            _operands: &[TensorType],
            _results: &[TensorType],
            _regions: &'a [Region],
        ) -> Compute<'a> {
            Compute::Control
        }

        fn derivative(&self) -> Derivative {
            Derivative::Control
        }

        fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
            self.batched(b).unwrap_or_else(|error| b.fail(error))
        }

        fn traits(&self) -> Traits {
            Traits { cost: Cost::Loop, elementwise: false, commutative: false }
        }

        fn region_count(&self) -> std::ops::RangeInclusive<usize> {
            $regions
        }
    };
}

mod branch;
mod parts;
mod samples;
mod scan;
mod while_loop;

pub use branch::{Cond, Switch};
pub use parts::{ScanParts, WhileParts};
pub use scan::Scan;
pub use while_loop::While;

use super::Op;
use crate::diagnostic::Result;
use crate::graph::Region;
use crate::graph::tensor::Tensor;

/// A construct of control flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// Operand 0 chooses the region, which takes the other operands and gives the results.
    Branch,
    /// Steps whose number is known, or bounded.
    Scan(&'a Scan),
    /// Steps until a condition fails.
    While(&'a While),
}

impl Op {
    /// Which construct of control flow it is, if it is one.
    pub fn control(&self) -> Option<Control<'_>> {
        match self {
            Op::Cond(_) | Op::Switch(_) => Some(Control::Branch),
            Op::Scan(scan) => Some(Control::Scan(scan)),
            Op::While(op) => Some(Control::While(op)),
            _ => None,
        }
    }
}

/// What an input of a region is to the equation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionInput {
    /// The operand of this number.
    Operand(usize),
    /// What the operand of this number is at a step: its part, or what the steps before have made
    /// of it.
    AtStep(usize),
}

impl Op {
    /// What input number `input` of region number `region` is, if that is the same whenever it
    /// runs.
    pub fn region_input(&self, operands: usize, region: usize, input: usize) -> Option<RegionInput> {
        let (first, steps) = match self {
            Op::Cond(_) | Op::Switch(_) => (1, 0),
            Op::Scan(scan) => {
                let first = usize::from(scan.counted);
                (first, operands.checked_sub(first + scan.captures)?)
            }
            Op::While(op) => (0, operands.checked_sub(op.captures)?),
            Op::Checkpoint(_) | Op::CustomVjp(_) if region == 0 => (0, 0),
            // The rule takes the operands as well, then results and tangents.
            Op::CustomJvp(_) => (0, 0),
            // In front is what the system or its solver is applied to.
            Op::CustomLinearSolve(solve) => {
                let vectors = operands.checked_sub(solve.captures)?;
                (Some(0).filter(|_| input >= vectors)?, 0)
            }
            _ => return None,
        };
        let operand = Some(first + input).filter(|i| *i < operands)?;
        Some(if input < steps { RegionInput::AtStep(operand) } else { RegionInput::Operand(operand) })
    }
}

/// The results of a construct, or the first error.
fn emit(op: impl Into<Op>, operands: &[Tensor], regions: Vec<Region>) -> Result<Vec<Tensor>> {
    let results = Tensor::apply_with(op, &operands.iter().collect::<Vec<_>>(), regions);
    match results.iter().find_map(Tensor::error) {
        Some(error) => Err(error.clone()),
        None => Ok(results),
    }
}
