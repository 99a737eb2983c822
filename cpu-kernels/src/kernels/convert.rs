//! Conversions between dtypes, as defined by `ScalarOp::Convert`.

use super::operations::Boolean;
use wengert_core::half::{bf16, f16};
use wengert_core::halves::{bf16_from_f64, f16_from_f64};

/// A conversion of one element.
pub(crate) trait Cast<R> {
    /// The element as an `R`.
    fn cast(self) -> R;
}

macro_rules! cast {
    ($from:ty => $($to:ty)*, |$x:ident| $body:expr) => {$(
        impl Cast<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                let $x = self;
                ($body) as $to
            }
        }
    )*};
}

// Rust's `as` is the definition: integers wrap; floats to integers truncate and saturate, with 0
// for NaN; conversions to floats round to nearest, ties to even.
cast!(u8 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(i8 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(i32 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(i64 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(u32 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(u64 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(f32 => u8 i8 i64 u32 u64 f32 f64, |x| x);
cast!(f64 => u8 i8 i32 i64 u32 u64 f32 f64, |x| x);
cast!(Boolean => u8 i8 i32 i64 u32 u64 f32 f64, |x| x.0);

impl Cast<i32> for f32 {
    /// The same as `as`, in steps that are vectorised.
    #[inline(always)]
    fn cast(self) -> i32 {
        let limit = 2_147_483_648.0_f32;
        let inside = self >= -limit && self < limit;
        let bounded = if inside { self } else { 0.0 };
        // SAFETY: −2³¹ ≤ bounded < 2³¹.
        let truncated: i32 = unsafe { bounded.to_int_unchecked() };
        let truncated = if self >= limit { i32::MAX } else { truncated };
        if self < -limit { i32::MIN } else { truncated }
    }
}

/// A float that rounds to a half as the integer does: with more than 53 bits, cut-off bits set
/// the last bit to 1.
macro_rules! odd {
    ($x:expr, $shift:literal) => {{
        let cut = ($x >> $shift) | (($x & ((1 << $shift) - 1) != 0) as Self);
        if $x >> 52 == 0 || $x >> 52 == !0 {
            $x as f64
        } else {
            cut as f64 * (1_u64 << $shift) as f64
        }
    }};
}

macro_rules! with_bool_and_halves {
    ($($t:ty, |$x:ident| $wide:expr;)*) => {$(
        impl Cast<Boolean> for $t {
            #[inline(always)]
            fn cast(self) -> Boolean {
                Boolean(u8::from(self != 0 as $t))
            }
        }
        impl Cast<f16> for $t {
            #[inline(always)]
            fn cast(self) -> f16 {
                let $x = self;
                f16_from_f64($wide)
            }
        }
        impl Cast<bf16> for $t {
            #[inline(always)]
            fn cast(self) -> bf16 {
                let $x = self;
                bf16_from_f64($wide)
            }
        }
    )*};
}
with_bool_and_halves! {
    u8, |x| f64::from(x);
    i8, |x| f64::from(x);
    i32, |x| f64::from(x);
    u32, |x| f64::from(x);
    f64, |x| x;
    i64, |x| odd!(x, 11);
    u64, |x| odd!(x, 12);
}

impl Cast<Boolean> for f32 {
    #[inline(always)]
    fn cast(self) -> Boolean {
        Boolean(u8::from(self != 0.0))
    }
}

impl Cast<f16> for f32 {
    #[inline(always)]
    fn cast(self) -> f16 {
        f16::from_f32(self)
    }
}

impl Cast<bf16> for f32 {
    /// Rounds to nearest, ties to even: adds half a unit below the kept bits, or slightly less if
    /// they are even.
    #[inline(always)]
    fn cast(self) -> bf16 {
        let bits = self.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        bf16::from_bits(if self.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

impl Cast<f32> for bf16 {
    #[inline(always)]
    fn cast(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl Cast<f32> for f16 {
    #[inline(always)]
    fn cast(self) -> f32 {
        self.to_f32()
    }
}

/// Through f32, in which every half and every bool is exact.
macro_rules! through_f32 {
    ($from:ty => $($to:ty)*) => {$(
        impl Cast<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                Cast::<f32>::cast(self).cast()
            }
        }
    )*};
}
through_f32!(f16 => Boolean u8 i8 i32 i64 u32 u64 f64 bf16);
through_f32!(Boolean => f16 bf16);
through_f32!(bf16 => Boolean u8 i8 i32 i64 u32 u64 f64 f16);

macro_rules! identity {
    ($($t:ty)*) => {$(
        impl Cast<$t> for $t {
            #[inline(always)]
            fn cast(self) -> $t {
                self
            }
        }
    )*};
}
identity!(Boolean f16 bf16);
