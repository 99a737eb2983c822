//! Control flow: ops that run a region some number of times.
//!
//! Three constructs keep control flow in the static graph, where it is typed, differentiated,
//! mapped and planned like everything else:
//!
//! - [`Cond`] and [`Switch`] run one of several regions;
//! - [`Scan`] runs a region a number of times that is known in advance. It passes *carries* from
//!   step to step, takes *slices* of stacked operands and gives stacks of results;
//! - [`While`] runs a region as long as a condition holds.
//!
//! A region is closed: each outside value that it uses is an operand, after all others, and the
//! same at every step: a *capture*. The Rust API ([`crate::build::control`]) makes captures of
//! the values a closure uses.
//!
//! Other loops are expressed by these: a counted loop is a scan over the numbers of its steps,
//! `map` a scan without carries, `fold` a scan without stacks.
//!
//! Passes and drivers that need the role of a region in its equation ask [`super::Op::control`].

use crate::build::Scope;
use crate::location::Location;
use crate::op::batch::{RegionOutput, moved};
use crate::op::prelude::*;

/// The facets common to all constructs, which run, differentiate and map their regions.
macro_rules! by_regions {
    ($regions:expr) => {
        fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
            alone(e, |l| self.lockstep(l))
        }

        fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
            Compute::Control
        }

        const DERIVATIVE: Derivative = Derivative::Control;

        const VARIES: Varies = Varies::ByRegions;

        fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
            self.batched(b).unwrap_or_else(|error| b.fail(error))
        }

        const REGIONS: RangeInclusive<usize> = $regions;
    };
}

mod branch;
pub mod lockstep;
mod parts;
mod scan;
mod while_loop;

pub use branch::{Cond, Switch};
pub use parts::{ScanParts, WhileParts};
pub use scan::Scan;
pub use while_loop::While;

/// A construct of control flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// Operand 0 chooses the region. The region takes the other operands and gives the results.
    Branch,
    /// A number of steps that is known, or bounded.
    Scan(&'a Scan),
    /// Steps until a condition fails.
    While(&'a While),
}

impl Op {
    /// The construct of control flow that the op is, if it is one.
    pub fn control(&self) -> Option<Control<'_>> {
        match self {
            Op::Cond(_) | Op::Switch(_) => Some(Control::Branch),
            Op::Scan(scan) => Some(Control::Scan(scan)),
            Op::While(op) => Some(Control::While(op)),
            _ => None,
        }
    }
}

/// The operand that an input of a region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionInput {
    /// The operand of this number.
    Operand(usize),
    /// The value at a step of the operand of this number: its part, or the carry after the steps
    /// before.
    AtStep(usize),
}

impl Op {
    /// The operand that input number `input` of region number `region` is, if it is the same in
    /// every run.
    pub fn region_input(
        &self,
        operands: usize,
        region: usize,
        input: usize,
    ) -> Option<RegionInput> {
        let (first, steps) = match self {
            Op::Cond(_) | Op::Switch(_) => (1, 0),
            Op::Scan(scan) => {
                let first = usize::from(scan.counted);
                (first, operands.checked_sub(first + scan.captures)?)
            }
            Op::While(op) => (0, operands.checked_sub(op.captures)?),
            Op::Checkpoint(_) | Op::CustomVjp(_) if region == 0 => (0, 0),
            // The inputs of the rule are the operands, then results and tangents.
            Op::CustomJvp(_) => (0, 0),
            // The first inputs are the vectors to which the system or its solver is applied.
            Op::CustomLinearSolve(solve) => {
                let vectors = operands.checked_sub(solve.captures)?;
                (Some(0).filter(|_| input >= vectors)?, 0)
            }
            _ => return None,
        };
        let operand = Some(first + input).filter(|i| *i < operands)?;
        Some(if input < steps {
            RegionInput::AtStep(operand)
        } else {
            RegionInput::Operand(operand)
        })
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

/// The form of a step's outputs on a batch: carries as given, stacks as they are.
fn wanted(carried: &[bool], stacks: usize) -> Vec<RegionOutput> {
    let carry = |c: &bool| if *c { RegionOutput::Batched } else { RegionOutput::AsItIs };
    let stacks = std::iter::repeat_n(RegionOutput::AsItIs, stacks);
    carried.iter().map(carry).chain(stacks).collect()
}

/// The outputs of a step for the examples that are `running`. The others keep their carries, and
/// their parts of stacks are 0.
fn masked(running: &Tensor, inputs: &[Tensor], outputs: &[Tensor], carries: usize) -> Vec<Tensor> {
    let keep = |(i, new): (usize, &Tensor)| {
        let along = running.broadcast_in_dim(new.shape().to_vec(), &[0]);
        let old = if i < carries { inputs[i].clone() } else { Tensor::zeros(new.ty()) };
        along.select(new, &old)
    };
    outputs.iter().enumerate().map(keep).collect()
}

/// The results of a loop over a batch, of which those in `made` are batched: the batch axis of a
/// stack moves before that of the steps.
fn stacked_results(
    b: &Batch<'_>,
    carries: usize,
    results: &[Tensor],
    made: &[bool],
) -> Vec<Tensor> {
    let result = |(i, t): (usize, &Tensor)| match (made[i], i < carries) {
        (false, _) => b.repeat(t),
        (true, true) => t.clone(),
        (true, false) => moved(t, 1, 0),
    };
    results.iter().enumerate().map(result).collect()
}

/// A region of the function that is being built.
fn region(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Body> {
    let Some(scope) = Scope::current().map(|scope| scope.region()) else {
        bail!("there is no function to map a loop in");
    };
    let inputs: Vec<Tensor> =
        types.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let outputs = scope.enter(|| f(&inputs))?;
    match outputs.iter().find_map(Tensor::error) {
        Some(error) => Err(error.clone()),
        None => Ok(scope.close(&outputs)?.body),
    }
}
