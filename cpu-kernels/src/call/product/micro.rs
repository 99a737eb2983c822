//! The microkernel: a tile of out stays in registers while the sum over a block of k accumulates
//! in it.
//!
//! A tile has some rows and two vectors of columns. Each step of k loads two vectors of rhs. For
//! each row it broadcasts one number of lhs to a vector and adds the products to the row's two
//! sums. The number of rows is chosen so that nearly all registers hold sums: 14 rows with
//! AVX-512, whose 32 registers are 28 sums, two vectors of rhs and one of lhs; 6 rows with AVX2,
//! which has 16 registers. That is more independent sums than the pipeline stages of the
//! arithmetic units need, and few enough loads that the units never wait for them.
//!
//! The microkernel is written once, over a [`Vector`], and compiled for each number of rows,
//! since the rest at the lower edge is often half of a tile.

use super::LARGEST;
use super::epilogue::{Epilogue, Rounded};
use super::gather;
use super::lanes::{LINE, LINES, dots};
use super::pack::fetch;
use super::strip::{Ahead, Gather, Kernels, Strip};
#[cfg(target_arch = "x86_64")]
use super::vector::Pairs;
use super::vector::{Plain, Vector};
use crate::call::element::Number;
use crate::simd::Simd;
use wengert_core::half::bf16;

/// Fewest steps of k for which it pays to prefetch the next tile of out during the current one.
const LONG: usize = 64;
/// Most sums of a tile whose steps are short: two of them make a turn of the loop.
const SHORT: usize = 12;

/// The whole panels of a strip.
///
/// # Safety
///
/// As for [`Kernels::strip`], for `ROWS` rows, or for [`Kernels::packing`].
#[inline(always)]
unsafe fn strip<V: Vector, const ROWS: usize, const LIES: bool, const PACKS: bool>(
    strip: &Strip<V::Number>,
) {
    let wide = 2 * V::LANES;
    let (mut rhs, mut out, mut left, mut packed) =
        (strip.rhs, strip.out, strip.columns, strip.packed);
    let mut epilogue = strip.epilogue;
    // SAFETY: whole panels have out's columns.
    unsafe {
        while left >= wide {
            if strip.depth >= LONG {
                let next = out.wrapping_add(wide).cast_const();
                let Rounded { at: rounded, row: rounded_row } = epilogue.rounded;
                for i in 0..ROWS {
                    if V::PAIRED && epilogue.rounded.is_some() {
                        V::prefetch(rounded.wrapping_add(i * rounded_row + wide).cast());
                    }
                    if !(V::PAIRED && epilogue.rounded.is_some()) || strip.add {
                        V::prefetch(next.wrapping_add(i * strip.out_row));
                        V::prefetch(next.wrapping_add(i * strip.out_row + wide - 1));
                    }
                }
                if !epilogue.residual.is_null() {
                    for i in 0..ROWS {
                        V::prefetch(epilogue.residual.wrapping_add(i * strip.out_row));
                        V::prefetch(epilogue.residual.wrapping_add(i * strip.out_row + wide - 1));
                    }
                }
            }
            tile::<V, ROWS, 2, LIES, PACKS>(
                strip,
                rhs,
                packed,
                out,
                strip.out_row,
                epilogue,
                nothing,
            );
            epilogue = epilogue.from([0, wide], 0);
            packed = packed.wrapping_add(strip.depth * wide);
            rhs = if LIES { rhs.cast::<V::Unit>().add(wide).cast() } else { rhs.add(strip.panel) };
            out = out.add(wide);
            left -= wide;
        }
    }
}

/// The columns after the whole panels of a strip.
///
/// # Safety
///
/// As for [`Kernels::strip`], for `ROWS` rows; the strip has fewer columns than a panel.
#[inline(always)]
unsafe fn edge<V: Vector, const ROWS: usize>(strip: &Strip<V::Number>) {
    let wide = 2 * V::LANES;
    let Strip { rhs, out, columns, epilogue, .. } = *strip;
    let mut buffer = [[V::zero(); 2]; ROWS];
    let sums = buffer.as_mut_ptr().cast::<V::Number>();
    // SAFETY: the panel is computed in a buffer of a tile's size, and only out's columns are
    // copied between the two.
    unsafe {
        if strip.add {
            for i in 0..ROWS {
                (0..columns).for_each(|j| {
                    sums.add(i * wide + j).write(out.add(i * strip.out_row + j).read())
                });
            }
        }
        let none = Epilogue::NONE;
        if columns > V::LANES {
            tile::<V, ROWS, 2, false, false>(strip, rhs, strip.packed, sums, wide, none, nothing);
        } else {
            tile::<V, ROWS, 1, false, false>(strip, rhs, strip.packed, sums, wide, none, nothing);
        }
        for i in 0..ROWS {
            for j in 0..columns {
                let mut sum = sums.add(i * wide + j).read();
                if !epilogue.bias.is_null() {
                    sum = sum.add(epilogue.bias.add(j).read());
                }
                if !epilogue.residual.is_null() {
                    sum = sum.add(epilogue.residual.add(i * strip.out_row + j).read());
                }
                if V::PAIRED && epilogue.rounded.is_some() {
                    sums.add(i * wide + j).write(sum);
                } else {
                    out.add(i * strip.out_row + j).write(sum);
                }
            }
            if V::PAIRED && epilogue.rounded.is_some() {
                let mut rounded = [bf16::ZERO; LARGEST[1]];
                let row = sums.add(i * wide);
                V::store_rounded([V::load(row), V::load(row.add(V::LANES))], rounded.as_mut_ptr());
                let to = epilogue.rounded.at.add(i * epilogue.rounded.row);
                rounded.as_ptr().copy_to_nonoverlapping(to, columns);
            }
        }
    }
}

/// Beside the steps of most tiles.
fn nothing() {}

/// # Safety
///
/// As for [`Kernels::fetching`], for `ROWS` rows.
#[inline(always)]
unsafe fn fetching<V: Vector, const ROWS: usize>(strip: &Strip<V::Number>, ahead: &Ahead) {
    let (mut at, mut begin, mut left) = (ahead.at, ahead.at, ahead.side);
    let besides = || {
        fetch(at);
        at = at.wrapping_add(ahead.across);
        left -= 1;
        if left == 0 {
            begin = begin.wrapping_add(ahead.along);
            (at, left) = (begin, ahead.side);
        }
    };
    // SAFETY: the caller's promise is the same.
    unsafe {
        let (rhs, out) = (strip.rhs, strip.out);
        tile::<V, ROWS, 2, false, false>(
            strip,
            rhs,
            strip.packed,
            out,
            strip.out_row,
            strip.epilogue,
            besides,
        )
    }
}

/// One tile, of `WIDE` vectors in a row. If rhs is unpacked (`LIES`), it prefetches the next
/// panel, which lies beside the current one. With `PACKS` it stores the loaded vectors of rhs to
/// `packed`. It calls `besides` at each step.
///
/// # Safety
///
/// As for [`Kernels::strip`], with a panel of rhs and rows of out of `WIDE` vectors.
#[inline(always)]
unsafe fn tile<
    V: Vector,
    const ROWS: usize,
    const WIDE: usize,
    const LIES: bool,
    const PACKS: bool,
>(
    strip: &Strip<V::Number>,
    mut rhs: *const V::Number,
    mut packed: *mut V::Number,
    out: *mut V::Number,
    out_row: usize,
    epilogue: Epilogue<V::Number>,
    mut besides: impl FnMut(),
) {
    let mut sums = [[V::zero(); WIDE]; ROWS];
    let mut lhs = strip.lhs;
    // SAFETY: the caller guarantees the memory read and written.
    unsafe {
        if strip.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(out.add(i * out_row + v * V::LANES));
                }
            }
        }
        macro_rules! step {
            () => {
                let mut right = [V::zero(); WIDE];
                if LIES {
                    let (at, row) = (rhs.cast::<V::Unit>(), strip.rhs_step);
                    for (v, (y, numbers)) in right.iter_mut().zip(V::unpacked(at, row)).enumerate()
                    {
                        *y = numbers;
                        if PACKS {
                            y.store(packed.add(v * V::LANES));
                        }
                        // The next panel: both vectors of a row, or both rows of pairs.
                        let next = at.wrapping_add(WIDE * V::LANES);
                        fetch(next.wrapping_add(v * if V::PAIRED { row } else { V::LANES }));
                    }
                } else {
                    for (v, y) in right.iter_mut().enumerate() {
                        *y = V::load(rhs.add(v * V::LANES));
                    }
                }
                besides();
                packed = packed.wrapping_add(WIDE * V::LANES);
                for (i, row) in sums.iter_mut().enumerate() {
                    let x = V::splat(lhs.add(i).read());
                    for (sum, y) in row.iter_mut().zip(right) {
                        *sum = sum.plus_product(x, y);
                    }
                }
                lhs = lhs.wrapping_add(strip.lhs_step);
                rhs = if LIES {
                    let rows = if V::PAIRED { 2 } else { 1 };
                    rhs.cast::<V::Unit>().wrapping_add(rows * strip.rhs_step).cast()
                } else {
                    rhs.wrapping_add(strip.rhs_step)
                };
            };
        }
        // Two short steps make a turn. With one, the speed depends on the address of the code: a
        // loop that began within a line of the instruction cache lost 5 % on Zen 3.
        let turns = if ROWS * WIDE <= SHORT { strip.depth / 2 } else { 0 };
        for _ in 0..turns {
            step!();
            step!();
        }
        for _ in 2 * turns..strip.depth {
            step!();
        }
        if !epilogue.bias.is_null() {
            for v in 0..WIDE {
                let bias = V::load(epilogue.bias.add(v * V::LANES));
                sums.iter_mut().for_each(|row| row[v] = row[v].plus(bias));
            }
        }
        if !epilogue.residual.is_null() {
            for (i, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = sum.plus(V::load(epilogue.residual.add(i * out_row + v * V::LANES)));
                }
            }
        }
        if V::PAIRED && WIDE == 2 && epilogue.rounded.is_some() {
            for (i, row) in sums.iter().enumerate() {
                let to = epilogue.rounded.at.add(i * epilogue.rounded.row);
                V::store_rounded([row[0], row[WIDE - 1]], to);
            }
            return;
        }
        // Borrowed: an array that a loop consumes is first copied through memory.
        for (i, row) in sums.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                sum.store(out.add(i * out_row + v * V::LANES));
            }
        }
    }
}

/// The kernels for one set of vector instructions.
macro_rules! level {
    ($level:ident $(($features:literal))?: $(
        $name:ident = $vector:ty, $t:ident, $runs:literal, [$($rows:literal)*];
    )*) => {
        mod $level {
            use super::*;
            #[cfg(target_arch = "x86_64")]
            #[allow(unused_imports, reason = "the portable kernels need none")]
            use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

            /// # Safety
            ///
            /// As for [`Kernels::strip`], for `ROWS` rows.
            $(#[target_feature(enable = $features)])?
            unsafe fn strip<V: Vector, const ROWS: usize, const LIES: bool, const PACKS: bool>(
                strip: &Strip<V::Number>,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::strip::<V, ROWS, LIES, PACKS>(strip) }
            }

            /// # Safety
            ///
            /// As for [`super::edge`].
            $(#[target_feature(enable = $features)])?
            unsafe fn edge<V: Vector, const ROWS: usize>(strip: &Strip<V::Number>) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::edge::<V, ROWS>(strip) }
            }

            /// # Safety
            ///
            /// As for [`Kernels::fetching`], for `ROWS` rows.
            $(#[target_feature(enable = $features)])?
            unsafe fn fetching<V: Vector, const ROWS: usize>(
                strip: &Strip<V::Number>,
                ahead: &Ahead,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::fetching::<V, ROWS>(strip, ahead) }
            }

            /// # Safety
            ///
            /// As for [`Kernels::gathering`], for `ROWS` rows.
            $(#[target_feature(enable = $features)])?
            unsafe fn gathering<V: Vector, const ROWS: usize>(
                strip: &Strip<V::Number>,
                gather: &Gather<'_>,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { gather::strip::<V, ROWS>(strip, gather) }
            }

            /// # Safety
            ///
            /// As for [`dots`]; and the machine has the vector instructions.
            $(#[target_feature(enable = $features)])?
            unsafe fn sums<V: Vector, const VECTORS: usize, const RUNS: usize>(
                operands: [*const V::Number; 2],
                distance: usize,
                count: usize,
                out: *mut V::Number,
                out_distance: usize,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { dots::<V, VECTORS, RUNS>(operands, distance, count, out, out_distance) }
            }

            $(pub(super) static $name: Kernels<$t> = Kernels {
                columns: 2 * <$vector>::LANES,
                strips: &[$(strip::<$vector, $rows, false, false>),*],
                lying: &[$(strip::<$vector, $rows, true, false>),*],
                packing: &[$(strip::<$vector, $rows, true, true>),*],
                edges: &[$(edge::<$vector, $rows>),*],
                fetching: &[$(fetching::<$vector, $rows>),*],
                gathering: &[$(gathering::<$vector, $rows>),*],
                dot: sums::<$vector, { LINES * LINE / size_of::<$vector>() }, 1>,
                dots: ($runs, sums::<$vector, { LINES * LINE / size_of::<$vector>() }, $runs>),
            };)*
        }
    };
}
level!(portable:
    F32 = Plain<f32>, f32, 1, [1 2 3 4];
    F64 = Plain<f64>, f64, 1, [1 2 3 4];
);
#[cfg(target_arch = "x86_64")]
level!(avx2 ("avx2,fma,f16c"):
    F32 = __m256, f32, 1, [1 2 3 4 5 6];
    F64 = __m256d, f64, 1, [1 2 3 4 5 6];
);
#[cfg(target_arch = "x86_64")]
level!(avx512 ("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"):
    F32 = __m512, f32, 4, [1 2 3 4 5 6 7 8 9 10 11 12 13 14];
    F64 = __m512d, f64, 4, [1 2 3 4 5 6 7 8 9 10 11 12 13 14];
);

#[cfg(target_arch = "x86_64")]
level!(avx512bf16 ("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"):
    BF16 = Pairs, f32, 4, [1 2 3 4 5 6 7 8 9 10 11 12 13 14];
);

/// The kernels of products of [`Pairs`], if the set of vector instructions has them.
pub(in crate::call) fn kernels_of_pairs(simd: Simd) -> Option<&'static Kernels<f32>> {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512Bf16 => Some(&avx512bf16::BF16),
        _ => None,
    }
}

lookup!(f32_kernels: Kernels<f32>, F32);
lookup!(f64_kernels: Kernels<f64>, F64);
