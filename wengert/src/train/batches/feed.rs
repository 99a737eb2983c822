//! Batches in the order of their steps, made when they are wanted or ahead by threads.

use super::schedule::Schedule;
use super::{Batch, Examples};
use crate::data::loader::Prefetch;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use wengert_core::{Diagnostic, Result};

/// Batches of consecutive steps, in order.
pub enum Feed<'a> {
    /// Batches of arrays in memory, made when they are wanted.
    Direct { examples: Arc<Examples<'a>>, schedule: Schedule, steps: Range<u64> },
    /// Batches that threads make ahead.
    Ahead(Prefetch<Batch<'a>>),
}

impl<'a> Feed<'a> {
    /// The batches of these steps. `threads` read data that are not ready in memory; without it,
    /// half of the processors do.
    ///
    /// Error: there is not enough memory for windows of blocks.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        examples: &Arc<Examples<'a>>,
        schedule: &Schedule,
        steps: Range<u64>,
        threads: Option<usize>,
    ) -> Result<Feed<'a>>
    where
        'a: 'scope,
    {
        let (examples, schedule) = (Arc::clone(examples), schedule.clone());
        if examples.is_ready() {
            return Ok(Feed::Direct { examples, schedule, steps });
        }
        examples.check_room(&schedule)?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(processors.div_ceil(2).min(8)).max(1);
        // Batches wait in at most 64 MiB, but for at least one batch of each thread. Many small
        // batches bridge the milliseconds in which the system runs other threads.
        let bytes = schedule.batches.size.saturating_mul(examples.row_bytes()).max(1);
        let depth = ((64 << 20) / bytes).clamp(threads as u64, 64 * threads as u64) + 1;
        let (end, schedule) = (steps.end, Mutex::new(schedule));
        Ok(Feed::Ahead(Prefetch::start(scope, steps, threads, depth, move |step| {
            let drawn = schedule.lock().unwrap_or_else(PoisonError::into_inner).draw(step, end);
            let _span = tracing::debug_span!("batch", number = step + 1).entered();
            examples.read(drawn)
        })))
    }

    /// The next batch, with the time until it was there; `None` after the last one.
    pub fn next(&mut self) -> Result<Option<(Batch<'a>, Duration)>> {
        let began = Instant::now();
        let batch = match self {
            Feed::Direct { examples, schedule, steps } => {
                steps.next().map(|step| examples.batch(schedule, step))
            }
            Feed::Ahead(batches) => batches.next(),
        };
        Ok(batch.transpose()?.map(|batch| (batch, began.elapsed())))
    }
}

/// Calls a closure with each batch of the first epoch.
///
/// Errors: those of the closure and of reading.
pub fn for_each_batch<'a, E: From<Diagnostic>>(
    examples: &Arc<Examples<'a>>,
    schedule: &Schedule,
    threads: Option<usize>,
    mut use_batch: impl FnMut(Batch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    thread::scope(|scope| {
        let steps = 0..schedule.steps_per_epoch();
        let mut feed = Feed::start(scope, examples, schedule, steps, threads)?;
        while let Some((batch, _)) = feed.next()? {
            use_batch(batch)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Arrays;
    use crate::data::loader::Blocks;
    use crate::data::source::{ArrayType, Source};
    use crate::recipe::{Batches, InputRecipe, LastBatch, Transform};
    use crate::train::check_data::DataChecks;
    use wengert_core::{DType, Literal, Scalar};

    /// The arrays of a source that is not in memory.
    struct Elsewhere(Arrays);

    impl Source for Elsewhere {
        fn arrays(&self) -> std::collections::BTreeMap<String, ArrayType> {
            self.0.arrays()
        }

        fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
            self.0.read_range(array, rows)
        }
    }

    fn all_batches<'a>(
        inputs: &'a [InputRecipe],
        data: &'a dyn Source,
        batches: Batches,
        steps: Range<u64>,
        threads: usize,
    ) -> Vec<Batch<'a>> {
        let examples = Examples::new(inputs, data, DataChecks::default(), 9).unwrap();
        let examples = Arc::new(examples);
        let schedule = Schedule::of(&examples, batches).unwrap();
        thread::scope(|scope| {
            let mut feed = Feed::start(scope, &examples, &schedule, steps, Some(threads)).unwrap();
            let mut found = Vec::new();
            while let Some((batch, _)) = feed.next().unwrap() {
                found.push(batch);
            }
            found
        })
    }

    #[test]
    fn batches_are_the_same_from_memory_and_from_elsewhere() {
        let values: Vec<u8> = (0..37 * 12).map(|i| (i % 251) as u8).collect();
        let images = Literal::from_vec(&[37, 4, 3], values).unwrap();
        let data = Arrays::from([("images".into(), images)]);
        let elsewhere = Elsewhere(data.clone());
        let x = InputRecipe::new("x", "images")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(0.5f32)))
            .then("crop 1 2 random".parse().unwrap())
            .then("flip 2".parse().unwrap());
        let inputs = [x];
        let blocks = [None, Some(Blocks { rows: 5, window: 2 })];
        for (blocks, shuffle) in blocks.into_iter().flat_map(|b| [(b, Some(3)), (b, None)]) {
            let batches = Batches { size: 4, shuffle, blocks, last: LastBatch::Smaller };
            let inputs = &inputs;
            let whole = all_batches(inputs, &data, batches, 0..30, 1);
            assert_eq!(whole.len(), 30);
            assert_ne!(whole[0].inputs, whole[10].inputs, "another epoch draws other numbers");
            for threads in [1, 3] {
                assert!(all_batches(inputs, &elsewhere, batches, 0..30, threads) == whole);
                // From any step on, as a resumed run.
                for from in [1, 7, 10, 13] {
                    let resumed = all_batches(inputs, &elsewhere, batches, from..30, threads);
                    assert!(resumed == whole[from as usize..]);
                }
            }
        }
    }
}
