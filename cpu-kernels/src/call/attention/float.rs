//! The arithmetic of attention: f32 or f64.

use crate::call::element::Number;
use crate::kernels::CHUNK;
use crate::kernels::operations::{Binary, Exp, Log, Sub, Unary};
use wengert_core::math::f32::{MODERATE, exp_moderate};

/// The dtypes of attention's arithmetic.
pub(super) trait Float: Number + PartialOrd {
    const NEG_INFINITY: Self;
    fn sub(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn exp(self) -> Self;
    fn log(self) -> Self;
    fn is_finite(self) -> bool;

    /// The powers of a chunk, with the bits of [`exp`](Self::exp).
    #[inline(always)]
    fn powers(chunk: [Self; CHUNK]) -> [Self; CHUNK] {
        match Self::moderate(&chunk) {
            true => chunk.map(Self::exp_moderate),
            false => chunk.map(Self::exp),
        }
    }
    /// Whether [`exp_moderate`](Self::exp_moderate) is defined for all of a chunk.
    fn moderate(chunk: &[Self; CHUNK]) -> bool;
    /// `exp`, in fewer instructions.
    fn exp_moderate(self) -> Self;

    /// The score that powers are taken relative to: the greatest score, or 0 if that is infinite.
    #[inline(always)]
    fn shift(greatest: Self) -> Self {
        if greatest.is_finite() { greatest } else { Self::ZERO }
    }
}

macro_rules! float {
    ($t:ident, |$chunk:ident| $moderate:expr, $exp_moderate:path) => {
        impl Float for $t {
            const NEG_INFINITY: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn sub(self, other: $t) -> $t {
                Sub::apply(self, other)
            }
            #[inline(always)]
            fn div(self, other: $t) -> $t {
                self / other
            }
            #[inline(always)]
            fn exp(self) -> $t {
                Exp::apply(self)
            }
            #[inline(always)]
            fn log(self) -> $t {
                Log::apply(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn moderate($chunk: &[$t; CHUNK]) -> bool {
                $moderate
            }
            #[inline(always)]
            fn exp_moderate(self) -> $t {
                $exp_moderate(self)
            }
        }
    };
}
float!(f32, |chunk| chunk.iter().fold(true, |all, x| all & (x.abs() <= MODERATE)), exp_moderate);
float!(f64, |_chunk| false, Exp::apply);
