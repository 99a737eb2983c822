//! Dot products of contiguous runs: a matrix with contiguous rows times a column.
//!
//! A single chain of additions per element would be latency-bound: neighbouring elements are not
//! contiguous, so they cannot share a vector. So these sums have an order of their own. There are
//! four lines of lanes, each as large as a cache line, with `L` lanes per line. Lane `l` of line
//! `a` adds up the terms at `a·L + l` after each multiple of `4·L`. Then the second half of all
//! lanes is added to the first, until one lane is left. The order is the same for every vector
//! width.

use super::strip::Kernels;
use super::vector::Vector;
use crate::call::element::{Element, Number};
use crate::call::panel::{View, widen};
use crate::call::{array, take};
use crate::simd::Simd;

/// Lines of sums.
pub(super) const LINES: usize = 4;
/// Bytes of a line of lanes.
pub(super) const LINE: usize = 64;
/// Most runs that are multiplied with the vector at the same time.
pub(super) const SIDE_BY_SIDE: usize = 4;
/// Most lanes of a vector.
const MOST: usize = 16;

/// `out[c·out_distance] = Σₖ x[k] · y[c·distance + k]` for k in `0..count` and c in `0..RUNS`.
/// `VECTORS` is the number of vectors in all lines.
///
/// # Safety
///
/// x and the runs of y have `count` numbers. out has the elements that are written, and no other
/// code uses them.
#[inline(always)]
pub(super) unsafe fn dots<V: Vector, const VECTORS: usize, const RUNS: usize>(
    [x, y]: [*const V::Number; 2],
    distance: usize,
    count: usize,
    out: *mut V::Number,
    out_distance: usize,
) {
    let turn = VECTORS * V::LANES;
    let mut sums = [[V::zero(); VECTORS]; RUNS];
    // SAFETY: vector v of a turn ends within it. The remaining numbers are copied to buffers of a
    // turn, padded with zeros.
    unsafe {
        let whole = count / turn * turn;
        let mut k = 0;
        while k < whole {
            for v in 0..VECTORS {
                let at = k + v * V::LANES;
                let x = V::load(x.add(at));
                for (c, sums) in sums.iter_mut().enumerate() {
                    // Prefetches the next runs, which are too far apart for the hardware
                    // prefetcher.
                    V::prefetch(y.wrapping_add((c + RUNS) * distance + at));
                    sums[v] = sums[v].plus_product(x, V::load(y.add(c * distance + at)));
                }
            }
            k += turn;
        }
        if k < count {
            let mut left = [V::zero(); VECTORS];
            x.add(k).copy_to_nonoverlapping(left.as_mut_ptr().cast(), count - k);
            for (c, sums) in sums.iter_mut().enumerate() {
                let mut right = [V::zero(); VECTORS];
                y.add(c * distance + k)
                    .copy_to_nonoverlapping(right.as_mut_ptr().cast(), count - k);
                for v in 0..VECTORS {
                    sums[v] = sums[v].plus_product(left[v], right[v]);
                }
            }
        }
        for (c, sums) in sums.iter_mut().enumerate() {
            let mut width = VECTORS / 2;
            while width > 0 {
                for v in 0..width {
                    sums[v] = sums[v].plus(sums[v + width]);
                }
                width /= 2;
            }
            let mut lanes = [V::Number::ZERO; MOST];
            sums[0].store(lanes.as_mut_ptr());
            halve::<V, 8>(&mut lanes);
            halve::<V, 4>(&mut lanes);
            halve::<V, 2>(&mut lanes);
            halve::<V, 1>(&mut lanes);
            out.add(c * out_distance).write(lanes[0]);
        }
    }
}

/// Adds the second of two halves to the first, if a vector has that many lanes.
#[inline(always)]
fn halve<V: Vector, const HALF: usize>(lanes: &mut [V::Number; MOST]) {
    if HALF < V::LANES {
        for l in 0..HALF {
            lanes[l] = lanes[l].add(lanes[l + HALF]);
        }
    }
}

/// Bytes of scratch memory that [`products`] takes.
pub(super) fn scratch(size: usize, k: usize, half: bool) -> usize {
    let rows = if half { array(&[SIDE_BY_SIDE, k, size]) } else { 0 };
    array(&[k, size]).saturating_add(rows)
}

/// `out[j·distance] = Σₖ vector[k] · matrix[j, k]`, for a matrix with contiguous rows.
///
/// # Safety
///
/// The vector (a row) has `k` elements and the matrix those of `[count, k]`. out has the elements
/// that are written, and no other code uses them. The machine has the vector instructions of the
/// kernels.
#[allow(clippy::too_many_arguments, reason = "a product and what it needs")]
pub(super) unsafe fn products<T: Element>(
    simd: Simd,
    kernels: &Kernels<T::Wide>,
    mut free: &mut [u8],
    [count, k]: [usize; 2],
    vector: View<T>,
    matrix: View<T>,
    out: *mut T::Wide,
    distance: usize,
) {
    // SAFETY: the copies of the vector, and of rows of the matrix (runs of k elements), have k
    // numbers each.
    unsafe {
        let copy = take::<T::Wide>(&mut free, k).as_mut_ptr();
        let vector = match () {
            () if !T::HALF && vector.column == 1 => vector.at.cast::<T::Wide>(),
            () if vector.column == 1 => {
                widen(simd, vector.at, copy, k);
                copy
            }
            () => {
                (0..k).for_each(|k| copy.add(k).write(vector.get(0, k).wide()));
                copy
            }
        };
        let rows =
            take::<T::Wide>(&mut free, if T::HALF { SIDE_BY_SIDE * k } else { 0 }).as_mut_ptr();
        let mut j = 0;
        while j < count {
            let (runs, dots) =
                if count - j >= kernels.dots.0 { kernels.dots } else { (1, kernels.dot) };
            let (matrix, row) = if T::HALF {
                (0..runs).for_each(|c| widen(simd, matrix.element(j + c, 0), rows.add(c * k), k));
                (rows.cast_const(), k)
            } else {
                (matrix.element(j, 0).cast(), matrix.row)
            };
            dots([vector, matrix], row, k, out.add(j * distance), distance);
            j += runs;
        }
    }
}
