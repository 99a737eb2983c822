//! Prefetch of the next block of rhs during the multiplication of the current one.
//!
//! A block is read from memory once and used for every strip of rows. Fetching it during packing
//! alternates between an idle and a saturated memory bus. So the last tiles of the current block
//! prefetch the next block, each an equal share.
//!
//! The first tile of a strip prefetches the rows of lhs that are packed for the next strip. A loop
//! of prefetches between the two would wait for memory.
//!
//! The nest that follows a product reads other matrices of out's extents. The tiles of a strip
//! prefetch its rows of them while its last terms are added: then the nest finds them in L2.

use super::strip::{Ahead, Kernels, Strip};
use crate::call::element::Element;
use crate::call::panel::View;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines that a tile prefetches, if all tiles of a block suffice: about as many as arrive during
/// a tile. A line that is prefetched earlier than necessary may not stay in L2, so the last tiles
/// of a block prefetch.
const LINES: usize = 24;

/// The block that is packed next, and the progress of its prefetch.
pub(super) struct Prefetch {
    /// The first run of contiguous memory, and the distance to the next run in bytes.
    first: *const u8,
    distance: usize,
    /// The number of runs.
    runs: usize,
    /// Runs of a share, and shares of a line of all runs.
    side: usize,
    shares: usize,
    /// Shares of the block.
    parts: usize,
    /// Columns of a panel.
    wide: usize,
    /// Tiles that prefetch.
    tiles: usize,
    /// Those of them computed so far.
    made: usize,
}

/// A matrix of out's extents, which is read when a part of out is complete.
#[derive(Clone, Copy)]
pub(in crate::call) struct Beside {
    pub at: *const u8,
    /// Bytes from one row to the next.
    pub row: usize,
    /// Bytes of an element.
    pub size: usize,
}

impl Beside {
    /// No matrix.
    pub const NOWHERE: Beside = Beside { at: std::ptr::null(), row: 0, size: 0 };
}

/// The rows of such matrices that a strip prefetches, in shares of a tile.
pub(super) struct Behind<'a> {
    /// The matrices from a strip's first row and column on.
    pub matrices: &'a [Beside],
    pub rows: usize,
    pub columns: usize,
    /// Lines of a share.
    pub steps: usize,
    /// Rows of the first of these matrices that are prefetched already.
    pub fetched: usize,
    /// The first row and column of the strip.
    pub first: [usize; 2],
}

impl Behind<'_> {
    /// The next share: as many rows as it has lines for.
    fn next(&mut self) -> Option<Ahead> {
        let (matrix, rest) = self.matrices.split_first()?;
        let lines = (self.columns * matrix.size).div_ceil(LINE);
        let [row, column] = self.first;
        let at = matrix.at.wrapping_add((row + self.fetched) * matrix.row + column * matrix.size);
        self.fetched += (self.steps / lines).max(1);
        if self.fetched >= self.rows {
            (self.matrices, self.fetched) = (rest, 0);
        }
        Some(Ahead { at, across: LINE, side: lines, along: matrix.row })
    }
}

impl Prefetch {
    /// A block of `depth` steps and `columns` columns, during `strips` strips of `panels` tiles of
    /// `wide` columns. If neither its rows nor its columns are contiguous, nothing is prefetched.
    pub fn new<T: Element>(
        block: View<T>,
        [depth, columns]: [usize; 2],
        [strips, panels]: [usize; 2],
        wide: usize,
    ) -> Self {
        // The first of several tiles prefetches lhs.
        let tiles = strips * if panels > 1 { panels - 1 } else { panels };
        let (runs, distance, length) = match block.column == 1 {
            true => (depth, block.row, columns),
            false => (columns, block.column, depth),
        };
        let contiguous = block.row == 1 || block.column == 1;
        let distance = distance * size_of::<T>();
        // Runs that do not begin with a line end within one more.
        let more = usize::from(!distance.is_multiple_of(LINE));
        let lines = (length * size_of::<T>()).div_ceil(LINE) + more;
        let side = (runs * lines).div_ceil(tiles.max(1)).clamp(LINES, runs.max(LINES));
        let shares = runs.div_ceil(side);
        let parts = if contiguous && length > 0 { lines * shares } else { 0 };
        let first = block.at.cast();
        Prefetch { first, distance, runs, side, shares, parts, wide, tiles, made: 0 }
    }

    /// The lines of a share: one of each of some runs. They are prefetched again and again if a
    /// tile has more steps.
    fn part(&self, part: usize) -> Ahead {
        let (line, first) = (part / self.shares, part % self.shares * self.side);
        let at = self.first.wrapping_add(first * self.distance + line * LINE);
        let side = self.side.min(self.runs - first);
        Ahead { at, across: self.distance, side, along: 0 }
    }

    /// Computes a strip. Its first tile prefetches `lhs`, the rows of the next strip; the others
    /// prefetch their share of the next block, and what is read behind the strip.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::strip`].
    pub unsafe fn strip<N>(
        &mut self,
        kernels: &Kernels<N>,
        rows: usize,
        strip: &Strip<N>,
        mut lhs: Option<Ahead>,
        mut behind: Behind<'_>,
    ) {
        let mut part = Strip { ..*strip };
        // SAFETY: the parts are the strip's panels, and its remaining columns.
        unsafe {
            while part.columns >= self.wide
                && (lhs.is_some() || self.parts > 0 || !behind.matrices.is_empty())
            {
                let tile = Strip { columns: self.wide, ..part };
                let ahead = lhs.take().or_else(|| {
                    let (from, to) = (self.fetched(self.made), self.fetched(self.made + 1));
                    self.made += 1;
                    if from < to { Some(self.part(from)) } else { behind.next() }
                });
                match ahead {
                    Some(ahead) => kernels.fetching(rows, &tile, &ahead),
                    None => kernels.strip(rows, &tile),
                }
                part.rhs = part.rhs.add(part.panel);
                part.out = part.out.add(self.wide);
                part.epilogue = part.epilogue.from([0, self.wide], 0);
                part.columns -= self.wide;
            }
            kernels.strip(rows, &part);
        }
    }

    /// Number of shares prefetched after `tiles` tiles.
    fn fetched(&self, tiles: usize) -> usize {
        let last = self.tiles.min(self.parts);
        (tiles + last).saturating_sub(self.tiles) * self.parts / last.max(1)
    }
}
