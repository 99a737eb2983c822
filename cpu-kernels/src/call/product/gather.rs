//! Products with an implicit left operand, such as the patches of a convolution. The address of
//! an element is the sum of a row offset and a step offset. The operand is not packed.
//!
//! Packing the patches copies every element of the source once for each tap of the filter. For a
//! filter of few channels that costs as much as the multiplications.
//!
//! The steps are grouped in runs whose addresses are equidistant. A kernel of [pairs](super::pairs)
//! takes two neighbouring terms of a run at a time, and reads them as one number. They are
//! adjacent, at any address: a run of bf16 needs no copy and no alignment. The last term of an odd
//! run is multiplied alone. Kernels of numbers take the second term of each pair first if the run
//! is [exchanged](Gather::exchanged), so they add in the same order.

use super::pack::fetch;
use super::quads;
use super::strip::{Gather, Strip};
use super::vector::Vector;
use std::hint::black_box;

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
    // SAFETY: the tiles are within the columns.
    unsafe {
        while left > 0 {
            let columns = left.min(wide);
            if V::QUADS > 0 && columns <= 4 && strip.lhs_step == 1 && !gather.exchanged {
                quads::tile::<V, ROWS>(strip, gather, rhs, out, columns);
                return;
            }
            match (columns > V::LANES, columns.is_multiple_of(V::LANES)) {
                (true, true) => any_tile::<V, ROWS, 2, false>(strip, gather, rhs, out, columns),
                (true, false) => any_tile::<V, ROWS, 2, true>(strip, gather, rhs, out, columns),
                (false, true) => any_tile::<V, ROWS, 1, false>(strip, gather, rhs, out, columns),
                (false, false) => any_tile::<V, ROWS, 1, true>(strip, gather, rhs, out, columns),
            }
            rhs = rhs.wrapping_add(strip.panel);
            out = out.wrapping_add(wide);
            left -= columns;
        }
    }
}

/// [`tile`] in the order of the gather. Each order has a loop of its own: in a loop with both, the
/// compiler keeps sums in memory.
///
/// # Safety
///
/// As for [`tile`].
#[inline(always)]
unsafe fn any_tile<V: Vector, const ROWS: usize, const WIDE: usize, const PART: bool>(
    strip: &Strip<V::Number>,
    gather: &Gather<'_>,
    rhs: *const V::Number,
    out: *mut V::Number,
    columns: usize,
) {
    let may_exchange = !V::PAIRED && size_of::<V::Number>() == size_of::<f32>();
    // SAFETY: the caller's promise is the same.
    unsafe {
        if may_exchange && gather.exchanged {
            tile::<V, ROWS, WIDE, PART, true>(strip, gather, rhs, out, columns);
        } else {
            tile::<V, ROWS, WIDE, PART, false>(strip, gather, rhs, out, columns);
        }
    }
}

/// One tile, of `WIDE` vectors in a row. If it is a `PART`, the last vector has fewer columns than
/// lanes. `EXCHANGED` is that of the gather.
///
/// # Safety
///
/// As for [`strip`], with rows of so many columns of rhs and out.
#[inline(always)]
unsafe fn tile<
    V: Vector,
    const ROWS: usize,
    const WIDE: usize,
    const PART: bool,
    const EXCHANGED: bool,
>(
    strip: &Strip<V::Number>,
    gather: &Gather<'_>,
    mut rhs: *const V::Number,
    out: *mut V::Number,
    columns: usize,
) {
    let rows: &[usize; ROWS] = gather.rows[..ROWS].try_into().expect("the slice has so many");
    let lhs = strip.lhs.cast::<V::Unit>();
    let mut rows: [*const V::Unit; ROWS] = std::array::from_fn(|i| lhs.wrapping_add(rows[i]));
    if V::PAIRED {
        // Opaque, or each run of taps would begin with the addition of its offset to each row's.
        rows = black_box(rows);
    }
    let rows_of_pair = if V::PAIRED { 1 } else { 2 };
    let mut sums = [[V::zero(); WIDE]; ROWS];
    // Columns of the last vector.
    let last = columns - (WIDE - 1) * V::LANES;
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if strip.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    let at = out.add(i * strip.out_row + v * V::LANES);
                    *sum = match PART && v + 1 == WIDE {
                        true => V::load_first(at, last),
                        false => V::load(at),
                    };
                }
            }
        }
        macro_rules! step {
            ($broadcast:path, $at:expr, $rhs:expr) => {
                let (at, rhs) = ($at, $rhs);
                let mut right = [V::zero(); WIDE];
                for (v, y) in right.iter_mut().enumerate() {
                    let numbers = rhs.wrapping_add(v * V::LANES);
                    *y = match PART && v + 1 == WIDE {
                        true => V::load_first(numbers, last),
                        false => V::load(numbers),
                    };
                    fetch(numbers.wrapping_add(gather.ahead));
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let x = $broadcast(rows[i].wrapping_add(at));
                    for (sum, y) in row.iter_mut().zip(right) {
                        *sum = sum.plus_product(x, y);
                    }
                }
            };
        }
        for run in gather.runs {
            let mut at = *run;
            if V::PAIRED || EXCHANGED {
                for _ in 0..gather.length / 2 {
                    if EXCHANGED {
                        let second = at.wrapping_add(strip.lhs_step);
                        step!(V::broadcast, second, rhs.wrapping_add(strip.rhs_step));
                    }
                    step!(V::broadcast, at, rhs);
                    at = at.wrapping_add(2 * strip.lhs_step);
                    rhs = rhs.wrapping_add(rows_of_pair * strip.rhs_step);
                }
                if gather.length % 2 == 1 {
                    step!(V::broadcast_alone, at, rhs);
                    rhs = rhs.wrapping_add(strip.rhs_step);
                }
            } else {
                for _ in 0..gather.length {
                    step!(V::broadcast, at, rhs);
                    at = at.wrapping_add(strip.lhs_step);
                    rhs = rhs.wrapping_add(strip.rhs_step);
                }
            }
        }
        // Borrowed: an array that a loop consumes is first copied through memory.
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                let at = out.add(i * strip.out_row + v * V::LANES);
                if PART && v + 1 == WIDE {
                    sum.store_first(at, last);
                } else {
                    sum.store(at);
                }
            }
        }
    }
}
