//! Waves: which blocks run, and which of them at the same time.

use super::{Counting, Sample};
use std::ops::Range;

/// The waves that run. The blocks in them are numbered by *position*: their place in the order of
/// execution.
#[derive(Debug)]
pub(crate) struct Waves {
    /// Blocks of a wave; the grid's last may have fewer.
    size: u32,
    /// Numbers of the waves, ascending.
    chosen: Vec<u32>,
    /// Blocks of all of them.
    blocks: u32,
}

impl Waves {
    /// The waves of a grid of `grid` blocks, at least one.
    pub(crate) fn new(grid: u32, counting: &Counting) -> Waves {
        let size = counting.caches.wave().min(grid);
        let all = grid.div_ceil(size);
        let wanted = match counting.sample {
            Sample::All => all,
            Sample::Blocks(blocks) => blocks.div_ceil(size.into()).clamp(1, all.into()) as u32,
        };
        let even = |n: u32| (u64::from(n) * u64::from(all) / u64::from(wanted)) as u32;
        let chosen: Vec<u32> = (0..wanted).map(even).collect();
        // Only the grid's last wave may have fewer blocks.
        let last = chosen.last().expect("at least one wave runs");
        let in_last = (grid - last * size).min(size);
        Waves { size, blocks: (wanted - 1) * size + in_last, chosen }
    }

    /// Blocks that run.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The block at a position.
    pub(crate) fn block(&self, position: u32) -> u32 {
        self.chosen[(position / self.size) as usize] * self.size + position % self.size
    }

    /// The positions of the `n`-th wave that runs; empty past the last.
    pub(super) fn positions(&self, n: u32) -> Range<u32> {
        let at = |n: u32| n.saturating_mul(self.size).min(self.blocks);
        at(n)..at(n + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Caches;

    fn waves(grid: u32, sample: Sample) -> Waves {
        let caches = Caches { l1: 0, l2: 4096, ways: 1, multiprocessors: 4, resident: 2 };
        Waves::new(grid, &Counting { caches, sample })
    }

    fn blocks(waves: &Waves) -> Vec<u32> {
        (0..waves.blocks()).map(|position| waves.block(position)).collect()
    }

    #[test]
    fn all_blocks_run_in_order() {
        for grid in [1, 7, 8, 9, 20] {
            let waves = waves(grid, Sample::All);
            assert_eq!(blocks(&waves), (0..grid).collect::<Vec<_>>());
            let ends: Vec<u32> = (0..4).map(|n| waves.positions(n).end).collect();
            assert_eq!(ends, [8, 16, 24, 32].map(|end| grid.min(end)));
        }
    }

    #[test]
    fn a_sample_has_whole_waves_at_even_distances() {
        // 10 waves of 8 blocks, the last of 3.
        let two = waves(75, Sample::Blocks(9));
        assert_eq!(blocks(&two), (0..8).chain(40..48).collect::<Vec<_>>());
        assert_eq!((two.positions(1), two.positions(2)), (8..16, 16..16));
        assert_eq!(blocks(&waves(75, Sample::Blocks(0))), (0..8).collect::<Vec<_>>());
        assert_eq!(waves(75, Sample::Blocks(73)).blocks(), 75);
        assert_eq!(waves(75, Sample::Blocks(u64::MAX)).blocks(), 75);
        assert_eq!(blocks(&waves(3, Sample::Blocks(1))), [0, 1, 2]);
    }
}
