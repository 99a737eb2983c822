//! The single executable definition of the scalar instructions.
//!
//! [`evaluator`] picks a function of bits for an instruction and its dtypes, once. The nest
//! interpreter calls it for every element, and constant folding calls it through [`evaluate`].
//! Elementary functions are those of [`crate::math`]. An
//! [approximate instruction](super::approximate) has the value of the exact function.
//!
//! A NaN result of float arithmetic becomes the canonical quiet NaN, so runs can be compared by
//! bits. `select`, `bitcast`, and conversions to the same dtype move bits unchanged.

mod convert;
#[cfg(test)]
mod tests;

use super::ScalarOp;
use crate::dtype::DType;
use crate::math;
use crate::scalar::{Native, Scalar};
use std::cmp::Ordering;

/// The function of an instruction on integers of one type, which wrap. `$signed` and `$unsigned`
/// have its size.
macro_rules! integer {
    ($op:expr, $t:ty, $signed:ty, $unsigned:ty) => {{
        fn of(bits: u64) -> $t {
            Native::from_bits64(bits)
        }
        /// A shift by fewer bits than there are.
        fn shift(bits: u64) -> Option<u32> {
            u32::try_from(of(bits)).ok().filter(|s| *s < <$t>::BITS)
        }
        Some(match $op {
            ScalarOp::Neg => |[x, ..]| of(x).wrapping_neg().to_bits64(),
            ScalarOp::Abs if <$t>::MIN == 0 => |[x, ..]| of(x).to_bits64(),
            ScalarOp::Abs => |[x, ..]| ((of(x) as $signed).wrapping_abs() as $t).to_bits64(),
            ScalarOp::Not => |[x, ..]| (!of(x)).to_bits64(),
            ScalarOp::Popcnt => |[x, ..]| of(x).count_ones().into(),
            ScalarOp::Clz => |[x, ..]| of(x).leading_zeros().into(),
            ScalarOp::Add => |[x, y, _]| of(x).wrapping_add(of(y)).to_bits64(),
            ScalarOp::Sub => |[x, y, _]| of(x).wrapping_sub(of(y)).to_bits64(),
            ScalarOp::Mul => |[x, y, _]| of(x).wrapping_mul(of(y)).to_bits64(),
            ScalarOp::Div => |[x, y, _]| match of(y) {
                0 => <$t>::to_bits64(!0),
                y => of(x).wrapping_div(y).to_bits64(),
            },
            ScalarOp::Rem => |[x, y, _]| match of(y) {
                0 => of(x).to_bits64(),
                y => of(x).wrapping_rem(y).to_bits64(),
            },
            ScalarOp::Min => |[x, y, _]| of(x).min(of(y)).to_bits64(),
            ScalarOp::Max => |[x, y, _]| of(x).max(of(y)).to_bits64(),
            ScalarOp::And => |[x, y, _]| (of(x) & of(y)).to_bits64(),
            ScalarOp::Or => |[x, y, _]| (of(x) | of(y)).to_bits64(),
            ScalarOp::Xor => |[x, y, _]| (of(x) ^ of(y)).to_bits64(),
            ScalarOp::ShiftLeft => |[x, y, _]| shift(y).map_or(0, |s| (of(x) << s).to_bits64()),
            ScalarOp::ShiftRightLogical => {
                |[x, y, _]| shift(y).map_or(0, |s| ((of(x) as $unsigned) >> s).to_bits64())
            }
            ScalarOp::ShiftRightArithmetic => |[x, y, _]| {
                let by = shift(y).unwrap_or(<$t>::BITS - 1);
                (((of(x) as $signed) >> by) as $t).to_bits64()
            },
            ScalarOp::MulHigh if <$t>::MIN == 0 => {
                |[x, y, _]| (((of(x) as u128 * of(y) as u128) >> <$t>::BITS) as $t).to_bits64()
            }
            ScalarOp::MulHigh => {
                |[x, y, _]| (((of(x) as i128 * of(y) as i128) >> <$t>::BITS) as $t).to_bits64()
            }
            ScalarOp::Eq => |[x, y, _]| u64::from(of(x) == of(y)),
            ScalarOp::Ne => |[x, y, _]| u64::from(of(x) != of(y)),
            ScalarOp::Lt => |[x, y, _]| u64::from(of(x) < of(y)),
            ScalarOp::Le => |[x, y, _]| u64::from(of(x) <= of(y)),
            _ => return None,
        })
    }};
}

/// The function of an instruction on floats of one type; [`math`] has a module of its name.
macro_rules! float {
    ($op:expr, $t:ident) => {{
        fn of(bits: u64) -> $t {
            Native::from_bits64(bits)
        }
        /// The bits of a result: a NaN becomes the canonical one.
        fn out(value: $t) -> u64 {
            if value.is_nan() { $t::NAN.to_bits64() } else { value.to_bits64() }
        }
        /// NaN propagates; −0 is less than +0.
        fn extremum(x: $t, y: $t, wanted: Ordering) -> u64 {
            if x.is_nan() || y.is_nan() {
                $t::NAN.to_bits64()
            } else if x.total_cmp(&y) == wanted {
                x.to_bits64()
            } else {
                y.to_bits64()
            }
        }
        Some(match $op {
            ScalarOp::Neg => |[x, ..]| out(-of(x)),
            ScalarOp::Abs => |[x, ..]| out(of(x).abs()),
            ScalarOp::Floor => |[x, ..]| out(of(x).floor()),
            ScalarOp::Ceil => |[x, ..]| out(of(x).ceil()),
            ScalarOp::RoundEven => |[x, ..]| out(of(x).round_ties_even()),
            ScalarOp::Trunc => |[x, ..]| out(of(x).trunc()),
            ScalarOp::Sqrt => |[x, ..]| out(of(x).sqrt()),
            ScalarOp::Exp => |[x, ..]| out(math::$t::exp(of(x))),
            ScalarOp::Expm1 => |[x, ..]| out(math::$t::expm1(of(x))),
            ScalarOp::Log => |[x, ..]| out(math::$t::log(of(x))),
            ScalarOp::Log1p => |[x, ..]| out(math::$t::log1p(of(x))),
            ScalarOp::Sin => |[x, ..]| out(math::$t::sin(of(x))),
            ScalarOp::Cos => |[x, ..]| out(math::$t::cos(of(x))),
            ScalarOp::Tanh => |[x, ..]| out(math::$t::tanh(of(x))),
            ScalarOp::Erf => |[x, ..]| out(math::$t::erf(of(x))),
            ScalarOp::Log2 => |[x, ..]| out(math::$t::log2(of(x))),
            ScalarOp::Asin => |[x, ..]| out(math::$t::asin(of(x))),
            ScalarOp::Acos => |[x, ..]| out(math::$t::acos(of(x))),
            ScalarOp::Sinh => |[x, ..]| out(math::$t::sinh(of(x))),
            ScalarOp::Cosh => |[x, ..]| out(math::$t::cosh(of(x))),
            ScalarOp::Asinh => |[x, ..]| out(math::$t::asinh(of(x))),
            ScalarOp::Acosh => |[x, ..]| out(math::$t::acosh(of(x))),
            ScalarOp::Atanh => |[x, ..]| out(math::$t::atanh(of(x))),
            ScalarOp::Cbrt => |[x, ..]| out(math::$t::cbrt(of(x))),
            ScalarOp::Erfc => |[x, ..]| out(math::$t::erfc(of(x))),
            ScalarOp::ErfInv => |[x, ..]| out(math::$t::erf_inv(of(x))),
            ScalarOp::Lgamma => |[x, ..]| out(math::$t::lgamma(of(x))),
            ScalarOp::Digamma => |[x, ..]| out(math::$t::digamma(of(x))),
            ScalarOp::Add => |[x, y, _]| out(of(x) + of(y)),
            ScalarOp::Sub => |[x, y, _]| out(of(x) - of(y)),
            ScalarOp::Mul => |[x, y, _]| out(of(x) * of(y)),
            ScalarOp::Div => |[x, y, _]| out(of(x) / of(y)),
            ScalarOp::Rem => |[x, y, _]| out(of(x) % of(y)),
            ScalarOp::Pow => |[x, y, _]| out(math::$t::pow(of(x), of(y))),
            ScalarOp::Atan2 => |[x, y, _]| out(math::$t::atan2(of(x), of(y))),
            ScalarOp::Min => |[x, y, _]| extremum(of(x), of(y), Ordering::Less),
            ScalarOp::Max => |[x, y, _]| extremum(of(x), of(y), Ordering::Greater),
            ScalarOp::Fma => |[x, y, z]| out(of(x).mul_add(of(y), of(z))),
            ScalarOp::Eq => |[x, y, _]| u64::from(of(x) == of(y)),
            ScalarOp::Ne => |[x, y, _]| u64::from(of(x) != of(y)),
            ScalarOp::Lt => |[x, y, _]| u64::from(of(x) < of(y)),
            ScalarOp::Le => |[x, y, _]| u64::from(of(x) <= of(y)),
            _ => return None,
        })
    }};
}

/// An instruction on bits (zero-extended, as in [`Scalar::bits`]). Operands beyond its arity are
/// ignored.
pub type Evaluator = fn([u64; 3]) -> u64;

/// Computes one instruction. The dtypes must pass [`ScalarOp::check`].
pub fn evaluate(op: ScalarOp, operands: &[Scalar], result: DType) -> Scalar {
    let dtypes: Vec<DType> = operands.iter().map(|s| s.dtype()).collect();
    let function =
        evaluator(op, &dtypes, result).expect("the verifier checks the dtypes of instructions");
    let mut bits = [0; 3];
    for (slot, operand) in bits.iter_mut().zip(operands) {
        *slot = operand.bits();
    }
    Scalar::from_bits(result, function(bits))
}

/// The function that computes `op` on operands of these dtypes; `None` if [`ScalarOp::check`]
/// fails.
pub fn evaluator(op: ScalarOp, operands: &[DType], result: DType) -> Option<Evaluator> {
    op.check(operands, result).ok()?;
    let dtype = *operands.last()?;
    let op = op.exact();
    match op {
        ScalarOp::Select => return Some(|[first, yes, no]| if first != 0 { yes } else { no }),
        ScalarOp::Bitcast => return Some(|[x, ..]| x),
        ScalarOp::Convert if dtype == result => return Some(|[x, ..]| x),
        ScalarOp::Convert => return Some(convert::convert(dtype, result)),
        _ => {}
    }
    match dtype {
        DType::Bool => logical(op),
        DType::U8 => integer!(op, u8, i8, u8),
        DType::I8 => integer!(op, i8, i8, u8),
        DType::I32 => integer!(op, i32, i32, u32),
        DType::I64 => integer!(op, i64, i64, u64),
        DType::U32 => integer!(op, u32, i32, u32),
        DType::U64 => integer!(op, u64, i64, u64),
        DType::F32 => float!(op, f32),
        DType::F64 => float!(op, f64),
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => None,
    }
}

fn logical(op: ScalarOp) -> Option<Evaluator> {
    Some(match op {
        ScalarOp::Not => |[x, ..]| x ^ 1,
        ScalarOp::And => |[x, y, _]| x & y,
        ScalarOp::Or => |[x, y, _]| x | y,
        ScalarOp::Xor => |[x, y, _]| x ^ y,
        ScalarOp::Eq => |[x, y, _]| u64::from(x == y),
        ScalarOp::Ne => |[x, y, _]| u64::from(x != y),
        ScalarOp::Lt => |[x, y, _]| u64::from(x < y),
        ScalarOp::Le => |[x, y, _]| u64::from(x <= y),
        _ => return None,
    })
}
