//! Products of few rows, whose time is that of reading rhs.
//!
//! Packing rhs would add a copy of it that no further strip of rows uses. So rhs is read once, in
//! blocks that stay in L1 while every row is multiplied with them:
//!
//! | rhs | block | read |
//! |---|---|---|
//! | rows are contiguous | a few rows, all columns | in place, by [`stream`](super::stream) or `paired_stream` |
//! | columns are contiguous | one panel, [`DEEP`] rows | transposed |
//!
//! With vectors of 256 bits (L1 of 32 KiB, 16 registers), fewer rows of rhs are read side by side.
//! Rows at a distance that is a multiple of 4 KiB share the 8 ways of one set of L1. So 4 of them
//! are read while 4 are prefetched: 1.3 ms instead of 4.1 for one row and 2048 × 8192 of bf16 (AMD
//! Zen 3, two threads).
//!
//! If the rows are shorter than a page and contiguous, one or two rows of out read them one after
//! the other. The hardware prefetcher follows this one stream, but not the short runs of 8 rows:
//! 16.9 GB/s instead of 12.0 for one row and 2560 × 768 of bf16. The sums are then loaded and
//! stored for each row of rhs, which takes longer than reading if there are more rows of out.
//!
//! With vectors of 512 bits one row of out reads such rows of f32 one after the other without
//! prefetches: 19 to 23 GB/s for 768 × 768 instead of 15 to 17, and 17 to 20 instead of 10 for
//! 768 × 256 (AMD Zen 4, one thread).
//!
//! Pairs of bf16 are multiplied from two rows at a time. Short rows that are contiguous are read
//! two by two, and prefetched in the order of memory: 25 to 30 GB/s for one row and 2560 × 768,
//! instead of 19. Longer rows are read side by side, 16 of them, or 8 for one row of out. There the
//! hardware prefetcher is faster alone: 23 to 27 GB/s for 768 × 2560, instead of 20 with prefetches
//! (AMD Zen 4, two threads).
//!
//! A row of out stays in the cache meanwhile. The order of the sums is that of all products: a row
//! has the same bits, however many rows are multiplied with it.

use super::pack::fetch_run;
use super::stream::{Stream, Streams};
use super::strip::Strip;
use super::{Epilogue, FEW, Lines, Panels, Part, SLACK, lines_of_lhs, pairs};
use crate::call::element::Element;
use crate::call::panel::View;
use crate::simd::Simd;
use std::ops::Range;

/// Rows of rhs that are read side by side.
const SIDE_BY_SIDE: usize = 8;
/// Bytes between lines that share a set of L1.
const SETS: usize = 4096;
/// Bytes that the hardware prefetcher follows.
const PAGE: usize = 4096;
/// Bytes from a row that is read alone to the row that is prefetched.
const AHEAD: usize = 12 << 10;
/// Rows of a block of rhs that is transposed: the block stays in L1, beside the lines that it comes
/// from.
const DEEP: usize = 128;
/// Steps of lhs that are packed at a time.
const STEPS: usize = 256;
/// Rows of rhs whose columns are read without a break.
const LONG: usize = 2048;
/// Numbers of the steps of lhs that are packed at a time, at most.
pub(super) fn room(steps: usize) -> usize {
    FEW * steps.min(LONG) + SLACK
}

/// A block of rhs that is ready for the kernels.
struct Block<N> {
    at: *const N,
    /// Distance between steps of k.
    step: usize,
    /// Distance between panels.
    panel: usize,
}

impl<T: Element> Part<'_, T> {
    /// The number of leading columns that [`few`](Self::few) computes: those of whole panels, if
    /// there are few rows and rhs is contiguous along one of its axes.
    pub(super) fn columns_of_few(&self) -> usize {
        let [m, n, _] = self.size;
        let most = match () {
            () if self.streams().is_some() => FEW,
            () if self.rhs.column == 1 || self.rhs.row == 1 => FEW.min(self.kernels.rows()),
            () => 0,
        };
        if m <= most { n / self.kernels.columns * self.kernels.columns } else { 0 }
    }

    /// Computes the leading columns of a product of few rows.
    ///
    /// # Safety
    ///
    /// As for [`multiply`](super::multiply); there are [as many](Self::columns_of_few).
    pub(super) unsafe fn few(&self, panels: &Panels<T::Wide>, columns: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match self.streams() {
                Some(streams) => self.few_in_place(streams, panels, columns),
                None => self.few_transposed(panels, columns),
            }
        }
    }

    /// With contiguous columns of rhs.
    ///
    /// # Safety
    ///
    /// As for [`few`](Self::few).
    unsafe fn few_transposed(&self, panels: &Panels<T::Wide>, columns: usize) {
        let [m, _, k] = self.size;
        // SAFETY: the panels have room for a block of lhs, of which there are no more rows than in
        // a tile, and for a block of rhs. All elements are within the matrices.
        unsafe {
            for first in (0..k).step_by(LONG) {
                let end = k.min(first + LONG);
                let lhs = self.long_lhs(first..end, panels);
                // A panel is read to its end, so that the hardware prefetcher follows its columns.
                for j in (0..columns).step_by(self.kernels.columns) {
                    for start in (first..end).step_by(DEEP) {
                        let size = [DEEP.min(end - start), self.kernels.columns];
                        let lhs = lhs.wrapping_add(self.terms(start - first) * m);
                        self.step(panels, lhs, [start, j], size);
                    }
                }
            }
        }
    }

    /// With contiguous rows of rhs, which are read in place.
    ///
    /// # Safety
    ///
    /// As for [`few`](Self::few).
    unsafe fn few_in_place(&self, streams: &Streams<T>, panels: &Panels<T::Wide>, columns: usize) {
        let [m, _, k] = self.size;
        let [side, ahead] = self.order_of_rows(columns);
        for start in (0..k).step_by(STEPS) {
            let depth = STEPS.min(k - start);
            // SAFETY: as for `few_transposed`; a row of rhs exists for each term.
            unsafe {
                self.pack_strip_of_lhs(self.lhs.from(0, start), [m, depth], panels, panels.lhs);
                for first in (0..depth).step_by(side) {
                    let steps = side.min(depth - first);
                    // Of several rows the kernel takes each by its term.
                    let row = if side == 1 { T::row_of_term(first, depth) } else { first };
                    // Rows are prefetched in the order of memory.
                    let next = ahead > 0 && first + steps + ahead <= k - start;
                    // One row prefetches itself in that order; a pair of rows does not.
                    let two = self.pairs && side == 2;
                    if next && two {
                        fetch_run(self.rhs.element(start + first + ahead, 0), steps * self.rhs.row);
                    }
                    streams.strip(&Stream {
                        depth: steps,
                        lhs: panels.lhs.wrapping_add(self.terms(first) * m),
                        rows: m,
                        rhs: self.rhs.element(start + row, 0),
                        rhs_step: self.rhs.row,
                        ahead: if next && !two { first + ahead - row } else { 0 },
                        columns,
                        out: self.out,
                        out_row: self.row,
                        add: self.add || start + first > 0,
                    });
                }
            }
        }
    }

    /// The kernels that read rhs in place, if its rows are contiguous.
    fn streams(&self) -> Option<&'static Streams<T>> {
        if self.rhs.column == 1 { T::streams(self.simd) } else { None }
    }

    /// If rhs is read in place, and so many columns of it are used: the rows that are read side by
    /// side, and the distance to the row that is prefetched, 0 for none.
    fn order_of_rows(&self, columns: usize) -> [usize; 2] {
        let narrow = self.simd == Simd::Avx2;
        let (m, distance) = (self.size[0], self.rhs.row * size_of::<T>());
        let contiguous = (columns..columns + self.kernels.columns).contains(&self.rhs.row);
        let one_stream = (narrow || self.pairs) && m <= 2 && contiguous && distance < PAGE;
        let side = match () {
            // The sums of a short row stay in registers.
            () if columns <= 2 * self.kernels.columns => return [STEPS, 0],
            // One row alone is one stream for the hardware prefetcher, too.
            () if !narrow && !T::HALF && m == 1 && contiguous && distance < PAGE => return [1, 0],
            () if one_stream => return [if self.pairs { 2 } else { m }, AHEAD / distance],
            () if self.pairs && m == 1 => return [SIDE_BY_SIDE, 0],
            () if self.pairs => return [2 * SIDE_BY_SIDE, 0],
            // Their lines, and as many prefetched ones, are the ways of a set in L1.
            () if narrow && m <= 4 && distance.is_multiple_of(SETS) => SIDE_BY_SIDE / 2,
            () if narrow && m == 1 => SIDE_BY_SIDE / 2,
            () if T::HALF && !narrow => 2 * SIDE_BY_SIDE,
            () => SIDE_BY_SIDE,
        };
        [side, side]
    }

    /// Numbers of the kernels for so many steps of k.
    fn terms(&self, steps: usize) -> usize {
        if self.pairs { steps.div_ceil(2) } else { steps }
    }

    /// Multiplies all rows of lhs, packed at `lhs`, with a block of rhs that begins at `first`.
    ///
    /// # Safety
    ///
    /// The block is within rhs, and the panels have room for it. lhs has as many steps.
    unsafe fn step(
        &self,
        panels: &Panels<T::Wide>,
        lhs: *const T::Wide,
        first: [usize; 2],
        size: [usize; 2],
    ) {
        let (m, [start, j], [steps, columns]) = (self.size[0], first, size);
        // SAFETY: the caller's promise is the same.
        unsafe {
            let block = self.block(self.rhs.from(start, j), size, panels);
            let strip = Strip {
                depth: self.terms(steps),
                lhs,
                lhs_step: m,
                rhs: block.at,
                rhs_step: block.step,
                panel: block.panel,
                columns,
                out: self.out.add(j),
                out_row: self.row,
                add: self.add || start > 0,
                epilogue: Epilogue::NONE,
                packed: std::ptr::null_mut(),
            };
            self.kernels.strip(m, &strip);
        }
    }

    /// The address of some steps of all rows of lhs, packed, or in place if it is one row of
    /// numbers.
    ///
    /// # Safety
    ///
    /// The elements are valid to read, and the panels have room for them.
    unsafe fn long_lhs(&self, steps: Range<usize>, panels: &Panels<T::Wide>) -> *const T::Wide {
        let m = self.size[0];
        if m == 1 && !T::HALF && self.lhs.column == 1 {
            return self.lhs.plain().element(0, steps.start);
        }
        for start in steps.clone().step_by(STEPS) {
            let to = panels.long.wrapping_add(self.terms(start - steps.start) * m);
            let size = [m, STEPS.min(steps.end - start)];
            // SAFETY: the caller's promise is the same.
            unsafe { self.pack_strip_of_lhs(self.lhs.from(0, start), size, panels, to) };
        }
        panels.long
    }

    /// Makes a block of rhs ready, whose first element is that of `rhs`.
    ///
    /// # Safety
    ///
    /// The elements are valid to read, and the panels have room for them.
    unsafe fn block(
        &self,
        rhs: View<T>,
        [steps, columns]: [usize; 2],
        panels: &Panels<T::Wide>,
    ) -> Block<T::Wide> {
        let wide = self.kernels.columns;
        if rhs.column != 1 && T::PAIRED && !self.pairs {
            let lines = Lines { at: rhs.at, across: rhs.column, along: rhs.row }.cast();
            let (size, packed) = ([columns, steps], panels.rhs.cast());
            // SAFETY: the caller's promise is the same: there is one panel.
            unsafe {
                pairs::pack(self.simd, lines, size, packed, wide, pairs::BESIDE_RHS);
                pairs::widen(self.simd, packed, steps, wide, panels.widened.cast());
            }
            return Block { at: panels.widened, step: wide, panel: steps * wide };
        }
        let depth = if self.pairs { steps.div_ceil(2) } else { steps };
        // SAFETY: the caller's promise is the same.
        unsafe { self.pack_rhs(rhs, [steps, columns], panels.rhs, panels) };
        Block { at: panels.rhs, step: wide, panel: depth * wide }
    }

    /// Packs some steps of all rows of lhs, of which there are no more than in a tile.
    ///
    /// # Safety
    ///
    /// The elements are valid to read, and the panels have room to widen them. `to` is valid to
    /// write for them and [`SLACK`].
    unsafe fn pack_strip_of_lhs(
        &self,
        lhs: View<T>,
        [m, depth]: [usize; 2],
        panels: &Panels<T::Wide>,
        to: *mut T::Wide,
    ) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            if self.pairs {
                let lines = lines_of_lhs(lhs).cast();
                pairs::pack(self.simd, lines, [m, depth], to.cast(), m, pairs::BESIDE_LHS);
            } else {
                let lhs = self.widened_lhs(lhs, [m, depth], panels);
                self.pack_lhs(lhs, [m, depth], to);
            }
        }
    }
}
