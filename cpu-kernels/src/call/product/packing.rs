//! The packing of parts of both operands, for every kind of element: numbers are copied, halves are
//! widened, pairs are interleaved.

use super::pack::{Lines, ahead, fetch, fetch_lines, pack};
use super::strip::Ahead;
use super::{Panels, Part, WIDENED, lines_of_lhs, pairs};
use crate::call::element::Element;
use crate::call::panel::{View, widened};
use crate::simd::Simd;

/// Rows of rhs that are packed side by side.
const SIDE_BY_SIDE: usize = 8;

/// Rows of lhs, as they are packed.
#[derive(Clone, Copy)]
pub(super) enum Rows<T: Element> {
    /// Numbers, widened if they were halves.
    Numbers(View<T::Wide>),
    /// Halves that become pairs.
    Pairs(View<T>),
}

impl<T: Element> Rows<T> {
    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        match self {
            Rows::Numbers(lhs) => Rows::Numbers(lhs.from(row, 0)),
            Rows::Pairs(lhs) => Rows::Pairs(lhs.from(row, 0)),
        }
    }

    /// Packs a strip that begins at `row`.
    ///
    /// # Safety
    ///
    /// The elements are valid to read; the panel has room for them and
    /// [`SLACK`](super::pack::SLACK). The machine has the vector instructions.
    pub unsafe fn pack(self, simd: Simd, row: usize, [rows, depth]: [usize; 2], to: *mut T::Wide) {
        // SAFETY: the caller's promise is the same; pairs have the size of numbers.
        unsafe {
            match self.from(row) {
                Rows::Numbers(lhs) => pack(simd, lines_of_lhs(lhs), [rows, depth], to, rows),
                Rows::Pairs(lhs) => {
                    let (lines, to) = (lines_of_lhs(lhs).cast(), to.cast());
                    pairs::pack(simd, lines, [rows, depth], to, rows, pairs::BESIDE_LHS);
                }
            }
        }
    }

    /// Prefetches rows: if it can `spread` the prefetches over a tile, it returns them; otherwise
    /// all at once.
    pub fn fetch(self, [rows, depth]: [usize; 2], spread: bool) -> Option<Ahead> {
        fn fetch<T>(lines: Lines<T>, size: [usize; 2], spread: bool) -> Option<Ahead> {
            let ahead = ahead(lines, size).filter(|_| spread);
            if ahead.is_none() {
                fetch_lines(lines, size);
            }
            ahead
        }
        match self {
            Rows::Numbers(lhs) => fetch(lines_of_lhs(lhs), [rows, depth], spread),
            Rows::Pairs(lhs) => fetch(lines_of_lhs(lhs), [rows, depth], spread),
        }
    }
}

impl<T: Element> Part<'_, T> {
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
        for j in (0..columns).step_by(wide) {
            // SAFETY: the panels have room for these columns; each has half as many pairs as
            // terms.
            unsafe {
                let (size, to) =
                    ([wide.min(columns - j), depth], packed.add(j * depth.div_ceil(2)));
                pairs::pack(self.simd, lines.from(j, 0), size, to, wide, pairs::BESIDE_RHS);
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
