//! The observed error: a machine's results beside the same function in f64.

use wengert_core::graph::Function;
use wengert_core::interpret::{self, Array};
use wengert_core::{Literal, Result, diagnostic};

/// The outputs of a function (without dimension variables) with all floats in f64, whatever its
/// dtypes. Conversions to halves and f32 round nothing.
///
/// # Errors
/// Those of the interpreter.
pub fn reference(function: &Function, inputs: &[Literal]) -> Result<Vec<Array<f64>>> {
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;
    interpret::evaluate_unrounded(&function.body, &function.locations, &arrays)
}

/// The difference of two tensors, and the size of the second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Deviation {
    /// The greatest absolute difference of two elements. It is infinite where one is infinite or
    /// NaN, and the other is not the same.
    pub greatest: f64,
    /// The Euclidean norm of the difference.
    pub norm: f64,
    /// The greatest magnitude of the finite elements of the second tensor.
    pub magnitude: f64,
    /// Their Euclidean norm.
    pub magnitude_norm: f64,
    /// The share of zeros in the first tensor among the elements that are not 0 in the second: what
    /// is smaller than the least number of a dtype.
    pub zeros: f64,
}

impl Deviation {
    /// The deviation of a result from its reference. Both are floats of one shape.
    ///
    /// # Errors
    /// The shapes differ.
    pub fn of(found: &Literal, reference: &Array<f64>) -> Result<Self> {
        if found.shape() != reference.shape {
            let ty = reference.ty();
            return Err(diagnostic!("a result of type {} has a reference of {ty}", found.ty()));
        }
        let mut deviation = Deviation::default();
        let (mut squares, mut reference_squares) = (0.0, 0.0);
        let (mut zeros, mut nonzero) = (0, 0);
        for (found, cell) in found.scalars().zip(reference.cells.iter()) {
            let (x, y) = (found.to_f64(), *cell.real());
            let distance = match x == y || x.is_nan() && y.is_nan() {
                true => 0.0,
                false => (x - y).abs(),
            };
            let distance = if distance.is_nan() { f64::INFINITY } else { distance };
            deviation.greatest = deviation.greatest.max(distance);
            squares += distance * distance;
            if y != 0.0 {
                nonzero += 1;
                zeros += usize::from(x == 0.0);
            }
            if y.is_finite() {
                deviation.magnitude = deviation.magnitude.max(y.abs());
                reference_squares += y * y;
            }
        }
        (deviation.norm, deviation.magnitude_norm) = (squares.sqrt(), reference_squares.sqrt());
        deviation.zeros = zeros as f64 / nonzero.max(1) as f64;
        Ok(deviation)
    }

    /// The greatest difference relative to the greatest magnitude.
    pub fn relative(&self) -> f64 {
        relative(self.greatest, self.magnitude)
    }

    /// The norm of the difference relative to the norm of the reference.
    pub fn relative_norm(&self) -> f64 {
        relative(self.norm, self.magnitude_norm)
    }
}

/// An error relative to a magnitude. No error is 0 relative to zero, too.
pub(super) fn relative(error: f64, magnitude: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / magnitude }
}
