//! The single executable definition of the scalar instructions.
//!
//! [`evaluator`] picks a function of bits for an instruction and its dtypes, once. The nest
//! interpreter calls it for every element, and constant folding calls it through [`evaluate`].
//! Approximated functions are those of [`crate::math`].
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
    match op {
        ScalarOp::Select => return Some(|[first, yes, no]| if first != 0 { yes } else { no }),
        ScalarOp::Bitcast => return Some(|[x, ..]| x),
        ScalarOp::Convert if dtype == result => return Some(|[x, ..]| x),
        ScalarOp::Convert => return Some(convert::convert(dtype, result)),
        _ => {}
    }
    match dtype {
        DType::Bool => logical(op),
        DType::U8 => integer::<u8>(op),
        DType::I8 => integer::<i8>(op),
        DType::I32 => integer::<i32>(op),
        DType::I64 => integer::<i64>(op),
        DType::U32 => integer::<u32>(op),
        DType::U64 => integer::<u64>(op),
        DType::F32 => float::<f32>(op),
        DType::F64 => float::<f64>(op),
        DType::F16 | DType::BF16 => None,
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

/// Operations of all integers, wrapping.
trait Whole: Native + Ord {
    const BITS: u32;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn popcnt(self) -> Self;
    fn clz(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The shift count if it is in `0..BITS`.
    fn shift(self) -> Option<u32>;
    fn shift_left(self, by: u32) -> Self;
    fn shift_logical(self, by: u32) -> Self;
    fn shift_arithmetic(self, by: u32) -> Self;
    fn mul_high(self, other: Self) -> Self;
}

macro_rules! whole {
    ($($t:ty, $signed:ty, $unsigned:ty, $abs:expr;)*) => {$(
        impl Whole for $t {
            const BITS: u32 = <$t>::BITS;
            fn neg(self) -> Self { self.wrapping_neg() }
            fn abs(self) -> Self { ($abs)(self) }
            fn not(self) -> Self { !self }
            fn popcnt(self) -> Self { self.count_ones() as $t }
            fn clz(self) -> Self { self.leading_zeros() as $t }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn shift(self) -> Option<u32> { u32::try_from(self).ok().filter(|s| *s < <$t>::BITS) }
            fn shift_left(self, by: u32) -> Self { self << by }
            fn shift_logical(self, by: u32) -> Self { ((self as $unsigned) >> by) as $t }
            fn shift_arithmetic(self, by: u32) -> Self { ((self as $signed) >> by) as $t }
            // The product of 64-bit values fits i128, except that of u64, which fits u128.
            fn mul_high(self, other: Self) -> Self {
                if <$t>::MIN == 0 {
                    ((self as u128 * other as u128) >> <$t>::BITS) as $t
                } else {
                    ((self as i128 * other as i128) >> <$t>::BITS) as $t
                }
            }
        }
    )*};
}

whole! {
    u8, i8, u8, |x| x;
    i8, i8, u8, i8::wrapping_abs;
    i32, i32, u32, i32::wrapping_abs;
    i64, i64, u64, i64::wrapping_abs;
    u32, i32, u32, |x| x;
    u64, i64, u64, |x| x;
}

fn integer<T: Whole>(op: ScalarOp) -> Option<Evaluator> {
    /// Operands as integers.
    fn of<T: Whole>(bits: u64) -> T {
        T::from_bits64(bits)
    }
    Some(match op {
        ScalarOp::Neg => |[x, ..]| of::<T>(x).neg().to_bits64(),
        ScalarOp::Abs => |[x, ..]| of::<T>(x).abs().to_bits64(),
        ScalarOp::Not => |[x, ..]| of::<T>(x).not().to_bits64(),
        ScalarOp::Popcnt => |[x, ..]| of::<T>(x).popcnt().to_bits64(),
        ScalarOp::Clz => |[x, ..]| of::<T>(x).clz().to_bits64(),
        ScalarOp::Add => |[x, y, _]| of::<T>(x).add(of(y)).to_bits64(),
        ScalarOp::Sub => |[x, y, _]| of::<T>(x).sub(of(y)).to_bits64(),
        ScalarOp::Mul => |[x, y, _]| of::<T>(x).mul(of(y)).to_bits64(),
        ScalarOp::Div => |[x, y, _]| of::<T>(x).div(of(y)).to_bits64(),
        ScalarOp::Rem => |[x, y, _]| of::<T>(x).rem(of(y)).to_bits64(),
        ScalarOp::Min => |[x, y, _]| of::<T>(x).min(of(y)).to_bits64(),
        ScalarOp::Max => |[x, y, _]| of::<T>(x).max(of(y)).to_bits64(),
        ScalarOp::And => |[x, y, _]| of::<T>(x).and(of(y)).to_bits64(),
        ScalarOp::Or => |[x, y, _]| of::<T>(x).or(of(y)).to_bits64(),
        ScalarOp::Xor => |[x, y, _]| of::<T>(x).xor(of(y)).to_bits64(),
        ScalarOp::ShiftLeft => {
            |[x, y, _]| of::<T>(y).shift().map_or(0, |s| of::<T>(x).shift_left(s).to_bits64())
        }
        ScalarOp::ShiftRightLogical => {
            |[x, y, _]| of::<T>(y).shift().map_or(0, |s| of::<T>(x).shift_logical(s).to_bits64())
        }
        ScalarOp::ShiftRightArithmetic => |[x, y, _]| {
            let by = of::<T>(y).shift().unwrap_or(T::BITS - 1);
            of::<T>(x).shift_arithmetic(by).to_bits64()
        },
        ScalarOp::MulHigh => |[x, y, _]| of::<T>(x).mul_high(of(y)).to_bits64(),
        ScalarOp::Eq => |[x, y, _]| u64::from(of::<T>(x) == of(y)),
        ScalarOp::Ne => |[x, y, _]| u64::from(of::<T>(x) != of(y)),
        ScalarOp::Lt => |[x, y, _]| u64::from(of::<T>(x) < of(y)),
        ScalarOp::Le => |[x, y, _]| u64::from(of::<T>(x) <= of(y)),
        _ => return None,
    })
}

/// f32 and f64.
trait Real: Native + PartialOrd {
    const NAN: Self;
    fn is_nan(self) -> bool;
    /// −∞ … −0, +0 … +∞.
    fn order(self, other: Self) -> Ordering;
    fn unary(op: ScalarOp) -> Option<fn(Self) -> Self>;
    fn binary(op: ScalarOp) -> Option<fn(Self, Self) -> Self>;
    fn fma(self, y: Self, z: Self) -> Self;
}

macro_rules! real {
    ($t:ty, $math:ident) => {
        impl Real for $t {
            const NAN: Self = <$t>::NAN;
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn order(self, other: Self) -> Ordering {
                self.total_cmp(&other)
            }
            fn unary(op: ScalarOp) -> Option<fn(Self) -> Self> {
                Some(match op {
                    ScalarOp::Neg => |x| -x,
                    ScalarOp::Abs => <$t>::abs,
                    ScalarOp::Floor => <$t>::floor,
                    ScalarOp::Ceil => <$t>::ceil,
                    ScalarOp::RoundEven => <$t>::round_ties_even,
                    ScalarOp::Trunc => <$t>::trunc,
                    ScalarOp::Sqrt => <$t>::sqrt,
                    ScalarOp::Exp => math::$math::exp,
                    ScalarOp::Expm1 => math::$math::expm1,
                    ScalarOp::Log => math::$math::log,
                    ScalarOp::Log1p => math::$math::log1p,
                    ScalarOp::Sin => math::$math::sin,
                    ScalarOp::Cos => math::$math::cos,
                    ScalarOp::Tanh => math::$math::tanh,
                    ScalarOp::Erf => math::$math::erf,
                    ScalarOp::Log2 => math::$math::log2,
                    ScalarOp::Asin => math::$math::asin,
                    ScalarOp::Acos => math::$math::acos,
                    ScalarOp::Sinh => math::$math::sinh,
                    ScalarOp::Cosh => math::$math::cosh,
                    ScalarOp::Asinh => math::$math::asinh,
                    ScalarOp::Acosh => math::$math::acosh,
                    ScalarOp::Atanh => math::$math::atanh,
                    ScalarOp::Cbrt => math::$math::cbrt,
                    ScalarOp::Erfc => math::$math::erfc,
                    ScalarOp::ErfInv => math::$math::erf_inv,
                    ScalarOp::Lgamma => math::$math::lgamma,
                    ScalarOp::Digamma => math::$math::digamma,
                    _ => return None,
                })
            }
            fn binary(op: ScalarOp) -> Option<fn(Self, Self) -> Self> {
                Some(match op {
                    ScalarOp::Add => |x, y| x + y,
                    ScalarOp::Sub => |x, y| x - y,
                    ScalarOp::Mul => |x, y| x * y,
                    ScalarOp::Div => |x, y| x / y,
                    ScalarOp::Rem => |x, y| x % y,
                    ScalarOp::Pow => math::$math::pow,
                    ScalarOp::Atan2 => math::$math::atan2,
                    _ => return None,
                })
            }
            fn fma(self, y: Self, z: Self) -> Self {
                self.mul_add(y, z)
            }
        }
    };
}
real!(f32, f32);
real!(f64, f64);

fn float<T: Real>(op: ScalarOp) -> Option<Evaluator> {
    /// Operands as floats.
    fn of<T: Real>(bits: u64) -> T {
        T::from_bits64(bits)
    }
    /// Bits of a result.
    fn out<T: Real>(value: T) -> u64 {
        if value.is_nan() { T::NAN.to_bits64() } else { value.to_bits64() }
    }
    /// The operand whose order relative to the other is `wanted`; NaN if one is NaN.
    fn extremum<T: Real>(x: T, y: T, wanted: Ordering) -> u64 {
        if x.is_nan() || y.is_nan() {
            T::NAN.to_bits64()
        } else if x.order(y) == wanted {
            x.to_bits64()
        } else {
            y.to_bits64()
        }
    }
    /// Other function pointers cannot be captured, so each instruction has a function of its own.
    macro_rules! own {
        (unary: $($unary:ident)*; binary: $($binary:ident)*; $($other:tt)*) => {
            match op {
                $(ScalarOp::$unary => |[x, ..]| match T::unary(ScalarOp::$unary) {
                    Some(f) => out(f(of::<T>(x))),
                    None => unreachable!("listed for both float types"),
                },)*
                $(ScalarOp::$binary => |[x, y, _]| match T::binary(ScalarOp::$binary) {
                    Some(f) => out(f(of::<T>(x), of(y))),
                    None => unreachable!("listed for both float types"),
                },)*
                $($other)*
            }
        };
    }
    Some(own! {
        unary: Neg Abs Floor Ceil RoundEven Trunc Sqrt Exp Expm1 Log Log1p Sin Cos Tanh Erf Log2
            Asin Acos Sinh Cosh Asinh Acosh Atanh Cbrt Erfc ErfInv Lgamma Digamma;
        binary: Add Sub Mul Div Rem Pow Atan2;
        ScalarOp::Min => |[x, y, _]| extremum::<T>(of(x), of(y), Ordering::Less),
        ScalarOp::Max => |[x, y, _]| extremum::<T>(of(x), of(y), Ordering::Greater),
        ScalarOp::Fma => |[x, y, z]| out(of::<T>(x).fma(of(y), of(z))),
        ScalarOp::Eq => |[x, y, _]| u64::from(of::<T>(x) == of(y)),
        ScalarOp::Ne => |[x, y, _]| u64::from(of::<T>(x) != of(y)),
        ScalarOp::Lt => |[x, y, _]| u64::from(of::<T>(x) < of(y)),
        ScalarOp::Le => |[x, y, _]| u64::from(of::<T>(x) <= of(y)),
        _ => return None,
    })
}
