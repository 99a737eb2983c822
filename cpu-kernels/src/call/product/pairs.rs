//! Pairs of neighbouring terms: the packing of bf16 where a machine multiplies two at once, and
//! the order of sums that this implies on every machine.
//!
//! The instruction adds the product of the second numbers of two pairs, then that of the first.
//! Every sum of products of bf16 uses this order; a machine without the instruction takes the
//! numbers in that order one by one. A term without a partner is padded: with −0 in lhs and +0 in
//! rhs. Their product is −0, which changes no sum.

use super::pack::{Lines, SIDE, contiguous};
use crate::call::panel::View;
use crate::simd::{Simd, multiversioned};
use std::ptr::swap;

/// The padding of a term of lhs without a partner.
pub(in crate::call) const BESIDE_LHS: u16 = 0x8000;
/// The padding of a term of rhs without a partner.
pub(in crate::call) const BESIDE_RHS: u16 = 0;

/// `to[p·step + l]` = the elements 2·p and 2·p + 1 of line l, the first in the lower half, for l
/// in `0..width`; the last term of an odd `depth` is paired with `beside`.
///
/// # Safety
///
/// The elements are valid to read. `to` is valid to write `depth / 2`, rounded up, times `step`
/// numbers and [`SLACK`](super::SLACK) more, which overlap none that are read. The step is not
/// below the width. The machine has the vector instructions.
pub(in crate::call) unsafe fn pack(
    simd: Simd,
    source: Lines<u16>,
    [width, depth]: [usize; 2],
    to: *mut u32,
    step: usize,
    beside: u16,
) {
    let whole = depth / 2;
    // SAFETY: the indices are below the extents.
    unsafe {
        let done = if source.across == 1 {
            beside_each_other(simd, source, [width, whole], to, step);
            whole
        } else if source.along == 1 {
            // The two elements of a pair are adjacent, so they are copied as one number.
            let across = source.across * size_of::<u16>();
            contiguous(simd, source.at.cast(), across, [width, whole], to.cast(), step);
            whole
        } else {
            0
        };
        let element = |line: usize, k: usize| match k {
            _ if k < depth => source.at.add(line * source.across + k * source.along).read(),
            _ => beside,
        };
        for pair in done..depth.div_ceil(2) {
            for line in 0..width {
                let both = pair_of(element(line, 2 * pair), element(line, 2 * pair + 1));
                to.add(pair * step + line).write(both);
            }
        }
    }
}

/// Two terms in the bits of a number.
#[inline(always)]
pub(super) fn pair_of(first: u16, second: u16) -> u32 {
    first as u32 | (second as u32) << 16
}

multiversioned! {
    /// Packs lines that lie side by side, for a number of whole pairs.
    ///
    /// # Safety
    ///
    /// As for [`pack`].
    unsafe fn beside_each_other = interleaved(
        source: Lines<u16>,
        size: [usize; 2],
        to: *mut u32,
        step: usize
    );
}

/// The body of [`beside_each_other`].
///
/// # Safety
///
/// As for [`beside_each_other`].
#[inline(always)]
unsafe fn interleaved(source: Lines<u16>, [width, pairs]: [usize; 2], to: *mut u32, step: usize) {
    macro_rules! by_width {
        ($($w:literal in $run:literal)*) => {
            match width {
                // SAFETY: the caller's promise is the same.
                $($w => unsafe { steps::<$w, $run>(source, pairs, to, step) },)*
                // SAFETY: the caller's promise is the same.
                _ => unsafe { each(source, [width, pairs], to, step) },
            }
        };
    }
    // Panels of rhs, and strips of lhs.
    by_width!(
        32 in 16 16 in 16 14 in 8 13 in 8 12 in 8 11 in 8 10 in 8 9 in 8 8 in 8 7 in 7 6 in 6
        5 in 5 4 in 4 3 in 3 2 in 2 1 in 1
    );
}

/// Packs pairs with a fixed width, in runs of vectors. The last run overlaps the one before it.
///
/// # Safety
///
/// As for [`beside_each_other`], for `W` lines.
#[inline(always)]
unsafe fn steps<const W: usize, const RUN: usize>(
    source: Lines<u16>,
    pairs: usize,
    to: *mut u32,
    step: usize,
) {
    for pair in 0..pairs {
        for line in (0..W).step_by(RUN) {
            let line = line.min(W - RUN);
            // SAFETY: the steps exist.
            unsafe {
                let from = source.at.add(2 * pair * source.along + line);
                let first = from.cast::<[u16; RUN]>().read_unaligned();
                let second = from.add(source.along).cast::<[u16; RUN]>().read_unaligned();
                let mut both = [0; RUN];
                for l in 0..RUN {
                    both[l] = pair_of(first[l], second[l]);
                }
                to.add(pair * step + line).cast::<[u32; RUN]>().write_unaligned(both);
            }
        }
    }
}

/// Packs pairs with any width.
///
/// # Safety
///
/// As for [`beside_each_other`].
#[inline(always)]
unsafe fn each(source: Lines<u16>, [width, pairs]: [usize; 2], to: *mut u32, step: usize) {
    for pair in 0..pairs {
        for line in 0..width {
            // SAFETY: the steps exist.
            unsafe {
                let from = source.at.add(2 * pair * source.along + line);
                let both = pair_of(from.read(), from.add(source.along).read());
                to.add(pair * step + line).write(both);
            }
        }
    }
}

multiversioned! {
    /// Widens panels of pairs: the step 2·p is the second term of the pairs of step p, and the
    /// step 2·p + 1 the first. If `depth` is odd, the last step is a first term.
    ///
    /// # Safety
    ///
    /// The panel has `depth / 2`, rounded up, steps of `wide` pairs of bf16, a multiple of
    /// [`SIDE`]; `to` is valid to write `depth` steps of as many numbers, which do not overlap
    /// them. The machine has the vector instructions.
    unsafe fn widen = widened(panel: *const u32, depth: usize, wide: usize, to: *mut f32);
}

/// The body of [`widen`].
///
/// # Safety
///
/// As for [`widen`].
#[inline(always)]
unsafe fn widened(panel: *const u32, depth: usize, wide: usize, to: *mut f32) {
    for pair in 0..depth.div_ceil(2) {
        let alone = 2 * pair + 1 == depth;
        for column in (0..wide).step_by(SIDE) {
            // Arrays, because the compiler cannot know that the pointers do not overlap; and no
            // closure, which would be compiled without the vector instructions.
            let (mut first, mut second) = ([0.0; SIDE], [0.0; SIDE]);
            // SAFETY: the steps exist.
            unsafe {
                let both = panel.add(pair * wide + column).cast::<[u32; SIDE]>().read_unaligned();
                for lane in 0..SIDE {
                    first[lane] = f32::from_bits(both[lane] << 16);
                    second[lane] = f32::from_bits(both[lane] & 0xffff_0000);
                }
                let to = to.add(2 * pair * wide + column);
                if alone {
                    to.cast::<[f32; SIDE]>().write_unaligned(first);
                } else {
                    to.cast::<[f32; SIDE]>().write_unaligned(second);
                    to.add(wide).cast::<[f32; SIDE]>().write_unaligned(first);
                }
            }
        }
    }
}

/// Exchanges the two terms of each pair: neighbouring columns of a dense matrix, whatever its
/// order in memory.
///
/// # Safety
///
/// The matrix is dense, by rows (`column` is 1) or by columns (`row` is 1). Its elements are
/// valid to read and to write, and no other code uses them.
pub(super) unsafe fn exchange<T>(matrix: View<T>, [rows, columns]: [usize; 2]) {
    let at = matrix.at.cast_mut();
    // SAFETY: the indices are below the extents.
    unsafe {
        if matrix.column == 1 {
            for i in 0..rows {
                let row = std::slice::from_raw_parts_mut(at.add(i * matrix.row), columns);
                row.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
            }
        } else {
            for pair in 0..columns / 2 {
                let [first, second] = [0, 1].map(|c| at.add((2 * pair + c) * matrix.column));
                (0..rows).for_each(|i| swap(first.add(i), second.add(i)));
            }
        }
    }
}
