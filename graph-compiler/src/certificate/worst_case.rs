//! The worst-case bound: running error analysis of a whole function.

use super::bounded::{self, Bounded, Place};
use wengert_core::graph::Function;
use wengert_core::interpret::{self, Array, Cell, Cells};
use wengert_core::target::Approximations;
use wengert_core::{Literal, Result};

/// The outputs of a function at some inputs, with bounds of their errors.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The outputs. Elements of integer dtypes may be uncertain.
    pub outputs: Vec<Array<Bounded>>,
}

impl Bounds {
    /// Whether every element of every output has a bound, and every integer is certain.
    pub fn is_complete(&self) -> bool {
        (0..self.outputs.len()).all(|output| self.error(output).is_ok_and(|_| true))
            && self.outputs.iter().all(|array| {
                array.dtype.is_float() || array.cells.iter().all(|c| matches!(c, Cell::Bits(_)))
            })
    }

    /// The greatest bound of an output's elements; of an output of integers it is 0.
    ///
    /// # Errors
    /// The place at which the bound of an element was lost. It is `None` if the element is an input
    /// without a bound.
    pub fn error(&self, output: usize) -> std::result::Result<f64, Option<Place>> {
        let array = &self.outputs[output];
        let mut greatest = 0.0f64;
        for cell in array.cells.iter() {
            match cell {
                Cell::Real(number) if !array.dtype.is_float() && number.is_bounded() => {}
                Cell::Real(number) if !number.is_bounded() => return Err(number.lost_at()),
                Cell::Real(number) => greatest = greatest.max(number.error()),
                Cell::Bits(_) => {}
            }
        }
        Ok(greatest)
    }
}

/// Runs a function (without dimension variables) on literals with bounds. The inputs are exact.
///
/// A bound is on the distance between the function over the reals and any machine that rounds each
/// result to its dtype at least as seldom as the function says, carries halves in f32 within an
/// equation, and adds in any order. Processors with AVX512-BF16 treat operands of bf16 below 2⁻¹²⁶
/// as 0; the bound does not cover that.
///
/// If `approximations` are used, the bound counts the greatest errors of
/// [approximate instructions](wengert_core::nest::approximate) for all functions that have one.
///
/// # Errors
/// Those of the interpreter.
pub fn worst_case(
    function: &Function,
    inputs: &[Literal],
    approximations: Approximations,
) -> Result<Bounds> {
    bounded::forget_places();
    let arrays = inputs.iter().map(given).collect::<Result<Vec<Array<Bounded>>>>()?;
    let outputs = bounded::with_approximations(approximations.are_used(), || {
        interpret::evaluate_over(&function.body, &function.locations, &arrays)
    })?;
    Ok(Bounds { outputs })
}

fn given(literal: &Literal) -> Result<Array<Bounded>> {
    let dtype = literal.dtype();
    let cells = literal.scalars().map(|scalar| match dtype.is_float() {
        true => Cell::Real(Bounded::given(scalar.to_f64(), dtype)),
        false => Cell::from_scalar(scalar),
    });
    Ok(Array::new(dtype, literal.shape().to_vec(), Cells::collect(cells)?))
}
