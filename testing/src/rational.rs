//! Exact rationals as the numbers of the graph interpreter.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::fmt;
use wengert_core::interpret::Real;
use wengert_core::{DType, Diagnostic, Result};

/// A rational. Nothing is rounded, and a result that is not rational is an error.
#[derive(Clone, PartialEq, Debug)]
pub struct Rational(pub BigRational);

impl Rational {
    /// numerator / denominator
    pub fn new(numerator: i64, denominator: i64) -> Rational {
        Rational(BigRational::new(BigInt::from(numerator), BigInt::from(denominator)))
    }
}

impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Real for Rational {
    const ROUNDS: bool = false;
    fn from_f64(value: f64) -> Self {
        Rational(BigRational::from_float(value).expect("the number is finite"))
    }
    fn from_i64(value: i64) -> Self {
        Rational::new(value, 1)
    }
    fn to_f64(&self) -> f64 {
        self.0.to_f64().unwrap_or(f64::NAN)
    }
    fn round_to(&self, _dtype: DType) -> Self {
        self.clone()
    }
    fn add(&self, other: &Self) -> Self {
        Rational(&self.0 + &other.0)
    }
    fn sub(&self, other: &Self) -> Self {
        Rational(&self.0 - &other.0)
    }
    fn mul(&self, other: &Self) -> Self {
        Rational(&self.0 * &other.0)
    }
    fn div(&self, other: &Self) -> Result<Self> {
        if other.0.is_zero() {
            return Err(Diagnostic::new("division by zero has no rational value"));
        }
        Ok(Rational(&self.0 / &other.0))
    }
    fn neg(&self) -> Self {
        Rational(-&self.0)
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.cmp(&other.0))
    }
    fn apply(&self, name: &str, _f: impl Fn(f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn apply2(&self, _other: &Self, name: &str, _f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn floor(&self) -> Self {
        Rational(self.0.floor())
    }
    fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
    fn is_negative(&self) -> bool {
        self.0.is_negative()
    }
}
