//! Products with an implicit left operand, such as the patches of a convolution. The address of
//! an element is the sum of a row offset and a step offset. The operand is not packed.
//!
//! Packing the patches copies every element of the source once for each tap of the filter. For a
//! filter of few channels that costs as much as the multiplications.

use super::strip::{Gather, Strip};
use super::vector::Vector;

/// # Safety
///
/// As for [`Kernels::gathering`](super::strip::Kernels::gathering), for `ROWS` rows.
#[inline(always)]
pub(super) unsafe fn strip<V: Vector, const ROWS: usize>(
    strip: &Strip<V::Number>,
    gather: &Gather<'_>,
) {
    let wide = 2 * V::LANES;
    let (mut rhs, mut out, mut left) = (strip.rhs, strip.out, strip.columns);
    // SAFETY: the panels are within the columns; at most half a panel remains, since columns are
    // whole vectors.
    unsafe {
        while left >= wide {
            tile::<V, ROWS, 2>(strip, gather, rhs, out);
            rhs = rhs.add(strip.panel);
            out = out.add(wide);
            left -= wide;
        }
        if left > 0 {
            tile::<V, ROWS, 1>(strip, gather, rhs, out);
        }
    }
}

/// One tile, of `WIDE` vectors in a row.
///
/// # Safety
///
/// As for [`strip`], with a panel of rhs and rows of out of `WIDE` vectors.
#[inline(always)]
unsafe fn tile<V: Vector, const ROWS: usize, const WIDE: usize>(
    strip: &Strip<V::Number>,
    gather: &Gather<'_>,
    mut rhs: *const V::Number,
    out: *mut V::Number,
) {
    let rows: &[usize; ROWS] = gather.rows[..ROWS].try_into().expect("the slice has so many");
    let rows: [*const V::Number; ROWS] = std::array::from_fn(|i| strip.lhs.wrapping_add(rows[i]));
    let mut sums = [[V::zero(); WIDE]; ROWS];
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if strip.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(out.add(i * strip.out_row + v * V::LANES));
                }
            }
        }
        for run in gather.runs {
            let mut at = *run;
            for _ in 0..gather.length {
                let mut right = [V::zero(); WIDE];
                for (v, y) in right.iter_mut().enumerate() {
                    *y = V::load(rhs.add(v * V::LANES));
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let x = V::splat(rows[i].add(at).read());
                    for (sum, y) in row.iter_mut().zip(right) {
                        *sum = sum.plus_product(x, y);
                    }
                }
                at = at.wrapping_add(strip.lhs_step);
                rhs = rhs.wrapping_add(strip.rhs_step);
            }
        }
        // Borrowed: an array that a loop consumes is first copied through memory.
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                sum.store(out.add(i * strip.out_row + v * V::LANES));
            }
        }
    }
}
