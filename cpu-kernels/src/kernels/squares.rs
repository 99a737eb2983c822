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

/// [`square`] in registers of 64 bytes, of rows at a distance of `source_row` bytes, of which
/// `there` exist: then only as many numbers of each row that is written have a meaning. It reads
/// each cache line once: rows at a distance of a power of two are in one set of the first cache,
/// which holds fewer lines than the square has.
///
/// # Safety
///
/// As for [`square`], but only the rows that exist are valid to read; there is at least one. The
/// machine has AVX-512. The source may have any address.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) unsafe fn wide_square(
    source: *const f32,
    source_row: usize,
    there: usize,
    destination: *mut f32,
    destination_row: usize,
) {
    use std::arch::x86_64::{_mm512_loadu_ps, _mm512_storeu_ps};
    // SAFETY: the row exists.
    let rows = std::array::from_fn(|i| unsafe {
        _mm512_loadu_ps(source.byte_add(i.min(there - 1) * source_row))
    });
    for (column, numbers) in exchanged_wide(rows).into_iter().enumerate() {
        // SAFETY: the caller guarantees the rows.
        unsafe { _mm512_storeu_ps(destination.add(column * destination_row), numbers) };
    }
}

/// The columns of a square of 16 × 16 numbers, from its rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn exchanged_wide(
    rows: [std::arch::x86_64::__m512; SIDE],
) -> [std::arch::x86_64::__m512; SIDE] {
    use std::arch::x86_64::*;
    // Interleaves pairs of rows, then pairs of pairs: vector 4·i + n has column 4·l + n of the
    // rows from 4·i on in its part l of 16 bytes.
    let pairs: [__m512d; SIDE] = std::array::from_fn(|i| {
        let (first, second) = (rows[i & !1], rows[i | 1]);
        _mm512_castps_pd(match i & 1 {
            0 => _mm512_unpacklo_ps(first, second),
            _ => _mm512_unpackhi_ps(first, second),
        })
    });
    let fours: [__m512; SIDE] = std::array::from_fn(|i| {
        let first = (i & !3) + (i & 3) / 2;
        let (first, second) = (pairs[first], pairs[first + 2]);
        _mm512_castpd_ps(match i & 1 {
            0 => _mm512_unpacklo_pd(first, second),
            _ => _mm512_unpackhi_pd(first, second),
        })
    });
    let mut found = rows;
    for n in 0..4 {
        // Parts 0 and 2, and parts 1 and 3, of rows 0 to 7 and of rows 8 to 15.
        let of = |i: usize| (fours[i + n], fours[i + 4 + n]);
        let ((a, b), (c, d)) = (of(0), of(8));
        let even = [_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d)];
        let odd = [_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d)];
        let columns = [
            (n, _mm512_shuffle_f32x4::<0x88>(even[0], even[1])),
            (4 + n, _mm512_shuffle_f32x4::<0x88>(odd[0], odd[1])),
            (8 + n, _mm512_shuffle_f32x4::<0xdd>(even[0], even[1])),
            (12 + n, _mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1])),
        ];
        for (column, numbers) in columns {
            found[column] = numbers;
        }
    }
    found
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
