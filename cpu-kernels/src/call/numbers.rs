//! The dtypes as [elements](super::element) of calls.

use super::convolution::taps;
use super::element::{Element, Number};
use super::product::micro;
use super::product::stream::{self, Streams};
use super::product::strip::Kernels;
use crate::kernels::convert::Cast;
use crate::kernels::operations::{Add, Binary, Max, Min, Mul};
use crate::simd::Simd;
use wengert_core::DType;
use wengert_core::half::{bf16, f16};
use wengert_core::halves::{bf16_from_f64, f16_from_f64};

/// Dtypes of their own arithmetic: name, zero, constants, kernels of products and depthwise
/// convolutions.
macro_rules! numbers {
    ($(
        $t:ident $dtype:ident, $zero:literal, |$value:pat_param| $constant:expr,
        |$simd:pat_param| $kernels:expr, $streams:expr, $taps:expr;
    )*) => {$(
        impl Element for $t {
            type Wide = $t;
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn wide(self) -> $t {
                self
            }
            #[inline(always)]
            fn round(result: $t) -> $t {
                result
            }
            #[inline(always)]
            fn constant($value: f64) -> $t {
                $constant
            }
            fn streams($simd: Simd) -> Option<&'static Streams<$t>> {
                $streams
            }
        }

        impl Number for $t {
            const ZERO: $t = $zero;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                Add::apply(self, other)
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                Mul::apply(self, other)
            }
            #[inline(always)]
            fn least(self, other: $t) -> $t {
                Min::apply(self, other)
            }
            #[inline(always)]
            fn greatest(self, other: $t) -> $t {
                Max::apply(self, other)
            }
            fn kernels($simd: Simd) -> Option<&'static Kernels<$t>> {
                $kernels
            }
            fn taps($simd: Simd) -> Option<&'static taps::Kernels<$t>> {
                $taps
            }
        }
    )*};
}
numbers! {
    f32 F32, 0.0, |value| value as f32,
        |simd| Some(micro::f32_kernels(simd)), Some(stream::streams_of_f32(simd)),
        Some(taps::f32_kernels(simd));
    f64 F64, 0.0, |value| value,
        |simd| Some(micro::f64_kernels(simd)), Some(stream::streams_of_f64(simd)),
        Some(taps::f64_kernels(simd));
}

macro_rules! integers {
    ($($t:ident $dtype:ident;)*) => {
        numbers! {$(
            $t $dtype, 0, |_| unreachable!("only attention has constants, and it takes floats"),
            |_| None, None, None;
        )*}
    };
}
integers! { u8 U8; i8 I8; i32 I32; i64 I64; u32 U32; u64 U64; }

macro_rules! half {
    ($t:ident, $dtype:ident, $constant:ident, $paired:literal, $pairs:expr, $streams:path) => {
        impl Element for $t {
            type Wide = f32;
            const DTYPE: DType = DType::$dtype;
            const HALF: bool = true;
            const PAIRED: bool = $paired;
            #[inline(always)]
            fn wide(self) -> f32 {
                self.cast()
            }
            #[inline(always)]
            fn round(result: f32) -> $t {
                result.cast()
            }
            #[inline(always)]
            fn constant(value: f64) -> $t {
                $constant(value)
            }
            fn kernels_of_pairs(simd: Simd) -> Option<&'static Kernels<f32>> {
                $pairs(simd)
            }
            fn streams(simd: Simd) -> Option<&'static Streams<$t>> {
                Some($streams(simd))
            }
        }
    };
}
half!(f16, F16, f16_from_f64, false, |_| None, stream::streams_of_f16);
half!(bf16, BF16, bf16_from_f64, true, micro::kernels_of_pairs, stream::streams_of_bf16);
