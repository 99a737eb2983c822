//! Prefetch of the next block of rhs during the multiplication of the current one.
//!
//! A block is read from memory once and used for every strip of rows. Fetching it during packing
//! alternates between an idle and a saturated memory bus. So the last tiles of the current block
//! prefetch the next block, each an equal share.

use super::strip::{Ahead, Kernels, Strip};
use crate::call::element::Element;
use crate::call::panel::View;

/// Bytes of a cache line.
const LINE: usize = 64;
/// One in this many of the last tiles prefetches a part. A line that is prefetched earlier does
/// not stay in L2.
const FOR_A_PART: usize = 8;

/// The block that is packed next, and the progress of its prefetch.
pub(super) struct Prefetch<T> {
    block: View<T>,
    depth: usize,
    /// Steps of a tile, and columns of a panel.
    steps: usize,
    wide: usize,
    /// Shares of a panel. A tile prefetches one share: a cache line for each step.
    shares: usize,
    /// Shares of all panels.
    parts: usize,
    /// Tiles computed during the prefetch.
    pub tiles: usize,
    /// Tiles computed so far.
    made: usize,
}

impl<T: Element> Prefetch<T> {
    /// A block of `depth` steps and `columns` columns. If neither its rows nor its columns are
    /// contiguous, nothing is prefetched.
    pub fn new(block: View<T>, [depth, columns]: [usize; 2], [steps, wide]: [usize; 2]) -> Self {
        let shares = (wide * size_of::<T>() / LINE).max(1) * depth.div_ceil(steps);
        let runs = block.row == 1 || block.column == 1;
        let parts = if runs { columns / wide * shares } else { 0 };
        Prefetch { block, depth, steps, wide, shares, parts, tiles: 0, made: 0 }
    }

    /// The lines of a share.
    fn part(&self, part: usize) -> Ahead {
        let (panel, share) = (part / self.shares, part % self.shares);
        let panel = self.block.from(0, panel * self.wide);
        let size = size_of::<T>();
        if panel.column == 1 {
            let along = self.depth.div_ceil(self.steps);
            let at = panel.from(share % along * self.steps, 0).at.cast::<u8>();
            let at = at.wrapping_add(share / along * LINE);
            return Ahead { at, across: panel.row * size, side: self.steps, along: 0 };
        }
        let at = panel.from(share * self.depth / self.shares, 0).at.cast();
        Ahead { at, across: panel.column * size, side: self.wide, along: LINE }
    }

    /// Computes a strip, and prefetches its share.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::strip`].
    pub unsafe fn strip(
        &mut self,
        kernels: &Kernels<T::Wide>,
        rows: usize,
        strip: &Strip<T::Wide>,
    ) {
        let mut part = Strip { ..*strip };
        // SAFETY: the parts are the strip's panels, and its remaining columns.
        unsafe {
            while self.parts > 0 && part.columns >= self.wide {
                let (from, to) = (self.fetched(self.made), self.fetched(self.made + 1));
                self.made += 1;
                let tile = Strip { columns: self.wide, ..part };
                if from < to {
                    kernels.fetching(rows, &tile, &self.part(from));
                } else {
                    kernels.strip(rows, &tile);
                }
                part.rhs = part.rhs.add(part.panel);
                part.out = part.out.add(self.wide);
                part.addends = part.addends.from(0, self.wide);
                part.columns -= self.wide;
            }
            kernels.strip(rows, &part);
        }
    }

    /// Number of shares prefetched after `tiles` tiles.
    fn fetched(&self, tiles: usize) -> usize {
        let last = self.tiles.min(self.parts * FOR_A_PART);
        (tiles + last).saturating_sub(self.tiles) * self.parts / last.max(1)
    }
}
