//! `convert` between all dtypes, each conversion rounding once.

use super::Evaluator;
use crate::dtype::DType;
use crate::float8::{f8e4m3fn, f8e5m2};
use crate::halves::{bf16_from_f64, f16_from_f64};
use crate::scalar::Native;
use half::{bf16, f16};

/// Types that are converted through [`Wide`].
trait Convert: Native {
    /// The value, exactly.
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
    /// The value as a float, rounded to odd: if bits beyond 53 are cut off, the last bit is set.
    /// A later rounding to at most 51 bits gives the same result as rounding the value itself.
    fn to_odd_f64(self) -> f64 {
        match self {
            Wide::Float(v) => v,
            Wide::Integer(v) => {
                let excess = (128 - v.unsigned_abs().leading_zeros()).saturating_sub(53);
                let lost = v & ((1 << excess) - 1) != 0;
                // Shifting floors, also below zero. The odd bit then marks a value slightly
                // above.
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

macro_rules! convert_narrow {
    ($($t:ty, $round:expr;)*) => {$(
        impl Convert for $t {
            fn widen(self) -> Wide {
                Wide::Float(self.to_f64())
            }
            fn narrow(wide: Wide) -> Self {
                $round(wide.to_odd_f64())
            }
        }
    )*};
}
convert_narrow! {
    f16, f16_from_f64;
    bf16, bf16_from_f64;
    f8e4m3fn, f8e4m3fn::from_f64;
    f8e5m2, f8e5m2::from_f64;
}

/// The function that converts bits of one dtype to another.
pub(super) fn convert(from: DType, to: DType) -> Evaluator {
    crate::with_native!(from, F => crate::with_native!(to, T => {
        |[x, ..]| <T as Convert>::narrow(F::from_bits64(x).widen()).to_bits64()
    }))
}
