//! `f64` that is not rounded to the dtypes of values.

use super::Real;
use crate::diagnostic::Result;
use crate::dtype::DType;
use std::cmp::Ordering;

/// An `f64` whatever the dtype of its value: a program of f32 or halves is evaluated as if all
/// floats were f64.
///
/// Used for finite differences: rounding to the program's dtypes would change values by more than
/// the differences.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Unrounded(pub f64);

impl Real for Unrounded {
    const ROUNDS: bool = false;
    fn from_f64(value: f64) -> Self {
        Unrounded(value)
    }
    fn from_i64(value: i64) -> Self {
        Unrounded(value as f64)
    }
    fn to_f64(&self) -> f64 {
        self.0
    }
    fn round_to(&self, _dtype: DType) -> Self {
        *self
    }
    fn add(&self, other: &Self) -> Self {
        Unrounded(self.0 + other.0)
    }
    fn sub(&self, other: &Self) -> Self {
        Unrounded(self.0 - other.0)
    }
    fn mul(&self, other: &Self) -> Self {
        Unrounded(self.0 * other.0)
    }
    fn div(&self, other: &Self) -> Result<Self> {
        Ok(Unrounded(self.0 / other.0))
    }
    fn neg(&self) -> Self {
        Unrounded(-self.0)
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        self.0.partial_cmp(&other.0)
    }
    fn apply(&self, _name: &str, f: impl Fn(f64) -> f64) -> Result<Self> {
        Ok(Unrounded(f(self.0)))
    }
    fn apply2(&self, other: &Self, _name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        Ok(Unrounded(f(self.0, other.0)))
    }
    fn floor(&self) -> Self {
        Unrounded(self.0.floor())
    }
    fn is_zero(&self) -> bool {
        self.0 == 0.0
    }
    fn is_negative(&self) -> bool {
        self.0.is_sign_negative()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{Array, evaluate};
    use crate::{Literal, graph::parse_program};

    #[test]
    fn programs_of_small_floats_keep_the_digits_of_doubles() {
        let text = "func @f(%x: bf16[]) -> (bf16[]) {
            %0: bf16[] = exp %x
            %1: bf16[] = div %0, %x
            return %1
        }";
        let program = parse_program(text, "f.ir").unwrap();
        let f = &program.functions()[0];
        let x = Literal::from(half::bf16::from_f32(3.0));
        let y = evaluate::<Unrounded>(&f.body, &f.locations, &[Array::from_literal(&x).unwrap()])
            .unwrap();
        assert_eq!(y[0].cells[0].real().0, 3.0f64.exp() / 3.0);
        let rounded =
            evaluate::<f64>(&f.body, &f.locations, &[Array::from_literal(&x).unwrap()]).unwrap();
        assert_eq!(*rounded[0].cells[0].real(), 6.71875);
    }
}
