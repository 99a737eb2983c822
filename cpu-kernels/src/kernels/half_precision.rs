//! Conversions between f16 and f32 by hardware instructions (F16C). They round as
//! [`super::convert`] does.

use super::CHUNK;
use std::arch::x86_64::{
    __m128i, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps,
    _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
};

/// f16 to f32.
///
/// # Safety
///
/// As for [`super::Kernel`]; the machine has AVX and F16C.
#[target_feature(enable = "avx,f16c")]
pub(super) unsafe fn widen(
    destination: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    count: usize,
    _: u32,
) {
    let (destination, a) = (destination.cast::<f32>(), a.cast::<u16>());
    for k in (0..count).step_by(CHUNK / 2) {
        // SAFETY: the count is a multiple of CHUNK, so k + 8 is at most the count.
        unsafe {
            let halves = _mm_loadu_si128(a.add(k).cast::<__m128i>());
            _mm256_storeu_ps(destination.add(k), _mm256_cvtph_ps(halves));
        }
    }
}

/// f32 to f16.
///
/// # Safety
///
/// As for [`super::Kernel`]; the machine has AVX and F16C.
#[target_feature(enable = "avx,f16c")]
pub(super) unsafe fn narrow(
    destination: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    count: usize,
    _: u32,
) {
    let (destination, a) = (destination.cast::<u16>(), a.cast::<f32>());
    for k in (0..count).step_by(CHUNK / 2) {
        // SAFETY: the count is a multiple of CHUNK, so k + 8 is at most the count.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(a.add(k)));
            _mm_storeu_si128(destination.add(k).cast::<__m128i>(), halves);
        }
    }
}
