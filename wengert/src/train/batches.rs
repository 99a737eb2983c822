//! The examples of each step.
//!
//! The order depends only on the recipe's seed and the number of the epoch. The batch of any step
//! can be drawn without the batches before it, so resuming is exact, also within an epoch.
//!
//! Examples in memory are converted once, before the first step. Examples on a disk are read,
//! converted and checked batch by batch, ahead of their steps ([`loader`](crate::data::loader)).
//! Both give the same batches.

use super::check_data::{DataChecks, non_finite_in};
use crate::available_memory;
use crate::data::loader::{Blocks, HELD, Order, Place, Prefetch, Windows};
use crate::data::source::{ArrayType, Source, missing};
use crate::recipe::{Batches, InputRecipe, LastBatch};
use crate::transform::{Draws, Examples as OfBatch};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// The examples of a data set, input by input.
pub struct Examples<'a> {
    inputs: Vec<Input<'a>>,
    data: &'a dyn Source,
    checks: DataChecks<'a>,
    /// Seed of random transforms.
    seed: u64,
    count: usize,
    /// Data that are read in blocks.
    windows: Windows<'a>,
}

/// An input of the function.
struct Input<'a> {
    recipe: &'a InputRecipe,
    ty: ArrayType,
    /// The array in memory after the first transforms, and their number.
    ready: Option<(Literal, usize)>,
}

/// The examples of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch<'a> {
    /// Number of the step, from 0.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// The rows of its examples.
    pub rows: Vec<usize>,
    /// The tensors by input.
    pub inputs: Vec<(&'a str, Literal)>,
}

impl<'a> Batch<'a> {
    /// The location of the first NaN or infinity of these inputs, as text.
    pub(super) fn non_finite(&self, examples: &Examples<'a>) -> Option<String> {
        self.inputs.iter().zip(&examples.inputs).find_map(|((_, values), input)| {
            let (example, value) = non_finite_in(values)?;
            let row = self.rows.get(example).copied().unwrap_or(example);
            Some(format!("`{}` has {value} in row {row}", input.recipe.array))
        })
    }
}

impl fmt::Debug for Examples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrays = self.inputs.iter().map(|input| (&input.recipe.array, &input.ty));
        f.debug_map().entries(arrays).finish()
    }
}

impl<'a> Examples<'a> {
    /// Takes the arrays that `inputs` name out of `data`. Arrays in memory are checked, and their
    /// elementwise transforms applied once: the result is the same as for each batch by itself.
    /// `seed` is that of random transforms.
    ///
    /// Errors: an array that is missing, one without an axis, arrays whose first axes differ, no
    /// example, an element that fails `checks`.
    pub fn new(
        inputs: &'a [InputRecipe],
        data: &'a dyn Source,
        checks: DataChecks<'a>,
        seed: u64,
    ) -> Result<Examples<'a>> {
        let mut count: Option<(usize, &str)> = None;
        let mut found = Vec::with_capacity(inputs.len());
        let mut arrays = data.arrays();
        for input in inputs {
            let ty = arrays.get(&input.array).ok_or_else(|| {
                if let Some(refusal) = data.refusal(&input.array) {
                    return refusal;
                }
                let error = missing(data, &input.array);
                let help = error.help.clone().unwrap_or_default();
                diagnostic!("{} for input `{}`", error.message, input.input).help(format!(
                    "{help}; `graphrun import --train --array {}=NAME` takes another one",
                    input.input
                ))
            })?;
            if ty.shape.is_empty() {
                return Err(diagnostic!(
                    "array `{}` is a scalar; its first axis must count examples",
                    input.array
                ));
            }
            let rows = ty.rows();
            match count {
                Some((other, name)) if other != rows => {
                    return Err(diagnostic!(
                        "array `{name}` has {other} examples, `{}` has {rows}",
                        input.array
                    ));
                }
                _ => count = Some((rows, &input.array)),
            }
            let ready = match data.in_memory(&input.array) {
                Some(array) => {
                    let transforms = &input.transforms;
                    let first = transforms.iter().take_while(|t| t.is_elementwise()).count();
                    let all = OfBatch::all(Draws::new(seed, 0));
                    checks.check_raw(input, array, &all)?;
                    Some((checks.transformed(input, array, 0..first, &all)?, first))
                }
                None => None,
            };
            found.push(Input { recipe: input, ty: ty.clone(), ready });
        }
        let count = match count {
            Some((count, _)) if count > 0 => count,
            _ => return Err(Diagnostic::new("the data has no example")),
        };
        arrays.retain(|name, _| {
            found.iter().any(|input| input.ready.is_none() && input.recipe.array == *name)
        });
        let windows = Windows::new(data, arrays.into_keys());
        Ok(Examples { inputs: found, data, checks, seed, count, windows })
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether batches are rows of arrays in memory, without further transforms.
    fn is_ready(&self) -> bool {
        self.inputs.iter().all(|input| match &input.ready {
            Some((_, done)) => *done == input.recipe.transforms.len(),
            None => false,
        })
    }

    /// Bytes of an example that are read from a disk.
    fn row_bytes(&self) -> u64 {
        let read = self.inputs.iter().filter(|input| input.ready.is_none());
        read.map(|input| input.ty.row_bytes() as u64).sum()
    }

    /// The batch of a step.
    ///
    /// Errors: rows cannot be read, or fail a check; a transform does not fit them.
    pub fn batch(&self, schedule: &mut Schedule, step: u64) -> Result<Batch<'a>> {
        self.read(schedule.draw(step, step + 1))
    }

    fn read(&self, drawn: Drawn) -> Result<Batch<'a>> {
        let Drawn { step, epoch, rows, place } = drawn;
        let on_disk = self.inputs.iter().any(|input| input.ready.is_none());
        let blocks = match &place {
            Some(place) if on_disk => Some(self.windows.read(place, &rows)?),
            _ => None,
        };
        let of_batch = OfBatch::of(&rows, Draws::new(self.seed, epoch));
        let inputs = self.inputs.iter().map(|input| {
            let Input { recipe, ready, .. } = input;
            let name = recipe.input.as_str();
            let all = recipe.transforms.len();
            if let Some((array, done)) = ready {
                let rows = take_rows(array, &rows);
                if *done == all {
                    return Ok((name, rows));
                }
                return Ok((name, self.checks.transformed(recipe, &rows, *done..all, &of_batch)?));
            }
            let read = match blocks.as_ref().and_then(|arrays| arrays.get(recipe.array.as_str())) {
                Some(rows) => rows.clone(),
                None => self.data.read(&recipe.array, &rows)?,
            };
            Ok((name, self.checks.converted(recipe, &read, &of_batch)?))
        });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(Batch { step, epoch, rows, inputs })
    }

    /// Checks that the blocks of a schedule fit the memory.
    fn check_room(&self, schedule: &Schedule) -> Result<()> {
        let Some(blocks) = schedule.order.blocks() else { return Ok(()) };
        let rows = blocks.rows.saturating_mul(blocks.window).min(self.count as u64);
        let bytes = rows.saturating_mul(self.row_bytes()).saturating_mul(HELD as u64);
        available_memory::check(bytes, || {
            format!("{HELD} windows of {rows} rows, which are read in blocks")
        })
        .map_err(|error| match error.help {
            Some(_) => error,
            None => error.help("make blocks or windows smaller"),
        })
    }
}

/// The rows of an array with at least one axis.
fn take_rows(array: &Literal, rows: &[usize]) -> Literal {
    let rows = rows.iter().map(|row| *row..row + 1);
    crate::data::source::take(array, &ArrayType::of(array), rows)
}

/// Batches of consecutive steps, in order.
pub(super) enum Feed<'a> {
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
        // Batches wait in at most 64 MiB, but for at least one batch of each thread.
        let bytes = schedule.batches.size.saturating_mul(examples.row_bytes()).max(1);
        let depth = ((64 << 20) / bytes).clamp(threads as u64, 8 * threads as u64) + 1;
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
pub(super) fn for_each_batch<'a, E: From<Diagnostic>>(
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

/// The schedule of steps: the epoch and the examples of each step.
#[derive(Clone, Debug)]
pub struct Schedule {
    count: usize,
    batches: Batches,
    order: Order,
    rows: Vec<usize>,
}

/// The examples of a step, before they are read.
struct Drawn {
    step: u64,
    epoch: u64,
    rows: Vec<usize>,
    /// Where they are, if they are read in blocks.
    place: Option<Place>,
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
    fn draw(&mut self, step: u64, end: u64) -> Drawn {
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
    use crate::data::Arrays;
    use crate::recipe::Transform;
    use wengert_core::{DType, Scalar};

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

    #[test]
    fn examples_are_converted_and_gathered() {
        let images = Literal::from_vec(&[3, 2], vec![0u8, 1, 2, 3, 4, 5]).unwrap();
        let labels = Literal::from_vec(&[3], vec![7i32, 8, 9]).unwrap();
        let data = Arrays::from([("images".into(), images), ("labels".into(), labels)]);
        let x = InputRecipe::new("x", "images")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(0.5f32)));
        let inputs = [x.clone(), InputRecipe::new("y", "labels")];
        let examples = Examples::new(&inputs, &data, DataChecks::default(), 0).unwrap();
        let drawn = Drawn { step: 0, epoch: 0, rows: vec![2, 0], place: None };
        let batch = examples.read(drawn).unwrap().inputs;
        assert_eq!(
            batch[0],
            ("x", Literal::from_vec(&[2, 2], vec![2.0f32, 2.5, 0.0, 0.5]).unwrap())
        );
        assert_eq!(batch[1], ("y", Literal::from_vec(&[2], vec![9i32, 7]).unwrap()));

        let says = |inputs: &[InputRecipe], data: &Arrays, text: &str| {
            let error = Examples::new(inputs, data, DataChecks::default(), 0).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(text), "{error}");
        };
        says(&[InputRecipe::new("x", "pixels")], &data, "it has `images`, `labels`");
        let mut other = data.clone();
        other.insert("labels".into(), Literal::from_vec(&[2], vec![7i32, 8]).unwrap());
        says(
            &[x, InputRecipe::new("y", "labels")],
            &other,
            "`images` has 3 examples, `labels` has 2",
        );
        other.insert("labels".into(), 1i32.into());
        says(&[InputRecipe::new("y", "labels")], &other, "first axis");
        other.insert("labels".into(), Literal::zeros(DType::I32, &[0]));
        says(&[InputRecipe::new("y", "labels")], &other, "no example");
    }

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
