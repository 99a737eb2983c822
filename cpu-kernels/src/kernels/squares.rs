//! Squares of numbers transposed in registers.

/// Side of a square: a cache line, so that each line is read and written completely, whatever the
/// row distance.
pub(crate) const SIDE: usize = 16;

/// Transposes a square of 16 × 16 numbers.
///
/// # Safety
///
/// 16 rows of 16 elements at these distances are valid to read from the source and to write to
/// the destination; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
pub(crate) unsafe fn square(
    source: *const f32,
    source_row: usize,
    destination: *mut f32,
    destination_row: usize,
) {
    for (row, column) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
        // SAFETY: the quarter is a part of the square.
        unsafe {
            quarter(
                source.add(row * source_row + column),
                source_row,
                destination.add(column * destination_row + row),
                destination_row,
            );
        }
    }
}

/// Transposes a square of 8 × 8 numbers.
///
/// # Safety
///
/// 8 rows of 8 elements at these distances are valid to read from the source and to write to the
/// destination; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn quarter(
    source: *const f32,
    source_row: usize,
    destination: *mut f32,
    destination_row: usize,
) {
    use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};
    // SAFETY: the caller guarantees the eight rows.
    let rows = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(source.add(i * source_row)) });
    for (k, row) in exchanged(rows).into_iter().enumerate() {
        // SAFETY: the caller guarantees the eight rows.
        unsafe { _mm256_storeu_ps(destination.add(k * destination_row), row) };
    }
}

/// The columns of a square of 8 × 8 numbers, from its rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
pub(crate) fn exchanged(rows: [std::arch::x86_64::__m256; 8]) -> [std::arch::x86_64::__m256; 8] {
    use std::arch::x86_64::{
        _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // Interleaves pairs of rows, then pairs of pairs, then exchanges the halves.
    let pair = |i: usize| {
        (_mm256_unpacklo_ps(rows[i], rows[i + 1]), _mm256_unpackhi_ps(rows[i], rows[i + 1]))
    };
    let four = |i: usize| {
        let ((low, high), (next_low, next_high)) = (pair(i), pair(i + 2));
        [
            _mm256_shuffle_ps::<0x44>(low, next_low),
            _mm256_shuffle_ps::<0xee>(low, next_low),
            _mm256_shuffle_ps::<0x44>(high, next_high),
            _mm256_shuffle_ps::<0xee>(high, next_high),
        ]
    };
    let (upper, lower) = (four(0), four(4));
    std::array::from_fn(|k| match k {
        0..4 => _mm256_permute2f128_ps::<0x20>(upper[k], lower[k]),
        _ => _mm256_permute2f128_ps::<0x31>(upper[k - 4], lower[k - 4]),
    })
}
