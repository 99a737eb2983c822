//! Products of more than a few rows: blocks of columns and of k, packed into panels, and strips of
//! rows that walk them. The essay of [`product`](super) explains the order of the loops.

use super::addends::Addends;
use super::blocks;
use super::pack::{Lines, SIDE, SLACK, fetch, fetch_lines, pack};
use super::prefetch::{Behind, Prefetch};
use super::strip::Strip;
use super::{
    COLUMNS, DEPTH, LARGEST, Made, Panels, Part, WIDENED, few, lines_of_lhs, lying_block, pairs,
    parts, take, widened_room,
};
use crate::call::element::{Element, Number};
use crate::call::panel::{View, widened};
use std::ops::Range;

/// Rows of rhs that are packed side by side.
const SIDE_BY_SIDE: usize = 8;

/// How a strip reads rhs.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// From packed panels.
    Packed,
    /// Unpacked.
    Lying,
    /// Unpacked; the strip packs it for the next strips.
    Packing,
}

impl<T: Element> Part<'_, T> {
    /// Computes sums that are chains, or those of more than a few rows.
    ///
    /// # Safety
    ///
    /// As for [`multiply`].
    pub(super) unsafe fn run_tiles(&self, free: &mut &mut [u8], mut done: impl FnMut(Made)) {
        let [m, n, k] = self.size;
        let [rows, columns] = LARGEST;
        let depth = k.min(if self.block.is_some() { blocks::MOST } else { DEPTH });
        let widened = widened_room(depth);
        let panels = Panels {
            rhs: take::<T::Wide>(free, n.min(COLUMNS).next_multiple_of(columns) * depth + SLACK)
                .as_mut_ptr(),
            lhs: take::<T::Wide>(free, rows * depth + SLACK).as_mut_ptr(),
            widened: take::<T::Wide>(free, if T::HALF { widened } else { 0 }).as_mut_ptr(),
            long: take::<T::Wide>(free, few::room(k)).as_mut_ptr(),
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
            let first = self.columns_of_few();
            if first > 0 {
                self.few(&panels, first);
                done(Made { rows: 0..m, columns: 0..first, added: false });
            }
            let block = parts(n - first, COLUMNS, wide);
            for j in (first..n).step_by(block) {
                let end = n.min(j + block);
                self.columns(&panels, j..end, block.min(n - end), &mut done);
            }
        }
    }

    /// Computes a block of columns; `after` is the number of columns in the next block.
    ///
    /// # Safety
    ///
    /// As for [`multiply`].
    unsafe fn columns(
        &self,
        panels: &Panels<T::Wide>,
        columns: Range<usize>,
        after: usize,
        mut done: impl FnMut(Made),
    ) {
        let [m, _, k] = self.size;
        let (wide, rows) = (self.kernels.columns, self.kernels.rows());
        let most = if self.pairs { 2 * DEPTH } else { DEPTH };
        let block = self.block.unwrap_or_else(|| parts(k, most, SIDE));
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
                add: self.add || (start > 0 && self.block.is_none()),
                addends: Addends::NONE,
                packed: panels.rhs,
            };
            // All strips have about the same height: a low last strip would read all of rhs for
            // few rows.
            let widens = T::HALF && !self.pairs;
            let group = if widens { WIDENED[0] * rows } else { m };
            let high = parts(group.min(m), rows, 1);
            // SAFETY: the panels have room for a block of k: of a tile's rows of lhs, and of
            // these columns of rhs up to a whole panel.
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
                let (next, size) = match start + depth {
                    next if next < k => {
                        (self.rhs.from(next, columns.start), [block.min(k - next), columns.len()])
                    }
                    _ => (self.rhs.from(0, columns.end), [block, after]),
                };
                let tiles = [strips * (columns.len() / wide), wide];
                let mut prefetch = Prefetch::new(next, size, tiles);
                for first in (0..m).step_by(group) {
                    let height = group.min(m - first);
                    let lhs = self.lhs.from(first, start);
                    let wide_lhs =
                        (!self.pairs).then(|| self.widened_lhs(lhs, [height, depth], panels));
                    for i in (0..height).step_by(high) {
                        let rows = high.min(height - i);
                        let next = [rows.min(height - i - rows), depth];
                        if let Some(lhs) = wide_lhs {
                            self.pack_lhs(lhs.from(i, 0), [rows, depth], panels.lhs);
                            fetch_lines(lines_of_lhs(lhs.from(i + rows, 0)), next);
                        } else {
                            let lines = |i| lines_of_lhs(lhs.from(i, 0)).cast();
                            let to = panels.lhs.cast();
                            pairs::pack(
                                self.simd,
                                lines(i),
                                [rows, depth],
                                to,
                                rows,
                                pairs::BESIDE_LHS,
                            );
                            fetch_lines(lines(i + rows), next);
                        }
                        strip.lhs_step = rows;
                        let row = if self.one_strip { 0 } else { first + i };
                        strip.out = self.out.add(row * self.row + columns.start);
                        if self.block.is_some() {
                            // The sum of the blocks before.
                            if start > 0 {
                                strip.addends.residual = strip.out;
                            }
                        } else if start + depth == k {
                            strip.addends =
                                self.addends.from((first + i) * self.row, columns.start);
                        }
                        if use_of_rhs == Use::Packed {
                            let last = start + depth == k;
                            let behind = Behind {
                                matrices: if last { self.beside } else { &[] },
                                rows,
                                columns: columns.len(),
                                steps,
                                fetched: 0,
                                first: [first + i, columns.start],
                            };
                            prefetch.strip(self.kernels, rows, &strip, behind);
                        } else {
                            let rhs = rhs.plain();
                            let (rhs, rhs_step) = (rhs.at, rhs.row);
                            let part =
                                Strip { rhs, rhs_step, panel: wide, columns: lying, ..strip };
                            if use_of_rhs == Use::Packing {
                                self.kernels.packing(rows, &part);
                                use_of_rhs = Use::Packed;
                            } else {
                                self.kernels.lying(rows, &part);
                            }
                            let rhs = strip.rhs.add(lying * steps);
                            let (columns, out) = (columns.len() - lying, strip.out.add(lying));
                            let addends = strip.addends.from(0, lying);
                            self.kernels
                                .strip(rows, &Strip { rhs, columns, out, addends, ..strip });
                        }
                        if start + depth == k {
                            let rows = first + i..first + i + rows;
                            let added = self.block.is_none();
                            done(Made { rows, columns: columns.clone(), added });
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
    pub(super) unsafe fn pack_lhs(
        &self,
        lhs: View<T::Wide>,
        [rows, depth]: [usize; 2],
        to: *mut T::Wide,
    ) {
        // SAFETY: the caller's promise is the same.
        unsafe { pack(self.simd, lines_of_lhs(lhs), [rows, depth], to, rows) }
    }

    /// Rows of lhs in the dtype of the arithmetic, in their order in memory.
    ///
    /// # Safety
    ///
    /// The elements are valid to read. If they are widened, there are no more rows than are
    /// widened at a time.
    pub(super) unsafe fn widened_lhs(
        &self,
        lhs: View<T>,
        size: [usize; 2],
        panels: &Panels<T::Wide>,
    ) -> View<T::Wide> {
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
    /// As for [`pack_rhs`](Self::pack_rhs).
    unsafe fn pack_pairs(&self, rhs: View<T>, [depth, columns]: [usize; 2], packed: *mut u32) {
        let wide = self.kernels.columns;
        let lines = Lines { at: rhs.at, across: rhs.column, along: rhs.row }.cast();
        let turn = if rhs.column == 1 { SIDE_BY_SIDE } else { depth.max(1) };
        for k in (0..depth).step_by(turn) {
            let steps = turn.min(depth - k);
            for j in (0..columns).step_by(wide) {
                let size = [wide.min(columns - j), steps];
                // SAFETY: the panels have room for these columns; each has half as many pairs as
                // terms.
                unsafe {
                    let to = packed.add(j * depth.div_ceil(2) + k / 2 * wide);
                    pairs::pack(self.simd, lines.from(j, k), size, to, wide, pairs::BESIDE_RHS);
                }
                if rhs.column == 1 {
                    // The next rows: not all of those that were prefetched are still in L2.
                    for next in k + steps..depth.min(k + 2 * steps) {
                        fetch(lines.from(j, next).at);
                    }
                }
            }
        }
    }

    /// Packs a block of rhs into panels, one after the other, from `packed` on.
    ///
    /// # Safety
    ///
    /// The elements are valid to read. The panels have room for them, for the missing columns of
    /// the last panel, and for [`SLACK`].
    pub(super) unsafe fn pack_rhs(
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
        // Row-major rhs with several panels: a few steps of all panels at a time. Otherwise: all
        // steps of one panel at a time.
        let turn = if rhs.column == 1 && columns > wide { SIDE_BY_SIDE } else { depth };
        for first in (0..columns).step_by(group) {
            let width = group.min(columns - first);
            // SAFETY: the panels have room for these columns.
            unsafe {
                let rhs = rhs.from(0, first);
                let rhs = if T::HALF {
                    let rhs = widened(self.simd, rhs, [depth, width], panels.widened);
                    if T::PAIRED {
                        pairs::exchange(rhs.transposed(), [width, depth]);
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
