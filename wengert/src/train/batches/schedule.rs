//! The epoch and the rows of each step.

use super::Examples;
use crate::data::loader::{Blocks, Order, Place};
use crate::recipe::{Batches, LastBatch};
use std::ops::Range;
use wengert_core::{Result, diagnostic};

/// The schedule of steps: the epoch and the examples of each step.
#[derive(Clone, Debug)]
pub struct Schedule {
    count: usize,
    pub(super) batches: Batches,
    pub(super) order: Order,
    rows: Vec<usize>,
}

/// The examples of a step, before they are read.
pub(super) struct Drawn {
    pub step: u64,
    pub epoch: u64,
    pub rows: Vec<usize>,
    /// Where they are, if they are read in blocks.
    pub place: Option<Place>,
}

impl Schedule {
    /// A schedule over `count` examples. It is an error if there is no whole batch and smaller
    /// ones are dropped.
    pub fn new(count: usize, batches: Batches) -> Result<Schedule> {
        let blocks = batches.shuffle.and(batches.blocks);
        let order = Order::new(count, batches.shuffle, blocks);
        let schedule = Schedule { count, batches, order, rows: Vec::new() };
        if schedule.steps_per_epoch() == 0 {
            return Err(diagnostic!("{count} examples do not make one batch of {}", batches.size)
                .help("use a smaller batch, or `LastBatch::Smaller`"));
        }
        Ok(schedule)
    }

    /// A schedule over these examples. A source that decodes blocks is read block by block.
    ///
    /// Errors: those of [`new`](Self::new); such a source would be read in a random order of all
    /// rows.
    pub fn of(examples: &Examples<'_>, batches: Batches) -> Result<Schedule> {
        let mut schedule = Schedule::new(examples.count, batches)?;
        if let Some(rows) = examples.data.block_rows().filter(|_| !examples.is_ready()) {
            match (batches.shuffle, batches.blocks) {
                (None, _) => {
                    let blocks = Blocks { rows: rows.max(1) as u64, window: 1 };
                    schedule.order = Order::new(examples.count, None, Some(blocks));
                }
                (Some(_), Some(_)) => {}
                (Some(_), None) => {
                    return Err(diagnostic!(
                        "the recipe shuffles all rows, but the data are decoded in blocks of \
                         about {rows} rows"
                    )
                    .help(
                        "shuffle in blocks: `Batches::blocks`, `graphrun train --shuffle-blocks \
                         ROWS`",
                    ));
                }
            }
        }
        Ok(schedule)
    }

    /// Error: a batch has no `parts` equal parts.
    pub fn check_parts(&self, parts: usize) -> Result<()> {
        let size = usize::try_from(self.batches.size).unwrap_or(usize::MAX);
        let rest = match self.batches.last {
            LastBatch::Drop => 0,
            LastBatch::Smaller => self.count % size,
        };
        let odd = |size: usize| !size.is_multiple_of(parts);
        let wrong =
            |size: usize| diagnostic!("a batch of {size} examples has no {parts} equal parts");
        if self.count >= size && odd(size) {
            return Err(wrong(size).help(format!(
                "make the size of batches a multiple of {parts}, or take another number of \
                 microbatches"
            )));
        }
        if odd(rest) {
            return Err(wrong(rest).help(
                "it is the last batch of an epoch: leave it out (`--drop-last`, or \
                 `LastBatch::Drop` in the recipe), or take another size of batches",
            ));
        }
        Ok(())
    }

    /// Steps of an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        let count = self.count as u64;
        match self.batches.last {
            LastBatch::Drop => count / self.batches.size,
            LastBatch::Smaller => count.div_ceil(self.batches.size),
        }
    }

    /// The epoch that step `step` is in; both count from 0.
    pub fn epoch_of(&self, step: u64) -> u64 {
        step / self.steps_per_epoch()
    }

    /// True if step `step` is the last of its epoch.
    pub fn ends_epoch(&self, step: u64) -> bool {
        (step + 1).is_multiple_of(self.steps_per_epoch())
    }

    /// The examples of step `step`, counted from 0.
    pub fn rows(&mut self, step: u64) -> &[usize] {
        self.rows = self.order.rows(self.epoch_of(step), self.positions(step));
        &self.rows
    }

    /// The positions of a step's examples in the order of its epoch.
    fn positions(&self, step: u64) -> Range<usize> {
        let within = step % self.steps_per_epoch();
        // Both products are at most the number of examples, since `within` is less than the steps
        // of an epoch.
        let from = (within * self.batches.size) as usize;
        from..self.count.min(from.saturating_add(self.batches.size as usize))
    }

    /// The examples of a step. Blocks are read ahead until step `end`.
    pub(super) fn draw(&mut self, step: u64, end: u64) -> Drawn {
        let (epoch, positions) = (self.epoch_of(step), self.positions(step));
        let rows = self.order.rows(epoch, positions.clone());
        let place = self.order.blocks().map(|_| {
            let end = (self.epoch_of(end), self.positions(end).start);
            Place::of(&mut self.order, epoch, positions, end)
        });
        Drawn { step, epoch, rows, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(size: u64, shuffle: Option<u64>, last: LastBatch) -> Batches {
        Batches { size, shuffle, blocks: None, last }
    }

    #[test]
    fn each_epoch_sees_each_example_once_in_its_own_order() {
        let mut schedule = Schedule::new(10, batches(4, Some(3), LastBatch::Smaller)).unwrap();
        assert_eq!(schedule.steps_per_epoch(), 3);
        let epoch = |schedule: &mut Schedule, e: u64| -> Vec<usize> {
            (3 * e..3 * e + 3).flat_map(|step| schedule.rows(step).to_vec()).collect()
        };
        let (first, second) = (epoch(&mut schedule, 0), epoch(&mut schedule, 1));
        assert_ne!(first, second);
        for order in [&first, &second] {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..10));
        }
        // A new schedule in another order of steps gives the same rows.
        assert_eq!(schedule.rows(2), &first[8..]);
        assert_eq!(
            epoch(&mut Schedule::new(10, batches(4, Some(3), LastBatch::Smaller)).unwrap(), 1),
            second
        );
        assert!(schedule.ends_epoch(2) && !schedule.ends_epoch(3) && schedule.epoch_of(3) == 1);
    }

    #[test]
    fn incomplete_batches_are_dropped_where_the_recipe_says_so() {
        let mut schedule = Schedule::new(10, batches(4, None, LastBatch::Drop)).unwrap();
        assert_eq!(schedule.steps_per_epoch(), 2);
        assert_eq!(schedule.rows(3), [4, 5, 6, 7]);
        assert!(Schedule::new(3, batches(4, None, LastBatch::Drop)).is_err());
        assert_eq!(
            Schedule::new(3, batches(u64::MAX, None, LastBatch::Smaller)).unwrap().rows(5),
            [0, 1, 2]
        );
    }
}
