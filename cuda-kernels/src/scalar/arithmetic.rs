//! Arithmetic, comparisons and selection.

use super::value_type;
use crate::ptx::{Binary, Code, Compare, Operand, Reg, Rounding, Ternary, Type, Unary};
use wengert_core::DType;
use wengert_core::nest::ScalarOp;

/// Message for an instruction outside its class.
const NOT_OF_THIS_CLASS: &str = "`ScalarOp::check` passes for the dtypes";

/// The second where the first holds, else the third.
pub(crate) fn select(code: &mut Code, dtype: DType, condition: Reg, yes: Reg, no: Reg) -> Reg {
    if dtype != DType::Bool {
        return code.select(value_type(dtype), yes, no, condition);
    }
    let taken = code.binary(Binary::And, Type::Pred, condition, yes);
    let other = code.unary(Unary::Not, Type::Pred, condition);
    let other = code.binary(Binary::And, Type::Pred, other, no);
    code.binary(Binary::Or, Type::Pred, taken, other)
}

/// Instructions on bool.
pub(super) fn logical(code: &mut Code, op: ScalarOp, operands: &[Reg]) -> Reg {
    let x = operands[0];
    let y = operands.get(1).copied().unwrap_or(x);
    let mut binary = |op, x: Reg, y: Reg| code.binary(op, Type::Pred, x, y);
    match op {
        ScalarOp::Not => code.unary(Unary::Not, Type::Pred, x),
        ScalarOp::And => binary(Binary::And, x, y),
        ScalarOp::Or => binary(Binary::Or, x, y),
        ScalarOp::Xor | ScalarOp::Ne => binary(Binary::Xor, x, y),
        ScalarOp::Eq => {
            let differ = binary(Binary::Xor, x, y);
            code.unary(Unary::Not, Type::Pred, differ)
        }
        ScalarOp::Lt | ScalarOp::Le => {
            let no = code.unary(Unary::Not, Type::Pred, x);
            let op = if op == ScalarOp::Lt { Binary::And } else { Binary::Or };
            code.binary(op, Type::Pred, no, y)
        }
        _ => unreachable!("{NOT_OF_THIS_CLASS}"),
    }
}

/// A comparison of numbers.
fn comparison(op: ScalarOp, float: bool) -> Option<Compare> {
    Some(match op {
        ScalarOp::Eq => Compare::Eq,
        ScalarOp::Ne if float => Compare::Neu,
        ScalarOp::Ne => Compare::Ne,
        ScalarOp::Lt => Compare::Lt,
        ScalarOp::Le => Compare::Le,
        _ => return None,
    })
}

/// Instructions on f32 and f64.
pub(super) fn float(code: &mut Code, op: ScalarOp, dtype: DType, operands: &[Reg]) -> Reg {
    let ty = value_type(dtype);
    let x = operands[0];
    let y = operands.get(1).copied().unwrap_or(x);
    if let Some(compare) = comparison(op, true) {
        return code.compare(compare, ty, x, y);
    }
    match op {
        ScalarOp::Neg => code.unary(Unary::Neg, ty, x),
        ScalarOp::Abs => code.unary(Unary::Abs, ty, x),
        ScalarOp::Sqrt => code.unary(Unary::Sqrt, ty, x),
        ScalarOp::Floor => code.convert(Rounding::IntegerDown, ty, ty, x),
        ScalarOp::Ceil => code.convert(Rounding::IntegerUp, ty, ty, x),
        ScalarOp::RoundEven => code.convert(Rounding::IntegerNearest, ty, ty, x),
        ScalarOp::Trunc => code.convert(Rounding::IntegerZero, ty, ty, x),
        ScalarOp::Add => code.binary(Binary::Add, ty, x, y),
        ScalarOp::Sub => code.binary(Binary::Sub, ty, x, y),
        ScalarOp::Mul => code.binary(Binary::Mul, ty, x, y),
        ScalarOp::Div => code.binary(Binary::Div, ty, x, y),
        ScalarOp::Fma => code.ternary(Ternary::Fma, ty, x, y, operands[2]),
        ScalarOp::Min | ScalarOp::Max => extremum(code, op == ScalarOp::Min, ty, x, y),
        _ => unreachable!("{NOT_OF_THIS_CLASS}"),
    }
}

/// `min` and `max` put −0 below +0 (PTX ISA); `.NaN` propagates NaN, but f64 lacks it.
fn extremum(code: &mut Code, least: bool, ty: Type, x: Reg, y: Reg) -> Reg {
    if ty == Type::F32 {
        return code.binary(if least { Binary::MinNan } else { Binary::MaxNan }, ty, x, y);
    }
    let value = code.binary(if least { Binary::Min } else { Binary::Max }, ty, x, y);
    let nan = code.compare(Compare::Nan, ty, x, y);
    code.select(ty, f64::NAN, value, nan)
}

/// Wraps a 32-bit result to 8 bits.
pub(super) fn wrap(code: &mut Code, dtype: DType, value: Reg) -> Reg {
    match dtype {
        DType::U8 => code.binary(Binary::And, Type::B32, value, 0xff),
        DType::I8 => code.convert(Rounding::Exact, Type::S32, Type::S8, value),
        _ => value,
    }
}

/// The same register, read as unsigned: bits of i8 beyond the eighth are dropped.
fn without_sign(code: &mut Code, dtype: DType, value: Reg) -> Reg {
    if dtype == DType::I8 { code.binary(Binary::And, Type::B32, value, 0xff) } else { value }
}

/// Instructions on integers.
pub(super) fn integer(code: &mut Code, op: ScalarOp, dtype: DType, operands: &[Reg]) -> Reg {
    let ty = value_type(dtype);
    let x = operands[0];
    let y = operands.get(1).copied().unwrap_or(x);
    if let Some(compare) = comparison(op, false) {
        return code.compare(compare, ty, x, y);
    }
    let signed = dtype.is_signed_integer();
    let wide = dtype.size() == 8;
    let signed_type = if wide { Type::S64 } else { Type::S32 };
    let unsigned_type = if wide { Type::U64 } else { Type::U32 };
    let value = match op {
        ScalarOp::Neg => code.unary(Unary::Neg, signed_type, x),
        ScalarOp::Abs if signed => code.unary(Unary::Abs, ty, x),
        ScalarOp::Abs => x,
        ScalarOp::Not => code.unary(Unary::Not, ty, x),
        ScalarOp::Popcnt | ScalarOp::Clz => count(code, op == ScalarOp::Clz, dtype, x),
        ScalarOp::Add => code.binary(Binary::Add, ty, x, y),
        ScalarOp::Sub => code.binary(Binary::Sub, ty, x, y),
        ScalarOp::Mul => code.binary(Binary::Mul, ty, x, y),
        ScalarOp::Div | ScalarOp::Rem => divide(code, op == ScalarOp::Div, ty, signed, x, y),
        ScalarOp::Min => code.binary(Binary::Min, ty, x, y),
        ScalarOp::Max => code.binary(Binary::Max, ty, x, y),
        ScalarOp::And => code.binary(Binary::And, ty, x, y),
        ScalarOp::Or => code.binary(Binary::Or, ty, x, y),
        ScalarOp::Xor => code.binary(Binary::Xor, ty, x, y),
        ScalarOp::MulHigh if dtype.size() == 1 => {
            let product = code.binary(Binary::Mul, ty, x, y);
            code.binary(Binary::Shr, ty, product, 8)
        }
        ScalarOp::MulHigh => code.binary(Binary::MulHigh, ty, x, y),
        // A negative distance is large as an unsigned number; shifts by 32 or more give 0 or all
        // sign bits.
        ScalarOp::ShiftLeft => {
            let by = distance(code, wide, y);
            code.binary(Binary::Shl, ty, x, by)
        }
        ScalarOp::ShiftRightLogical => {
            let (bits, by) = (without_sign(code, dtype, x), distance(code, wide, y));
            code.binary(Binary::Shr, unsigned_type, bits, by)
        }
        ScalarOp::ShiftRightArithmetic => {
            let by = distance(code, wide, y);
            let extended = if dtype == DType::U8 {
                code.convert(Rounding::Exact, Type::S32, Type::S8, x)
            } else {
                x
            };
            code.binary(Binary::Shr, signed_type, extended, by)
        }
        _ => unreachable!("{NOT_OF_THIS_CLASS}"),
    };
    wrap(code, dtype, value)
}

/// The number of one bits, or of leading zeros. PTX returns 32 bits for every width.
fn count(code: &mut Code, zeros: bool, dtype: DType, x: Reg) -> Reg {
    let (instruction, wide) = (if zeros { Unary::Clz } else { Unary::Popc }, dtype.size() == 8);
    let bits = without_sign(code, dtype, x);
    let count = code.unary(instruction, if wide { Type::B64 } else { Type::B32 }, bits);
    match dtype.size() {
        8 => code.convert(Rounding::Exact, Type::U64, Type::U32, count),
        // The register has 24 more zeros than the byte in it.
        1 if zeros => code.binary(Binary::Sub, Type::S32, count, 24),
        _ => count,
    }
}

/// A shift distance in 32 bits, saturated to 64.
fn distance(code: &mut Code, wide: bool, y: Reg) -> Reg {
    if !wide {
        return y;
    }
    let bounded = code.binary(Binary::Min, Type::U64, y, 64);
    code.convert(Rounding::Exact, Type::U32, Type::U64, bounded)
}

/// Truncating quotient or remainder. PTX leaves undefined a division by zero and the least
/// integer by −1: the divisor is replaced by 1 there, and the result is corrected.
fn divide(code: &mut Code, quotient: bool, ty: Type, signed: bool, x: Reg, y: Reg) -> Reg {
    let zero = code.compare(Compare::Eq, ty, y, 0);
    let divisor = code.select(ty, 1, y, zero);
    let minus_one = signed.then(|| code.compare(Compare::Eq, ty, y, -1));
    let divisor = match minus_one {
        Some(minus_one) => code.select(ty, 1, divisor, minus_one),
        None => divisor,
    };
    if quotient {
        let value = code.binary(Binary::Div, ty, x, divisor);
        let value = match minus_one {
            Some(minus_one) => {
                let negated = code.unary(Unary::Neg, ty, x);
                code.select(ty, negated, value, minus_one)
            }
            None => value,
        };
        code.select(ty, Operand::Int(-1), value, zero)
    } else {
        // x rem 1 is 0, which is correct for −1 too.
        let value = code.binary(Binary::Rem, ty, x, divisor);
        code.select(ty, x, value, zero)
    }
}
