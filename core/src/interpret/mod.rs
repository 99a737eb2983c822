//! The graph interpreter: the reference semantics of a function, over any element type.
//!
//! [`evaluate`] runs a body equation by equation with the ops' `evaluate` facet. Over `f64` each
//! result is rounded to its dtype, so a program of f32 operations has its IEEE meaning, with
//! transcendental functions correct to (almost) half an ULP. [`evaluate_unrounded`] keeps every
//! value in `f64`. [`evaluate_over`] takes other numbers, such as exact rationals.
//!
//! Allocations of the size of tensors are fallible ([`Cells`]): out of memory is an error.
//! [`peak_bytes`] computes beforehand how much memory a function takes.

mod array;
mod cells;
mod peak;
mod ranks;
mod real;
mod regions;
pub(crate) mod special;

pub use array::{Array, Cell};
pub use cells::Cells;
pub use peak::peak_bytes;
pub use ranks::{evaluate_ranks, run_ranks};
pub use real::Real;
pub use regions::Regions;

use crate::diagnostic::{Result, ensure};
use crate::graph::{Body, Function};
use crate::id::{Id, IdVec};
use crate::literal::Literal;
use crate::location::LocationTable;

/// Runs a body without dimension variables, with `f64` arithmetic rounded to the dtype of each
/// value.
pub fn evaluate(
    body: &Body,
    locations: &LocationTable,
    inputs: &[Array<f64>],
) -> Result<Vec<Array<f64>>> {
    run_body(body, locations, true, inputs)
}

/// Runs a body without dimension variables as if all floats were f64, whatever their dtypes. This
/// is for finite differences, which are lost in the rounding of smaller dtypes.
pub fn evaluate_unrounded(
    body: &Body,
    locations: &LocationTable,
    inputs: &[Array<f64>],
) -> Result<Vec<Array<f64>>> {
    run_body(body, locations, false, inputs)
}

/// Runs a body without dimension variables over other numbers.
///
/// Each use compiles all ops for these numbers.
pub fn evaluate_over<R: Real>(
    body: &Body,
    locations: &LocationTable,
    inputs: &[Array<R>],
) -> Result<Vec<Array<R>>> {
    run_body(body, locations, R::ROUNDS, inputs)
}

fn run_body<R: Real>(
    body: &Body,
    locations: &LocationTable,
    rounds: bool,
    inputs: &[Array<R>],
) -> Result<Vec<Array<R>>> {
    fit(body, inputs)?;
    // Values are dropped after their last use, so that peak memory is that of the live values
    // only.
    let mut last_use: IdVec<_, usize> = body.values.ids().map(|_| 0).collect();
    for (i, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| last_use[*v] = i);
    }
    body.outputs.iter().for_each(|v| last_use[*v] = usize::MAX);

    let mut values: IdVec<_, Option<Array<R>>> = body.values.ids().map(|_| None).collect();
    for (value, array) in body.inputs.iter().zip(inputs) {
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
        let regions = Regions { bodies: &equation.regions, locations, rounds };
        let results = R::evaluate_equation(equation, &operands, &types, &regions).map_err(|d| {
            d.context(equation.op.name())
                .at(locations.origin(equation.location).clone(), equation.op.name())
        })?;
        for ((value, ty), mut array) in equation.results.iter().zip(&types).zip(results) {
            debug_assert!(
                array.ty().has_elements_of(ty),
                "{} gives {}, and infers {ty}",
                equation.op.name(),
                array.ty()
            );
            if rounds {
                array.round()?;
            }
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

/// Checks the number and the types of a body's inputs. An array has the type of its value on one
/// rank.
fn fit<R: Real>(body: &Body, inputs: &[Array<R>]) -> Result<()> {
    let (given, wanted) = (inputs.len(), body.inputs.len());
    ensure!(given == wanted, "{given} inputs given, the body has {wanted}");
    for (value, array) in body.inputs.iter().zip(inputs) {
        ensure!(
            array.ty().has_elements_of(body.ty(*value)),
            "input {}: expected {}, found {}",
            value.index(),
            body.ty(*value),
            array.ty()
        );
    }
    Ok(())
}

/// Runs a function without dimension variables on literals, with `f64` arithmetic rounded to each
/// result's dtype. A function with a mesh is run by [`run_ranks`].
pub fn run(function: &Function, inputs: &[Literal]) -> Result<Vec<Literal>> {
    ensure!(
        function.mesh.is_empty(),
        "@{} runs on the {} ranks of {}", function.name, function.mesh.ranks(), function.mesh;
        help "interpret it on all ranks, by `interpret::run_ranks`"
    );
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;
    evaluate(&function.body, &function.locations, &arrays)?.iter().map(Array::to_literal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_program;

    #[test]
    fn unrounded_programs_of_small_floats_keep_the_digits_of_doubles() {
        let text = "func @f(%x: bf16[]) -> (bf16[]) {
            %0: bf16[] = exp %x
            %1: bf16[] = div %0, %x
            return %1
        }";
        let program = parse_program(text, "f.ir").unwrap();
        let f = &program.functions()[0];
        let x = [Array::from_literal(&Literal::from(half::bf16::from_f32(3.0))).unwrap()];
        let y = evaluate_unrounded(&f.body, &f.locations, &x).unwrap();
        assert_eq!(*y[0].cells[0].real(), 3.0f64.exp() / 3.0);
        let rounded = evaluate(&f.body, &f.locations, &x).unwrap();
        assert_eq!(*rounded[0].cells[0].real(), 6.71875);
    }

    /// Without roundings, infinities and NaN are what they are.
    #[test]
    fn unrounded_programs_have_infinities() {
        let text = "func @f(%x: f32[3]) -> (bool[3]) {
            %0: bool[3] = is_finite %x
            return %0
        }";
        let program = parse_program(text, "f.ir").unwrap();
        let f = &program.functions()[0];
        let x = Literal::from_vec(&[3], vec![f32::INFINITY, f32::NAN, 1.0]).unwrap();
        let x = [Array::from_literal(&x).unwrap()];
        let y = evaluate_unrounded(&f.body, &f.locations, &x).unwrap();
        let bits: Vec<bool> = y[0].cells.iter().map(Cell::is_true).collect();
        assert_eq!(bits, [false, false, true]);
    }
}
