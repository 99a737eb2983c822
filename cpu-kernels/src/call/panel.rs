//! Matrices in memory, and copies of parts of them in an order that products like.

use super::element::Element;
use crate::kernels;
use crate::simd::Simd;

/// A matrix in memory: its first element, and the distances of rows and of columns, in elements.
#[derive(Debug)]
pub(super) struct View<T> {
    pub at: *const T,
    pub row: usize,
    pub column: usize,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<T> {}

impl<T: Copy> View<T> {
    /// Where an element is.
    #[inline(always)]
    pub fn element(self, i: usize, j: usize) -> *const T {
        self.at.wrapping_add(i * self.row + j * self.column)
    }

    /// An element.
    ///
    /// # Safety
    ///
    /// It exists, and is valid to read.
    #[inline(always)]
    pub unsafe fn get(self, i: usize, j: usize) -> T {
        // SAFETY: the caller vouches for it.
        unsafe { self.element(i, j).read() }
    }

    /// The matrix transposed.
    pub fn turned(self) -> Self {
        View { at: self.at, row: self.column, column: self.row }
    }

    /// The part that begins at an element.
    pub fn from(self, i: usize, j: usize) -> Self {
        View { at: self.element(i, j), ..self }
    }
}

impl<T: Element> View<T> {
    /// The same matrix of elements that are numbers to compute with.
    pub fn plain(self) -> View<T::Wide> {
        assert!(!T::HALF, "every element but a half is its own number");
        View { at: self.at.cast(), row: self.row, column: self.column }
    }
}

/// Copies `count` elements as numbers to compute with.
///
/// # Safety
///
/// The source is valid to read and the destination to write so many elements; they do not overlap. The machine has the
/// vector instructions.
#[inline]
pub(super) unsafe fn widen<T: Element>(
    simd: Simd,
    source: *const T,
    destination: *mut T::Wide,
    count: usize,
) {
    if !T::HALF {
        // SAFETY: the two types are the same; the caller vouches for the rest.
        unsafe { source.cast::<T::Wide>().copy_to_nonoverlapping(destination, count) };
        return;
    }
    let whole = count / kernels::CHUNK * kernels::CHUNK;
    if whole > 0 {
        let kernel = kernels::convert(T::DTYPE, <T::Wide as Element>::DTYPE, simd);
        // SAFETY: the count is a multiple of CHUNK; the kernel was looked up for these dtypes and the machine's vector instructions, which,
        // like the blocks, the caller vouches for. It reads no second and third block.
        unsafe {
            kernel(destination.cast(), source.cast(), std::ptr::null(), std::ptr::null(), whole, 0);
        }
    }
    for k in whole..count {
        // SAFETY: k is below the count.
        unsafe { destination.add(k).write(source.add(k).read().wide()) };
    }
}

/// A dense copy of `rows × columns` elements as numbers to compute with, in the order that they have in memory, if they have one.
///
/// # Safety
///
/// The elements exist and are valid to read, the destination is valid to write so many numbers; they do not overlap. The machine
/// has the vector instructions.
pub(super) unsafe fn widened<T: Element>(
    simd: Simd,
    source: View<T>,
    [rows, columns]: [usize; 2],
    destination: *mut T::Wide,
) -> View<T::Wide> {
    // SAFETY: indices are below the extents; each index of the result is below their product.
    unsafe {
        if source.row == 1 && source.column != 1 {
            for j in 0..columns {
                widen(simd, source.element(0, j), destination.add(j * rows), rows);
            }
            return View { at: destination, row: 1, column: rows };
        }
        for i in 0..rows {
            let row = destination.add(i * columns);
            if source.column == 1 {
                widen(simd, source.element(i, 0), row, columns);
            } else {
                (0..columns).for_each(|j| row.add(j).write(source.get(i, j).wide()));
            }
        }
    }
    View { at: destination, row: columns, column: 1 }
}

/// A dense copy with neighbouring columns side by side, of a matrix whose neighbouring rows are side by side (`row` is 1). Elements of
/// four bytes are exchanged by vector instructions.
///
/// # Safety
///
/// As for [`widened`].
pub(super) unsafe fn transposed<T: Element>(
    simd: Simd,
    source: View<T>,
    [rows, columns]: [usize; 2],
    destination: *mut T,
) -> View<T> {
    assert_eq!(source.row, 1, "chosen when the call was compiled");
    let squares = cfg!(target_arch = "x86_64") && size_of::<T>() == size_of::<f32>() && simd >= Simd::Avx2;
    let whole = |extent: usize| if squares { extent / SIDE * SIDE } else { 0 };
    let (whole_rows, whole_columns) = (whole(rows), whole(columns));
    // SAFETY: a square of SIDE × SIDE within the whole rows and columns exists, and the indices of what is left are below the extents; an
    // index of the result is below their product. If there are squares, the elements have 4 bytes and the machine AVX2.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        for j in (0..whole_columns).step_by(SIDE) {
            // Along the runs of the source, so that the machine foresees what is read.
            for i in (0..whole_rows).step_by(SIDE) {
                square(
                    source.element(i, j).cast(),
                    source.column,
                    destination.add(i * columns + j).cast(),
                    columns,
                );
            }
        }
        for i in 0..rows {
            let from = if i < whole_rows { whole_columns } else { 0 };
            (from..columns).for_each(|j| destination.add(i * columns + j).write(source.get(i, j)));
        }
    }
    View { at: destination, row: columns, column: 1 }
}

/// Side of a square: a line of the cache, so that each line is read and written in one go, however far apart they are.
const SIDE: usize = 16;

/// Transposes a square of 16 × 16 numbers.
///
/// # Safety
///
/// 16 rows of 16 elements at these distances are valid to read from the source and to write to the destination; the
/// machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn square(source: *const f32, source_row: usize, destination: *mut f32, destination_row: usize) {
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
/// 8 rows of 8 elements at these distances are valid to read from the source and to write to the destination; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn quarter(source: *const f32, source_row: usize, destination: *mut f32, destination_row: usize) {
    use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};
    // SAFETY: the caller vouches for the eight rows.
    let rows = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(source.add(i * source_row)) });
    for (k, row) in exchanged(rows).into_iter().enumerate() {
        // SAFETY: the caller vouches for the eight rows.
        unsafe { _mm256_storeu_ps(destination.add(k * destination_row), row) };
    }
}

/// The columns of a square of 8 × 8 numbers of which these are the rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
pub(super) fn exchanged(rows: [std::arch::x86_64::__m256; 8]) -> [std::arch::x86_64::__m256; 8] {
    use std::arch::x86_64::{
        _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // Pairs of rows interleaved, then pairs of pairs, then the halves exchanged.
    let pair =
        |i: usize| (_mm256_unpacklo_ps(rows[i], rows[i + 1]), _mm256_unpackhi_ps(rows[i], rows[i + 1]));
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
