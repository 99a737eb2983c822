//! The block of rhs that is packed next, fetched while this one is used.
//!
//! A block is read from memory once and used for every strip of rows. If it were fetched when it is packed, memory would be idle for most of the
//! time, and then asked for all that it can deliver. So the last tiles that are made from this block fetch the next one, each the same share.

use super::micro::{Ahead, Kernels, Strip};
use crate::call::element::Element;
use crate::call::panel::View;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Of so many of the last tiles one fetches a part. What is fetched earlier does not stay in the second cache.
const FOR_A_PART: usize = 8;

/// A block that is packed next, and how far it has been fetched.
pub(super) struct Coming<T> {
    block: View<T>,
    depth: usize,
    /// Steps of a tile, and columns of a panel.
    steps: usize,
    wide: usize,
    /// What a tile fetches is such a part of a panel: a line of the cache for each step.
    shares: usize,
    /// All parts.
    parts: usize,
    /// Tiles that are made meanwhile.
    pub tiles: usize,
    /// Those that have been.
    made: usize,
}

impl<T: Element> Coming<T> {
    /// A block of so many steps and columns. Where neither rows nor columns are runs of memory, nothing is fetched.
    pub fn new(block: View<T>, [depth, columns]: [usize; 2], [steps, wide]: [usize; 2]) -> Self {
        let shares = (wide * size_of::<T>() / LINE).max(1) * depth.div_ceil(steps);
        let runs = block.row == 1 || block.column == 1;
        let parts = if runs { columns / wide * shares } else { 0 };
        Coming { block, depth, steps, wide, shares, parts, tiles: 0, made: 0 }
    }

    /// A part.
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

    /// Makes a strip, and fetches its share.
    ///
    /// # Safety
    ///
    /// That of [`Kernels::strip`].
    pub unsafe fn strip(&mut self, kernels: &Kernels<T::Wide>, rows: usize, strip: &Strip<T::Wide>) {
        let mut part = Strip { ..*strip };
        // SAFETY: the parts are the strip's panels, and what is left of it.
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

    /// How many parts have been fetched after so many tiles.
    fn fetched(&self, tiles: usize) -> usize {
        let last = self.tiles.min(self.parts * FOR_A_PART);
        (tiles + last).saturating_sub(self.tiles) * self.parts / last.max(1)
    }
}
