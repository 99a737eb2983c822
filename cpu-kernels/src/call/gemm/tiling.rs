//! Division of a product among threads.
//!
//! No division changes the bits (see [`product`](crate::call::product)), so the division may
//! depend on the number of threads. It minimises a model of time: the time of a tile, the packing
//! of its operands included, times the tiles of the thread that has most. Long tiles cost extra:
//! if other work delays a thread, the other threads can take its share only tile by tile.

use crate::call::product::blocks::SUMS;
use crate::call::product::{FEW, Order};
use std::time::Duration;

/// The division of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Rows of a tile.
    pub rows: usize,
    /// Columns of a tile.
    pub columns: usize,
    /// Products of a task, if a tile is a whole one; otherwise 1.
    pub batches: usize,
}

/// The parameters of a division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grain {
    pub threads: usize,
    /// Rows and columns of the microkernel's tile.
    pub tile: [usize; 2],
    /// Most columns of a block of rhs.
    pub columns: usize,
    /// Whether the sums of a tile are computed outside of out, and are then at most [`APART`].
    pub apart: bool,
    /// Whether an instruction multiplies pairs, in half of the time of two multiplications.
    pub pairs: bool,
}

/// Most sums of a tile that are computed outside of out: they stay in L2.
pub(super) const APART: usize = (ROWS + 64) * 512;
/// Most rows of such a tile with 512 columns; [`APART`] leaves a margin of 64 rows.
const ROWS: usize = 256;
/// Fewest multiplications and additions (or work that takes as long) that are worth a task.
pub(super) const TASK: usize = 1 << 19;
/// The time that a thread takes for a task of [`TASK`].
const TIME: Duration = Duration::from_micros(5);
/// Cost of packing an element. Measured on Emerald Rapids: 22 for lhs, and 47 for rhs that is read
/// from L3.
const PACKING: usize = 32;
/// Cost of reading an element that is used a few times.
const READING: usize = 24;
/// Cost of beginning and ending the sum of an element.
const SUM: usize = 64;
/// Fewest columns of rhs that a thread reads in one run, if there are as many: in shorter runs,
/// the fixed cost takes much of the time.
const STRETCH: usize = 256;
/// A tile with this cost (some 80 ms at the rate of [`TASK`]) doubles the modelled time. The
/// longer a tile, the more likely other work delays its thread while the other threads are idle.
const LONG: usize = 1 << 33;
/// Tasks for each thread if the packing does not depend on the division.
const EACH: usize = 4;

impl Grain {
    /// Cost of a tile in multiplications and additions that are not of pairs.
    pub fn cost(&self, rows: usize, columns: usize, k: usize) -> usize {
        let terms = if self.pairs { k } else { k.saturating_mul(2) };
        let product = rows.saturating_mul(columns).saturating_mul(terms.saturating_add(SUM));
        let lines = match () {
            () if rows <= FEW => columns.saturating_mul(READING),
            () => rows.saturating_add(columns).saturating_mul(PACKING),
        };
        product.saturating_add(lines.saturating_mul(k))
    }

    /// Estimate of the time that one thread takes for the product.
    pub fn time(&self, [batch, m, n, k]: [usize; 4]) -> Duration {
        let tasks = self.cost(m, n, k).saturating_mul(batch) / TASK;
        TIME.saturating_mul(u32::try_from(tasks).unwrap_or(u32::MAX))
    }
}

impl Tiling {
    pub fn new(order: Order, [batch, m, n, k]: [usize; 4], grain: Grain) -> Self {
        let Grain { threads, tile: [high, wide], apart, .. } = grain;
        let whole = grain.cost(m, n, k);
        let total = whole.saturating_mul(batch);
        // Small products share tasks; every thread gets some tasks.
        let target = if threads == 1 {
            usize::MAX
        } else {
            (total / threads.saturating_mul(EACH)).max(TASK)
        };
        let few = m <= FEW || order == Order::Lanes;
        let most = match () {
            () if few && order != Order::Lanes => SUMS,
            () if apart => APART,
            () => usize::MAX,
        };
        if whole <= target && m.saturating_mul(n) <= most {
            let batches = (target / whole.max(1)).clamp(1, batch.max(1));
            return Tiling { rows: m.max(1), columns: n.max(1), batches };
        }
        if few {
            // The memory traffic does not depend on the division. Long runs of rhs are read
            // fastest.
            let each = if order == Order::Lanes { EACH } else { 1 };
            let tasks = (total / TASK).clamp(1, threads.saturating_mul(each));
            let tasks = tasks.div_ceil(batch.max(1));
            return match order {
                Order::Lanes => {
                    Tiling { rows: m.div_ceil(tasks).clamp(1, most), columns: n.max(1), batches: 1 }
                }
                _ => {
                    let least = n.div_ceil(threads).min(STRETCH);
                    let columns = n.div_ceil(tasks).max(least).next_multiple_of(wide);
                    let columns = columns.min(most / m.max(1)).max(1);
                    Tiling { rows: m.max(1), columns, batches: 1 }
                }
            };
        }
        let mut best = (usize::MAX, Tiling { rows: 1, columns: 1, batches: 1 });
        for down in steps(if apart { m.div_ceil(ROWS) } else { 1 }, m.div_ceil(high)) {
            for across in steps(n.div_ceil(grain.columns), n.div_ceil(wide)) {
                // Any number of rows is computed in strips of about equal height.
                let (rows, columns) = (part(m, down, 1), part(n, across, wide));
                let tile = grain.cost(rows, columns, k);
                let tasks =
                    batch.saturating_mul(m.div_ceil(rows)).saturating_mul(n.div_ceil(columns));
                let time = tile.saturating_mul(tasks.div_ceil(threads));
                let time = if threads == 1 {
                    time
                } else {
                    time.saturating_add(time / (LONG / tile).max(1))
                };
                if best.0 == usize::MAX || (time < best.0 && tile >= TASK) {
                    best = (time.min(usize::MAX - 1), Tiling { rows, columns, batches: 1 });
                }
            }
        }
        best.1
    }
}

/// The order of tiles.
///
/// Threads have [shares](crate::pool) of neighbouring tasks. If the rows of tiles divide evenly
/// among the threads, each thread's share is whole rows of tiles. The nests before and after the
/// product are divided likewise, so a thread finds its own results in its cache. Within a share,
/// or without an even division, the tiles of one column follow each other: they read the same
/// part of rhs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    across: usize,
    /// Rows of tiles that are computed column by column.
    together: usize,
}

impl Turns {
    /// The order of a grid of tiles.
    pub fn new([down, across]: [usize; 2], threads: usize) -> Self {
        Turns { across, together: if down.is_multiple_of(threads) { down / threads } else { down } }
    }

    /// The row and column of a tile in the grid.
    pub fn of(self, tile: usize) -> [usize; 2] {
        let Turns { across, together } = self;
        let (group, within) = (tile / (together * across), tile % (together * across));
        [group * together + within % together, within / together]
    }
}

/// Counts of parts to try, from `least` on, each by about a third more than the previous one.
fn steps(least: usize, most: usize) -> impl Iterator<Item = usize> {
    let least = least.max(1);
    std::iter::successors(Some(least), |n| Some(n.saturating_add((n / 3).max(1))))
        .take_while(move |n| *n <= most.max(least))
        .take(12)
}

/// The extent of `count` equal parts, a multiple of `unit` if there are several.
fn part(extent: usize, count: usize, unit: usize) -> usize {
    match count {
        1 => extent.max(1),
        _ => extent.div_ceil(count).max(1).checked_next_multiple_of(unit).unwrap_or(extent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAIN: Grain =
        Grain { threads: 2, tile: [14, 32], columns: 384, apart: false, pairs: false };

    fn tiling(extents: [usize; 4], threads: usize) -> Tiling {
        Tiling::new(Order::Chain, extents, Grain { threads, ..GRAIN })
    }

    #[test]
    fn tiles_are_neither_too_small_nor_too_few() {
        // Small products are one task.
        let small = tiling([1, 32, 32, 32], 8);
        assert_eq!((small.rows, small.columns), (32, 32));
        for (m, n, k) in [
            (512, 512, 512),
            (1024, 1152, 384),
            (64, 512, 784),
            (2048, 2048, 2048),
            (1, 4096, 1024),
        ] {
            for threads in [2, 8] {
                let t = tiling([1, m, n, k], threads);
                let tiles = m.div_ceil(t.rows) * n.div_ceil(t.columns);
                assert!(tiles >= threads, "{m} {n} {k}: {t:?}");
                assert!(GRAIN.cost(t.rows, t.columns, k) >= TASK / 2, "{m} {n} {k}: {t:?}");
                assert!(m <= FEW || t.columns <= GRAIN.columns, "{m} {n} {k}: {t:?}");
            }
        }
        // Many small products share tasks.
        assert!(tiling([4096, 8, 8, 8], 2).batches > 50);
        // Sums outside of out are bounded, whatever the extents.
        for (m, n, k) in
            [(5000, 300, 64), (1 << 20, 1, 1), (1, 1 << 20, 7), (9, 1 << 20, 1), (300, 520, 3)]
        {
            for threads in [1, 2, 64] {
                for order in [Order::Chain, Order::Lanes] {
                    if order == Order::Lanes && n > 1 {
                        continue;
                    }
                    let grain = Grain { threads, apart: true, ..GRAIN };
                    let t = Tiling::new(order, [1, m, n, k], grain);
                    assert!(
                        t.rows.min(m) * t.columns.min(n) <= APART,
                        "{m} {n} {k} {order:?}: {t:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn few_rows_are_divided_by_columns() {
        // The gates of an LSTM, and their derivatives: each thread packs its part of rhs.
        for extents in [[1, 64, 1024, 256], [1, 64, 256, 1024]] {
            let [_, m, n, k] = extents;
            let t = Tiling::new(Order::Chain, extents, GRAIN);
            assert!(t.rows == m && t.columns < n, "{m} {n} {k}: {t:?}");
        }
    }

    #[test]
    fn shares_are_rows_of_tiles() {
        for threads in [1, 2, 3, 8] {
            for (down, across) in [(1, 5), (2, 3), (6, 1), (6, 4), (24, 2), (7, 7)] {
                let turns = Turns::new([down, across], threads);
                let tiles: Vec<[usize; 2]> =
                    (0..down * across).map(|tile| turns.of(tile)).collect();
                let mut sorted = tiles.clone();
                sorted.sort_unstable();
                let all = (0..down).flat_map(|i| (0..across).map(move |j| [i, j]));
                assert!(sorted.into_iter().eq(all), "{threads} {down} {across}: {tiles:?}");
                if down % threads == 0 {
                    let share = tiles.len() / threads;
                    let owner = |i: usize| i / (down / threads);
                    let held =
                        tiles.iter().enumerate().all(|(tile, [i, _])| tile / share == owner(*i));
                    assert!(held, "{threads} {down} {across}: {tiles:?}");
                }
            }
        }
        // Columns follow each other within a share.
        let turns = Turns::new([4, 2], 2);
        assert_eq!([0, 1, 2, 4].map(|tile| turns.of(tile)), [[0, 0], [1, 0], [0, 1], [2, 0]]);
    }

    #[test]
    fn extremes_do_not_overflow() {
        for extents in [
            [0, 0, 0],
            [usize::MAX, 1, 0],
            [1 << 40, 1, 1 << 20],
            [1, 1 << 50, 1],
            [1 << 20, 1 << 30, 7],
        ] {
            let [m, n, k] = extents;
            for order in [Order::Chain, Order::Lanes] {
                for threads in [1, 3, 4096] {
                    let apart = threads == 3;
                    let grain = Grain { threads, apart, ..GRAIN };
                    let t = Tiling::new(order, [1, m, n, k], grain);
                    assert!(t.rows > 0 && t.columns > 0 && t.batches > 0, "{t:?}");
                }
            }
        }
    }
}
