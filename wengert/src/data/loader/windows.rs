//! Reading in blocks.
//!
//! The rows of a batch come from one window of blocks, or from two where a batch crosses their
//! border. A window's blocks are read when its first batch is made, unless they are there
//! already: each batch reads its share of the next window's blocks ahead, so no batch waits for a
//! whole window. Three windows are kept: one that slower threads may need, the current one and the
//! next one.

use super::Order;
use crate::data::source::{ArrayType, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wengert_core::{Literal, Result, with_native};

/// Number of windows in memory.
pub(crate) const HELD: usize = 3;

/// The windows of a source that are in memory.
pub(crate) struct Windows<'a> {
    data: &'a dyn Source,
    /// Names of the arrays, each once.
    arrays: Vec<String>,
    held: Mutex<BTreeMap<Key, Arc<Window>>>,
}

/// An epoch and the number of a window in it.
type Key = (u64, u64);

/// A window: its blocks.
struct Window {
    blocks: Vec<Block>,
}

/// A block: its rows, and its arrays once they are read.
struct Block {
    rows: Range<usize>,
    arrays: OnceLock<Result<Vec<Literal>>>,
}

/// Where the rows of a batch are.
pub(crate) struct Place {
    /// Windows of the batch, with the rows of their blocks.
    windows: Vec<(Key, Vec<Range<usize>>)>,
    /// The next window. This batch reads a share of its blocks ahead.
    ahead: Option<Ahead>,
}

/// A window that is read ahead.
struct Ahead {
    key: Key,
    blocks: Vec<Range<usize>>,
    /// Number of blocks to read.
    share: usize,
}

impl Place {
    /// The place of these positions of an epoch. Blocks are read ahead until `end`, an epoch and a
    /// position.
    pub fn of(order: &mut Order, epoch: u64, positions: Range<usize>, end: (u64, usize)) -> Place {
        let ranges = |order: &mut Order, epoch, window| -> Vec<Range<usize>> {
            let ids = order.blocks_of(epoch, window);
            ids.into_iter().map(|id| order.block(id)).collect()
        };
        let mut windows = Vec::new();
        let mut at = positions.start;
        let mut done = 0;
        while at < positions.end {
            let (window, start) = order.window_at(epoch, at);
            let blocks = ranges(order, epoch, window);
            let length: usize = blocks.iter().map(Range::len).sum();
            at = start + length;
            // Blocks of the next window in proportion to the rows of this one.
            done = (blocks.len() * (positions.end.min(at) - start)).div_ceil(length);
            windows.push(((epoch, window), blocks));
        }
        let ahead = windows.last().and_then(|((_, window), _)| {
            let next = if *window + 1 < order.windows() {
                (epoch, *window + 1, at)
            } else {
                (epoch + 1, 0, 0)
            };
            let (epoch, window, start) = next;
            if (epoch, start) >= end {
                return None;
            }
            let blocks = ranges(order, epoch, window);
            let share = done.min(blocks.len());
            Some(Ahead { key: (epoch, window), blocks, share })
        });
        Place { windows, ahead }
    }
}

impl<'a> Windows<'a> {
    /// No window yet, of these arrays.
    pub fn new(data: &'a dyn Source, arrays: impl IntoIterator<Item = String>) -> Windows<'a> {
        let mut arrays: Vec<String> = arrays.into_iter().collect();
        arrays.sort_unstable();
        arrays.dedup();
        Windows { data, arrays, held: Mutex::default() }
    }

    /// The rows of a batch, array by array.
    ///
    /// Errors: those of the source.
    pub fn read(&self, place: &Place, rows: &[usize]) -> Result<BTreeMap<&str, Literal>> {
        let windows: Vec<Arc<Window>> =
            place.windows.iter().map(|(key, blocks)| self.window(*key, blocks)).collect();
        // Each row with its block and its row within it.
        let mut found = Vec::with_capacity(rows.len());
        let mut blocks: Vec<&Vec<Literal>> = Vec::new();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for block in windows.iter().flat_map(|window| &window.blocks) {
            ranges.push(block.rows.clone());
            blocks.push(self.arrays_of(block)?);
        }
        let mut sorted: Vec<usize> = (0..ranges.len()).collect();
        sorted.sort_unstable_by_key(|at| ranges[*at].start);
        for row in rows {
            let place = sorted.partition_point(|at| ranges[*at].start <= *row) - 1;
            let at = sorted[place];
            found.push((at, row - ranges[at].start));
        }
        let arrays = self.arrays.iter().enumerate();
        let batch = arrays.map(|(number, name)| {
            let parts: Vec<&Literal> = blocks.iter().map(|block| &block[number]).collect();
            (name.as_str(), gathered(&parts, &found))
        });
        let batch = batch.collect();
        if let Some(Ahead { key, blocks, share }) = &place.ahead {
            for block in &self.window(*key, blocks).blocks[..*share] {
                // An error is that of the batch which needs the block.
                let _ = self.arrays_of(block);
            }
        }
        Ok(batch)
    }

    /// A window, which may have no blocks yet. Old windows are dropped.
    fn window(&self, key: Key, blocks: &[Range<usize>]) -> Arc<Window> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let window = held.entry(key).or_insert_with(|| {
            let block = |rows: &Range<usize>| Block { rows: rows.clone(), arrays: OnceLock::new() };
            Arc::new(Window { blocks: blocks.iter().map(block).collect() })
        });
        let window = Arc::clone(window);
        while held.len() > HELD {
            held.pop_first();
        }
        window
    }

    /// The arrays of a block, which are read unless they are there.
    fn arrays_of<'b>(&self, block: &'b Block) -> Result<&'b Vec<Literal>> {
        let read = || {
            let arrays = self.arrays.iter();
            arrays.map(|name| self.data.read_range(name, block.rows.clone())).collect()
        };
        block.arrays.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

/// Rows of an array from its blocks: for each row the block and the row within it.
fn gathered(blocks: &[&Literal], rows: &[(usize, usize)]) -> Literal {
    let ty = ArrayType::of(blocks[0]);
    let width = ty.width();
    with_native!(ty.dtype, T => {
        let slices: Vec<&[T]> = blocks
            .iter()
            .map(|block| block.as_slice::<T>().expect("blocks of an array have its dtype"))
            .collect();
        let mut taken = Vec::with_capacity(rows.len() * width);
        for (block, row) in rows {
            taken.extend_from_slice(&slices[*block][row * width..][..width]);
        }
        Literal::from_vec(&ty.shape_of(rows.len()), taken)
            .expect("rows of blocks fill as many rows")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Arrays;
    use crate::data::loader::Blocks;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A source that counts the blocks which were read.
    struct Counting(Arrays, AtomicUsize);

    impl Source for Counting {
        fn arrays(&self) -> BTreeMap<String, ArrayType> {
            self.0.arrays()
        }

        fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.read_range(array, rows)
        }
    }

    #[test]
    fn batches_are_the_rows_and_each_block_is_read_once() {
        let values: Vec<i32> = (0..46).collect();
        let x = Literal::from_vec(&[23, 2], values).unwrap();
        let data = Counting([("x".to_owned(), x)].into(), AtomicUsize::new(0));
        let blocks = Some(Blocks { rows: 3, window: 2 });
        for seed in [Some(1), Some(2), None] {
            data.1.store(0, Ordering::SeqCst);
            let windows = Windows::new(&data, ["x".to_owned()]);
            let mut order = Order::new(23, seed, blocks);
            let mut read_at = Vec::new();
            for epoch in 0..3 {
                for from in (0..23).step_by(4) {
                    let positions = from..23.min(from + 4);
                    let rows = order.rows(epoch, positions.clone());
                    let place = Place::of(&mut order, epoch, positions, (3, 0));
                    let batch = windows.read(&place, &rows).unwrap();
                    assert_eq!(batch["x"], data.0.read("x", &rows).unwrap());
                    read_at.push(data.1.load(Ordering::SeqCst));
                }
            }
            // 8 blocks an epoch, 3 epochs; none is read after the end, or twice.
            assert_eq!(read_at.last(), Some(&24), "{read_at:?}");
            // No batch after the first reads a whole window and its share of the next.
            assert!(read_at.windows(2).all(|pair| pair[1] - pair[0] <= 3), "{read_at:?}");
        }
    }
}
