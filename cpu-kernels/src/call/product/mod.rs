//! Matrix products: `out = lhs · rhs` or `out += lhs · rhs`, for the part of out that one thread
//! computes.
//!
//! # Bits
//!
//! Each element of out is one chain of fused multiply-adds over k, in order. The chain begins
//! with 0, or with the element of out, and every step rounds once. A partial sum may be stored to
//! out and continued later; the bits do not change. So the bits do not depend on the blocks of k,
//! the tile size, the thread, or the vector width. Every set of vector instructions has a fused
//! multiply-add; the portable kernels use Rust's `mul_add`.
//!
//! Nor do they depend on the number of rows: a row of logits has the same bits in the prompt as in
//! a step of decoding.
//!
//! There are two exceptions: a product with a column, if lhs is contiguous along k (see [`lanes`]),
//! and long sums of halves, which consist of several chains (see [`blocks`]). [`Order::of`]
//! decides this from the whole call, never from a part of it.
//!
//! # Blocks
//!
//! The design is that of Goto and van de Geijn (*Anatomy of High-Performance Matrix
//! Multiplication*, ACM TOMS 34, 2008) as in BLIS (Van Zee and van de Geijn, *BLIS: A Framework
//! for Rapidly Instantiating BLAS Functionality*, ACM TOMS 41, 2015): a product is fast if its
//! panels stay in L1 and L2. The [microkernel](micro) keeps a tile of out in registers while it
//! walks a block of k. It reads two packed panels sequentially, whatever the layout of the
//! operands.
//!
//! ```text
//! for each block of columns         (see [`largest_block`])
//!   for each block of k
//!     pack that part of rhs         (half of a second cache; or the first strip does)
//!     for each strip of rows        (those of a tile)
//!       pack that part of lhs       (half of a first cache)
//!       for each panel of rhs: the microkernel goes on with a tile of out
//!       behind the last block of k: the strip is finished
//! ```
//!
//! BLIS packs a block of lhs and keeps it in L2. Here the roles are exchanged: the block of rhs
//! stays in L2. Each strip of lhs is used for the whole block at once, so it is packed just
//! before its use and stays in L1. The panels of rhs stream past it from L2, at a fraction of
//! L2's bandwidth.
//!
//! Packing moves each element of a tile's operands once. Each element takes part in as many
//! multiplications as the tile has columns or rows; a hundred of them hide the packing. Some
//! sizes and layouts are not packed in advance:
//!
//! - [Few rows](few) do not hide the packing. rhs is read once, block by block.
//! - With a few strips of rows, a block of rhs is not packed either: each panel is prefetched
//!   while the previous one is used. It is packed if its rows are so far apart that the caches
//!   and the TLB do not hold it.
//! - For row-major rhs the first strip packs. It multiplies from the loaded rows and stores them
//!   into the panels, so the loads overlap with arithmetic. Rows of bf16 are interleaved on the
//!   way, in registers.
//! - With few columns, lhs is read in place as a [gathering](gather) product reads it, and so is
//!   rhs if its rows span little memory. The last columns, up to four, are [quads].
//!
//! While one block is multiplied, its tiles [prefetch] the source of the next block to
//! pack, whatever its layout.
//!
//! Other halves are widened on the way into a panel, some lines at a time. Integers need no fused
//! multiply-add; they are multiplied in plain loops.

pub(super) mod blocks;
pub(super) mod epilogue;
mod few;
mod gather;
mod lanes;
pub(super) mod micro;
pub(super) mod pack;
mod packing;
#[cfg(target_arch = "x86_64")]
mod paired_stream;
pub(super) mod pairs;
mod plain;
mod prefetch;
mod quads;
pub(super) mod stream;
pub(super) mod strip;
mod tiles;
pub(super) mod vector;

#[cfg(test)]
mod tests;

use super::element::{Element, Number};
use super::panel::View;
use super::{room, take};
use crate::simd::Simd;
use epilogue::Epilogue;
use pack::{Lines, SIDE, SLACK};
pub(super) use prefetch::Beside;
use std::ops::Range;
use strip::Kernels;
use wengert_core::call::Gemm;

/// Most rows for which rhs is read once, without packing it as a whole; see [`few`].
pub(super) const FEW: usize = 8;
/// Most elements that a block of rhs may span, and most strips that may use it, to be read
/// unpacked. L2 and the TLB hold this much, and a copy of it would not pay.
const NEAR: usize = 512 << 10;
const STRIPS: usize = 3;
/// Most rows, and columns of a panel, of any kernels.
const LARGEST: [usize; 2] = [14, 32];
/// Rows and columns of halves that are widened at a time, in multiples of a kernel's rows and
/// columns.
const WIDENED: [usize; 2] = [8, 4];

/// Most terms of a block of rhs of numbers of four bytes, and most numbers of it.
const TERMS: usize = 384;
const BLOCK: usize = TERMS * TERMS;
/// Most columns of a block of rhs.
const COLUMNS: usize = 512;
/// Most terms and columns of a block of rhs in a product of `k` terms, for numbers of so many bytes
/// or pairs of halves. The block stays in L2, and in L1 the terms of a strip of rows. A tile of out
/// is loaded and stored once for each block of k: with 384 terms instead of 256, a product of 384
/// terms takes a tenth less time (Emerald Rapids). Shorter sums have more columns, up to 512.
pub(super) fn largest_block(size: usize, pairs: bool, k: usize) -> [usize; 2] {
    match (pairs, size) {
        (true, _) => [512, COLUMNS],
        (false, 4) => {
            let terms = parts(k, TERMS, SIDE);
            [terms, (BLOCK / terms).min(COLUMNS) / 32 * 32]
        }
        (false, _) => [256, COLUMNS],
    }
}

/// The order in which a product adds up its terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// One chain over k.
    Chain,
    /// Chains over [blocks] of so many terms, added up; the operands are halves.
    Blocks(usize),
    /// In [`lanes`]; rhs is a column.
    Lanes,
}

/// Fewest terms of a sum that is computed in lanes.
const LANES_FROM: usize = 32;

impl Order {
    /// The order of a call.
    pub fn of(call: &Gemm) -> Self {
        match () {
            () if !call.operand.is_float() || call.k < LANES_FROM => Order::Chain,
            () if call.n == 1 && call.lhs.column == 1 => Order::Lanes,
            () if call.operand.is_half() && call.k > blocks::MOST => {
                Order::Blocks(blocks::terms(call.k))
            }
            () => Order::Chain,
        }
    }
}

/// A product, or a part of one.
pub(super) struct Product<'a, T: Element> {
    /// Rows of lhs and out, columns of rhs and out, and the length of the sums.
    pub size: [usize; 3],
    pub order: Order,
    pub lhs: View<T>,
    pub rhs: View<T>,
    pub out: *mut T::Wide,
    /// Distance between the rows of out.
    pub row: usize,
    /// Whether the sums continue from the elements of out; only for chains.
    pub add: bool,
    /// Applied to the sums while they are in registers, if the kernel does that; see
    /// [`Made::finished`].
    pub epilogue: Epilogue<T::Wide>,
    /// What is read when a part is complete; it is prefetched.
    pub beside: &'a [Beside],
    /// Whether out has room for one strip only, in which each part is done before the next one
    /// begins; see [`strip_rows`].
    pub one_strip: bool,
}

impl<'a, T: Element> Product<'a, T> {
    /// Chains without addends, in rows of out that are `row` numbers apart.
    pub fn chains(
        size: [usize; 3],
        [lhs, rhs]: [View<T>; 2],
        (out, row): (*mut T::Wide, usize),
        add: bool,
    ) -> Product<'a, T> {
        Product {
            size,
            order: Order::Chain,
            lhs,
            rhs,
            out,
            row,
            add,
            epilogue: Epilogue::NONE,
            beside: &[],
            one_strip: false,
        }
    }
}

/// The most rows of out that a product of `k` terms computes before it is done with them, if its
/// sums are complete after one block of k.
pub(super) fn strip_rows<T: Element>(simd: Simd, k: usize) -> Option<usize> {
    let (kernels, pairs) = match T::kernels_of_pairs(simd) {
        Some(kernels) => (kernels, true),
        None => (T::Wide::kernels(simd)?, false),
    };
    let [terms, _] = largest_block(size_of::<T::Wide>(), pairs, k);
    (1..=terms).contains(&k).then_some(kernels.rows().max(FEW))
}

/// A part of a product whose sums are final.
pub(super) struct Made {
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// Whether the product's epilogue has been applied to the sums.
    pub finished: bool,
}

/// Bytes of scratch memory for products of at most these extents.
pub(super) fn scratch(operand: wengert_core::DType, [m, n, k]: [usize; 3]) -> usize {
    if !operand.is_float() {
        return 0;
    }
    let half = operand.is_half();
    let size = if half { size_of::<f32>() } else { operand.size() };
    let [rows, columns] = LARGEST;
    // The terms and columns of a block, and its numbers, for any sum of at most k terms. Pairs take
    // half of the room; without them, blocks of halves may have more terms.
    let [terms, most, numbers] = match size {
        4 if !half => [TERMS, COLUMNS, BLOCK],
        _ => {
            let [terms, most] = largest_block(size, half, k);
            [terms, most, terms * most]
        }
    };
    let depth = k.min(terms);
    // All but a row of k are bounded by the block sizes.
    let panels = (n.max(m).min(most).next_multiple_of(columns) * depth).min(numbers);
    let widened = if half { widened_room(depth) } else { 0 };
    let chain = room((panels + SLACK) * size)
        + room((rows * depth + SLACK) * size)
        + room(widened * size)
        + room(few::room(k) * size)
        + room(blocks::room(operand, m, n, k) * size);
    chain.max(if n == 1 { lanes::scratch(size, k, half) } else { 0 })
}

/// Numbers that are widened at a time, at most, for blocks of `depth` steps.
fn widened_room(depth: usize) -> usize {
    let [rows, columns] = LARGEST;
    depth * (WIDENED[0] * rows).max(WIDENED[1] * columns)
}

/// Most rows that read a block of a row-major rhs unpacked, for kernels of `rows` rows. With a
/// single strip, no later strip would read the packed panels. Rows of halves are interleaved
/// whenever they are read unpacked, so several strips read packed pairs.
fn lying_block<T: Element>(depth: usize, row: usize, rows: usize) -> usize {
    if !T::HALF && depth.saturating_mul(row) <= NEAR { STRIPS * rows } else { rows }
}

/// Computes a product; calls `done` with each part of out whose sums are final.
///
/// # Safety
///
/// All elements of the three matrices are valid to read, and out's to write (they need not be
/// initialised if they are not added to). out overlaps neither operand, and no other code uses it
/// during the call. The machine has the vector instructions. The scratch memory is at least as
/// large as [`scratch`] returns.
pub(super) unsafe fn multiply<T: Element>(
    simd: Simd,
    mut free: &mut [u8],
    product: &Product<'_, T>,
    mut done: impl FnMut(Made),
) {
    let Product { size: [m, n, k], order, lhs, rhs, out, row, add, epilogue, beside, one_strip } =
        *product;
    if m == 0 || n == 0 {
        return;
    }
    debug_assert!(
        !epilogue.rounded.is_some() || order == Order::Chain || !epilogue.adds(),
        "blocks are rounded without addends"
    );
    let whole = Made { rows: 0..m, columns: 0..n, finished: false };
    // SAFETY: the caller's promise covers every part of the product.
    unsafe {
        let Some(kernels) = T::Wide::kernels(simd) else {
            plain::product([m, n, k], out, row, add, lhs.plain(), rhs.plain());
            return done(whole);
        };
        let block = match order {
            Order::Lanes => {
                lanes::products(simd, kernels, free, [m, k], rhs.transposed(), lhs, out, row);
                return done(whole);
            }
            Order::Chain => None,
            Order::Blocks(block) => {
                debug_assert!(!add, "only chains continue from out");
                Some(block)
            }
        };
        let (kernels, pairs) = match T::kernels_of_pairs(simd) {
            Some(kernels) => (kernels, true),
            None => (kernels, false),
        };
        let mut part = Part {
            simd,
            kernels,
            pairs,
            size: [m, n, k],
            block,
            lhs,
            rhs,
            out,
            row,
            add,
            epilogue,
            beside,
            one_strip,
        };
        if n == 1 && row == 1 && !one_strip {
            // A column is a row whose vectors lie along the rows of lhs.
            let epilogue = Epilogue::NONE;
            part = Part {
                size: [1, m, k],
                lhs: rhs.transposed(),
                rhs: lhs.transposed(),
                row: m,
                epilogue,
                beside: &[],
                ..part
            };
            part.run(&mut free, |made| {
                done(Made { rows: made.columns, columns: made.rows, finished: false })
            });
        } else {
            part.run(&mut free, done);
        }
    }
}

/// A product whose sums are chains, or blocks that are chains.
struct Part<'a, T: Element> {
    simd: Simd,
    kernels: &'static Kernels<T::Wide>,
    /// Whether the kernels' numbers are pairs of elements.
    pairs: bool,
    size: [usize; 3],
    /// Terms of a block, if the sums are in [blocks].
    block: Option<usize>,
    lhs: View<T>,
    rhs: View<T>,
    out: *mut T::Wide,
    row: usize,
    add: bool,
    epilogue: Epilogue<T::Wide>,
    beside: &'a [Beside],
    one_strip: bool,
}

/// Memory for packed panels and widened halves.
struct Panels<N> {
    lhs: *mut N,
    /// Many steps of a lhs of few rows.
    long: *mut N,
    rhs: *mut N,
    widened: *mut N,
}

impl<T: Element> Part<'_, T> {
    /// # Safety
    ///
    /// As for [`multiply`].
    unsafe fn run(&self, free: &mut &mut [u8], done: impl FnMut(Made)) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match self.block {
                Some(block) if self.size[0] <= FEW => self.run_blocks(block, free, done),
                _ => self.run_tiles(free, done),
            }
        }
    }
}

/// Rows of lhs as lines.
fn lines_of_lhs<T: Copy>(lhs: View<T>) -> Lines<T> {
    Lines { at: lhs.at, across: lhs.row, along: lhs.column }
}

/// The extent of equal parts of at most `most`, a multiple of `unit` if there are several parts;
/// `most` is a multiple of `unit` too.
pub(super) fn parts(extent: usize, most: usize, unit: usize) -> usize {
    let count = extent.div_ceil(most).max(1);
    if count == 1 { extent.max(1) } else { extent.div_ceil(count).next_multiple_of(unit) }
}
