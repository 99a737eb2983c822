//! One element of any dtype, stored as bits so that it can be compared, hashed and ordered.

use crate::dtype::DType;
use crate::float8::{f8e4m3fn, f8e5m2};
use crate::halves::{bf16_from_f64, f16_from_f64};
use half::{bf16, f16};
use std::fmt;

/// One element: a dtype and its bits (little-endian in the low bytes; `bool` is 0 or 1).
///
/// Equality is equality of bits: a NaN equals itself, and −0.0 differs from 0.0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scalar {
    dtype: DType,
    bits: u64,
}

/// Rust types of elements: the bridge between [`Scalar`], [`crate::Literal`] and ndarray.
pub trait Native: Copy + Send + Sync + PartialEq + fmt::Debug + fmt::Display + 'static {
    /// The dtype of this type.
    const DTYPE: DType;
    /// Bits, zero-extended.
    fn to_bits64(self) -> u64;
    /// From the low bits.
    fn from_bits64(bits: u64) -> Self;
    /// From its bytes, the lowest first.
    fn from_little_endian(bytes: &[u8]) -> Self;
    /// Nearest `f64` (exact except for 64-bit integers).
    fn to_f64(self) -> f64;
    /// Rounded to nearest even for floats; saturating and truncating for integers; `!= 0` for
    /// `bool`.
    fn from_f64(value: f64) -> Self;
}

macro_rules! native {
    ($($t:ty, $dtype:ident, $to:expr, $from:expr, $to_f:expr, $from_f:expr;)*) => {$(
        impl Native for $t {
            const DTYPE: DType = DType::$dtype;
            fn to_bits64(self) -> u64 { ($to)(self) }
            fn from_bits64(bits: u64) -> Self { ($from)(bits) }
            // Inlined, and of a known length, so that a loop over elements is a copy.
            #[inline(always)]
            fn from_little_endian(bytes: &[u8]) -> Self {
                let mut all = [0; 8];
                all[..size_of::<$t>()].copy_from_slice(&bytes[..size_of::<$t>()]);
                ($from)(u64::from_le_bytes(all))
            }
            fn to_f64(self) -> f64 { ($to_f)(self) }
            fn from_f64(value: f64) -> Self { ($from_f)(value) }
        }
    )*};
}

native! {
    bool, Bool, |v| v as u64, |b| b & 1 != 0, |v| v as u8 as f64, |v| v != 0.0;
    u8, U8, |v| v as u64, |b| b as u8, |v| v as f64, |v| v as u8;
    i8, I8, |v| v as u8 as u64, |b| b as u8 as i8, |v| v as f64, |v| v as i8;
    i32, I32, |v| v as u32 as u64, |b| b as u32 as i32, |v| v as f64, |v| v as i32;
    i64, I64, |v| v as u64, |b| b as i64, |v| v as f64, |v| v as i64;
    u32, U32, |v| v as u64, |b| b as u32, |v| v as f64, |v| v as u32;
    u64, U64, |v| v, |b| b, |v| v as f64, |v| v as u64;
    f16, F16, |v: f16| v.to_bits() as u64, |b| f16::from_bits(b as u16),
        |v: f16| v.to_f64(), f16_from_f64;
    bf16, BF16, |v: bf16| v.to_bits() as u64, |b| bf16::from_bits(b as u16),
        |v: bf16| v.to_f64(), bf16_from_f64;
    f32, F32, |v: f32| v.to_bits() as u64, |b| f32::from_bits(b as u32), |v| v as f64, |v| v as f32;
    f64, F64, |v: f64| v.to_bits(), f64::from_bits, |v| v, |v| v;
    f8e4m3fn, F8E4M3FN, |v: f8e4m3fn| v.to_bits() as u64, |b| f8e4m3fn::from_bits(b as u8),
        |v: f8e4m3fn| v.to_f64(), f8e4m3fn::from_f64;
    f8e5m2, F8E5M2, |v: f8e5m2| v.to_bits() as u64, |b| f8e5m2::from_bits(b as u8),
        |v: f8e5m2| v.to_f64(), f8e5m2::from_f64;
}

/// Runs `$body` with `$t` as the Rust type of `$dtype`.
#[macro_export]
macro_rules! with_native {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::with_native! {
            @ $dtype, $t => $body;
            Bool bool, U8 u8, I8 i8, I32 i32, I64 i64, U32 u32, U64 u64,
            F16 $crate::half::f16, BF16 $crate::half::bf16, F32 f32, F64 f64,
            F8E4M3FN $crate::float8::f8e4m3fn, F8E5M2 $crate::float8::f8e5m2
        }
    };
    (@ $dtype:expr, $t:ident => $body:expr; $($variant:ident $native:ty),*) => {
        match $dtype {
            $($crate::DType::$variant => {
                type $t = $native;
                $body
            })*
        }
    };
}

impl Scalar {
    /// The element `value`.
    pub fn of<T: Native>(value: T) -> Self {
        Scalar { dtype: T::DTYPE, bits: value.to_bits64() }
    }

    /// The element of `dtype` with these bits. Higher bits are dropped.
    pub fn from_bits(dtype: DType, bits: u64) -> Self {
        with_native!(dtype, T => Scalar::of(T::from_bits64(bits)))
    }

    /// `value` rounded to `dtype` (see [`Native::from_f64`]).
    pub fn from_f64(dtype: DType, value: f64) -> Self {
        with_native!(dtype, T => Scalar::of(<T as Native>::from_f64(value)))
    }

    /// `value` wrapped to an integer dtype, or rounded to a float dtype.
    pub fn from_i64(dtype: DType, value: i64) -> Self {
        match dtype {
            DType::Bool => Scalar::of(value != 0),
            d if d.is_integer() => Scalar::from_bits(d, value as u64),
            DType::F64 => Scalar::of(value as f64),
            DType::F32 => Scalar::of(value as f32),
            d => Scalar::from_f64(d, value as f64),
        }
    }

    /// 0 (or `false`).
    pub fn zero(dtype: DType) -> Self {
        Scalar { dtype, bits: 0 }
    }

    /// 1 (or `true`).
    pub fn one(dtype: DType) -> Self {
        Scalar::from_i64(dtype, 1)
    }

    /// The least value: −∞ for floats that have it, `false` for bool.
    pub fn lowest(dtype: DType) -> Self {
        match dtype {
            DType::I8 => Scalar::of(i8::MIN),
            DType::I32 => Scalar::of(i32::MIN),
            DType::I64 => Scalar::of(i64::MIN),
            DType::F8E4M3FN => Scalar::from_f64(dtype, -f8e4m3fn::MAX.to_f64()),
            d if d.is_real() => Scalar::from_f64(d, f64::NEG_INFINITY),
            d => Scalar::zero(d),
        }
    }

    /// The greatest value: +∞ for floats that have it, `true` for bool.
    pub fn highest(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Scalar::of(true),
            DType::U8 => Scalar::of(u8::MAX),
            DType::I8 => Scalar::of(i8::MAX),
            DType::I32 => Scalar::of(i32::MAX),
            DType::I64 => Scalar::of(i64::MAX),
            DType::U32 => Scalar::of(u32::MAX),
            DType::U64 => Scalar::of(u64::MAX),
            DType::F8E4M3FN => Scalar::of(f8e4m3fn::MAX),
            d => Scalar::from_f64(d, f64::INFINITY),
        }
    }

    /// The least number above 0, subnormal for floats; of bool, `true`.
    pub fn least_positive(dtype: DType) -> Self {
        Scalar { dtype, bits: 1 }
    }

    /// The greatest finite number; of bool, `true`.
    pub fn greatest_finite(dtype: DType) -> Self {
        let highest = Scalar::highest(dtype);
        // The bits of infinity follow those of the greatest finite number.
        if highest.to_f64() == f64::INFINITY {
            Scalar { bits: highest.bits - 1, ..highest }
        } else {
            highest
        }
    }

    /// The element as kernels have it: see [`DType::stored`].
    #[must_use]
    pub fn stored(self) -> Self {
        Scalar { dtype: self.dtype.stored(), bits: self.bits }
    }

    /// Its dtype.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Its bits.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// As a Rust value. The dtype must be `T`'s.
    pub fn get<T: Native>(self) -> T {
        assert_eq!(self.dtype, T::DTYPE, "a scalar is read as the dtype it has");
        T::from_bits64(self.bits)
    }

    /// Nearest `f64`.
    pub fn to_f64(self) -> f64 {
        with_native!(self.dtype, T => T::from_bits64(self.bits).to_f64())
    }

    /// The value as `i64` for integers and bool (u64 wraps); `None` for floats.
    pub fn to_i64(self) -> Option<i64> {
        match self.dtype {
            DType::Bool | DType::U8 | DType::U32 | DType::U64 | DType::I64 => {
                Some(self.bits as i64)
            }
            DType::I8 => Some(self.bits as u8 as i8 as i64),
            DType::I32 => Some(self.bits as u32 as i32 as i64),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    /// The shortest decimal that reads back to the same bits; `inf`, `-inf`. The canonical quiet
    /// NaN is `nan`, another NaN is `nan(0x…)` with its bits. Floats always have a point or an
    /// exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let float = |f: &mut fmt::Formatter<'_>, value: f64, text: String| {
            if value.is_nan() {
                let canonical = Scalar::from_f64(self.dtype, f64::NAN).bits;
                if self.bits == canonical {
                    f.write_str("nan")
                } else {
                    write!(f, "nan({:#x})", self.bits)
                }
            } else if value.is_infinite() {
                f.write_str(if value > 0.0 { "inf" } else { "-inf" })
            } else {
                f.write_str(&text)
            }
        };
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits != 0),
            DType::U8 | DType::U32 | DType::U64 => write!(f, "{}", self.bits),
            DType::I8 | DType::I32 | DType::I64 => {
                write!(f, "{}", self.to_i64().expect("its dtype is an integer"))
            }
            DType::F64 => float(f, self.to_f64(), format!("{:?}", self.get::<f64>())),
            // The shortest f32 decimal of a half is not the shortest for the half, but it reads
            // back exactly.
            _ => float(f, self.to_f64(), format!("{:?}", self.to_f64() as f32)),
        }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self, self.dtype)
    }
}

macro_rules! from_native {
    ($($t:ty),*) => {$(
        impl From<$t> for Scalar {
            fn from(value: $t) -> Self { Scalar::of(value) }
        }
    )*};
}
from_native!(bool, u8, i8, i32, i64, u32, u64, f16, bf16, f32, f64, f8e4m3fn, f8e5m2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_floats() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
            let round = |value: f64| Scalar::from_f64(dtype, value).to_f64();
            let unit = dtype.unit_roundoff();
            assert_eq!(round(1.0 + unit), 1.0, "{dtype}: a tie goes to the even neighbour");
            assert_eq!(round(1.0 + 1.5 * unit), 1.0 + 2.0 * unit, "{dtype}");
            let least = Scalar::least_positive(dtype).to_f64();
            assert!(least > 0.0 && round(least * 0.5) == 0.0, "{dtype}");
            let greatest = Scalar::greatest_finite(dtype).to_f64();
            assert!(greatest.is_finite() && !round(greatest * (1.0 + 2.0 * unit)).is_finite());
        }
    }

    #[test]
    fn limits_of_integers() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_integer()) {
            assert_eq!(Scalar::greatest_finite(dtype), Scalar::highest(dtype));
            assert_eq!(Scalar::least_positive(dtype), Scalar::one(dtype));
            assert_eq!(dtype.unit_roundoff(), 0.0);
        }
    }
}
