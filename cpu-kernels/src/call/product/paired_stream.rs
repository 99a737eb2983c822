//! Strips of few rows of bf16 whose rhs is read from memory as it is, multiplied in pairs of terms.
//!
//! As in [`stream`](super::stream), but for machines that multiply [`Pairs`]: two rows of rhs are
//! interleaved in registers. A term without a partner is paired with 0, as in
//! [`pairs`](super::pairs).

use super::lanes::LINE;
use super::stream::{Stream, Streams};
use super::vector::{Pairs, Vector};
use wengert_core::half::bf16;

/// Columns of two vectors of pairs: those of a vector of bf16.
const COLUMNS: usize = 2 * Pairs::LANES;

/// A strip, `WIDE` vectors of bf16 at a time, then one.
///
/// # Safety
///
/// As for [`Streams::strip`], for `ROWS` rows.
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn strip<const ROWS: usize, const WIDE: usize>(of: &Stream<bf16>) {
    let mut done = 0;
    // SAFETY: the columns are within rhs and out.
    unsafe {
        while of.columns - done >= WIDE * COLUMNS {
            tile::<ROWS, WIDE>(of, done);
            done += WIDE * COLUMNS;
        }
        while done < of.columns {
            tile::<ROWS, 1>(of, done);
            done += COLUMNS;
        }
    }
}

/// One tile, of `WIDE` vectors of bf16 from `column` on.
///
/// # Safety
///
/// As for [`strip`]; there are as many columns.
#[inline(always)]
unsafe fn tile<const ROWS: usize, const WIDE: usize>(of: &Stream<bf16>, column: usize) {
    let rhs = of.rhs.wrapping_add(column);
    let out = of.out.wrapping_add(column);
    let mut sums = [[[Pairs::zero(); 2]; WIDE]; ROWS];
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if of.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.as_flattened_mut().iter_mut().enumerate() {
                    *sum = Pairs::load(out.add(i * of.out_row + v * Pairs::LANES));
                }
            }
        }
        // No closure: it would be compiled without the vector instructions.
        for pair in 0..of.depth.div_ceil(2) {
            let lhs = of.lhs.add(pair * of.rows);
            let first = rhs.add(2 * pair * of.rhs_step);
            let second = first.wrapping_add(of.rhs_step);
            if of.ahead > 0 {
                let next = of.ahead * of.rhs_step;
                for at in (0..WIDE * COLUMNS).step_by(LINE / size_of::<bf16>()) {
                    Pairs::prefetch(first.wrapping_add(next + at).cast());
                    Pairs::prefetch(second.wrapping_add(next + at).cast());
                }
            }
            let whole = 2 * pair + 1 < of.depth;
            let mut right = [[Pairs::zero(); 2]; WIDE];
            for (v, y) in right.iter_mut().enumerate() {
                let second = if whole { Some(second.add(v * COLUMNS)) } else { None };
                *y = Pairs::interleaved(first.add(v * COLUMNS), second);
            }
            for (i, row) in sums.iter_mut().enumerate() {
                let x = Pairs::splat(lhs.add(i).read());
                let row = row.as_flattened_mut();
                for (sum, y) in row.iter_mut().zip(right.as_flattened()) {
                    *sum = sum.plus_product(x, *y);
                }
            }
        }
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.as_flattened().iter().enumerate() {
                sum.store(out.add(i * of.out_row + v * Pairs::LANES));
            }
        }
    }
}

/// The kernels of 1, 2, … rows. The sums, the pairs of rhs and one of lhs take the 32 registers.
pub(super) static STREAMS: Streams<bf16> = Streams {
    strips: &[
        strip::<1, 4>,
        strip::<2, 4>,
        strip::<3, 2>,
        strip::<4, 2>,
        strip::<5, 2>,
        strip::<6, 1>,
        strip::<7, 1>,
        strip::<8, 1>,
    ],
};
