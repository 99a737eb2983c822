//! The one executable definition of the scalar instructions.
//!
//! [`evaluator`] picks a function of bits for an instruction and its dtypes, once; the nest interpreter calls it for every
//! element, and constant folding calls it through [`evaluate`]. Approximated functions are those of [`crate::math`].
//!
//! Results of float arithmetic that are NaN are made the canonical quiet NaN, so that runs can be compared by bits; `select`,
//! `bitcast`, and conversions to the same dtype move bits as they are.

use super::ScalarOp;
use crate::dtype::DType;
use crate::halves::{bf16_from_f64, f16_from_f64};
use crate::math;
use crate::scalar::{Native, Scalar};
use half::{bf16, f16};
use std::cmp::Ordering;

/// An instruction on bits (zero-extended, as [`Scalar::bits`]); operands beyond its arity are not looked at.
pub type Evaluator = fn([u64; 3]) -> u64;

/// Computes one instruction. The dtypes must be such that [`ScalarOp::check`] passes.
pub fn evaluate(op: ScalarOp, operands: &[Scalar], result: DType) -> Scalar {
    let dtypes: Vec<DType> = operands.iter().map(|s| s.dtype()).collect();
    let function = evaluator(op, &dtypes, result).expect("the verifier checks the dtypes of instructions");
    let mut bits = [0; 3];
    for (slot, operand) in bits.iter_mut().zip(operands) {
        *slot = operand.bits();
    }
    Scalar::from_bits(result, function(bits))
}

/// The function that computes `op` on operands of these dtypes; nothing where [`ScalarOp::check`] has an objection.
pub fn evaluator(op: ScalarOp, operands: &[DType], result: DType) -> Option<Evaluator> {
    op.check(operands, result).ok()?;
    let dtype = *operands.last()?;
    match op {
        ScalarOp::Select => return Some(|[first, yes, no]| if first != 0 { yes } else { no }),
        ScalarOp::Bitcast => return Some(|[x, ..]| x),
        ScalarOp::Convert if dtype == result => return Some(|[x, ..]| x),
        ScalarOp::Convert => return convert(dtype, result),
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

/// What the integers have in common, wrapping.
trait Whole: Native + Ord {
    const BITS: u32;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The shift if it is in `0..BITS`.
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
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn div(self, other: Self) -> Self { if other == 0 { !0 } else { self.wrapping_div(other) } }
            fn rem(self, other: Self) -> Self { if other == 0 { self } else { self.wrapping_rem(other) } }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn shift(self) -> Option<u32> { u32::try_from(self).ok().filter(|s| *s < <$t>::BITS) }
            fn shift_left(self, by: u32) -> Self { self << by }
            fn shift_logical(self, by: u32) -> Self { ((self as $unsigned) >> by) as $t }
            fn shift_arithmetic(self, by: u32) -> Self { ((self as $signed) >> by) as $t }
            // 64-bit values fit in i128 with their product but for u64, whose product fits in u128.
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
    /// The operand that comes first in `wanted` order, NaN before all.
    fn extremum<T: Real>(x: T, y: T, wanted: Ordering) -> u64 {
        if x.is_nan() || y.is_nan() {
            T::NAN.to_bits64()
        } else if x.order(y) == wanted {
            x.to_bits64()
        } else {
            y.to_bits64()
        }
    }
    /// Function pointers cannot be captured by others: each instruction has a function of its own.
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
        unary: Neg Abs Floor Ceil RoundEven Trunc Sqrt Exp Expm1 Log Log1p Sin Cos Tanh Erf;
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

/// Types that values are converted between, each conversion rounding once.
trait Convert: Native {
    /// Any value; integers exactly, floats exactly.
    fn widen(self) -> Wide;
    fn narrow(wide: Wide) -> Self;
}

/// A value of any dtype, exact.
#[derive(Clone, Copy)]
enum Wide {
    Integer(i128),
    Float(f64),
}

impl Wide {
    /// The value as a float that a later rounding to at most 51 bits takes for the value itself: beyond 53 bits, the bits
    /// that are cut off leave a last bit of 1.
    fn to_odd_f64(self) -> f64 {
        match self {
            Wide::Float(v) => v,
            Wide::Integer(v) => {
                let excess = (128 - v.unsigned_abs().leading_zeros()).saturating_sub(53);
                let lost = v & ((1 << excess) - 1) != 0;
                // Shifting floors, also below zero; the odd bit then stands for "a little more".
                ((v >> excess) | i128::from(lost)) as f64 * (excess as f64).exp2()
            }
        }
    }
}

macro_rules! convert_number {
    (integers: $($i:ty)*; floats: $($f:ty)*) => {
        $(impl Convert for $i {
            fn widen(self) -> Wide { Wide::Integer(self as i128) }
            fn narrow(wide: Wide) -> Self {
                match wide {
                    Wide::Integer(v) => v as $i,
                    Wide::Float(v) => v as $i,
                }
            }
        })*
        $(impl Convert for $f {
            fn widen(self) -> Wide { Wide::Float(self as f64) }
            fn narrow(wide: Wide) -> Self {
                let value = match wide {
                    Wide::Integer(v) => v as $f,
                    Wide::Float(v) => v as $f,
                };
                if value.is_nan() { <$f>::NAN } else { value }
            }
        })*
    };
}
convert_number! { integers: u8 i8 i32 i64 u32 u64; floats: f32 f64 }

impl Convert for bool {
    fn widen(self) -> Wide {
        Wide::Integer(self.into())
    }
    fn narrow(wide: Wide) -> Self {
        match wide {
            Wide::Integer(v) => v != 0,
            Wide::Float(v) => v != 0.0,
        }
    }
}

impl Convert for f16 {
    fn widen(self) -> Wide {
        Wide::Float(self.to_f64())
    }
    fn narrow(wide: Wide) -> Self {
        f16_from_f64(wide.to_odd_f64())
    }
}

impl Convert for bf16 {
    fn widen(self) -> Wide {
        Wide::Float(self.to_f64())
    }
    fn narrow(wide: Wide) -> Self {
        bf16_from_f64(wide.to_odd_f64())
    }
}

fn convert(from: DType, to: DType) -> Option<Evaluator> {
    crate::with_native!(from, F => crate::with_native!(to, T => {
        Some(|[x, ..]| <T as Convert>::narrow(F::from_bits64(x).widen()).to_bits64())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarOp::*;
    use proptest::prelude::*;

    fn run<T: Native, R: Native>(op: ScalarOp, operands: &[T]) -> R {
        let operands: Vec<Scalar> = operands.iter().map(|x| Scalar::of(*x)).collect();
        evaluate(op, &operands, R::DTYPE).get()
    }

    fn float_bits(value: f32) -> u32 {
        value.to_bits()
    }

    #[test]
    fn every_checked_instruction_has_a_function() {
        let mut count = 0;
        for op in ScalarOp::ALL {
            for operand in DType::ALL {
                for result in DType::ALL {
                    let mut operands = vec![operand; op.arity()];
                    if *op == Select {
                        operands[0] = DType::Bool;
                    }
                    let exists = evaluator(*op, &operands, result).is_some();
                    assert_eq!(exists, op.check(&operands, result).is_ok(), "{op:?} {operand} {result}");
                    count += usize::from(exists);
                }
            }
        }
        assert!(count > 300);
    }

    #[test]
    fn integers_divide_without_faults() {
        assert_eq!(run::<i32, i32>(Div, &[7, 0]), -1);
        assert_eq!(run::<u8, u8>(Div, &[7, 0]), 255);
        assert_eq!(run::<i32, i32>(Div, &[i32::MIN, -1]), i32::MIN);
        assert_eq!(run::<i32, i32>(Div, &[-7, 2]), -3);
        assert_eq!(run::<i64, i64>(Rem, &[-7, 2]), -1);
        assert_eq!(run::<i64, i64>(Rem, &[7, 0]), 7);
        assert_eq!(run::<i64, i64>(Rem, &[i64::MIN, -1]), 0);
        assert_eq!(run::<i8, i8>(Abs, &[-128]), -128);
        assert_eq!(run::<u32, u32>(Neg, &[1]), u32::MAX);
    }

    #[test]
    fn shifts_beyond_the_width() {
        assert_eq!(run::<i32, i32>(ShiftLeft, &[1, 31]), i32::MIN);
        assert_eq!(run::<i32, i32>(ShiftLeft, &[1, 32]), 0);
        assert_eq!(run::<i32, i32>(ShiftLeft, &[1, -1]), 0);
        assert_eq!(run::<i8, i8>(ShiftRightLogical, &[-1, 1]), 127);
        assert_eq!(run::<i8, i8>(ShiftRightLogical, &[-1, 8]), 0);
        assert_eq!(run::<i8, i8>(ShiftRightArithmetic, &[-2, 1]), -1);
        assert_eq!(run::<i8, i8>(ShiftRightArithmetic, &[-2, 100]), -1);
        assert_eq!(run::<u8, u8>(ShiftRightArithmetic, &[0x80, 9]), 0xff);
        assert_eq!(run::<u64, u64>(ShiftRightLogical, &[u64::MAX, 63]), 1);
    }

    #[test]
    fn high_products() {
        assert_eq!(run::<u32, u32>(MulHigh, &[0xd2511f53, 0x12345678]), 0x0ef4_b3b8);
        assert_eq!(run::<u64, u64>(MulHigh, &[u64::MAX, u64::MAX]), u64::MAX - 1);
        assert_eq!(run::<i64, i64>(MulHigh, &[-1, 1]), -1);
        assert_eq!(run::<i8, i8>(MulHigh, &[-128, -128]), 64);
    }

    #[test]
    fn extrema_order_zeros_and_spread_nan() {
        assert_eq!(float_bits(run::<f32, f32>(Min, &[0.0, -0.0])), float_bits(-0.0));
        assert_eq!(float_bits(run::<f32, f32>(Min, &[-0.0, 0.0])), float_bits(-0.0));
        assert_eq!(float_bits(run::<f32, f32>(Max, &[-0.0, 0.0])), float_bits(0.0));
        assert_eq!(run::<f32, f32>(Max, &[1.0, 2.0]), 2.0);
        for pair in [[f32::NAN, 1.0], [1.0, f32::NAN], [f32::NAN, f32::INFINITY]] {
            assert!(run::<f32, f32>(Max, &pair).is_nan() && run::<f32, f32>(Min, &pair).is_nan());
            assert!(
                !run::<f32, bool>(Eq, &pair) && run::<f32, bool>(Ne, &pair) && !run::<f32, bool>(Lt, &pair)
            );
        }
    }

    #[test]
    fn arithmetic_makes_canonical_nans() {
        let odd = f32::from_bits(0xffc0_1234);
        for result in
            [run::<f32, f32>(Add, &[odd, 1.0]), run(Neg, &[odd]), run(Sub, &[f32::INFINITY, f32::INFINITY])]
        {
            assert_eq!(float_bits(result), float_bits(f32::NAN));
        }
        let selected = evaluate(Select, &[true.into(), odd.into(), 0.0f32.into()], DType::F32);
        assert_eq!(selected.bits(), 0xffc0_1234);
    }

    #[test]
    fn rounding_instructions() {
        assert_eq!(run::<f32, f32>(RoundEven, &[2.5]), 2.0);
        assert_eq!(run::<f64, f64>(RoundEven, &[-3.5]), -4.0);
        assert_eq!(run::<f32, f32>(Rem, &[-7.5, 2.0]), -1.5);
        assert_eq!(
            run::<f32, f32>(Fma, &[1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0]),
            -f32::EPSILON * f32::EPSILON
        );
    }

    #[test]
    fn conversions_saturate_truncate_and_wrap() {
        assert_eq!(run::<f32, i32>(Convert, &[3e9]), i32::MAX);
        assert_eq!(run::<f32, u8>(Convert, &[-1.5]), 0);
        assert_eq!(run::<f64, i8>(Convert, &[-1.9]), -1);
        assert_eq!(run::<f32, i64>(Convert, &[f32::NAN]), 0);
        assert_eq!(run::<f64, u64>(Convert, &[1e30]), u64::MAX);
        assert_eq!(run::<i32, u8>(Convert, &[-1]), 255);
        assert_eq!(run::<u64, i64>(Convert, &[u64::MAX]), -1);
        assert!(run::<f32, bool>(Convert, &[f32::NAN]) && !run::<f32, bool>(Convert, &[-0.0]));
        assert_eq!(run::<bool, f16>(Convert, &[true]), f16::ONE);
        assert_eq!(run::<i64, f32>(Convert, &[(1 << 24) + 1]), 16_777_216.0);
        assert_eq!(run::<u64, f64>(Convert, &[u64::MAX]), 18_446_744_073_709_551_616.0);
    }

    #[test]
    fn wide_values_round_to_halves_once() {
        // Just above the tie of two bf16; f64 cannot tell it from the tie.
        let tie = (1i64 << 62) + (1 << 54);
        let above = f64::from(run::<i64, bf16>(Convert, &[tie + 1]).to_f32());
        assert_eq!(above, ((1i64 << 62) + (1 << 55)) as f64);
        assert_eq!(run::<i64, bf16>(Convert, &[tie]).to_f64(), (1i64 << 62) as f64);
        let below = run::<i64, bf16>(Convert, &[-tie + 1]).to_f64();
        assert_eq!(below, -((1i64 << 62) as f64));
        assert_eq!(run::<i64, bf16>(Convert, &[-tie - 1]).to_f64(), -((1i64 << 62) + (1 << 55)) as f64);
        let value = 1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40);
        assert_eq!(run::<f64, f16>(Convert, &[value]).to_f64(), 1.0 + f64::powi(2.0, -10));
        assert_eq!(run::<f64, f16>(Convert, &[1.0 + f64::powi(2.0, -11)]).to_f64(), 1.0);
        assert_eq!(run::<u64, f16>(Convert, &[u64::MAX]), f16::INFINITY);
    }

    proptest! {
        #[test]
        fn transcendental_functions_are_those_of_math(x: f32, y: f64) {
            prop_assert!(run::<f32, f32>(Exp, &[x]).to_bits() == math::f32::exp(x).to_bits() || x.is_nan());
            prop_assert!(run::<f64, f64>(Tanh, &[y]).to_bits() == math::f64::tanh(y).to_bits() || y.is_nan());
        }

        #[test]
        fn integers_agree_with_wide_arithmetic(x: i32, y: i32) {
            let (a, b) = (i64::from(x), i64::from(y));
            prop_assert_eq!(run::<i32, i32>(Add, &[x, y]), (a + b) as i32);
            prop_assert_eq!(run::<i32, i32>(Mul, &[x, y]), (a * b) as i32);
            prop_assert_eq!(run::<i32, i32>(MulHigh, &[x, y]), ((a * b) >> 32) as i32);
            prop_assert_eq!(run::<i32, i32>(Sub, &[x, y]), (a - b) as i32);
        }
    }
}
