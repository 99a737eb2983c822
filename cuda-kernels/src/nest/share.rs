//! The division in a logistic function, without a check of its operands.
//!
//! `div.rn` tests whether its operands are so large or small that its fast code fails, and
//! branches. In `1 / (1 + e)` and `e / (1 + e)` with e = exp(−|x|) they never are: the denominator
//! is in 1..=2. Then a reciprocal, improved by one step of Newton's method, is the nearest number
//! to 1/d, and a quotient needs one correction. If e is so small that the correction underflows,
//! the denominator is 1, and the quotient is exact.
//!
//! The quotient was compared with the division for every e in 0..=1 (2³⁰ of them) and for the
//! numerator 1, and the improved reciprocal on an H200 for every denominator. The test below takes
//! a sample.

use crate::ptx::{Binary, Code, Reg, Ternary, Type, Unary};
use wengert_core::DType;
use wengert_core::nest::{Instr, Nest, Reg as NestReg, ScalarOp};

/// Whether `numerator / denominator` of f32 is the last step of a logistic function: it has the
/// instructions of [`wengert_core::op::unary::Unary::Logistic`].
pub(super) fn is_share(nest: &Nest, numerator: NestReg, denominator: NestReg) -> bool {
    if nest.registers[denominator] != DType::F32 {
        return false;
    }
    let scalar = |register: NestReg, wanted: ScalarOp| {
        nest.phases.iter().flat_map(|p| &p.body).find_map(|instr| match instr {
            Instr::Scalar { result, op, operands } if *result == register && *op == wanted => {
                Some(operands.as_slice())
            }
            _ => None,
        })
    };
    let is_one = |register: NestReg| {
        nest.phases.iter().flat_map(|p| &p.body).any(|instr| {
            matches!(instr, Instr::Const { result, value }
                if *result == register && value.to_f64() == 1.0)
        })
    };
    let Some(&[one, e]) = scalar(denominator, ScalarOp::Add) else { return false };
    let Some(&[_, yes, no]) = scalar(numerator, ScalarOp::Select) else { return false };
    let below_one = || {
        let &[minus] = scalar(e, ScalarOp::Exp)? else { return None };
        let &[size] = scalar(minus, ScalarOp::Neg)? else { return None };
        scalar(size, ScalarOp::Abs)
    };
    is_one(one) && yes == e && is_one(no) && below_one().is_some()
}

/// `numerator / denominator`, rounded to the nearest, of such operands.
pub(super) fn divide(code: &mut Code, numerator: Reg, denominator: Reg) -> Reg {
    let ty = Type::F32;
    let minus = code.unary(Unary::Neg, ty, denominator);
    let near = code.unary(Unary::ApproximateReciprocal, ty, denominator);
    let error = code.ternary(Ternary::Fma, ty, minus, near, 1.0f32);
    let reciprocal = code.ternary(Ternary::Fma, ty, error, near, near);
    let quotient = code.binary(Binary::Mul, ty, numerator, reciprocal);
    let rest = code.ternary(Ternary::Fma, ty, minus, quotient, numerator);
    code.ternary(Ternary::Fma, ty, rest, reciprocal, quotient)
}

#[cfg(test)]
mod tests {
    /// The quotient of [`super::divide`], with a reciprocal that is already the nearest number.
    fn quotient(numerator: f32, denominator: f32) -> f32 {
        let reciprocal = 1.0 / denominator;
        let quotient = numerator * reciprocal;
        let rest = (-denominator).mul_add(quotient, numerator);
        rest.mul_add(reciprocal, quotient)
    }

    #[test]
    fn the_quotient_is_that_of_a_division() {
        let one = 1.0f32.to_bits();
        for bits in (0..=one).step_by(4093).chain([1, one - 1, one]) {
            let e = f32::from_bits(bits);
            for numerator in [1.0, e] {
                let (found, expected) = (quotient(numerator, 1.0 + e), numerator / (1.0 + e));
                assert_eq!(found.to_bits(), expected.to_bits(), "{numerator} / (1 + {e})");
            }
        }
    }
}
