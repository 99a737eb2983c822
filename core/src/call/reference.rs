//! References of calls: the result on given operands, and the error bound for a back end.
//!
//! Sums of floats are computed in twice the precision of f64 (Ogita, Rump and Oishi's compensated
//! dot product) and rounded to the dtype that the call accumulates in, so they are nearly exact.
//! A back end adds in that dtype, in any order, with or without fused multiply-adds. Any such sum
//! of n products has an error of at most γₙ·Σ|xy| with γₙ = n·u/(1 − n·u), where u is half the
//! distance from 1 to the next number (Higham), plus underflow. Addends propagate that
//! error, step by step.
//!
//! Integers wrap and are exact. A scatter is exact too, since its contract fixes the order.

use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// The result of a call, with bounds.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    ty: TensorType,
    values: Vec<Scalar>,
    errors: Vec<f64>,
}

impl Reference {
    pub(super) fn new(ty: TensorType) -> Self {
        Reference { ty, values: Vec::new(), errors: Vec::new() }
    }

    /// The dtype of the result.
    pub(super) fn dtype(&self) -> DType {
        self.ty.dtype
    }

    pub(super) fn push(&mut self, value: Scalar, error: f64) {
        self.values.push(value);
        self.errors.push(error);
    }

    /// The result.
    pub fn literal(&self) -> Literal {
        let shape = self.ty.extents().expect("calls have no variables");
        Literal::from_scalars(self.ty.dtype, &shape, &self.values)
            .expect("a reference has an element of its dtype for each of its shape")
    }

    /// The error bound of each element. 0 demands equal bits; infinity allows anything (where
    /// intermediate results may overflow).
    pub fn errors(&self) -> &[f64] {
        &self.errors
    }

    /// Checks that the contract allows `found`.
    ///
    /// Errors: an element that it does not allow; most elements have no bound.
    pub fn check(&self, found: &Literal) -> Result<()> {
        ensure!(found.ty() == self.ty, "the result is {}, not {}", found.ty(), self.ty);
        let unbounded = self.errors.iter().filter(|error| error.is_infinite()).count();
        ensure!(
            unbounded <= self.errors.len() / 2,
            "{unbounded} of {} elements have no error bound, so there is little to check",
            self.errors.len();
            help "take smaller operands, or fewer terms of a sum in halves"
        );
        for (at, (value, error)) in self.values.iter().zip(&self.errors).enumerate() {
            let got = found.get(at);
            let (x, y) = (value.to_f64(), got.to_f64());
            let good = *value == got
                || error.is_infinite()
                || (x.is_nan() && y.is_nan())
                || (self.ty.dtype.is_float() && (x - y).abs() <= *error);
            ensure!(good, "element {at} is {got}, the reference is {value} ± {error:e}");
        }
        Ok(())
    }
}

/// The least positive number of a float dtype.
fn least(dtype: DType) -> f64 {
    Scalar::least_positive(dtype).to_f64()
}

/// The greatest finite number of a float dtype.
pub(super) fn greatest(dtype: DType) -> f64 {
    Scalar::greatest_finite(dtype).to_f64()
}

/// Bound of the error of rounding `value` to `dtype`.
pub(super) fn rounding(dtype: DType, value: f64) -> f64 {
    dtype.unit_roundoff() * value.abs() + least(dtype)
}

/// `value`, known up to `error`, rounded to `dtype`. Returns the number, and a bound of its
/// difference from the rounding of any value within the error.
pub(super) fn rounds(dtype: DType, value: f64, error: f64) -> (Scalar, f64) {
    let rounded = Scalar::from_f64(dtype, value);
    let bound = if error == 0.0 {
        0.0
    } else if value.is_finite() || error.is_infinite() {
        let most = value.abs() + error;
        // If the error interval passes the greatest number, only a part of it overflows.
        if most > greatest(dtype) { f64::INFINITY } else { error + 2.0 * rounding(dtype, most) }
    } else {
        0.0
    };
    (rounded, bound)
}

/// Relative to Σ|x|, the error bound of a sum of `terms` numbers, in any order, in arithmetic of
/// `dtype`.
pub(super) fn sum_error(dtype: DType, terms: usize) -> f64 {
    let nu = terms as f64 * dtype.unit_roundoff();
    if nu > 0.5 { f64::INFINITY } else { nu / (1.0 - nu) }
}

/// A sum of products, exact or nearly so, and its error bound in a dtype.
pub(super) struct Sum {
    dtype: DType,
    high: f64,
    low: f64,
    /// Σ|xy| of finite x and y.
    magnitude: f64,
    terms: u64,
    bits: i64,
}

impl Sum {
    pub fn new(dtype: DType) -> Self {
        Sum { dtype, high: 0.0, low: 0.0, magnitude: 0.0, terms: 0, bits: 0 }
    }

    pub fn add_product(&mut self, x: Scalar, y: Scalar) {
        match (x.to_i64(), y.to_i64()) {
            (Some(x), Some(y)) => {
                self.terms += 1;
                self.bits = self.bits.wrapping_add(x.wrapping_mul(y));
            }
            _ => self.add_reals(x.to_f64(), y.to_f64()),
        }
    }

    /// Adds the product of two floats.
    pub fn add_reals(&mut self, x: f64, y: f64) {
        self.terms += 1;
        let product = x * y;
        let lost = x.mul_add(y, -product);
        let sum = self.high + product;
        // Knuth's exact error of a sum.
        let other = sum - self.high;
        let error = (self.high - (sum - other)) + (product - other);
        self.high = sum;
        self.low += error + lost;
        if x.is_finite() && y.is_finite() {
            self.magnitude += product.abs();
        }
    }

    /// [`finish`](Self::finish), with a sum of floats rounded to another dtype.
    pub fn finish_in(&self, dtype: DType) -> (Scalar, f64) {
        match (self.finish(), dtype.is_float()) {
            ((value, error), true) => rounds(dtype, value.to_f64(), error),
            (exact, false) => exact,
        }
    }

    /// The sum rounded to the dtype, and the error bound for any other order.
    pub fn finish(&self) -> (Scalar, f64) {
        if !self.dtype.is_float() {
            return (Scalar::from_i64(self.dtype, self.bits), 0.0);
        }
        // If an operand is not finite, the sum is not finite in any order, and the correction is
        // NaN.
        let exact = if self.high.is_finite() { self.high + self.low } else { self.high };
        let value = Scalar::from_f64(self.dtype, exact);
        // One more for the rounding of the reference.
        let n = (self.terms + 1) as f64;
        let relative = sum_error(self.dtype, self.terms as usize + 1);
        let error = if self.terms == 0 {
            0.0
        } else if relative.is_infinite() || self.magnitude * 2.0 > greatest(self.dtype) {
            f64::INFINITY
        } else {
            relative * self.magnitude + n * least(self.dtype)
        };
        (value, error)
    }
}
