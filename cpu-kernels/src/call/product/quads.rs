//! Tiles of at most four columns with an implicit left operand: the last columns of a
//! [gathering](super::gather) product.
//!
//! Such a tile would fill a quarter of each vector, at the price of a whole one. Here a vector has
//! four columns of each of four rows, a *quad* for each row. Four terms of four rows are loaded at
//! once. For each term, its number of each row is spread over the row's quad and multiplied with
//! the quad of the term's row of rhs. Every element is still one chain over the terms.

use super::strip::{Gather, Strip};
use super::vector::Vector;

/// Terms that are loaded at a time, and columns of a tile: the lanes of a quad.
const LANES: usize = 4;
/// Most vectors of sums.
const VECTORS: usize = 4;

/// One tile of `columns` columns.
///
/// # Safety
///
/// As for [`gather::strip`](super::gather::strip), with rows of so many columns of rhs and out.
/// Neighbouring terms of a run are adjacent in lhs and in order.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, const ROWS: usize>(
    strip: &Strip<V::Number>,
    gather: &Gather<'_>,
    mut rhs: *const V::Number,
    out: *mut V::Number,
    columns: usize,
) {
    const { assert!(ROWS <= VECTORS * LANES, "a strip has a quad for each row") };
    let count = const { ROWS.div_ceil(LANES) };
    // The last row takes the place of rows that the last vector lacks: their sums are its own.
    let row = |vector: usize, quad: usize| (vector * LANES + quad).min(ROWS - 1);
    let rows: [[*const V::Number; LANES]; VECTORS] = std::array::from_fn(|v| {
        std::array::from_fn(|q| strip.lhs.wrapping_add(gather.rows[row(v, q)]))
    });
    let outs: [[*mut V::Number; LANES]; VECTORS] = std::array::from_fn(|v| {
        std::array::from_fn(|q| out.wrapping_add(row(v, q) * strip.out_row))
    });
    let mut sums = [V::zero(); VECTORS];
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if strip.add {
            for (sum, outs) in sums.iter_mut().zip(outs).take(count) {
                *sum = V::load_quads(outs.map(|at| at.cast_const()), columns);
            }
        }
        macro_rules! term {
            ($lane:literal, $left:expr) => {
                let right = V::repeat_quad(rhs, columns);
                for (sum, x) in sums.iter_mut().zip($left).take(count) {
                    *sum = sum.plus_product(x.spread::<$lane>(), right);
                }
                rhs = rhs.wrapping_add(strip.rhs_step);
            };
        }
        for run in gather.runs {
            let mut left = [V::zero(); VECTORS];
            for at in (0..gather.length / LANES * LANES).step_by(LANES) {
                for (left, rows) in left.iter_mut().zip(rows).take(count) {
                    *left = V::load_quads(rows.map(|row| row.wrapping_add(run + at)), LANES);
                }
                term!(0, left);
                term!(1, left);
                term!(2, left);
                term!(3, left);
            }
            let rest = gather.length % LANES;
            if rest > 0 {
                let at = run + gather.length - rest;
                for (left, rows) in left.iter_mut().zip(rows).take(count) {
                    *left = V::load_quads(rows.map(|row| row.wrapping_add(at)), rest);
                }
                term!(0, left);
                if rest > 1 {
                    term!(1, left);
                }
                if rest > 2 {
                    term!(2, left);
                }
            }
        }
        for (sum, outs) in sums.into_iter().zip(outs).take(count) {
            sum.store_quads(outs, columns);
        }
    }
}
