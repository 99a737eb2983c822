//! Scalar instructions as PTX: one table, instruction × dtype.
//!
//! **Representation.** A `bool` is a predicate. Integers of 8 bits live in 32-bit registers and
//! are kept wrapped: zero-extended (u8) or sign-extended (i8). So most instructions are those of
//! 32 bits, followed by a wrap. Integers and floats of 32 and 64 bits fill a register of their
//! width, and halves one of 16 bits: they are only moved, selected and converted. In memory a
//! bool is a byte, 0 or 1.
//!
//! **Exactness.** Results are those of [`wengert_core::nest::evaluate`], bit for bit except for
//! NaNs. Code handles the cases that PTX leaves undefined: division by zero, the least integer
//! over −1, NaN in the minimum of f64, NaN to a 64-bit integer. A conversion that PTX lacks as a
//! single rounding goes through *rounding to odd* (see `convert`).
//!
//! **Elementary functions** are those of [`wengert_core::math`], with the same bits as on every
//! target (see `function`).
//!
//! **Approximate instructions** have errors within their bounds, and no other code has (see
//! `approximate`).

mod approximate;
mod arithmetic;
mod convert;
mod function;
mod remainder;

use crate::ptx::{Code, Compare, Function, Inst, Operand, Reg, Type};
pub(crate) use arithmetic::select;
pub(crate) use convert::convert_pair;
pub(crate) use function::moderate;
use std::collections::BTreeMap;
use wengert_core::nest::ScalarOp;
use wengert_core::{DType, Diagnostic, Result, Scalar};

/// Functions that code calls, by name.
pub type Functions = BTreeMap<String, Function>;

/// The type of the signed or unsigned instructions on a dtype; for 8-bit integers, that of the
/// 32-bit registers that hold them.
pub const fn value_type(dtype: DType) -> Type {
    match dtype {
        DType::Bool => Type::Pred,
        // 8-bit floats are their bits.
        DType::U8 | DType::U32 | DType::F8E4M3FN | DType::F8E5M2 => Type::U32,
        DType::I8 | DType::I32 => Type::S32,
        DType::I64 => Type::S64,
        DType::U64 => Type::U64,
        DType::F16 => Type::F16,
        DType::BF16 => Type::BF16,
        DType::F32 => Type::F32,
        DType::F64 => Type::F64,
    }
}

/// The type of a dtype in memory; a load extends 8-bit integers to their representation in
/// registers.
pub const fn memory_type(dtype: DType) -> Type {
    match dtype {
        DType::Bool | DType::U8 | DType::F8E4M3FN | DType::F8E5M2 => Type::U8,
        DType::I8 => Type::S8,
        DType::F16 | DType::BF16 => Type::B16,
        DType::I32 | DType::U32 | DType::F32 => Type::B32,
        DType::I64 | DType::U64 | DType::F64 => Type::B64,
    }
}

/// A constant in a new register.
pub fn constant(code: &mut Code, value: Scalar) -> Reg {
    let register = code.reg_of(value_type(value.dtype()));
    assign_constant(code, register, value);
    register
}

/// A constant as an immediate operand; a predicate has none.
pub fn immediate(value: Scalar) -> Operand {
    match value.dtype() {
        DType::F32 => Operand::F32(value.bits() as u32),
        DType::F64 => Operand::F64(value.bits()),
        DType::F16 | DType::BF16 => Operand::Int(value.bits() as i64),
        _ => Operand::Int(value.to_i64().expect("neither float nor half")),
    }
}

/// Assigns a constant to an existing register.
pub fn assign_constant(code: &mut Code, register: Reg, value: Scalar) {
    if value.dtype() == DType::Bool {
        // Predicates have no constants, so the constant is a comparison of two integers.
        let op = if value.bits() == 0 { Compare::Ne } else { Compare::Eq };
        code.push(Inst::Compare(op, Type::S32, register, Operand::Int(0), Operand::Int(0)));
    } else {
        code.assign(value_type(value.dtype()), register, immediate(value));
    }
}

/// About how many instructions of the machine one of these is.
pub fn cost(op: ScalarOp, dtype: DType) -> usize {
    match op {
        _ if op.is_elementary() => function::cost(op, dtype),
        _ if op.is_approximate() => approximate::cost(op),
        ScalarOp::Div | ScalarOp::Rem | ScalarOp::Sqrt => 10,
        _ => 1,
    }
}

/// The instructions that compute `op`; the result is in a new register. Dtypes are such that
/// [`ScalarOp::check`] passes.
///
/// Errors: an elementary function that has no program for the dtype.
pub fn emit(
    code: &mut Code,
    functions: &mut Functions,
    op: ScalarOp,
    dtypes: &[DType],
    result: DType,
    operands: &[Reg],
) -> Result<Reg> {
    let Some(dtype) = dtypes.last().copied() else {
        return Err(Diagnostic::new(format!("`{}` has no operands", op.name())));
    };
    if op.is_elementary() {
        return function::emit(code, functions, op, dtype, operands);
    }
    if op.is_approximate() {
        return Ok(approximate::emit(code, op, operands));
    }
    Ok(match op {
        ScalarOp::Convert => convert::convert(code, dtype, result, operands[0]),
        ScalarOp::Bitcast => convert::bitcast(code, dtype, result, operands[0]),
        ScalarOp::Select => select(code, dtype, operands[0], operands[1], operands[2]),
        ScalarOp::Rem if dtype.is_float() => remainder::emit(code, functions, dtype, operands),
        _ if dtype == DType::Bool => arithmetic::logical(code, op, operands),
        _ if dtype.is_float() => arithmetic::float(code, op, dtype, operands),
        _ => arithmetic::integer(code, op, dtype, operands),
    })
}
