//! Products of more than a few rows: blocks of columns and of k, packed into panels, and strips of
//! rows that walk them. The essay of [`product`](super) explains the order of the loops.

use super::blocks;
use super::epilogue::Epilogue;
use super::pack::{SIDE, SLACK};
use super::packing::Rows;
use super::prefetch::{Behind, Prefetch};
use super::strip::{Gather, Strip};
use super::{
    LARGEST, Made, Panels, Part, STRIPS, WIDENED, few, largest_block, lying_block, parts, take,
    widened_room,
};
use crate::call::element::{Element, Number};
use crate::call::panel::View;
use std::ops::Range;

/// Most columns for which lhs is read unpacked.
const GATHERED: usize = 128;
/// Rows of lhs that are a multiple of so many numbers apart compete for the same lines of a cache.
const COINCIDING: usize = 512;

/// Most numbers that the rows of rhs may span to be read in place where lhs is.
const SPANNED: usize = 128 << 10;

/// The panels of rhs where lhs is read in place.
struct Panel<N> {
    at: *const N,
    /// Distance between rows.
    step: usize,
    /// Distance between panels.
    next: usize,
}

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

/// A part of rhs that is packed at a time.
struct Block {
    columns: Range<usize>,
    terms: Range<usize>,
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
        let [terms, most] = self.largest_block();
        let depth = k.min(if self.block.is_some() { blocks::MOST } else { terms });
        let widened = widened_room(depth);
        let panels = Panels {
            rhs: take::<T::Wide>(free, n.min(most).next_multiple_of(columns) * depth + SLACK)
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
                return done(Made { rows: 0..m, columns: 0..n, finished: false });
            }
            let first = self.columns_of_few();
            if first > 0 {
                self.few(&panels, first);
                done(Made { rows: 0..m, columns: 0..first, finished: false });
            }
            let block = parts(n - first, most, wide);
            for j in (first..n).step_by(block) {
                let end = n.min(j + block);
                self.columns(&panels, j..end, block.min(n - end), &mut done);
            }
        }
    }

    /// Most terms and columns of a block of rhs.
    fn largest_block(&self) -> [usize; 2] {
        largest_block(size_of::<T::Wide>(), self.pairs, self.size[2])
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
        let k = self.size[2];
        let [terms, _] = self.largest_block();
        let depth = self.block.unwrap_or_else(|| parts(k, terms, SIDE));
        for start in (0..k).step_by(depth) {
            let end = k.min(start + depth);
            let next = match k - end {
                0 => Block { columns: columns.end..columns.end + after, terms: 0..depth },
                rest => Block { columns: columns.clone(), terms: end..end + depth.min(rest) },
            };
            let block = Block { columns: columns.clone(), terms: start..end };
            // SAFETY: the caller's promise covers every part of the product.
            unsafe { self.add_block(panels, block, next, &mut done) };
        }
    }

    /// Computes the terms of a block; `next` is computed next, unless it is empty.
    ///
    /// # Safety
    ///
    /// As for [`multiply`].
    unsafe fn add_block(
        &self,
        panels: &Panels<T::Wide>,
        block: Block,
        next: Block,
        mut done: impl FnMut(Made),
    ) {
        let Block { columns, terms } = &block;
        let ([m, _, k], wide, high) = (self.size, self.kernels.columns, self.kernels.rows());
        let depth = terms.len();
        let steps = if self.pairs { depth.div_ceil(2) } else { depth };
        let rhs = self.rhs.from(terms.start, columns.start);
        // Columns that need not be packed beforehand. No pair may lack its second row.
        let lies = rhs.column == 1 && (!T::HALF || self.pairs && depth.is_multiple_of(2));
        let gathers = self.gathers(columns.len());
        // Rows of few columns stay in the caches, so packing them would not pay.
        let in_place = gathers && lies && !rhs.row.is_multiple_of(COINCIDING);
        let in_place = in_place && depth.saturating_mul(rhs.row) <= SPANNED;
        let lying = if lies && !gathers { columns.len() / wide * wide } else { 0 };
        let mut use_of_rhs = match () {
            () if lying == 0 => Use::Packed,
            () if m <= lying_block::<T>(depth, rhs.row, high) => Use::Lying,
            () => Use::Packing,
        };
        // Widened rows take memory, so they are widened in groups of strips.
        let widens = T::HALF && !self.pairs;
        let group = if widens { WIDENED[0] * high } else { m };
        let strips = m / group * group.div_ceil(high) + (m % group).div_ceil(high);
        let strips = match use_of_rhs {
            Use::Packed => strips,
            Use::Packing => strips - 1,
            Use::Lying => 0,
        };
        let size = [next.terms.len(), next.columns.len()];
        let next = self.rhs.from(next.terms.start, next.columns.start);
        let mut prefetch = Prefetch::new(next, size, [strips, columns.len() / wide], wide);
        // SAFETY: the panels have room for a block: for a tile's rows of lhs, and for these
        // columns of rhs up to a whole panel.
        unsafe {
            let rest = [depth, columns.len() - lying];
            if !in_place {
                self.pack_rhs(rhs.from(0, lying), rest, panels.rhs.add(lying * steps), panels);
            }
            let of_gathered = match in_place {
                true => Panel { at: rhs.at.cast(), step: rhs.row, next: wide },
                false => Panel { at: panels.rhs, step: wide, next: depth * wide },
            };
            for first in (0..m).step_by(group) {
                let height = group.min(m - first);
                let lhs = self.lhs.from(first, terms.start);
                let lhs = match self.pairs {
                    true => Rows::Pairs(lhs),
                    false => Rows::Numbers(self.widened_lhs(lhs, [height, depth], panels)),
                };
                // The heights differ by at most one: a low strip would read all of rhs for few
                // rows.
                let strips = height.div_ceil(high);
                let start_of = |strip: usize| first + height * strip / strips;
                for n in 0..strips {
                    let rows = start_of(n)..start_of(n + 1);
                    if let (Rows::Numbers(lhs), true) = (lhs, gathers) {
                        self.gathered(
                            lhs.from(rows.start - first, 0),
                            rows.clone(),
                            &block,
                            &of_gathered,
                        );
                        if terms.end == k {
                            done(Made { rows, columns: columns.clone(), finished: true });
                        }
                        continue;
                    }
                    lhs.pack(self.simd, rows.start - first, [rows.len(), depth], panels.lhs);
                    let spread = use_of_rhs == Use::Packed && columns.len() >= 2 * wide;
                    let ahead = match strips - n {
                        1 => None,
                        _ => {
                            let size = [start_of(n + 2) - rows.end, depth];
                            lhs.from(rows.end - first).fetch(size, spread)
                        }
                    };
                    let row = if self.one_strip { 0 } else { rows.start };
                    let out = self.out.add(row * self.row + columns.start);
                    let strip = Strip {
                        depth: steps,
                        lhs: panels.lhs,
                        lhs_step: rows.len(),
                        rhs: panels.rhs,
                        rhs_step: wide,
                        panel: steps * wide,
                        columns: columns.len(),
                        out,
                        out_row: self.row,
                        add: self.add || (terms.start > 0 && self.block.is_none()),
                        epilogue: self.epilogue_of(out, [rows.start, columns.start], terms),
                        packed: panels.rhs,
                    };
                    if use_of_rhs == Use::Packed {
                        let behind = Behind {
                            matrices: if terms.end == k { self.beside } else { &[] },
                            rows: rows.len(),
                            columns: columns.len(),
                            steps,
                            fetched: 0,
                            first: [rows.start, columns.start],
                        };
                        prefetch.strip(self.kernels, rows.len(), &strip, ahead, behind);
                    } else {
                        let packs = use_of_rhs == Use::Packing;
                        self.unpacked(rows.len(), &strip, rhs, lying, packs);
                        if packs {
                            use_of_rhs = Use::Packed;
                        }
                    }
                    if terms.end == k {
                        let finished = self.block.is_none() || self.epilogue.rounded.is_some();
                        done(Made { rows, columns: columns.clone(), finished });
                    }
                }
            }
        }
    }

    /// Whether lhs is read unpacked, since few columns use each of its elements. The addresses of
    /// a strip's rows must not compete for the same lines of a cache.
    fn gathers(&self, columns: usize) -> bool {
        let [m, _, _] = self.size;
        let few = columns <= GATHERED && m >= STRIPS * self.kernels.rows();
        let apart = self.lhs.column == 1 && !self.lhs.row.is_multiple_of(COINCIDING);
        !T::HALF && few && apart && !self.epilogue.adds() && !self.one_strip
    }

    /// Computes a strip from an unpacked lhs.
    ///
    /// # Safety
    ///
    /// As for [`multiply`]; the panels of rhs have the block's columns and terms.
    unsafe fn gathered(
        &self,
        lhs: View<T::Wide>,
        rows: Range<usize>,
        Block { columns, terms }: &Block,
        rhs: &Panel<T::Wide>,
    ) {
        let depth = terms.len();
        let offsets: [usize; LARGEST[0]] = std::array::from_fn(|row| row * lhs.row);
        let gather =
            Gather { rows: &offsets, runs: &[0], length: depth, exchanged: false, ahead: 0 };
        let strip = Strip {
            depth,
            lhs: lhs.at,
            lhs_step: 1,
            rhs: rhs.at,
            rhs_step: rhs.step,
            panel: rhs.next,
            columns: columns.len(),
            out: self.out.wrapping_add(rows.start * self.row + columns.start),
            out_row: self.row,
            add: self.add || terms.start > 0,
            epilogue: Epilogue::NONE,
            packed: std::ptr::null_mut(),
        };
        // SAFETY: the caller's promise is the same.
        unsafe { self.kernels.gathering(rows.len(), &strip, &gather) };
    }

    /// Computes a strip whose first `lying` columns are read from rhs as it is; they are packed for
    /// the next strips if it `packs`.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::strip`](super::strip::Kernels::strip), and for
    /// [`packing`](super::strip::Kernels::packing).
    unsafe fn unpacked(
        &self,
        rows: usize,
        strip: &Strip<T::Wide>,
        rhs: View<T>,
        lying: usize,
        packs: bool,
    ) {
        let part = Strip { rhs: rhs.at.cast(), rhs_step: rhs.row, columns: lying, ..*strip };
        // SAFETY: the columns are divided in two; the caller guarantees the rest.
        unsafe {
            if packs {
                self.kernels.packing(rows, &part);
            } else {
                self.kernels.lying(rows, &part);
            }
            let rest = Strip {
                rhs: strip.rhs.add(lying * strip.depth),
                columns: strip.columns - lying,
                out: strip.out.add(lying),
                epilogue: strip.epilogue.from([0, lying], 0),
                ..*strip
            };
            self.kernels.strip(rows, &rest);
        }
    }

    /// The epilogue of a strip that begins at a row and a column, for some terms. Blocks begin at
    /// 0, and each is added to the sum of the blocks before, which is in out.
    fn epilogue_of(
        &self,
        out: *const T::Wide,
        first: [usize; 2],
        terms: &Range<usize>,
    ) -> Epilogue<T::Wide> {
        let last = match terms.end == self.size[2] {
            true => self.epilogue.from(first, self.row),
            false => Epilogue::NONE,
        };
        match self.block {
            None => last,
            Some(_) => {
                let residual = if terms.start > 0 { out } else { std::ptr::null() };
                Epilogue { residual, rounded: last.rounded, ..Epilogue::NONE }
            }
        }
    }
}
