//! Products of matrices: `out = lhs · rhs`, or `out += lhs · rhs`, of a part of out that one thread makes.
//!
//! # Bits
//!
//! Each element of out is one chain of fused multiplications and additions over k, in order: it begins with 0 (or with what is in out), and every
//! step rounds once. The chain may be put down in out and taken up again without changing a bit, so nothing else matters: not where a
//! block of k ends, how large tiles are, which thread makes one, or how many numbers a vector holds. All sets of vector instructions have a
//! fused multiplication, the portable kernels Rust's `mul_add`.
//!
//! Products with a vector whose other operand lies in memory along k are the exception: see [`lanes`]. Which ones, the call decides
//! ([`Order::of`]), never a part of it.
//!
//! # Blocks
//!
//! The design is that of Goto and van de Geijn (*Anatomy of High-Performance Matrix Multiplication*, ACM TOMS 34, 2008) as BLIS has it (Van Zee
//! and van de Geijn, *BLIS: A Framework for Rapidly Instantiating BLAS Functionality*, ACM TOMS 41, 2015): a product is fast if what it reads
//! again and again is near. The [microkernel](micro) keeps a tile of out in registers while it walks a block of k; what it reads
//! then are two packed panels, in the very order in which it reads them, whatever the layout of the operands.
//!
//! ```text
//! for each block of columns         (at most COLUMNS)
//!   for each block of k             (at most DEPTH)
//!     pack that part of rhs         (half of a second cache; or the first strip does)
//!     for each strip of rows        (those of a tile)
//!       pack that part of lhs       (half of a first cache)
//!       for each panel of rhs: the microkernel goes on with a tile of out
//!       behind the last block of k: the strip is finished
//! ```
//!
//! BLIS packs a block of lhs before it is used and keeps it in the second cache. Here the roles are exchanged: the part of rhs is what stays there,
//! and each strip of lhs is used for all of it at once, so it is packed just before and never leaves the first cache. The panels of
//! rhs stream past it from the second, at a fraction of what that can deliver.
//!
//! Packing moves each element of a tile's operands once, and each takes part in as many multiplications as the tile has columns or rows: a
//! hundred of them hide it. With few rows there is nothing to hide it behind: rhs is read once, where it is, in long runs, a few rows at a
//! time, while a line of out lies in the first cache; or, where lhs is one row and this line stays in registers, one row after another. Memory is what one waits for then, and a copy would only be one more. With some strips
//! of rows a block of rhs is not packed either (each panel is fetched while the one before it is used), unless its lines are so far apart that caches and translations of addresses do not hold it. Where
//! columns of rhs lie side by side, packing is the first strip's affair: it reads rhs where it is, and stores into panels what it has loaded, so that memory is waited for
//! while it multiplies. Of the block that is packed next, whatever its layout, the tiles of this one [fetch](coming) the source.
//!
//! Halves are widened on the way into a panel, some lines at a time. Integers have no fused multiplication and no need of one: they are
//! multiplied in plain loops.

pub(super) mod addends;
mod coming;
pub(super) mod gather;
mod lanes;
pub(super) mod micro;
mod pack;
mod pairs;
mod vector;

#[cfg(test)]
mod tests;

use super::element::{Element, Number, plain_product};
use super::panel::{View, widened};
use super::{room, take};
use crate::simd::Simd;
use addends::Addends;
use coming::Coming;
use micro::{Kernels, Strip};
use pack::{Lines, SIDE, SLACK, fetch, fetch_lines, pack};
use std::ops::Range;
use wengert_core::call::{Gemm, Matrix};

/// Most steps of k between loading a tile of out and storing it.
const DEPTH: usize = 256;
/// Most columns of the part of rhs that is packed at a time.
pub(super) const COLUMNS: usize = 512;
/// So few rows that rhs is read where it is.
pub(super) const FEW: usize = 8;
/// Rows of rhs that are read side by side then.
const SIDE_BY_SIDE: usize = 8;
/// Rows of rhs that are read one after another instead, for one row of lhs, are at most so many times as long as what its kernel keeps in registers.
const SHORT: usize = 4;
/// Elements that a block of rhs may span, and strips that it may be used for, to be read where it is: the second cache and the translations of its
/// addresses hold so much, and a copy of it would not pay.
const NEAR: usize = 512 << 10;
const STRIPS: usize = 3;
/// Most rows, and columns of a panel, of any kernels.
const LARGEST: [usize; 2] = [14, 32];
/// Rows and columns of halves that are widened at a time: multiples of what a kernel has.
const WIDENED: [usize; 2] = [8, 4];

/// In which order a product's sums are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// One chain over k.
    Chain,
    /// In [`lanes`]; lhs is a row.
    LanesOfRow,
    /// In [`lanes`]; rhs is a column.
    LanesOfColumn,
}

/// Terms of a sum from which on it is made in lanes.
const LANES_FROM: usize = 32;

impl Order {
    /// That of a call.
    pub fn of(call: &Gemm) -> Self {
        match () {
            () if !call.operand.is_float() || call.k < LANES_FROM => Order::Chain,
            () if call.m == 1 && call.rhs.row == 1 => Order::LanesOfRow,
            () if call.n == 1 && call.lhs.column == 1 => Order::LanesOfColumn,
            () => Order::Chain,
        }
    }
}

/// A product, or a part of one.
pub(super) struct Product<T: Element> {
    /// Rows of lhs and out, columns of rhs and out, and the length of the sums.
    pub size: [usize; 3],
    pub order: Order,
    pub lhs: View<T>,
    pub rhs: View<T>,
    pub out: *mut T::Wide,
    /// Distance of the rows of out.
    pub row: usize,
    /// Whether the sums go on from what is in out; only of chains.
    pub add: bool,
    /// What is added to the sums while they are in registers, where a kernel does that; [`Made`] says where.
    pub addends: Addends<T::Wide>,
}

/// A part of a product whose sums are final.
pub(super) struct Made {
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// The product's addends have been added to them.
    pub added: bool,
}

/// Bytes of scratch memory for products of at most these extents.
pub(super) fn scratch(operand: wengert_core::DType, [m, n, k]: [usize; 3]) -> usize {
    if !operand.is_float() {
        return 0;
    }
    let half = operand.is_half();
    let size = if half { size_of::<f32>() } else { operand.size() };
    let [rows, columns] = LARGEST;
    let depth = k.min(DEPTH);
    // All but a row of k are bounded by the sizes of blocks.
    let panels = n.max(m).min(COLUMNS).next_multiple_of(columns);
    let widened = if half { depth * (WIDENED[0] * rows).max(WIDENED[1] * columns) } else { 0 };
    let chain =
        room((panels * depth + SLACK) * size) + room((rows * depth + SLACK) * size) + room(widened * size);
    chain.max(if m == 1 || n == 1 { lanes::scratch(size, k, half) } else { 0 })
}

/// Most rows of a product that reads rhs where it lies, of kernels that make so many rows at once.
pub(super) fn lying<T: Element>(rhs: &Matrix, k: usize, rows: usize) -> usize {
    if T::HALF || rhs.column != 1 { 0 } else { lying_block(parts(k, DEPTH, SIDE), rhs.row, rows) }
}

/// The same of a block of k of a rhs whose columns lie side by side: a single strip would pack it for nobody.
fn lying_block(depth: usize, row: usize, rows: usize) -> usize {
    if depth.saturating_mul(row) <= NEAR { STRIPS * rows } else { rows }
}

/// Makes a product; calls `done` with each part of out whose sums are final.
///
/// # Safety
///
/// All elements of the three matrices are valid to read, and out's to write (they need not be initialised if they are not added to);
/// out overlaps neither of the others, and nobody else uses it. The machine has the vector instructions. There is as much scratch memory as
/// [`scratch`] says.
pub(super) unsafe fn multiply<T: Element>(
    simd: Simd,
    mut free: &mut [u8],
    product: &Product<T>,
    mut done: impl FnMut(Made),
) {
    let Product { size: [m, n, k], order, lhs, rhs, out, row, add, addends } = *product;
    if m == 0 || n == 0 {
        return;
    }
    let whole = Made { rows: 0..m, columns: 0..n, added: false };
    // SAFETY: the caller's promise covers every part of the product.
    unsafe {
        let Some(kernels) = T::Wide::kernels(simd) else {
            plain_product([m, n, k], out, row, add, lhs.plain(), rhs.plain());
            return done(whole);
        };
        match order {
            Order::LanesOfRow => {
                lanes::products(simd, kernels, free, [n, k], lhs, rhs.turned(), out, 1);
                return done(whole);
            }
            Order::LanesOfColumn => {
                lanes::products(simd, kernels, free, [m, k], rhs.turned(), lhs, out, row);
                return done(whole);
            }
            Order::Chain => (),
        }
        let (kernels, pairs) = match T::kernels_of_pairs(simd) {
            Some(kernels) => (kernels, true),
            None => (kernels, false),
        };
        let mut part = Part { simd, kernels, pairs, size: [m, n, k], lhs, rhs, out, row, add, addends };
        if n == 1 && row == 1 {
            // A column is a row whose vectors lie along the rows of lhs.
            let addends = Addends::NONE;
            part = Part { size: [1, m, k], lhs: rhs.turned(), rhs: lhs.turned(), row: m, addends, ..part };
            part.run(&mut free, |made| done(Made { rows: made.columns, columns: made.rows, added: false }));
        } else {
            part.run(&mut free, done);
        }
    }
}

/// What is left to do of a product whose sums are chains.
struct Part<T: Element> {
    simd: Simd,
    kernels: &'static Kernels<T::Wide>,
    /// Whether the kernels' numbers are pairs of elements.
    pairs: bool,
    size: [usize; 3],
    lhs: View<T>,
    rhs: View<T>,
    out: *mut T::Wide,
    row: usize,
    add: bool,
    addends: Addends<T::Wide>,
}

/// Where a strip reads rhs.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// In panels.
    Packed,
    /// Where it lies.
    Lying,
    /// Where it lies, and packs it for the next strips.
    Packing,
}

/// Memory for packed parts.
struct Panels<N> {
    lhs: *mut N,
    rhs: *mut N,
    widened: *mut N,
}

impl<T: Element> Part<T> {
    /// # Safety
    ///
    /// That of [`multiply`].
    unsafe fn run(&self, free: &mut &mut [u8], mut done: impl FnMut(Made)) {
        let [m, n, k] = self.size;
        let [rows, columns] = LARGEST;
        let depth = k.min(DEPTH);
        let widened = depth * (WIDENED[0] * rows).max(WIDENED[1] * columns);
        let panels = Panels {
            rhs: take::<T::Wide>(free, n.min(COLUMNS).next_multiple_of(columns) * depth + SLACK).as_mut_ptr(),
            lhs: take::<T::Wide>(free, rows * depth + SLACK).as_mut_ptr(),
            widened: take::<T::Wide>(free, if T::HALF { widened } else { 0 }).as_mut_ptr(),
        };
        let wide = self.kernels.columns;
        // SAFETY: the caller's promise covers every part of the product.
        unsafe {
            if k == 0 {
                if !self.add {
                    for i in 0..m {
                        (0..n).for_each(|j| self.out.add(i * self.row + j).write(T::Wide::ZERO));
                    }
                }
                return done(Made { rows: 0..m, columns: 0..n, added: false });
            }
            let mut first = 0;
            if !T::HALF && m <= FEW.min(self.kernels.rows()) && self.rhs.column == 1 {
                first = n / wide * wide;
                if first > 0 {
                    self.stream(&panels, first);
                    done(Made { rows: 0..m, columns: 0..first, added: false });
                }
            }
            let block = parts(n - first, COLUMNS, wide);
            for j in (first..n).step_by(block) {
                let end = n.min(j + block);
                self.columns(&panels, j..end, block.min(n - end), &mut done);
            }
        }
    }

    /// The first columns of a product of few rows; they fill panels.
    ///
    /// # Safety
    ///
    /// That of [`multiply`].
    unsafe fn stream(&self, panels: &Panels<T::Wide>, columns: usize) {
        let [m, _, k] = self.size;
        let rhs = self.rhs.plain();
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            // SAFETY: the panel has room for the rows, which are no more than a tile has, and the block.
            unsafe {
                let lhs = self.lhs.plain().from(0, start);
                self.pack_lhs(lhs, [m, depth], panels.lhs);
                let of_rows = |k: usize, depth: usize| Strip {
                    depth,
                    lhs: panels.lhs.add(k * m),
                    lhs_step: m,
                    rhs: rhs.element(start + k, 0),
                    rhs_step: rhs.row,
                    panel: self.kernels.columns,
                    columns,
                    out: self.out,
                    out_row: self.row,
                    add: self.add || start + k > 0,
                    addends: Addends::NONE,
                    packed: std::ptr::null_mut(),
                };
                let held = self.kernels.columns_of_row();
                if m == 1 && (held..=SHORT * held).contains(&columns) {
                    self.kernels.row(&of_rows(0, depth));
                    continue;
                }
                for k in (0..depth).step_by(SIDE_BY_SIDE) {
                    self.kernels.strip(m, &of_rows(k, SIDE_BY_SIDE.min(depth - k)));
                }
            }
        }
    }

    /// A block of columns, and how many there are in the one after it.
    ///
    /// # Safety
    ///
    /// That of [`multiply`].
    unsafe fn columns(
        &self,
        panels: &Panels<T::Wide>,
        columns: Range<usize>,
        after: usize,
        mut done: impl FnMut(Made),
    ) {
        let [m, _, k] = self.size;
        let (wide, rows) = (self.kernels.columns, self.kernels.rows());
        let block = parts(k, if self.pairs { 2 * DEPTH } else { DEPTH }, SIDE);
        for start in (0..k).step_by(block) {
            let depth = block.min(k - start);
            let steps = if self.pairs { depth.div_ceil(2) } else { depth };
            let mut strip = Strip {
                depth: steps,
                lhs: panels.lhs,
                lhs_step: rows,
                rhs: panels.rhs,
                rhs_step: wide,
                panel: steps * wide,
                columns: columns.len(),
                out: self.out,
                out_row: self.row,
                add: self.add || start > 0,
                addends: Addends::NONE,
                packed: panels.rhs,
            };
            // Strips of one height: a low one at the end would read rhs as often, for few rows.
            let widens = T::HALF && !self.pairs;
            let group = if widens { WIDENED[0] * rows } else { m };
            let high = parts(group.min(m), rows, 1);
            // SAFETY: the panels have room for a block of k and, of lhs, a tile's rows, of rhs, these columns up to a whole panel.
            unsafe {
                let rhs = self.rhs.from(start, columns.start);
                // Columns that need not be packed beforehand.
                let lying = !T::HALF && rhs.column == 1;
                let lying = if lying { columns.len() / wide * wide } else { 0 };
                let rest = [depth, columns.len() - lying];
                self.pack_rhs(rhs.from(0, lying), rest, panels.rhs.add(lying * steps), panels);
                let mut use_of_rhs = match () {
                    () if lying == 0 => Use::Packed,
                    () if m <= lying_block(depth, rhs.row, rows) => Use::Lying,
                    () => Use::Packing,
                };
                let strips = m / group * group.div_ceil(high) + (m % group).div_ceil(high);
                let strips = match use_of_rhs {
                    Use::Packed => strips,
                    Use::Packing => strips - 1,
                    Use::Lying => 0,
                };
                let mut coming = match start + depth {
                    next if next < k => Coming::new(
                        self.rhs.from(next, columns.start),
                        [block.min(k - next), columns.len()],
                        [steps, wide],
                    ),
                    _ => Coming::new(self.rhs.from(0, columns.end), [block, after], [steps, wide]),
                };
                coming.tiles = strips * (columns.len() / wide);
                for first in (0..m).step_by(group) {
                    let height = group.min(m - first);
                    let lhs = self.lhs.from(first, start);
                    let wide_lhs = (!self.pairs).then(|| self.widened_lhs(lhs, [height, depth], panels));
                    for i in (0..height).step_by(high) {
                        let rows = high.min(height - i);
                        let next = [rows.min(height - i - rows), depth];
                        if let Some(lhs) = wide_lhs {
                            self.pack_lhs(lhs.from(i, 0), [rows, depth], panels.lhs);
                            fetch_lines(lines_of_lhs(lhs.from(i + rows, 0)), next);
                        } else {
                            let lines = |i| lines_of_lhs(lhs.from(i, 0)).cast();
                            let to = panels.lhs.cast();
                            pairs::pack(self.simd, lines(i), [rows, depth], to, rows, pairs::BESIDE_LHS);
                            fetch_lines(lines(i + rows), next);
                        }
                        strip.lhs_step = rows;
                        strip.out = self.out.add((first + i) * self.row + columns.start);
                        if start + depth == k {
                            strip.addends = self.addends.from((first + i) * self.row, columns.start);
                        }
                        if use_of_rhs == Use::Packed {
                            coming.strip(self.kernels, rows, &strip);
                        } else {
                            let rhs = rhs.plain();
                            let (rhs, rhs_step) = (rhs.at, rhs.row);
                            let part = Strip { rhs, rhs_step, panel: wide, columns: lying, ..strip };
                            if use_of_rhs == Use::Packing {
                                self.kernels.packing(rows, &part);
                                use_of_rhs = Use::Packed;
                            } else {
                                self.kernels.lying(rows, &part);
                            }
                            let rhs = strip.rhs.add(lying * steps);
                            let (columns, out) = (columns.len() - lying, strip.out.add(lying));
                            let addends = strip.addends.from(0, lying);
                            self.kernels.strip(rows, &Strip { rhs, columns, out, addends, ..strip });
                        }
                        if start + depth == k {
                            let rows = first + i..first + i + rows;
                            done(Made { rows, columns: columns.clone(), added: true });
                        }
                    }
                }
            }
        }
    }

    /// Packs a strip of lhs.
    ///
    /// # Safety
    ///
    /// The elements are valid to read; the panel has room for them and [`SLACK`].
    unsafe fn pack_lhs(&self, lhs: View<T::Wide>, [rows, depth]: [usize; 2], to: *mut T::Wide) {
        // SAFETY: the caller's promise is the same.
        unsafe { pack(self.simd, lines_of_lhs(lhs), [rows, depth], to, rows) }
    }

    /// Rows of lhs as numbers to compute with, in the order in which they are.
    ///
    /// # Safety
    ///
    /// The elements are valid to read, and no more rows than are widened at a time, if they are.
    unsafe fn widened_lhs(&self, lhs: View<T>, size: [usize; 2], panels: &Panels<T::Wide>) -> View<T::Wide> {
        if !T::HALF {
            return lhs.plain();
        }
        // SAFETY: the caller's promise is the same; the copy is dense.
        unsafe {
            let lhs = widened(self.simd, lhs, size, panels.widened);
            if T::PAIRED {
                pairs::exchange(lhs, size);
            }
            lhs
        }
    }

    /// Packs a block of rhs into panels of pairs.
    ///
    /// # Safety
    ///
    /// That of [`pack_rhs`](Self::pack_rhs).
    unsafe fn pack_pairs(&self, rhs: View<T>, [depth, columns]: [usize; 2], packed: *mut u32) {
        let wide = self.kernels.columns;
        let lines = Lines { at: rhs.at, across: rhs.column, along: rhs.row }.cast();
        let turn = if rhs.column == 1 { SIDE_BY_SIDE } else { depth.max(1) };
        for k in (0..depth).step_by(turn) {
            let steps = turn.min(depth - k);
            for j in (0..columns).step_by(wide) {
                let size = [wide.min(columns - j), steps];
                // SAFETY: the panels have room for these columns, of which each has half as many pairs as terms.
                unsafe {
                    let to = packed.add(j * depth.div_ceil(2) + k / 2 * wide);
                    pairs::pack(self.simd, lines.from(j, k), size, to, wide, pairs::BESIDE_RHS);
                }
            }
        }
    }

    /// Packs a block of rhs into panels, one after the other, from `packed` on.
    ///
    /// # Safety
    ///
    /// The elements are valid to read; the panels have room for them, for columns that are missing in the last one, and [`SLACK`].
    unsafe fn pack_rhs(
        &self,
        rhs: View<T>,
        [depth, columns]: [usize; 2],
        packed: *mut T::Wide,
        panels: &Panels<T::Wide>,
    ) {
        let wide = self.kernels.columns;
        if self.pairs {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.pack_pairs(rhs, [depth, columns], packed.cast()) };
        }
        let group = if T::HALF { WIDENED[1] * wide } else { columns.max(1) };
        // Steps of several panels are read where neighbouring columns lie side by side, and otherwise all steps of a panel, as where there is but one.
        let turn = if rhs.column == 1 && columns > wide { SIDE_BY_SIDE } else { depth };
        for first in (0..columns).step_by(group) {
            let width = group.min(columns - first);
            // SAFETY: the panels have room for these columns.
            unsafe {
                let rhs = rhs.from(0, first);
                let rhs = if T::HALF {
                    let rhs = widened(self.simd, rhs, [depth, width], panels.widened);
                    if T::PAIRED {
                        pairs::exchange(rhs.turned(), [width, depth]);
                    }
                    rhs
                } else {
                    rhs.plain()
                };
                let lines = Lines { at: rhs.at, across: rhs.column, along: rhs.row };
                for k in (0..depth).step_by(turn) {
                    let steps = turn.min(depth - k);
                    for j in (0..width).step_by(wide) {
                        let size = [wide.min(width - j), steps];
                        let to = packed.add((first + j) * depth + k * wide);
                        pack(self.simd, lines.from(j, k), size, to, wide);
                        if lines.across == 1 && turn < depth {
                            let next = lines.from(j, k + steps).at;
                            for k in 0..steps {
                                let next = next.wrapping_add(k * lines.along);
                                fetch(next);
                                fetch(next.wrapping_add(wide / 2));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Rows of lhs as lines.
fn lines_of_lhs<T: Copy>(lhs: View<T>) -> Lines<T> {
    Lines { at: lhs.at, across: lhs.row, along: lhs.column }
}

/// The extent of equal parts of at most `most`, a multiple of `unit` if there are several; `most` is one too.
pub(super) fn parts(extent: usize, most: usize, unit: usize) -> usize {
    let count = extent.div_ceil(most).max(1);
    if count == 1 { extent.max(1) } else { extent.div_ceil(count).next_multiple_of(unit) }
}
