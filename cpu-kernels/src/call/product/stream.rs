//! Strips of few rows whose rhs is read from memory as it is. Halves are widened in registers.
//!
//! Such a product takes the time of reading rhs. A tile reads short runs of some rows, which the
//! hardware prefetcher does not follow to the next rows. So each row prefetches the same run of a
//! later row.
//!
//! The terms come in the order of the other kernels: of each pair of bf16 the second first
//! ([`Element::PAIRED`]).

use super::lanes::LINE;
use super::vector::{Plain, Vector};
use crate::call::element::Element;
use crate::simd::Simd;
use wengert_core::half::{bf16, f16};

/// Rows of out, for some steps of k.
pub(in crate::call) struct Stream<T: Element> {
    /// Steps of k.
    pub depth: usize,
    /// The numbers of the rows, contiguous for each step, in the order of the terms; or the pairs.
    pub lhs: *const T::Wide,
    pub rows: usize,
    /// Contiguous rows of rhs, at a distance of `rhs_step`.
    pub rhs: *const T,
    pub rhs_step: usize,
    /// Distance, in rows of rhs, to the row that is prefetched; 0 if none is.
    pub ahead: usize,
    /// Columns of whole panels.
    pub columns: usize,
    pub out: *mut T::Wide,
    pub out_row: usize,
    /// Whether the sums continue from the elements of out, instead of from 0.
    pub add: bool,
}

/// The compiled kernels for a dtype and a set of vector instructions.
pub(in crate::call) struct Streams<T: Element + 'static> {
    /// Those of 1, 2, … rows.
    pub(super) strips: &'static [unsafe fn(&Stream<T>)],
}

impl<T: Element> Streams<T> {
    /// Computes a strip.
    ///
    /// # Safety
    ///
    /// There are as many rows as there are kernels, at most. All memory that the strip names is
    /// valid to read, and out to write, without overlap; no other code uses that part of out during
    /// the call. The machine has the vector instructions.
    pub unsafe fn strip(&self, strip: &Stream<T>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.strips[strip.rows - 1](strip) }
    }
}

/// A vector register that is loaded from elements.
pub(in crate::call) trait Widens<T: Element>: Vector<Number = T::Wide> {
    /// # Safety
    ///
    /// As many elements as there are lanes are valid to read.
    unsafe fn widened(at: *const T) -> Self;
}

impl<T: Element> Widens<T> for Plain<T::Wide>
where
    Plain<T::Wide>: Vector<Number = T::Wide>,
{
    #[inline(always)]
    unsafe fn widened(at: *const T) -> Self {
        // SAFETY: the caller guarantees it.
        Plain(std::array::from_fn(|lane| unsafe { at.add(lane).read() }.wide()))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Widens;
    use std::arch::x86_64::*;
    use wengert_core::half::{bf16, f16};

    macro_rules! widens {
        ($register:ident of $t:ident: $at:ident $value:expr) => {
            // The intrinsics require the machine's instructions. Callers of kernels compiled for
            // them must guarantee that.
            impl Widens<$t> for $register {
                #[inline(always)]
                unsafe fn widened($at: *const $t) -> Self {
                    // SAFETY: the caller guarantees the memory; the machine has the instructions.
                    unsafe { $value }
                }
            }
        };
    }
    widens!(__m256 of f32: at _mm256_loadu_ps(at));
    widens!(__m512 of f32: at _mm512_loadu_ps(at));
    widens!(__m256d of f64: at _mm256_loadu_pd(at));
    widens!(__m512d of f64: at _mm512_loadu_pd(at));
    // The upper half of an f32 is a bf16.
    widens!(__m256 of bf16: at _mm256_castsi256_ps(_mm256_slli_epi32::<16>(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))));
    widens!(__m512 of bf16: at _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))));
    widens!(__m256 of f16: at _mm256_cvtph_ps(_mm_loadu_si128(at.cast())));
    widens!(__m512 of f16: at _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())));
}

/// A strip, `WIDE` vectors of columns at a time, then two. Of each run of columns, `FIRST` rows are
/// multiplied, then `REST`, which find it in L1.
///
/// # Safety
///
/// As for [`Streams::strip`], for `FIRST` and `REST` rows.
#[inline(always)]
unsafe fn strip<
    T: Element,
    V: Widens<T>,
    const FIRST: usize,
    const REST: usize,
    const WIDE: usize,
>(
    of: &Stream<T>,
) {
    let mut done = 0;
    // SAFETY: the columns are within rhs and out, and the rows within lhs and out.
    unsafe {
        while of.columns - done >= WIDE * V::LANES {
            tile::<T, V, FIRST, WIDE>(of, done, 0);
            tile::<T, V, REST, WIDE>(of, done, FIRST);
            done += WIDE * V::LANES;
        }
        while done < of.columns {
            tile::<T, V, FIRST, 2>(of, done, 0);
            tile::<T, V, REST, 2>(of, done, FIRST);
            done += 2 * V::LANES;
        }
    }
}

/// One tile, of `ROWS` rows from `row` on, and of `WIDE` vectors in a row, from `column` on.
///
/// # Safety
///
/// As for [`strip`]; there are as many rows and columns.
#[inline(always)]
unsafe fn tile<T: Element, V: Widens<T>, const ROWS: usize, const WIDE: usize>(
    of: &Stream<T>,
    column: usize,
    row: usize,
) {
    if ROWS == 0 {
        return;
    }
    let rhs = of.rhs.wrapping_add(column);
    let lhs = of.lhs.wrapping_add(row);
    let out = of.out.wrapping_add(row * of.out_row + column);
    let line = LINE / size_of::<T>();
    let mut sums = [[V::zero(); WIDE]; ROWS];
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if of.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(out.add(i * of.out_row + v * V::LANES));
                }
            }
        }
        // No closure: it would be compiled without the vector instructions.
        for term in 0..of.depth {
            let step = T::row_of_term(term, of.depth);
            let (lhs, rhs) = (lhs.add(term * of.rows), rhs.add(step * of.rhs_step));
            if of.ahead > 0 && row == 0 {
                let next = rhs.wrapping_add(of.ahead * of.rhs_step);
                for at in (0..WIDE * V::LANES).step_by(line) {
                    V::prefetch(next.wrapping_add(at).cast());
                }
            }
            let mut right = [V::zero(); WIDE];
            for (v, y) in right.iter_mut().enumerate() {
                *y = V::widened(rhs.add(v * V::LANES));
            }
            for (i, row) in sums.iter_mut().enumerate() {
                let x = V::splat(lhs.add(i).read());
                for (sum, y) in row.iter_mut().zip(right) {
                    *sum = sum.plus_product(x, y);
                }
            }
        }
        // Borrowed: an array that a loop consumes is first copied through memory.
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                sum.store(out.add(i * of.out_row + v * V::LANES));
            }
        }
    }
}

/// The kernels for one set of vector instructions.
macro_rules! level {
    (
        $level:ident $(($features:literal))?: $single:ty, $double:ty;
        $($first:literal + $rest:literal: $wide:literal),*
    ) => {
        mod $level {
            use super::*;
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports, reason = "the portable kernels need none")]
            use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

            /// # Safety
            ///
            /// As for [`super::strip`].
            $(#[target_feature(enable = $features)])?
            unsafe fn strip<
                T: Element,
                V: Widens<T>,
                const FIRST: usize,
                const REST: usize,
                const WIDE: usize,
            >(
                of: &Stream<T>,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::strip::<T, V, FIRST, REST, WIDE>(of) }
            }

            level!(@ F32 f32, $single; $($first + $rest: $wide),*);
            level!(@ F64 f64, $double; $($first + $rest: $wide),*);
            level!(@ F16 f16, $single; $($first + $rest: $wide),*);
            level!(@ BF16 bf16, $single; $($first + $rest: $wide),*);
        }
    };
    (@ $name:ident $t:ident, $vector:ty; $($first:literal + $rest:literal: $wide:literal),*) => {
        pub(super) static $name: Streams<$t> =
            Streams { strips: &[$(strip::<$t, $vector, $first, $rest, $wide>),*] };
    };
}
// For each number of rows, how many share a tile, and the vectors in a row of it. The sums, a row
// of rhs and a number of lhs take all registers: 16, or 32 with AVX-512.
level!(portable: Plain<f32>, Plain<f64>;
    1 + 0: 4, 2 + 0: 2, 3 + 0: 2, 4 + 0: 2, 5 + 0: 2, 6 + 0: 2, 4 + 3: 2, 4 + 4: 2);
#[cfg(target_arch = "x86_64")]
level!(avx2 ("avx2,fma,f16c"): __m256, __m256d;
    1 + 0: 4, 2 + 0: 4, 3 + 0: 2, 4 + 0: 2, 5 + 0: 2, 6 + 0: 2, 4 + 3: 2, 4 + 4: 2);
#[cfg(target_arch = "x86_64")]
level!(avx512 ("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"): __m512, __m512d;
    1 + 0: 4, 2 + 0: 2, 3 + 0: 2, 4 + 0: 2, 5 + 0: 2, 6 + 0: 2, 7 + 0: 2, 8 + 0: 2);

lookup!(streams_of_f32: Streams<f32>, F32);
lookup!(streams_of_f64: Streams<f64>, F64);
lookup!(streams_of_f16: Streams<f16>, F16);
lookup!(widening_streams_of_bf16: Streams<bf16>, BF16);

/// The kernels of bf16: of [pairs](super::paired_stream) where the machine multiplies them.
pub(in crate::call) fn streams_of_bf16(simd: Simd) -> &'static Streams<bf16> {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512Bf16 => &super::paired_stream::STREAMS,
        _ => widening_streams_of_bf16(simd),
    }
}
