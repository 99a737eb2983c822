//! Conversions, each rounding once.
//!
//! **Rounding to odd.** f64 and integers of 32 and 64 bits become halves by way of f32: the value
//! is first truncated to f32 (`.rz`), and if that was inexact, the last bit of the f32 is set.
//! The next rounding is to at most 11 bits and cannot take such a value for a tie, so the result
//! is that of a single rounding. (Boldo and Melquiond, "When double rounding is odd", 2005.)

use super::arithmetic::wrap;
use super::value_type;
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Rounding, Type};
use wengert_core::{DType, Scalar};

/// The same bits, as another dtype.
pub(super) fn bitcast(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    // Registers wider than bytes have no type. Bytes differ in how they are extended.
    if from.size() == 1 { wrap(code, to, x) } else { x }
}

/// `x` converted to `to`.
pub(super) fn convert(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    if from == to {
        return x;
    }
    if from == DType::Bool {
        let (one, zero) = (Scalar::one(to), Scalar::zero(to));
        return code.select(value_type(to), super::immediate(one), super::immediate(zero), x);
    }
    if to == DType::Bool {
        return to_bool(code, from, x);
    }
    match (from.is_float(), to.is_float()) {
        (false, false) => between_integers(code, from, to, x),
        (false, true) => from_integer(code, from, to, x),
        (true, false) => to_integer(code, from, to, x),
        (true, true) => between_floats(code, from, to, x),
    }
}

/// `x ≠ 0`; true for NaN.
fn to_bool(code: &mut Code, from: DType, x: Reg) -> Reg {
    match from {
        DType::F16 | DType::BF16 => {
            // All bits but the sign.
            let bits = code.convert(Rounding::Exact, Type::U32, Type::U16, x);
            let magnitude = code.binary(Binary::And, Type::B32, bits, 0x7fff);
            code.compare(Compare::Ne, Type::U32, magnitude, 0)
        }
        DType::F32 => code.compare(Compare::Neu, Type::F32, x, 0.0f32),
        DType::F64 => code.compare(Compare::Neu, Type::F64, x, 0.0f64),
        _ => code.compare(Compare::Ne, value_type(from), x, 0),
    }
}

fn between_integers(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    match (from.size() == 8, to.size() == 8) {
        (true, true) => x,
        (true, false) => {
            let low = code.convert(Rounding::Exact, Type::U32, Type::U64, x);
            wrap(code, to, low)
        }
        // The extension follows the source's dtype.
        (false, true) if from.is_signed_integer() => {
            code.convert(Rounding::Exact, Type::S64, Type::S32, x)
        }
        (false, true) => code.convert(Rounding::Exact, Type::U64, Type::U32, x),
        (false, false) => wrap(code, to, x),
    }
}

fn from_integer(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    if !to.is_half() {
        return code.convert(Rounding::Nearest, value_type(to), value_type(from), x);
    }
    let single = if from.size() == 1 {
        // An f32 holds every byte.
        code.convert(Rounding::Nearest, Type::F32, value_type(from), x)
    } else {
        let ty = value_type(from);
        let cut = code.convert(Rounding::Zero, Type::F32, ty, x);
        // Truncation never leaves the range of the integer.
        let back = code.convert(Rounding::IntegerZero, ty, Type::F32, cut);
        let lost = code.compare(Compare::Ne, ty, back, x);
        odd(code, cut, lost)
    };
    code.convert(Rounding::Nearest, value_type(to), Type::F32, single)
}

/// The f32, with its last bit set where the truncation was inexact.
fn odd(code: &mut Code, cut: Reg, lost: Reg) -> Reg {
    let odd = code.binary(Binary::Or, Type::B32, cut, 1);
    code.select(Type::F32, odd, cut, lost)
}

/// Truncates, saturates; 0 for NaN.
fn to_integer(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    let (from, x) = if from.is_half() {
        (DType::F32, between_floats(code, from, DType::F32, x))
    } else {
        (from, x)
    };
    let (ty, float) = (value_type(to), value_type(from));
    match to.size() {
        1 => {
            let value = code.convert(Rounding::IntegerZero, Type::S32, float, x);
            let (low, high) = (Scalar::lowest(to), Scalar::highest(to));
            let value = code.binary(Binary::Max, Type::S32, value, super::immediate(low));
            let value = code.binary(Binary::Min, Type::S32, value, super::immediate(high));
            without_nan(code, Type::S32, float, x, value)
        }
        _ => {
            let value = code.convert(Rounding::IntegerZero, ty, float, x);
            without_nan(code, ty, float, x, value)
        }
    }
}

/// 0 where x is NaN. PTX itself gives 0 from f32 to 32 bits, and the least integer otherwise.
fn without_nan(code: &mut Code, ty: Type, float: Type, x: Reg, value: Reg) -> Reg {
    if float == Type::F32 && ty.bytes() == 4 {
        return value;
    }
    let nan = code.compare(Compare::Nan, float, x, x);
    code.select(ty, 0, value, nan)
}

fn between_floats(code: &mut Code, from: DType, to: DType, x: Reg) -> Reg {
    match (from, to) {
        (DType::BF16, DType::F32) => {
            // The upper half of an f32.
            let result = code.reg_of(Type::F32);
            let zero = code.mov(Type::B16, 0);
            code.push(Inst::Pack(Type::B32, result, vec![zero, x]));
            result
        }
        (DType::F16, DType::F32) => code.convert(Rounding::Exact, Type::F32, Type::F16, x),
        (DType::F32, DType::F64) => code.convert(Rounding::Exact, Type::F64, Type::F32, x),
        (DType::F16 | DType::BF16, _) => {
            let single = between_floats(code, from, DType::F32, x);
            between_floats(code, DType::F32, to, single)
        }
        (DType::F64, DType::F16 | DType::BF16) => {
            let cut = code.convert(Rounding::Zero, Type::F32, Type::F64, x);
            let back = code.convert(Rounding::Exact, Type::F64, Type::F32, cut);
            let lost = code.compare(Compare::Neu, Type::F64, back, x);
            let single = odd(code, cut, lost);
            code.convert(Rounding::Nearest, value_type(to), Type::F32, single)
        }
        _ => code.convert(Rounding::Nearest, value_type(to), value_type(from), x),
    }
}

/// Two f32 as halves of that dtype: one instruction makes a pair, which is then unpacked.
pub(crate) fn convert_pair(code: &mut Code, to: DType, low: Reg, high: Reg) -> (Reg, Reg) {
    let pair = code.reg_of(Type::B32);
    let ty = if to == DType::F16 { Type::F16x2 } else { Type::BF16x2 };
    code.push(Inst::ConvertPair(ty, pair, high.into(), low.into()));
    let parts = (code.reg_of(Type::B16), code.reg_of(Type::B16));
    code.push(Inst::Unpack(Type::B32, vec![parts.0, parts.1], pair));
    parts
}
