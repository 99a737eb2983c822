//! Elements of float dtypes in the graph interpreter.

use super::{Array, Regions};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::Equation;
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::cmp::Ordering;
use std::fmt::Debug;

/// A number system in place of the floats: `f64`, or exact rationals.
pub trait Real: Clone + PartialEq + Debug + Send + Sync + 'static {
    /// Whether results are rounded to their dtype.
    const ROUNDS: bool;
    /// The number `value`. For rationals it must be finite.
    fn from_f64(value: f64) -> Self;
    /// The integer `value`.
    fn from_i64(value: i64) -> Self;
    /// Nearest `f64`.
    fn to_f64(&self) -> f64;
    /// Rounded to the values of `dtype`.
    fn round_to(&self, dtype: DType) -> Self;
    /// x + y
    fn add(&self, other: &Self) -> Self;
    /// x − y
    fn sub(&self, other: &Self) -> Self;
    /// x · y
    fn mul(&self, other: &Self) -> Self;
    /// x / y. Error: the quotient is not a number of this system.
    fn div(&self, other: &Self) -> Result<Self>;
    /// −x
    fn neg(&self) -> Self;
    /// Order; `None` if one is NaN.
    fn compare(&self, other: &Self) -> Option<Ordering>;
    /// Applies a real function that is computed in `f64`. Error: this system does not contain its
    /// results.
    fn apply(&self, name: &str, f: impl Fn(f64) -> f64) -> Result<Self>;
    /// [`apply`](Self::apply) for two arguments.
    fn apply2(&self, other: &Self, name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self>;
    /// Largest integer not above x.
    fn floor(&self) -> Self;
    /// True if x is zero of either sign.
    fn is_zero(&self) -> bool;
    /// True if the sign is minus: below zero, −0, or a NaN of that sign.
    fn is_negative(&self) -> bool;

    /// The integer that this number stands for in an array of integers or bools. Such cells occur
    /// only in a number system that makes them: one in which an integer may be uncertain.
    fn to_bits(&self) -> i64 {
        panic!("an integer element is asked of a float array: infer admits none")
    }

    /// The results of an equation on its operands. The default is the op's `evaluate` facet. A
    /// number system overrides this if some ops need more than arithmetic on single elements, such
    /// as the union of both choices of an uncertain comparison.
    ///
    /// Errors: those of the facet.
    fn evaluate_equation(
        equation: &Equation,
        operands: &[Array<Self>],
        results: &[TensorType],
        regions: &Regions<'_>,
    ) -> Result<Vec<Array<Self>>> {
        equation.op.evaluate(operands, results, regions)
    }
}

impl Real for f64 {
    const ROUNDS: bool = true;
    fn from_f64(value: f64) -> Self {
        value
    }
    fn from_i64(value: i64) -> Self {
        value as f64
    }
    fn to_f64(&self) -> f64 {
        *self
    }
    fn round_to(&self, dtype: DType) -> Self {
        Scalar::from_f64(dtype, *self).to_f64()
    }
    fn add(&self, other: &Self) -> Self {
        self + other
    }
    fn sub(&self, other: &Self) -> Self {
        self - other
    }
    fn mul(&self, other: &Self) -> Self {
        self * other
    }
    fn div(&self, other: &Self) -> Result<Self> {
        Ok(self / other)
    }
    fn neg(&self) -> Self {
        -self
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        self.partial_cmp(other)
    }
    fn apply(&self, _name: &str, f: impl Fn(f64) -> f64) -> Result<Self> {
        Ok(f(*self))
    }
    fn apply2(&self, other: &Self, _name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        Ok(f(*self, *other))
    }
    fn floor(&self) -> Self {
        f64::floor(*self)
    }
    fn is_zero(&self) -> bool {
        *self == 0.0
    }
    fn is_negative(&self) -> bool {
        self.is_sign_negative()
    }
}
