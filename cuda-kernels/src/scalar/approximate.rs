//! Approximate instructions, by those of the special function units.
//!
//! [`wengert_core::nest::approximate`] has their bounds, which follow from the errors that the PTX
//! ISA states and from the roundings of the code here. Only `ex2` flushes subnormal numbers to
//! zero. With `.ftz`, `lg2` would take the logarithm of a subnormal number for −∞, which no bound
//! covers; without it, `ex2` would take two more instructions for results below 2⁻¹²⁶.

use crate::ptx::{Binary, Code, Compare, Reg, Type, Unary};
use std::f32::consts::{LN_2, LOG2_E};
use wengert_core::nest::ScalarOp;

/// An approximate instruction of f32; the result is in a new register.
pub(super) fn emit(code: &mut Code, op: ScalarOp, operands: &[Reg]) -> Reg {
    let (ty, x) = (Type::F32, operands[0]);
    match op {
        ScalarOp::ApproxExp => {
            let power = code.binary(Binary::Mul, ty, x, LOG2_E);
            code.unary(Unary::Exp2, ty, power)
        }
        ScalarOp::ApproxLog => {
            let logarithm = code.unary(Unary::ApproximateLog2, ty, x);
            let value = code.binary(Binary::Mul, ty, logarithm, LN_2);
            // Near 1 the error may exceed the logarithm, so its sign is set. A NaN stays one.
            let low = code.binary(Binary::MinNan, ty, value, 0.0f32);
            let high = code.binary(Binary::MaxNan, ty, value, 0.0f32);
            let is_below = code.compare(Compare::Lt, ty, x, 1.0f32);
            code.select(ty, low, high, is_below)
        }
        ScalarOp::ApproxTanh => code.unary(Unary::ApproximateTanh, ty, x),
        ScalarOp::ApproxSqrt => code.unary(Unary::ApproximateSqrt, ty, x),
        ScalarOp::ApproxDiv => code.binary(Binary::ApproximateDiv, ty, x, operands[1]),
        _ => unreachable!("the caller has asked whether `{}` is approximate", op.name()),
    }
}

/// About how many instructions of the machine one of these is.
pub(super) const fn cost(op: ScalarOp) -> usize {
    match op {
        ScalarOp::ApproxTanh => 1,
        ScalarOp::ApproxLog => 9,
        ScalarOp::ApproxDiv => 6,
        _ => 4,
    }
}
