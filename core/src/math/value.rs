//! Operations of an elementary function: those that every machine has, with the same bits.
//!
//! A function of this module is generic over its numbers. With Rust's own types it is an ordinary
//! function that inlines and vectorises. With the symbols of [`record`](super::record) it records
//! its steps. Recording forbids branches on values: a condition is a [`Value::Mask`], and
//! [`select`] chooses between two values that have both been computed. Each operation here is one
//! exact scalar instruction, or a few that move bits.
//!
//! A constant belongs to a machine, too, and is made from any value of that machine:
//! `x.literal(0.5)`.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// A number or a symbol.
pub trait Value: Copy {
    /// The Rust type of its constants.
    type Literal: Copy;
    /// A condition.
    type Mask: Copy
        + BitAnd<Output = Self::Mask>
        + BitOr<Output = Self::Mask>
        + Not<Output = Self::Mask>;

    /// A constant of the same machine.
    fn literal(self, value: Self::Literal) -> Self;
    /// `yes` where the condition holds, else `no`: see [`select`].
    fn choose(condition: Self::Mask, yes: Self, no: Self) -> Self;
    /// Equal; false if one is NaN.
    fn equals(self, other: Self) -> Self::Mask;
    /// Not equal; true if one is NaN.
    fn differs(self, other: Self) -> Self::Mask;
    /// Less; false if one is NaN.
    fn is_below(self, other: Self) -> Self::Mask;
    /// Less or equal; false if one is NaN.
    fn is_at_most(self, other: Self) -> Self::Mask;
    /// Greater; false if one is NaN.
    #[inline(always)]
    fn is_above(self, other: Self) -> Self::Mask {
        other.is_below(self)
    }
    /// Greater or equal; false if one is NaN.
    #[inline(always)]
    fn is_at_least(self, other: Self) -> Self::Mask {
        other.is_at_most(self)
    }
}

/// `yes` where the condition holds, else `no`. Both are computed.
#[inline(always)]
pub fn select<V: Value>(condition: V::Mask, yes: V, no: V) -> V {
    V::choose(condition, yes, no)
}

/// An unsigned integer as wide as a float: its bits. Arithmetic wraps, so it serves for two's
/// complement as well.
pub trait Integer:
    Value
    // Bitwise operations.
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
    /// x + y.
    fn wrapping_add(self, other: Self) -> Self;
    /// x − y.
    fn wrapping_sub(self, other: Self) -> Self;
    /// x · y.
    fn wrapping_mul(self, other: Self) -> Self;
    /// The high half of x · y.
    fn mul_high(self, other: Self) -> Self;
    /// x · 2^count for a count below the width.
    fn shift_left(self, count: u32) -> Self;
    /// x / 2^count, rounded down, for a count below the width.
    fn shift_right(self, count: u32) -> Self;
    /// As [`Integer::shift_right`] in two's complement: fills with copies of the sign bit.
    fn shift_right_signed(self, count: u32) -> Self;
    /// x · 2^count; 0 where the count is not below the width.
    fn shift_left_by(self, count: Self) -> Self;
    /// x / 2^count, rounded down; 0 where the count is not below the width.
    fn shift_right_by(self, count: Self) -> Self;
}

/// An IEEE 754 float. Operations round to nearest even.
pub trait Float:
    Value
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// An integer of the same width.
    type Bits: Integer<Mask = Self::Mask>;

    /// x · y + z, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// |x|.
    fn abs(self) -> Self;
    /// The square root, correctly rounded; NaN below 0.
    fn sqrt(self) -> Self;
    /// The nearest integer, ties to even.
    fn round_even(self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Bits;
    /// The float of these bits.
    fn from_bits(bits: Self::Bits) -> Self;
    /// |x| with the sign of another value.
    fn with_sign_of(self, other: Self) -> Self;
    /// Whether the sign bit is set, on −0 and NaN as well.
    fn is_negative(self) -> Self::Mask;
    /// Whether it is NaN.
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        self.differs(self)
    }
}

/// A float of 32 bits.
pub trait Single: Float<Literal = f32, Bits: Integer<Literal = u32>> {
    /// The float of 64 bits on the same machine.
    type Wide: Double<Mask = Self::Mask>;

    /// The same number, exactly.
    fn widen(self) -> Self::Wide;
    /// The nearest number.
    fn narrow(wide: Self::Wide) -> Self;
    /// The number nearest to an integer in two's complement.
    fn from_signed(integer: Self::Bits) -> Self;
}

/// A float of 64 bits.
pub trait Double: Float<Literal = f64, Bits: Integer<Literal = u64>> {}

macro_rules! native {
    ($($float:ident $bits:ident $signed:ident $wide:ident;)*) => {$(
        native!(@value $float);
        native!(@value $bits);

        impl Integer for $bits {
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                <$bits>::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                <$bits>::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                <$bits>::wrapping_mul(self, other)
            }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $wide * other as $wide) >> <$bits>::BITS) as $bits
            }
            #[inline(always)]
            fn shift_left(self, count: u32) -> Self {
                self << count
            }
            #[inline(always)]
            fn shift_right(self, count: u32) -> Self {
                self >> count
            }
            #[inline(always)]
            fn shift_right_signed(self, count: u32) -> Self {
                (self as $signed >> count) as $bits
            }
            #[inline(always)]
            fn shift_left_by(self, count: Self) -> Self {
                let shifted = self.wrapping_shl(count as u32);
                if count < <$bits>::BITS.into() { shifted } else { 0 }
            }
            #[inline(always)]
            fn shift_right_by(self, count: Self) -> Self {
                let shifted = self.wrapping_shr(count as u32);
                if count < <$bits>::BITS.into() { shifted } else { 0 }
            }
        }

        impl Float for $float {
            type Bits = $bits;
            #[inline(always)]
            fn mul_add(self, factor: Self, term: Self) -> Self {
                <$float>::mul_add(self, factor, term)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$float>::abs(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$float>::sqrt(self)
            }
            #[inline(always)]
            fn round_even(self) -> Self {
                self.round_ties_even()
            }
            #[inline(always)]
            fn to_bits(self) -> $bits {
                <$float>::to_bits(self)
            }
            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                <$float>::from_bits(bits)
            }
            #[inline(always)]
            fn with_sign_of(self, other: Self) -> Self {
                self.copysign(other)
            }
            #[inline(always)]
            fn is_negative(self) -> bool {
                self.is_sign_negative()
            }
        }
    )*};
    (@value $type:ident) => {
        impl Value for $type {
            type Literal = $type;
            type Mask = bool;
            #[inline(always)]
            fn literal(self, value: $type) -> $type {
                value
            }
            #[inline(always)]
            fn choose(condition: bool, yes: Self, no: Self) -> Self {
                if condition { yes } else { no }
            }
            #[inline(always)]
            fn equals(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn differs(self, other: Self) -> bool {
                self != other
            }
            #[inline(always)]
            fn is_below(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn is_at_most(self, other: Self) -> bool {
                self <= other
            }
        }
    };
}
native! {
    f32 u32 i32 u64;
    f64 u64 i64 u128;
}

impl Single for f32 {
    type Wide = f64;
    #[inline(always)]
    fn widen(self) -> f64 {
        self.into()
    }
    #[inline(always)]
    fn narrow(wide: f64) -> f32 {
        wide as f32
    }
    #[inline(always)]
    fn from_signed(integer: u32) -> f32 {
        integer as i32 as f32
    }
}

impl Double for f64 {}
