//! The division in a logistic function, without a check of its operands.
//!
//! `div.rn` tests whether its operands are so large or small that its fast code fails, and
//! branches. In `1 / (1 + e)` and `e / (1 + e)` with e = exp(−|x|) they never are: the denominator
//! is in 1..=2. Then a reciprocal, improved by one step of Newton's method, is the nearest number
//! to 1/d, and a quotient needs one correction. If e is so small that the correction underflows,
//! the denominator is 1, and the quotient is exact.
//!
//! The quotient was compared with the division for every e in 0..=1 (2³⁰ of them), and for the
//! numerator 1.

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
