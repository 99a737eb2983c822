//! Strips of few rows whose rhs is read from memory as halves and widened in registers.
//!
//! The terms come in the order of the other kernels of halves: of each pair of bf16 the second
//! first ([`Element::PAIRED`]).

use super::vector::{Plain, Vector};
use crate::call::element::Element;
use crate::simd::Simd;
use wengert_core::half::{bf16, f16};

/// Rows of out, for some steps of k.
pub(in crate::call) struct Stream<T> {
    /// Steps of k.
    pub depth: usize,
    /// The numbers of the rows, contiguous for each step, in the order of the terms.
    pub lhs: *const f32,
    pub rows: usize,
    /// Contiguous rows of rhs, at a distance of `rhs_step`.
    pub rhs: *const T,
    pub rhs_step: usize,
    /// Whole panels of the kernels of f32.
    pub columns: usize,
    pub out: *mut f32,
    pub out_row: usize,
    /// Whether the sums continue from the elements of out, instead of from 0.
    pub add: bool,
}

/// The compiled kernels for a dtype and a set of vector instructions.
pub(in crate::call) struct Streams<T: 'static> {
    /// Those of 1, 2, … rows.
    strips: &'static [unsafe fn(&Stream<T>)],
    /// That of one row, with the sums of many columns in registers.
    row: unsafe fn(&Stream<T>),
}

impl<T> Streams<T> {
    /// Computes a strip. With `long`, the sums of one row stay in registers for all steps.
    ///
    /// # Safety
    ///
    /// There are as many rows as there are kernels, at most. All memory that the strip names is
    /// valid to read, and out to write, without overlap; no other code uses that part of out during
    /// the call. The machine has the vector instructions.
    pub unsafe fn strip(&self, strip: &Stream<T>, long: bool) {
        let kernel = if long { self.row } else { self.strips[strip.rows - 1] };
        // SAFETY: the caller's promise is the same.
        unsafe { kernel(strip) }
    }
}

/// A vector register that is loaded from halves.
trait Widens<T>: Vector<Number = f32> {
    /// # Safety
    ///
    /// As many halves as there are lanes are valid to read.
    unsafe fn widened(at: *const T) -> Self;
}

impl<T: Element<Wide = f32>> Widens<T> for Plain<f32> {
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
    // The upper half of an f32 is a bf16.
    widens!(__m256 of bf16: at _mm256_castsi256_ps(_mm256_slli_epi32::<16>(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))));
    widens!(__m512 of bf16: at _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))));
    widens!(__m256 of f16: at _mm256_cvtph_ps(_mm_loadu_si128(at.cast())));
    widens!(__m512 of f16: at _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())));
}

/// A strip, `WIDE` vectors of columns at a time, then two.
///
/// # Safety
///
/// As for [`Streams::strip`], for `ROWS` rows.
#[inline(always)]
unsafe fn strip<T: Element, V: Widens<T>, const ROWS: usize, const WIDE: usize>(of: &Stream<T>) {
    let mut done = 0;
    // SAFETY: the columns are within rhs and out.
    unsafe {
        while of.columns - done >= WIDE * V::LANES {
            tile::<T, V, ROWS, WIDE>(of, of.rhs.add(done), of.out.add(done));
            done += WIDE * V::LANES;
        }
        while done < of.columns {
            tile::<T, V, ROWS, 2>(of, of.rhs.add(done), of.out.add(done));
            done += 2 * V::LANES;
        }
    }
}

/// One tile of `WIDE` vectors in a row.
///
/// # Safety
///
/// As for [`strip`]; rhs and out have as many columns.
#[inline(always)]
unsafe fn tile<T: Element, V: Widens<T>, const ROWS: usize, const WIDE: usize>(
    of: &Stream<T>,
    rhs: *const T,
    out: *mut f32,
) {
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
            let step = if T::PAIRED && term ^ 1 < of.depth { term ^ 1 } else { term };
            let (lhs, rhs) = (of.lhs.add(term * ROWS), rhs.add(step * of.rhs_step));
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

/// The kernels for one set of vector instructions: for one row the vectors of a tile, and those of
/// a long one.
macro_rules! level {
    ($level:ident $(($features:literal))?: $vector:ty, $wide:literal, $long:literal) => {
        mod $level {
            use super::*;
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports, reason = "the portable kernels need none")]
            use std::arch::x86_64::{__m256, __m512};

            /// # Safety
            ///
            /// As for [`super::strip`].
            $(#[target_feature(enable = $features)])?
            unsafe fn strip<T: Element, V: Widens<T>, const ROWS: usize, const WIDE: usize>(
                of: &Stream<T>,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::strip::<T, V, ROWS, WIDE>(of) }
            }

            level!(@ F16 f16, $vector, $wide, $long);
            level!(@ BF16 bf16, $vector, $wide, $long);
        }
    };
    (@ $name:ident $t:ident, $vector:ty, $wide:literal, $long:literal) => {
        pub(super) static $name: Streams<$t> = Streams {
            strips: &[
                strip::<$t, $vector, 1, $wide>,
                strip::<$t, $vector, 2, 2>,
                strip::<$t, $vector, 3, 2>,
                strip::<$t, $vector, 4, 2>,
                strip::<$t, $vector, 5, 2>,
                strip::<$t, $vector, 6, 2>,
                strip::<$t, $vector, 7, 2>,
                strip::<$t, $vector, 8, 2>,
            ],
            row: strip::<$t, $vector, 1, $long>,
        };
    };
}
level!(portable: Plain<f32>, 4, 4);
#[cfg(target_arch = "x86_64")]
level!(avx2 ("avx2,fma,f16c"): __m256, 4, 8);
#[cfg(target_arch = "x86_64")]
level!(avx512 ("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"): __m512, 4, 16);

macro_rules! lookup {
    ($f:ident: $t:ident $name:ident) => {
        /// The kernels for a set of vector instructions.
        pub(in crate::call) fn $f(simd: Simd) -> &'static Streams<$t> {
            match simd {
                #[cfg(target_arch = "x86_64")]
                Simd::Avx2 => &avx2::$name,
                #[cfg(target_arch = "x86_64")]
                Simd::Avx512 | Simd::Avx512Bf16 => &avx512::$name,
                _ => &portable::$name,
            }
        }
    };
}
lookup!(streams_of_f16: f16 F16);
lookup!(streams_of_bf16: bf16 BF16);
