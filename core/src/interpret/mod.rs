//! The graph interpreter: the reference semantics of a function, over any element type.
//!
//! [`evaluate`] runs a body equation by equation with the ops' `evaluate` facet. Over `f64` each
//! result is rounded to its dtype, so a program of f32 operations has its IEEE meaning, with
//! transcendental functions correct to (almost) half an ULP. Over [`num_rational::BigRational`]
//! nothing is rounded, and a result that is not rational is an error. Over [`Unrounded`] every
//! value is an `f64`.
//!
//! Allocations of the size of tensors are fallible ([`Cells`]): out of memory is an error.
//! [`peak_bytes`] computes beforehand how much memory a function takes.

mod array;
mod cells;
mod peak;
mod real;
mod regions;
pub(crate) mod special;
mod unrounded;

pub use array::{Array, Cell};
pub use cells::Cells;
pub use peak::peak_bytes;
pub use real::Real;
pub use regions::Regions;
pub use unrounded::Unrounded;

use crate::diagnostic::{Result, ensure};
use crate::graph::{Body, Function};
use crate::id::{Id, IdVec};
use crate::literal::Literal;
use crate::location::LocationTable;

/// Runs a body without dimension variables.
pub fn evaluate<R: Real>(
    body: &Body,
    locations: &LocationTable,
    inputs: &[Array<R>],
) -> Result<Vec<Array<R>>> {
    ensure!(
        inputs.len() == body.inputs.len(),
        "{} inputs given, the body has {}",
        inputs.len(),
        body.inputs.len()
    );
    // Values are dropped after their last use, so that peak memory is that of the live values
    // only.
    let mut last_use: IdVec<_, usize> = body.values.ids().map(|_| 0).collect();
    for (i, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| last_use[*v] = i);
    }
    body.outputs.iter().for_each(|v| last_use[*v] = usize::MAX);

    let mut values: IdVec<_, Option<Array<R>>> = body.values.ids().map(|_| None).collect();
    for (value, array) in body.inputs.iter().zip(inputs) {
        ensure!(
            array.ty() == *body.ty(*value),
            "input {}: expected {}, found {}",
            value.index(),
            body.ty(*value),
            array.ty()
        );
        values[*value] = Some(array.clone());
    }
    for (i, equation) in body.equations.iter().enumerate() {
        let operands: Vec<Array<R>> = equation
            .operands
            .iter()
            .map(|v| {
                values[*v].clone().expect("the verifier found each value defined before its use")
            })
            .collect();
        let types = body.types(&equation.results);
        let regions = Regions { bodies: &equation.regions, locations };
        let results = equation.op.evaluate(&operands, &types, &regions).map_err(|d| {
            d.context(equation.op.name())
                .at(locations.origin(equation.location).clone(), equation.op.name())
        })?;
        for ((value, ty), mut array) in equation.results.iter().zip(&types).zip(results) {
            debug_assert_eq!(array.ty(), *ty, "{} gives what it infers", equation.op.name());
            array.round()?;
            values[*value] = Some(array);
        }
        for operand in &equation.operands {
            if last_use[*operand] == i {
                values[*operand] = None;
            }
        }
    }
    Ok(body
        .outputs
        .iter()
        .map(|v| values[*v].clone().expect("the verifier found each output defined"))
        .collect())
}

/// Runs a function without dimension variables on literals, with `f64` arithmetic rounded to each
/// result's dtype.
pub fn run(function: &Function, inputs: &[Literal]) -> Result<Vec<Literal>> {
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;
    evaluate(&function.body, &function.locations, &arrays)?.iter().map(Array::to_literal).collect()
}
