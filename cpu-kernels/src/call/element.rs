//! Elements of calls: the dtype in memory, and the dtype of the arithmetic.
//!
//! Halves are stored as halves, and the arithmetic is in f32 with one rounding for each
//! operation. Every other dtype is the dtype of its own arithmetic. The operations are those of
//! the [kernels](crate::kernels), so addends have the bits of the ops they stand for.

use super::panel::View;
use super::product::micro::{self, Kernels};
use crate::kernels::convert::Cast;
use crate::kernels::operations::{Add, Binary, Max, Min, Mul};
use crate::simd::Simd;
use bytemuck::Pod;
use wengert_core::DType;
use wengert_core::half::{bf16, f16};
use wengert_core::halves::{bf16_from_f64, f16_from_f64};

/// An element in memory.
pub(super) trait Element: Pod + Send + Sync {
    /// The type of the arithmetic.
    type Wide: Number;
    /// Its dtype.
    const DTYPE: DType;
    /// Whether the arithmetic has another type.
    const HALF: bool = false;
    /// Whether products take terms in pairs, of which the second comes first.
    const PAIRED: bool = false;
    /// Widens to the type of the arithmetic.
    fn wide(self) -> Self::Wide;
    /// Rounds a result to the nearest element.
    fn round(result: Self::Wide) -> Self;
    /// The element nearest to a constant; for floats only.
    fn constant(value: f64) -> Self;
    /// The kernels of products on pairs of this element, if there are any.
    fn kernels_of_pairs(_: Simd) -> Option<&'static Kernels<Self::Wide>> {
        None
    }

    /// x + y, rounded.
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self::round(self.wide().add(other.wide()))
    }

    /// x · y, rounded.
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        Self::round(self.wide().mul(other.wide()))
    }

    /// The smaller, as [`Number::least`].
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        Self::round(self.wide().least(other.wide()))
    }

    /// The greater, as [`Number::greatest`].
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Self::round(self.wide().greatest(other.wide()))
    }
}

/// The type of the arithmetic.
pub(super) trait Number: Element<Wide = Self> {
    /// 0.
    const ZERO: Self;
    /// x + y.
    fn add(self, other: Self) -> Self;
    /// x · y.
    fn mul(self, other: Self) -> Self;
    /// The smaller; NaN if one is NaN; −0 is below +0.
    fn least(self, other: Self) -> Self;
    /// The greater; NaN if one is NaN; −0 is below +0.
    fn greatest(self, other: Self) -> Self;
    /// The kernels of products; `None` for integers.
    fn kernels(simd: Simd) -> Option<&'static Kernels<Self>>;
}

macro_rules! float {
    ($t:ident, $dtype:ident, $kernels:ident) => {
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
            fn constant(value: f64) -> $t {
                value as $t
            }
        }

        impl Number for $t {
            const ZERO: $t = 0.0;
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
            fn kernels(simd: Simd) -> Option<&'static Kernels<$t>> {
                Some(micro::$kernels(simd))
            }
        }
    };
}
float!(f32, F32, f32_kernels);
float!(f64, F64, f64_kernels);

macro_rules! integer {
    ($($t:ident $dtype:ident;)*) => {$(
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
            fn constant(_: f64) -> $t {
                unreachable!("only attention has constants, and it takes floats")
            }
        }

        impl Number for $t {
            const ZERO: $t = 0;
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
            fn kernels(_: Simd) -> Option<&'static Kernels<$t>> {
                None
            }
        }
    )*};
}
integer! { u8 U8; i8 I8; i32 I32; i64 I64; u32 U32; u64 U64; }

macro_rules! half {
    ($t:ident, $dtype:ident, $constant:ident, $paired:literal, $pairs:expr) => {
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
        }
    };
}
half!(f16, F16, f16_from_f64, false, |_| None);
half!(bf16, BF16, bf16_from_f64, true, micro::kernels_of_pairs);

/// Rows of rhs that stay in L1 while they are used for every row of out.
const DEPTH: usize = 64;

/// A product in plain loops, for integers: additions of rows of rhs.
///
/// # Safety
///
/// All elements of the three matrices are valid to read, and out's to write, with rows of out
/// `row` apart (they need not be initialised if they are not added to). out overlaps neither
/// operand, and no other code uses it.
pub(super) unsafe fn plain_product<T: Number>(
    [m, n, k]: [usize; 3],
    out: *mut T,
    row: usize,
    add: bool,
    lhs: View<T>,
    rhs: View<T>,
) {
    // SAFETY: the indices are below the extents, for which the caller guarantees the matrices.
    // `sums` is the only reference to its row of out, and rhs, which does not overlap it, is only
    // read.
    unsafe {
        for i in 0..m {
            if !add {
                (0..n).for_each(|j| out.add(i * row + j).write(T::ZERO));
            }
        }
        for start in (0..k).step_by(DEPTH) {
            for i in 0..m {
                let sums = std::slice::from_raw_parts_mut(out.add(i * row), n);
                for depth in start..k.min(start + DEPTH) {
                    let x = lhs.get(i, depth);
                    if rhs.column == 1 {
                        let terms = std::slice::from_raw_parts(rhs.element(depth, 0), n);
                        sums.iter_mut().zip(terms).for_each(|(sum, y)| *sum = sum.add(x.mul(*y)));
                    } else {
                        sums.iter_mut()
                            .enumerate()
                            .for_each(|(j, sum)| *sum = sum.add(x.mul(rhs.get(depth, j))));
                    }
                }
            }
        }
    }
}

/// Evaluates `$body` with `$t` as the type of the elements of `$dtype`, which is not bool.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            wengert_core::DType::Bool => {
                unreachable!("no call computes with bool: it was verified")
            }
            wengert_core::DType::U8 => {
                type $t = u8;
                $body
            }
            wengert_core::DType::I8 => {
                type $t = i8;
                $body
            }
            wengert_core::DType::I32 => {
                type $t = i32;
                $body
            }
            wengert_core::DType::I64 => {
                type $t = i64;
                $body
            }
            wengert_core::DType::U32 => {
                type $t = u32;
                $body
            }
            wengert_core::DType::U64 => {
                type $t = u64;
                $body
            }
            wengert_core::DType::F16 => {
                type $t = wengert_core::half::f16;
                $body
            }
            wengert_core::DType::BF16 => {
                type $t = wengert_core::half::bf16;
                $body
            }
            wengert_core::DType::F32 => {
                type $t = f32;
                $body
            }
            wengert_core::DType::F64 => {
                type $t = f64;
                $body
            }
        }
    };
}
pub(super) use with_element;
