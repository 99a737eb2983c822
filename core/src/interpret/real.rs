//! Elements of float dtypes in the graph interpreter.

use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dtype::DType;
use crate::scalar::Scalar;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};
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

impl Real for BigRational {
    const ROUNDS: bool = false;
    fn from_f64(value: f64) -> Self {
        BigRational::from_float(value)
            .expect("rational interpretation is given finite numbers only")
    }
    fn from_i64(value: i64) -> Self {
        BigRational::from_integer(BigInt::from(value))
    }
    fn to_f64(&self) -> f64 {
        ToPrimitive::to_f64(self).unwrap_or(f64::NAN)
    }
    fn round_to(&self, _dtype: DType) -> Self {
        self.clone()
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
        ensure!(!Zero::is_zero(other), "division by zero has no rational value");
        Ok(self / other)
    }
    fn neg(&self) -> Self {
        -self
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    fn apply(&self, name: &str, _f: impl Fn(f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn apply2(&self, _other: &Self, name: &str, _f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn floor(&self) -> Self {
        BigRational::floor(self)
    }
    fn is_zero(&self) -> bool {
        Zero::is_zero(self)
    }
    fn is_negative(&self) -> bool {
        Signed::is_negative(self)
    }
}
