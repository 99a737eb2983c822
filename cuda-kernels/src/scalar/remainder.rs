//! The remainder of floats, exactly: long division of the significands, several bits a step.
//!
//! With |x| = a·2^p and |y| = b·2^q in integers a, b, and n = p − q ≥ 0, the remainder is (a·2ⁿ
//! mod b)·2^q. The factor 2ⁿ is taken in steps of as many bits as fit above b in 64 bits: 40 for
//! f32, so that no pair takes more than seven steps, and 11 for f64. Where |x| < |y| the result
//! is x.

use super::{Functions, value_type};
use crate::ptx::{Binary, Code, Compare, Function, Inst, Reg, Rounding, Type, Unary};
use wengert_core::DType;

/// `x rem y`, with the sign of x.
pub(super) fn emit(
    code: &mut Code,
    functions: &mut Functions,
    dtype: DType,
    operands: &[Reg],
) -> Reg {
    let ty = value_type(dtype);
    let name = format!("wengert_rem_{dtype}");
    functions.entry(name.clone()).or_insert_with(|| function(&name, dtype));
    let result = code.reg_of(ty);
    let arguments = operands.iter().map(Into::into).collect();
    code.push(Inst::Call { function: name, ty, result, arguments });
    result
}

/// Layout of a float.
struct Format {
    /// Stored bits of the significand.
    fraction: i64,
    /// Largest value of the exponent field: infinities and NaN.
    top: i64,
    /// Bits of a step of the division.
    step: i64,
    unsigned: Type,
    float: Type,
}

fn function(name: &str, dtype: DType) -> Function {
    let format = if dtype == DType::F32 {
        Format { fraction: 23, top: 0xff, step: 40, unsigned: Type::U32, float: Type::F32 }
    } else {
        Format { fraction: 52, top: 0x7ff, step: 11, unsigned: Type::U64, float: Type::F64 }
    };
    let mut code = Code::new();
    let (x, y) = (code.reg_of(format.float), code.reg_of(format.float));
    let result = code.reg_of(format.float);
    body(&mut code, &format, x, y, result);
    Function {
        name: name.into(),
        remark: format!(
            "The remainder of {dtype}: `x - y * trunc(x / y)` without rounding, with the sign of x."
        ),
        parameters: vec![(format.float, x), (format.float, y)],
        results: vec![(format.float, result)],
        code,
    }
}

fn body(code: &mut Code, format: &Format, x: Reg, y: Reg, result: Reg) {
    let Format { fraction, top, step, unsigned, float } = *format;
    let end = code.label();
    let (x_size, y_size) = (code.unary(Unary::Abs, float, x), code.unary(Unary::Abs, float, y));
    let infinity = top << fraction;

    code.comment("0 / 0 where y is 0, x is infinite, or one is NaN");
    let nan =
        if float == Type::F32 { code.mov(float, f32::NAN) } else { code.mov(float, f64::NAN) };
    code.assign(float, result, nan);
    // As integers, magnitudes have the same order as floats, with NaN above all.
    let no_y = code.binary(Binary::Sub, unsigned, y_size, 1);
    let bad_y = code.compare(Compare::Ge, unsigned, no_y, infinity);
    let bad_x = code.compare(Compare::Ge, unsigned, x_size, infinity);
    code.branch_if(bad_y, end);
    code.branch_if(bad_x, end);

    code.comment("x where |x| < |y|");
    code.assign(float, result, x);
    let less = code.compare(Compare::Lt, unsigned, x_size, y_size);
    code.branch_if(less, end);

    let (a, p) = parts(code, format, x_size);
    let (b, q) = parts(code, format, y_size);
    let left = code.binary(Binary::Sub, Type::S32, p, q);
    let rest = code.binary(Binary::Rem, Type::U64, a, b);
    let begin = code.label();
    let done = code.label();
    code.place(begin);
    let more = code.compare(Compare::Gt, Type::S32, left, 0);
    code.branch_unless(more, done);
    let by = code.binary(Binary::Min, Type::S32, left, step);
    let shifted = code.binary(Binary::Shl, Type::B64, rest, by);
    code.binary_into(rest, Binary::Rem, Type::U64, shifted, b);
    code.binary_into(left, Binary::Sub, Type::S32, left, by);
    code.branch(begin);
    code.place(done);

    code.comment(
        "back to a float: the leading bit goes where it belongs, as far as the exponent allows",
    );
    let zeros = code.unary(Unary::Clz, Type::B64, rest);
    let up = code.binary(Binary::Sub, Type::S32, zeros, 63 - fraction);
    let room = code.binary(Binary::Sub, Type::S32, q, 1);
    let up = code.binary(Binary::Min, Type::S32, up, room);
    let placed = code.binary(Binary::Shl, Type::B64, rest, up);
    let exponent = code.binary(Binary::Sub, Type::S32, room, up);
    let none = code.compare(Compare::Eq, Type::U64, rest, 0);
    let exponent = code.select(Type::S32, 0, exponent, none);
    let exponent = code.convert(Rounding::Exact, Type::U64, Type::U32, exponent);
    let exponent = code.binary(Binary::Shl, Type::B64, exponent, fraction);
    // The leading bit, if it is set, adds one to the exponent.
    let bits = code.binary(Binary::Add, Type::U64, placed, exponent);
    let bits = if unsigned == Type::U32 {
        code.convert(Rounding::Exact, Type::U32, Type::U64, bits)
    } else {
        bits
    };
    let sign = code.binary(Binary::Xor, unsigned, x, x_size);
    code.binary_into(result, Binary::Or, unsigned, bits, sign);
    code.place(end);
}

/// Significand and exponent field (1 for subnormal numbers) of a finite magnitude.
fn parts(code: &mut Code, format: &Format, size: Reg) -> (Reg, Reg) {
    let Format { fraction, unsigned, .. } = *format;
    let field = code.binary(Binary::Shr, unsigned, size, fraction);
    let significand = code.binary(Binary::And, unsigned, size, (1i64 << fraction) - 1);
    let (field, significand) = if unsigned == Type::U32 {
        (field, code.convert(Rounding::Exact, Type::U64, Type::U32, significand))
    } else {
        (code.convert(Rounding::Exact, Type::U32, Type::U64, field), significand)
    };
    let normal = code.compare(Compare::Ne, Type::U32, field, 0);
    let leading = code.select(Type::B64, 1i64 << fraction, 0, normal);
    let significand = code.binary(Binary::Or, Type::B64, significand, leading);
    (significand, code.binary(Binary::Max, Type::U32, field, 1))
}
