//! The products of attention for few queries, as in decoding: scores of a block of keys, and
//! values weighted by powers. Keys and values are read in place, once; halves are widened in
//! registers.
//!
//! The time is that of reading keys and values. Their rows are short, and neighbouring rows of a
//! head may be apart, which the hardware prefetcher does not follow. So each product prefetches
//! the rows that the next one reads, into L2: that of keys the values of the block, that of
//! values the keys of the next block.
//!
//! Each element is one chain of fused multiply-adds that begins with 0, in the order of all
//! [products](crate::call::product): scores of bf16 add the second term of a pair first. A score's
//! chain goes along a key, so the lanes of a vector are keys: squares of keys are transposed in
//! registers.

use crate::call::chained::Rows;
use crate::call::element::Element;
use crate::call::panel::View;
#[cfg(target_arch = "x86_64")]
use crate::call::product::stream::Widens;
#[cfg(target_arch = "x86_64")]
use crate::call::product::vector::Vector;
use crate::simd::Simd;
use wengert_core::half::{bf16, f16};

/// Most rows of queries.
pub(super) const FEW: usize = 8;
/// Divisor of the width of a row.
pub(super) const WIDTH: usize = 16;
/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// A product of a few rows of numbers with a block of rows of elements.
pub(super) struct Few<E: Element> {
    /// Rows of numbers, rows of elements, and the width of the latter, a multiple of [`WIDTH`].
    pub size: [usize; 3],
    /// The rows of numbers: queries, or powers.
    pub lhs: View<E::Wide>,
    /// The rows of elements: keys, or values.
    pub rows: Rows<E>,
    /// The rows that are prefetched; they need not exist.
    pub next: Rows<E>,
    /// The results: scores, in whole vectors of keys, or weighted sums.
    pub out: Rows<E::Wide>,
}

/// Kernels of the two products for a dtype and a set of vector instructions.
pub(super) struct Kernels<E: Element + 'static> {
    /// `out[i, j] = Σₖ lhs[i, k] · rows[j, k]`
    pub scores: unsafe fn(&Few<E>),
    /// `out[i, j] = Σₖ lhs[i, k] · rows[k, j]`
    pub values: unsafe fn(&Few<E>),
}

/// An element of attention.
pub(super) trait Decoded: Element {
    /// The kernels, if the set of vector instructions has any.
    fn few(simd: Simd) -> Option<&'static Kernels<Self>>;
}

impl Decoded for f64 {
    fn few(_: Simd) -> Option<&'static Kernels<f64>> {
        None
    }
}

/// A vector register whose squares can be transposed.
#[cfg(target_arch = "x86_64")]
trait Turns: Vector {
    /// As many vectors as one has lanes.
    type Square: Copy + AsRef<[Self]> + AsMut<[Self]>;
    fn zeros() -> Self::Square;
    /// The columns of a square.
    fn turned(square: Self::Square) -> Self::Square;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Turns, Vector};
    use crate::kernels::squares::{exchanged, exchanged_wide};
    use std::arch::x86_64::{__m256, __m512};

    macro_rules! turns {
        ($register:ident, $lanes:literal, $turned:ident) => {
            impl Turns for $register {
                type Square = [$register; $lanes];
                #[inline(always)]
                fn zeros() -> Self::Square {
                    [$register::zero(); $lanes]
                }
                #[inline(always)]
                fn turned(square: Self::Square) -> Self::Square {
                    // SAFETY: the machine has the instructions, as for every vector.
                    unsafe { $turned(square) }
                }
            }
        };
    }
    turns!(__m256, 8, exchanged);
    turns!(__m512, 16, exchanged_wide);
}

/// Prefetches a row into L2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch<E: Element>(row: *const E, width: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    for at in (0..width).step_by(LINE / size_of::<E>()) {
        // SAFETY: every machine of the architecture has the instruction, and it has no effect on
        // the program's state.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(at).cast()) };
    }
}

/// The body of [`Kernels::scores`].
///
/// # Safety
///
/// The rows of numbers and elements are valid to read. The rows of out are valid to write, each
/// to a multiple of the lanes. The machine has the vector instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn scores<E: Element, V: Turns<Number = E::Wide> + Widens<E>>(of: &Few<E>) {
    let [rows, keys, width] = of.size;
    for first in (0..keys).step_by(V::LANES) {
        for key in first..keys.min(first + V::LANES) {
            fetch(of.next.row(key), width);
        }
        for from in (0..width).step_by(V::LANES) {
            let mut square = V::zeros();
            for (key, row) in square.as_mut().iter_mut().enumerate() {
                // The last key stands for those behind it, whose scores are not used.
                let row_of_key = of.rows.row((first + key).min(keys - 1));
                // SAFETY: the row exists, and has so many elements.
                *row = unsafe { V::widened(row_of_key.add(from)) };
            }
            let square = V::turned(square);
            let mut row = 0;
            while row < rows {
                // SAFETY: there are as many rows.
                row += unsafe {
                    match rows - row {
                        1 => scores_of::<E, V, 1>(of, square.as_ref(), [row, first, from]),
                        2 => scores_of::<E, V, 2>(of, square.as_ref(), [row, first, from]),
                        3 => scores_of::<E, V, 3>(of, square.as_ref(), [row, first, from]),
                        _ => scores_of::<E, V, 4>(of, square.as_ref(), [row, first, from]),
                    }
                };
            }
        }
    }
}

/// Continues the scores of a vector of keys, of `ROWS` rows, with a square of elements. Returns
/// the number of rows.
///
/// # Safety
///
/// As for [`scores`], for these rows.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn scores_of<E: Element, V: Vector<Number = E::Wide>, const ROWS: usize>(
    of: &Few<E>,
    square: &[V],
    [row, first, from]: [usize; 3],
) -> usize {
    let mut sums = [V::zero(); ROWS];
    // SAFETY: the caller guarantees the memory.
    unsafe {
        if from > 0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(of.out.row(row + i).add(first));
            }
        }
        for term in 0..square.len() {
            let k = E::row_of_term(term, square.len());
            for (i, sum) in sums.iter_mut().enumerate() {
                let x = V::splat(of.lhs.get(row + i, from + k));
                *sum = sum.plus_product(x, square[k]);
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            sum.store(of.out.row(row + i).add(first));
        }
    }
    ROWS
}

/// The body of [`Kernels::values`].
///
/// # Safety
///
/// As for [`scores`]; the rows of out have the width of the elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn values<E: Element, V: Widens<E>, const WIDE: usize>(of: &Few<E>) {
    let [rows, _, width] = of.size;
    let mut row = 0;
    while row < rows {
        let mut column = 0;
        while column < width {
            let wide = width - column >= WIDE * V::LANES;
            // SAFETY: there are as many rows and columns: the width is a multiple of two vectors
            // of 8 lanes, or one of 16.
            unsafe {
                match (rows - row, wide) {
                    (1, true) => values_of::<E, V, 1, WIDE>(of, row, column),
                    (2, true) => values_of::<E, V, 2, WIDE>(of, row, column),
                    (3, true) => values_of::<E, V, 3, WIDE>(of, row, column),
                    (_, true) => values_of::<E, V, 4, WIDE>(of, row, column),
                    (1, false) => values_of::<E, V, 1, 1>(of, row, column),
                    (2, false) => values_of::<E, V, 2, 1>(of, row, column),
                    (3, false) => values_of::<E, V, 3, 1>(of, row, column),
                    (_, false) => values_of::<E, V, 4, 1>(of, row, column),
                }
            }
            column += if wide { WIDE * V::LANES } else { V::LANES };
        }
        row += 4;
    }
}

/// The weighted sums of `ROWS` rows and `WIDE` vectors of columns.
///
/// # Safety
///
/// As for [`values`], for these rows and columns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn values_of<E: Element, V: Widens<E>, const ROWS: usize, const WIDE: usize>(
    of: &Few<E>,
    row: usize,
    column: usize,
) {
    let [_, count, width] = of.size;
    let mut sums = [[V::zero(); WIDE]; ROWS];
    // SAFETY: the caller guarantees the memory.
    unsafe {
        for n in 0..count {
            if row == 0 && column == 0 {
                fetch(of.next.row(n), width);
            }
            let from = of.rows.row(n).add(column);
            let mut right = [V::zero(); WIDE];
            for (v, y) in right.iter_mut().enumerate() {
                *y = V::widened(from.add(v * V::LANES));
            }
            for (i, row_of_sums) in sums.iter_mut().enumerate() {
                let x = V::splat(of.lhs.get(row + i, n));
                for (sum, y) in row_of_sums.iter_mut().zip(right) {
                    *sum = sum.plus_product(x, y);
                }
            }
        }
        for (i, row_of_sums) in sums.iter().enumerate() {
            for (v, sum) in row_of_sums.iter().enumerate() {
                sum.store(of.out.row(row + i).add(column + v * V::LANES));
            }
        }
    }
}

/// The kernels for one set of vector instructions.
macro_rules! level {
    ($level:ident $features:literal: $vector:ident, $wide:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $level {
            use super::*;
            use std::arch::x86_64::$vector;

            /// # Safety
            ///
            /// As for [`super::scores`].
            #[target_feature(enable = $features)]
            unsafe fn scores<E: Element<Wide = f32>>(of: &Few<E>)
            where
                $vector: Widens<E>,
            {
                // SAFETY: the caller's promise is the same.
                unsafe { super::scores::<E, $vector>(of) }
            }

            /// # Safety
            ///
            /// As for [`super::values`].
            #[target_feature(enable = $features)]
            unsafe fn values<E: Element<Wide = f32>>(of: &Few<E>)
            where
                $vector: Widens<E>,
            {
                // SAFETY: the caller's promise is the same.
                unsafe { super::values::<E, $vector, $wide>(of) }
            }

            pub(super) static F32: Kernels<f32> = Kernels { scores, values };
            pub(super) static F16: Kernels<f16> = Kernels { scores, values };
            pub(super) static BF16: Kernels<bf16> = Kernels { scores, values };
        }
    };
}
level!(avx2 "avx2,fma,f16c": __m256, 2);
level!(avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c": __m512, 4);

macro_rules! decoded {
    ($($t:ident $name:ident),*) => {$(
        impl Decoded for $t {
            fn few(simd: Simd) -> Option<&'static Kernels<$t>> {
                match simd {
                    #[cfg(target_arch = "x86_64")]
                    Simd::Avx2 => Some(&avx2::$name),
                    #[cfg(target_arch = "x86_64")]
                    Simd::Avx512 | Simd::Avx512Bf16 => Some(&avx512::$name),
                    _ => None,
                }
            }
        }
    )*};
}
decoded!(f32 F32, f16 F16, bf16 BF16);
