//! Elements of calls: the dtype in memory, and the dtype of the arithmetic.
//!
//! Halves are stored as halves, and the arithmetic is in f32 with one rounding for each
//! operation. Every other dtype is the dtype of its own arithmetic. The operations are those of
//! the [kernels](crate::kernels), so addends have the bits of the ops they stand for.

use super::convolution::taps;
use super::product::stream::Streams;
use super::product::strip::Kernels;
use crate::simd::Simd;
use bytemuck::Pod;
use wengert_core::DType;

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
    /// The row of rhs of the term at this place of a sum, in a product of `depth` terms from an
    /// even place on.
    #[inline(always)]
    fn row_of_term(term: usize, depth: usize) -> usize {
        if Self::PAIRED && term ^ 1 < depth { term ^ 1 } else { term }
    }

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

    /// The kernels of products of few rows; `None` for integers.
    fn streams(_: Simd) -> Option<&'static Streams<Self>> {
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
    /// The kernels of depthwise convolutions; `None` for integers.
    fn taps(simd: Simd) -> Option<&'static taps::Kernels<Self>>;
}

/// Evaluates `$body` with `$t` as the type of the elements of `$dtype`, which is not bool and no
/// 8-bit float.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_element!(
            @ $dtype, $t => $body; U8 u8, I8 i8, I32 i32, I64 i64, U32 u32, U64 u64,
            F16 wengert_core::half::f16, BF16 wengert_core::half::bf16, F32 f32, F64 f64
        )
    };
    (@ $dtype:expr, $t:ident => $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {
            $(wengert_core::DType::$variant => { type $t = $type; $body })*
            dtype => unreachable!("no call computes with {dtype}: it was verified"),
        }
    };
}
pub(super) use with_element;
