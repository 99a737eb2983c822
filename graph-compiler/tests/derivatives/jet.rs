//! Truncated power series as numbers, which are the oracle for exact derivatives.
//!
//! A program runs on `x + ε·t` with arithmetic of polynomials in ε modulo ε⁴. The coefficient of εᵏ
//! is the k-th derivative along t divided by k!. This code shares nothing with the derivative
//! rules.

use num_rational::BigRational;
use num_traits::{One, Signed, Zero};
use std::cmp::Ordering;
use wengert_core::interpret::Real;
use wengert_core::{DType, Diagnostic, Result};
use wengert_testing::Rational;

/// Coefficients of 1, ε, ε², ε³.
#[derive(Clone, PartialEq, Debug)]
pub struct Jet(pub [BigRational; 4]);

impl Jet {
    /// x + ε·t
    pub fn along(x: BigRational, t: BigRational) -> Self {
        Jet([x, t, BigRational::zero(), BigRational::zero()])
    }

    fn constant(x: BigRational) -> Self {
        Jet::along(x, BigRational::zero())
    }

    fn map(&self, f: impl Fn(usize) -> BigRational) -> Self {
        Jet([f(0), f(1), f(2), f(3)])
    }
}

impl Real for Jet {
    const ROUNDS: bool = false;
    fn from_f64(value: f64) -> Self {
        Jet::constant(Rational::from_f64(value).0)
    }
    fn from_i64(value: i64) -> Self {
        Jet::constant(Rational::from_i64(value).0)
    }
    fn to_f64(&self) -> f64 {
        Rational(self.0[0].clone()).to_f64()
    }
    fn round_to(&self, _dtype: DType) -> Self {
        self.clone()
    }
    fn add(&self, other: &Self) -> Self {
        self.map(|k| &self.0[k] + &other.0[k])
    }
    fn sub(&self, other: &Self) -> Self {
        self.map(|k| &self.0[k] - &other.0[k])
    }
    fn mul(&self, other: &Self) -> Self {
        self.map(|k| (0..=k).map(|i| &self.0[i] * &other.0[k - i]).sum())
    }
    fn div(&self, other: &Self) -> Result<Self> {
        if Zero::is_zero(&other.0[0]) {
            return Err(Diagnostic::new("division by zero"));
        }
        let mut quotient: [BigRational; 4] = Default::default();
        for k in 0..4 {
            let known: BigRational = (0..k).map(|i| &quotient[i] * &other.0[k - i]).sum();
            quotient[k] = (&self.0[k] - known) / &other.0[0];
        }
        Ok(Jet(quotient))
    }
    fn neg(&self) -> Self {
        self.map(|k| -&self.0[k])
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(self.0[0].cmp(&other.0[0]))
    }
    fn apply(&self, name: &str, _f: impl Fn(f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn apply2(&self, _other: &Self, name: &str, _f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        Err(Diagnostic::new(format!("`{name}` is not rational")))
    }
    fn floor(&self) -> Self {
        Jet::constant(self.0[0].floor())
    }
    fn is_negative(&self) -> bool {
        self.0[0].is_negative()
    }
    fn is_zero(&self) -> bool {
        self.0.iter().all(Zero::is_zero)
    }
}

#[test]
fn the_series_of_a_quotient_is_known() {
    // 1 / (1 − ε) = 1 + ε + ε² + ε³
    let one = BigRational::one();
    let quotient = Jet::constant(one.clone()).div(&Jet::along(one.clone(), -one.clone())).unwrap();
    assert_eq!(quotient, Jet([one.clone(), one.clone(), one.clone(), one]));
}
