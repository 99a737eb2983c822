//! The elements that products of attention multiply: floats in place, f16 widened, and bf16 in
//! place, in pairs.

use super::float::Float;
use crate::call::chained::Products;
use crate::call::element::Element;
use crate::call::panel::{View, widen};
use crate::simd::Simd;
use wengert_core::half::{bf16, f16};

/// An element of attention.
pub(super) trait Multiplied: Element<Wide: Float> {
    /// The factors of its products.
    type Factor: Element<Wide = Self::Wide>;
    /// Whether factors are the elements in memory.
    const IN_PLACE: bool = Self::HALF == <Self::Factor as Element>::HALF;

    /// Copies a row as factors.
    ///
    /// # Safety
    ///
    /// As for [`widen`].
    unsafe fn copy(simd: Simd, from: *const Self, to: *mut Self::Factor, count: usize);

    /// A matrix as factors: in place, or widened in `copy`.
    ///
    /// # Safety
    ///
    /// As for [`Products::wide`].
    unsafe fn factors(
        products: &Products<'_>,
        source: View<Self>,
        size: [usize; 2],
        copy: *mut Self::Wide,
    ) -> View<Self::Factor>;
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Multiplied for $t {
            type Factor = Self::Wide;

            unsafe fn copy(simd: Simd, from: *const Self, to: *mut Self::Wide, count: usize) {
                // SAFETY: the caller's promise is the same.
                unsafe { widen(simd, from, to, count) }
            }

            unsafe fn factors(
                products: &Products<'_>,
                source: View<Self>,
                size: [usize; 2],
                copy: *mut Self::Wide,
            ) -> View<Self::Wide> {
                // SAFETY: the caller's promise is the same.
                unsafe { products.wide(source, size, copy) }
            }
        }
    )*};
}
numbers!(f32, f64, f16);

impl Multiplied for bf16 {
    type Factor = bf16;

    unsafe fn copy(_: Simd, from: *const bf16, to: *mut bf16, count: usize) {
        // SAFETY: the caller's promise is the same: both are valid, and apart.
        unsafe { from.copy_to_nonoverlapping(to, count) }
    }

    unsafe fn factors(
        _: &Products<'_>,
        source: View<bf16>,
        _: [usize; 2],
        _: *mut f32,
    ) -> View<bf16> {
        source
    }
}
