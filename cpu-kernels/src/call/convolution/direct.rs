//! Direct convolutions, without a matrix of patches: the products read the source in place.
//!
//! The taps of every position have the same offsets relative to the position. So an element of
//! the matrix of patches is the source's element at the sum of a row offset and a column offset,
//! and [gathering](Gather) products take such a matrix without a copy. Only the padding has no
//! elements in the source. So a part of the source is copied once, with zeros around it: a
//! *block*. It holds some lines of an image and the lines that their taps reach beyond them, and
//! it fits in L1 or L2. The block is then read once for each tap and vector of channels.
//!
//! The filter or the cotangent is read in place too, panel by panel of its columns. A panel is
//! divided into parts of some runs. All positions of a block go through a part, and the last
//! positions prefetch the next one. Halves take another [form](super::operands) first.
//!
//! # Order
//!
//! A sum over taps and channels is a chain over *runs*. The runs are the taps, or, if neighbouring
//! taps reach neighbouring positions, the lines of taps. A sum over positions is a chain over the
//! blocks and the lines in them, and a run is the positions of a line. Of bf16, each two
//! neighbouring terms of a run are a pair, whose second term comes first; the last term of an odd
//! run is added alone.

use super::patches::{Axis, Patches, zeros};
use crate::call::panel::View;
use crate::call::product::epilogue::Epilogue;
use crate::call::product::parts;
use crate::call::product::strip::{Gather, Kernels, Strip};
use bytemuck::Zeroable;
use std::ops::Range;

/// Most elements of a block: half of L2.
const BLOCK: usize = 64 << 10;
/// Preferred most elements of a block, and most sums before they are rounded: they fit in L1.
const NEAR: usize = 8 << 10;
/// Fewest positions of an image that are worth a block.
const POSITIONS: usize = 24;
/// Most steps of a sum for which the panels of the filter stay in the caches.
const STEPS: usize = 8192;
/// Most elements of a filter whose cotangent is loaded again for every block.
const FILTER: usize = 256 << 10;
/// Most elements of a part of a panel of the right operand, if all strips of rows go through a part
/// before the next one. L2 holds a block, a part, and the next part, which is prefetched.
const PART: usize = 64 << 10;
/// A line of the right operand is a multiple of this many bytes: a vector, on every machine.
const LINE: usize = 64;

/// The products of a convolution over blocks.
#[derive(Debug)]
pub(super) struct Direct {
    line: Axis,
    position: Axis,
    /// Lines of an image (those that are computed or summed over) in a block; the last block of
    /// an image may have fewer.
    lines: usize,
    /// Channels of the source in a group.
    channels: usize,
    all_channels: usize,
    /// Positions of the source in a line of the block.
    width: usize,
    /// Offsets in a block of the positions of its lines, and of the runs of taps.
    positions: Vec<usize>,
    runs: Vec<usize>,
    /// Elements of a run of taps.
    length: usize,
    /// For sums over positions, offsets in a block of each tap's channels, and of the lines; and
    /// the same in halves, in a block of pairs.
    of_sums: [[Vec<usize>; 2]; 2],
}

/// The position along an axis where the taps of the first row begin, and the distance from the
/// first tap to the last.
fn reach(axis: &Axis) -> (i64, usize) {
    let last = (axis.taps as i64 - 1) * axis.spread;
    // Saturating: a dilation may be as large as an address; such a window has no block.
    (axis.offset.saturating_add(last.min(0)), last.unsigned_abs() as usize)
}

impl Axis {
    /// Positions of the source that `rows` rows reach, those between them included.
    fn extent(&self, rows: usize) -> usize {
        let rows = rows.saturating_sub(1).saturating_mul(self.step as usize);
        rows.saturating_add(reach(self).1).saturating_add(1)
    }

    /// The offset of a tap from the first position of its row's taps.
    fn tap(&self, tap: usize) -> usize {
        (self.offset + tap as i64 * self.spread - reach(self).0) as usize
    }
}

impl Direct {
    /// For products of patches with `columns` columns of numbers of `size` bytes; `None` if
    /// another method is better. `sums` are those over positions; other sums may be `rounded`.
    /// Numbers that are widened need `whole` vectors of columns: else the runs of pairs are those
    /// of copied patches.
    pub fn new(
        patches: &Patches,
        columns: usize,
        size: usize,
        sums: bool,
        rounded: bool,
        whole: bool,
    ) -> Option<Direct> {
        let [first, line, position] = patches.axes();
        let one = first.rows == 1 && first.taps == 1 && first.source == 1 && first.offset == 0;
        let exact = [line, position].iter().all(|a| a.divisor == 1 && a.taps > 0);
        let (channels, all_channels) = patches.all_channels();
        let steps = line.taps * position.taps * channels;
        let fits = columns > 0 && (!(whole || sums) || (columns * size).is_multiple_of(LINE));
        let small = if sums { steps.saturating_mul(columns) <= FILTER } else { steps <= STEPS };
        let many =
            steps > 0 && line.taps * position.taps > 1 && line.rows * position.rows >= POSITIONS;
        if !(one && exact && fits && small && many) {
            return None;
        }
        let width = position.extent(position.rows);
        let elements =
            |lines: usize| line.extent(lines).saturating_mul(width).saturating_mul(channels);
        if elements(1) > BLOCK {
            return None;
        }
        // The lines of an image in blocks of equal size, each with enough positions.
        let enough = POSITIONS.div_ceil(position.rows);
        // A line has at least one element, so there are no more lines than elements.
        let most = |room: usize| {
            (1..=line.rows.min(room)).rev().find(|lines| elements(*lines) <= room).unwrap_or(1)
        };
        let (near, within) = (most(NEAR), most(BLOCK));
        let near = match rounded && !sums {
            true => near.min(NEAR / columns / position.rows),
            false => near,
        };
        let lines = parts(line.rows, near.max(enough).max(2 * line.taps).min(within), 1);
        let offset = |y: usize, x: usize| (y * width + x) * channels;
        let (down, right) = (line.step as usize, position.step as usize);
        let positions =
            (0..lines).flat_map(|y| (0..position.rows).map(move |x| offset(y * down, x * right)));
        let taps = (0..line.taps).flat_map(|k| (0..position.taps).map(move |l| (k, l)));
        let taps: Vec<usize> = taps.map(|(k, l)| offset(line.tap(k), position.tap(l))).collect();
        let side_by_side = if position.spread == 1 { position.taps } else { 1 };
        Some(Direct {
            lines,
            channels,
            all_channels,
            width,
            positions: positions.collect(),
            runs: taps.iter().copied().step_by(side_by_side).collect(),
            length: side_by_side * channels,
            of_sums: [1, 2].map(|size| {
                let entries = taps.iter().flat_map(|tap| (0..channels).map(move |c| tap + c));
                let down = (0..lines).map(|y| offset(y * down, 0));
                [entries.map(|at| size * at).collect(), down.map(|at| size * at).collect()]
            }),
            line: *line,
            position: *position,
        })
    }

    /// Blocks of an image.
    pub fn blocks(&self) -> usize {
        self.line.rows.div_ceil(self.lines)
    }

    /// Most elements of a block.
    pub fn elements(&self) -> usize {
        self.elements_of(self.lines)
    }

    /// Most positions of a block.
    pub fn positions(&self) -> usize {
        self.positions.len()
    }

    /// Positions of a line.
    pub fn positions_of_line(&self) -> usize {
        self.position.rows
    }

    /// The lines of an image in one of its blocks.
    pub fn lines_of(&self, block: usize) -> Range<usize> {
        let start = block * self.lines;
        start..self.line.rows.min(start + self.lines)
    }

    /// The first position of some lines of an image.
    pub fn first_of(&self, image: usize, lines: &Range<usize>) -> usize {
        (image * self.line.rows + lines.start) * self.position.rows
    }

    /// The image and its lines at the beginning of the range, at most a block of them; the range
    /// begins at the start of a line.
    pub fn beginning(&self, positions: &Range<usize>) -> (usize, Range<usize>) {
        let start = positions.start / self.position.rows;
        let end = positions.end.div_ceil(self.position.rows);
        let (image, line) = (start / self.line.rows, start % self.line.rows);
        let most = self.lines.min(self.line.rows - line);
        (image, line..line + most.min(end - start))
    }

    /// Runs of taps, and elements of each.
    pub fn runs(&self) -> [usize; 2] {
        [self.runs.len(), self.length]
    }

    /// Distance in a block between the elements of neighbouring positions of a line.
    pub fn step(&self) -> usize {
        self.position.step as usize * self.channels
    }

    /// Elements of a block of `lines` lines of an image.
    pub fn elements_of(&self, lines: usize) -> usize {
        self.line.extent(lines) * self.width * self.channels
    }

    /// Copies the part of the source that some lines of an image reach, with zeros outside the
    /// source. `copied` copies elements to the numbers of the block.
    ///
    /// # Safety
    ///
    /// The source is the whole tensor from the group's first channel on. The destination is valid
    /// to write as many elements as a block has, and does not overlap the source. `copied` is safe
    /// to call for elements of the source and numbers of the destination.
    pub unsafe fn copy<T: Copy, N: Zeroable>(
        &self,
        source: *const T,
        image: usize,
        lines: &Range<usize>,
        destination: *mut N,
        copied: impl Fn(*const T, *mut N, usize),
    ) {
        let (line, position, channels) = (&self.line, &self.position, self.channels);
        let (first, _) = reach(line);
        let first = first + lines.start as i64 * line.step;
        let (left, _) = reach(position);
        let width = self.width as i64;
        let before = (-left).clamp(0, width);
        let met = (position.source as i64 - left).clamp(before, width) - before;
        let (before, met) = (before as usize, met as usize);
        let after = self.width - before - met;
        for n in 0..line.extent(lines.len()) {
            let at =
                usize::try_from(first + n as i64).ok().filter(|at| *at < line.source && met > 0);
            // SAFETY: the line is within the source, and so are its copied positions; the block
            // has room for all.
            unsafe {
                let to = destination.add(n * self.width * channels);
                let Some(at) = at else {
                    zeros(to, self.width * channels);
                    continue;
                };
                zeros(to, before * channels);
                let from = (image * line.source + at) * position.source + left.max(0) as usize;
                let (from, to) = (source.add(from * self.all_channels), to.add(before * channels));
                if channels == self.all_channels {
                    copied(from, to, met * channels);
                } else {
                    for x in 0..met {
                        copied(from.add(x * self.all_channels), to.add(x * channels), channels);
                    }
                }
                zeros(to.add(met * channels), after * channels);
            }
        }
    }

    /// Products of a block's patches with the filter; `out` has a row for each position.
    ///
    /// # Safety
    ///
    /// The block was copied for `block.lines` lines. The filter has rows for all runs of taps, and
    /// contiguous columns, those of out. Out is valid to write and no other code uses it. The
    /// machine has the vector instructions.
    pub unsafe fn products<N: Copy + 'static>(
        &self,
        block: &Block<'_, N>,
        filter: View<N>,
        out: Out<N>,
    ) {
        let rows = &self.positions[..block.lines * self.position.rows];
        let gather = block.gather(rows, &self.runs, self.length);
        // SAFETY: the offsets of rows and runs are in the block; the caller guarantees the filter
        // and out.
        unsafe { block.multiply(&gather, 1, filter, out, false) };
    }

    /// Sums over a block's positions of the products of some of its patches' elements (`entries`:
    /// taps and their channels) with the cotangent; `out` has a row for each element. With `add`,
    /// the sums continue from the elements of out.
    ///
    /// # Safety
    ///
    /// The block was made for sums, for `block.lines` lines. The cotangent has a row for each of
    /// their positions, and contiguous columns, those of out. Out is valid to write, and to read if
    /// it is added to, and no other code uses it. The machine has the vector instructions.
    pub unsafe fn sums<N: Copy + 'static>(
        &self,
        block: &Block<'_, N>,
        entries: Range<usize>,
        cotangent: View<N>,
        out: Out<N>,
        add: bool,
    ) {
        let [rows, runs] = &self.of_sums[block.doubled as usize];
        let gather = block.gather(&rows[entries], &runs[..block.lines], self.position.rows);
        let step = if block.doubled { 2 * self.step() } else { self.step() };
        // SAFETY: the offsets of rows and runs are in the block; the caller guarantees the
        // cotangent and out.
        unsafe { block.multiply(&gather, step, cotangent, out, add) };
    }
}

/// A copied block.
pub(super) struct Block<'a, N: 'static> {
    pub kernels: &'a Kernels<N>,
    pub at: *const N,
    /// Whether the kernels' numbers are pairs of elements.
    pub pairs: bool,
    /// Whether the block holds a pair for each element.
    pub doubled: bool,
    /// Whether the kernels take numbers in the [order](self) of pairs.
    pub exchanged: bool,
    /// Lines of an image in the block.
    pub lines: usize,
}

/// The destination of rows of products.
#[derive(Clone, Copy)]
pub(super) struct Out<N> {
    pub at: *mut N,
    pub columns: usize,
    /// Distance between rows.
    pub row: usize,
}

impl<N: Copy> Block<'_, N> {
    /// The addresses of gathered rows.
    fn gather<'g>(&self, rows: &'g [usize], runs: &'g [usize], length: usize) -> Gather<'g> {
        Gather { rows, runs, length, exchanged: self.exchanged, ahead: 0 }
    }

    /// Computes a row of out for each of the gathered rows; the steps of a run are `step` apart.
    ///
    /// # Safety
    ///
    /// The gathered elements are in the block. rhs has a row for each step, and contiguous
    /// columns, those of out. Out is valid to write, and to read if it is added to, and no other
    /// code uses it. The machine has the vector instructions.
    unsafe fn multiply(
        &self,
        gather: &Gather<'_>,
        step: usize,
        rhs: View<N>,
        out: Out<N>,
        add: bool,
    ) {
        let kernels = self.kernels;
        let high = parts(gather.rows.len(), kernels.rows(), 1);
        let strips = gather.rows.chunks(high).len();
        let wide = kernels.columns;
        // Rows of rhs in a run.
        let depth = if self.pairs { gather.length.div_ceil(2) } else { gather.length };
        let runs = parts(gather.runs.len(), (PART / (depth * wide).max(1)).max(1), 1);
        for column in (0..out.columns).step_by(wide) {
            let is_last = column + wide >= out.columns;
            for (part, some) in gather.runs.chunks(runs).enumerate() {
                let first = part * runs * depth;
                // The rows of a panel are short runs of memory, which the hardware prefetcher does
                // not follow.
                let next = match (part + 1) * runs < gather.runs.len() {
                    true => runs * depth * rhs.row,
                    false if is_last => 0,
                    false => wide.wrapping_sub(first * rhs.row),
                };
                for (n, rows) in gather.rows.chunks(high).enumerate() {
                    let ahead = if n + 1 == strips { next } else { 0 };
                    let strip = Strip {
                        depth: 0,
                        lhs: self.at,
                        lhs_step: step,
                        rhs: rhs.element(first, column),
                        rhs_step: rhs.row,
                        panel: wide,
                        columns: wide.min(out.columns - column),
                        out: out.at.wrapping_add(n * high * out.row + column),
                        out_row: out.row,
                        add: add || part > 0,
                        epilogue: Epilogue::NONE,
                        packed: std::ptr::null_mut(),
                    };
                    let gather = Gather { rows, runs: some, ahead, ..*gather };
                    // SAFETY: the caller guarantees all memory that the strip names. Later parts
                    // continue the sums that the earlier ones stored.
                    unsafe { kernels.gathering(rows.len(), &strip, &gather) };
                }
            }
        }
    }
}
