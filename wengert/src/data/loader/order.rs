//! The order of an epoch's rows.
//!
//! A position counts the rows of an epoch in their order. The rows of any positions are computed
//! without those before them, so a run resumes anywhere.
//!
//! **In blocks.** A random order of all rows reads a file at random places. An order in blocks
//! does not: consecutive rows are a *block*, the blocks are put in a random order, and rows are
//! shuffled within *windows* of so many blocks. Each window is read block by block. Its memory is
//! that of a window's row numbers, not of all rows.

use crate::random::{SplitMix64, hash_name};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of rows, and windows of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Rows of a block, which are read together.
    pub rows: u64,
    /// Blocks of a window, within which rows are shuffled. Up to three windows are in memory.
    pub window: u64,
}

/// The order of the rows of each epoch.
#[derive(Clone, Debug)]
pub struct Order {
    count: usize,
    seed: Option<u64>,
    blocks: Option<Blocks>,
    /// Lists that were computed last, by epoch and kind of list.
    known: VecDeque<Known>,
}

/// A list of an epoch.
type Known = ((u64, List), Arc<Vec<usize>>);

/// A list that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    /// All rows of an epoch.
    Rows,
    /// All blocks of an epoch.
    Blocks,
    /// The rows of a window.
    Window(u64),
}

impl Order {
    /// The order of `count` rows: that of the data without a seed, else a random one of each
    /// epoch.
    pub fn new(count: usize, seed: Option<u64>, blocks: Option<Blocks>) -> Order {
        Order { count, seed, blocks, known: VecDeque::new() }
    }

    /// The rows at some positions of an epoch.
    pub fn rows(&mut self, epoch: u64, positions: Range<usize>) -> Vec<usize> {
        let Some(seed) = self.seed else { return positions.collect() };
        let Some(blocks) = self.blocks else {
            let count = self.count;
            let all =
                self.list(epoch, List::Rows, || SplitMix64::of(seed, &[epoch]).permutation(count));
            return all[positions].to_vec();
        };
        let mut rows = Vec::with_capacity(positions.len());
        let mut at = positions.start;
        while at < positions.end {
            let (window, start) = self.window_at(epoch, at);
            let ids = self.blocks_of(epoch, window);
            let count = self.count;
            let order = self.list(epoch, List::Window(window), || {
                let rows: Vec<usize> =
                    ids.iter().flat_map(|id| block(blocks, count, *id)).collect();
                let mut stream = SplitMix64::of(seed, &[epoch, hash_name("rows"), window]);
                stream.permutation(rows.len()).into_iter().map(|at| rows[at]).collect()
            });
            let taken = &order[at - start..order.len().min(positions.end - start)];
            rows.extend_from_slice(taken);
            at += taken.len();
        }
        rows
    }

    /// The blocks, if the data are read in blocks.
    pub(crate) fn blocks(&self) -> Option<Blocks> {
        self.blocks
    }

    /// The rows of block `id`.
    pub(crate) fn block(&self, id: usize) -> Range<usize> {
        self.blocks.map_or(0..self.count, |blocks| block(blocks, self.count, id))
    }

    /// Number of windows in an epoch.
    pub(crate) fn windows(&self) -> u64 {
        self.blocks
            .map_or(1, |blocks| (self.count as u64).div_ceil(blocks.rows).div_ceil(blocks.window))
    }

    /// The window of a position, and the window's first position.
    pub(crate) fn window_at(&mut self, epoch: u64, position: usize) -> (u64, usize) {
        let Some(blocks) = self.blocks else { return (0, 0) };
        let whole = blocks.rows.saturating_mul(blocks.window) as usize;
        let last = (self.count as u64).div_ceil(blocks.rows) as usize - 1;
        let short = whole_block(blocks) - block(blocks, self.count, last).len();
        let order = self.block_order(epoch);
        let place = match &order {
            Some(order) => order.iter().position(|id| *id == last).expect("it has every block"),
            None => last,
        };
        // All windows after the one that has the short block begin earlier.
        let (with_short, span) = (place as u64 / blocks.window, whole - short);
        let start = with_short as usize * whole;
        if position < start {
            let window = position / whole;
            (window as u64, window * whole)
        } else if position < start + span {
            (with_short, start)
        } else {
            let after = (position - start - span) / whole;
            (with_short + 1 + after as u64, start + span + after * whole)
        }
    }

    /// The blocks of a window, in order.
    pub(crate) fn blocks_of(&mut self, epoch: u64, window: u64) -> Vec<usize> {
        let Some(blocks) = self.blocks else { return vec![0] };
        let count = (self.count as u64).div_ceil(blocks.rows);
        let from = window * blocks.window;
        let places = from as usize..count.min(from.saturating_add(blocks.window)) as usize;
        match self.block_order(epoch) {
            Some(order) => order[places].to_vec(),
            None => places.collect(),
        }
    }

    /// The order of the blocks; `None` if it is that of the data.
    fn block_order(&mut self, epoch: u64) -> Option<Arc<Vec<usize>>> {
        let (seed, blocks) = (self.seed?, self.blocks?);
        let count = (self.count as u64).div_ceil(blocks.rows) as usize;
        Some(self.list(epoch, List::Blocks, || {
            SplitMix64::of(seed, &[epoch, hash_name("blocks")]).permutation(count)
        }))
    }

    /// A list, which is computed unless it is known. Threads ask for neighbouring epochs and
    /// windows in turns, so the last few are kept.
    fn list(
        &mut self,
        epoch: u64,
        list: List,
        compute: impl FnOnce() -> Vec<usize>,
    ) -> Arc<Vec<usize>> {
        const KEPT: usize = 6;
        if let Some((_, found)) = self.known.iter().find(|(key, _)| *key == (epoch, list)) {
            return Arc::clone(found);
        }
        let made = Arc::new(compute());
        // Of the lists of all rows, which may be long, two are kept.
        let long = self.known.iter().filter(|((_, kind), _)| *kind == List::Rows).count();
        if self.known.len() == KEPT || (list == List::Rows && long == 2) {
            self.known.pop_front();
        }
        self.known.push_back(((epoch, list), Arc::clone(&made)));
        made
    }
}

fn whole_block(blocks: Blocks) -> usize {
    blocks.rows as usize
}

/// The rows of block `id` of `count` rows.
fn block(blocks: Blocks, count: usize, id: usize) -> Range<usize> {
    let from = id * whole_block(blocks);
    from..count.min(from.saturating_add(whole_block(blocks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(rows: u64, window: u64) -> Option<Blocks> {
        Some(Blocks { rows, window })
    }

    #[test]
    fn every_row_once_and_windows_are_whole_blocks() {
        for (count, rows, window) in
            [(10, 3, 2), (12, 3, 2), (1, 3, 2), (100, 7, 3), (100, 100, 1), (5, 1, 1), (9, 2, 100)]
        {
            for epoch in 0..12 {
                let mut order = Order::new(count, Some(5), blocks(rows, window));
                let all = order.rows(epoch, 0..count);
                let mut sorted = all.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..count), "{all:?}");
                // The same, piece by piece, backwards, by another value.
                let mut other = Order::new(count, Some(5), blocks(rows, window));
                for at in (0..count).rev() {
                    assert_eq!(
                        other.rows(epoch, at..count.min(at + 3)),
                        all[at..count.min(at + 3)]
                    );
                    // The row is in a block of its window.
                    let (found, start) = other.window_at(epoch, at);
                    let ids = other.blocks_of(epoch, found);
                    assert!(ids.contains(&(all[at] / rows as usize)) && start <= at);
                    assert!(found < other.windows());
                }
            }
        }
    }

    #[test]
    fn epochs_and_seeds_differ_and_rows_mix_within_windows() {
        let rows = |seed, epoch| Order::new(1000, Some(seed), blocks(10, 10)).rows(epoch, 0..1000);
        let first = rows(1, 0);
        assert_ne!(first, rows(1, 1));
        assert_ne!(first, rows(2, 0));
        // Neighbours in the order are rarely neighbours in the data.
        let neighbours = first.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 50, "{neighbours}");
        // The first hundred rows are those of ten blocks.
        let mut ids: Vec<usize> = first[..100].iter().map(|row| row / 10).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 10);
    }

    #[test]
    fn without_blocks_the_order_is_the_permutation_of_the_epoch() {
        let mut order = Order::new(50, Some(3), None);
        for epoch in [0, 4, 1, 0] {
            let wanted = SplitMix64::of(3, &[epoch]).permutation(50);
            assert_eq!(order.rows(epoch, 10..20), wanted[10..20]);
        }
        assert_eq!(Order::new(5, None, blocks(2, 1)).rows(3, 1..4), [1, 2, 3]);
    }
}
