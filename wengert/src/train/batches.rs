//! The examples of each step.
//!
//! The order depends only on the recipe's seed and the number of the epoch. The batch of any step
//! can be drawn without the batches before it, so resuming is exact.

use super::check_data::{DataChecks, non_finite_in};
use crate::data::{Arrays, listed};
use crate::random::SplitMix64;
use crate::recipe::{Batches, InputRecipe, LastBatch};
use wengert_core::{Diagnostic, Literal, Result, diagnostic, with_native};

/// The examples of a data set, converted, input by input.
#[derive(Clone, Debug)]
pub struct Examples {
    inputs: Vec<(String, Literal)>,
    /// The arrays of the inputs.
    arrays: Vec<String>,
    count: usize,
}

impl Examples {
    /// Takes the arrays that `inputs` name out of `data` and applies their transforms once. They
    /// are elementwise, so the result is the same as for each batch by itself.
    ///
    /// Errors: an array that is missing, one without an axis, arrays whose first axes differ, no
    /// example, an element that fails `checks`.
    pub fn new(inputs: &[InputRecipe], data: &Arrays, checks: &DataChecks<'_>) -> Result<Examples> {
        let mut count: Option<(usize, &str)> = None;
        let mut found = Vec::with_capacity(inputs.len());
        for input in inputs {
            let array = data.get(&input.array).ok_or_else(|| {
                let names: Vec<_> = data.keys().collect();
                diagnostic!("the data has no array `{}` for input `{}`", input.array, input.input)
                    .help(format!(
                        "it has {}; `graphrun import --train --array {}=NAME` takes another one",
                        listed(&names),
                        input.input
                    ))
            })?;
            let rows = *array.shape().first().ok_or_else(|| {
                diagnostic!(
                    "array `{}` is a scalar; its first axis must count examples",
                    input.array
                )
            })?;
            match count {
                Some((other, name)) if other != rows => {
                    return Err(diagnostic!(
                        "array `{name}` has {other} examples, `{}` has {rows}",
                        input.array
                    ));
                }
                _ => count = Some((rows, &input.array)),
            }
            found.push((input.input.clone(), checks.converted(input, array)?));
        }
        match count {
            Some((count, _)) if count > 0 => {
                let arrays = inputs.iter().map(|input| input.array.clone()).collect();
                Ok(Examples { inputs: found, arrays, count })
            }
            _ => Err(Diagnostic::new("the data has no example")),
        }
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The location of the first NaN or infinity among these examples, as text.
    pub(super) fn non_finite(&self, rows: &[usize]) -> Option<String> {
        self.inputs.iter().zip(&self.arrays).find_map(|((_, values), array)| {
            let (row, value) = non_finite_in(values, rows)?;
            Some(format!("`{array}` has {value} in row {row}"))
        })
    }

    /// The batch of these examples, input by input.
    pub fn batch(&self, rows: &[usize]) -> Vec<(&str, Literal)> {
        self.inputs.iter().map(|(name, array)| (name.as_str(), take_rows(array, rows))).collect()
    }
}

/// The rows of an array with at least one axis.
fn take_rows(array: &Literal, rows: &[usize]) -> Literal {
    let mut shape = array.shape().to_vec();
    let width: usize = shape[1..].iter().product();
    shape[0] = rows.len();
    with_native!(array.dtype(), T => {
        let all = array.as_slice::<T>().expect("the dtype is its own");
        let mut taken = Vec::with_capacity(rows.len() * width);
        rows.iter().for_each(|row| taken.extend_from_slice(&all[row * width..][..width]));
        Literal::from_vec(&shape, taken).expect("rows of the array fill as many rows")
    })
}

/// The schedule of steps: the epoch and the examples of each step.
#[derive(Clone, Debug)]
pub struct Schedule {
    count: usize,
    batches: Batches,
    /// The order of the epoch that was requested last.
    order: Option<(u64, Vec<usize>)>,
}

impl Schedule {
    /// A schedule over `count` examples. It is an error if there is no whole batch and smaller
    /// ones are dropped.
    pub fn new(count: usize, batches: Batches) -> Result<Schedule> {
        let schedule = Schedule { count, batches, order: None };
        if schedule.steps_per_epoch() == 0 {
            return Err(diagnostic!("{count} examples do not make one batch of {}", batches.size)
                .help("use a smaller batch, or `LastBatch::Smaller`"));
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
        let (epoch, within) = (self.epoch_of(step), step % self.steps_per_epoch());
        if self.order.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let order = match self.batches.shuffle {
                Some(seed) => SplitMix64::of(seed, &[epoch]).permutation(self.count),
                None => (0..self.count).collect(),
            };
            self.order = Some((epoch, order));
        }
        let (_, order) = self.order.as_ref().expect("it was just put there");
        // Both products are at most the number of examples, since `within` is less than the steps
        // of an epoch.
        let from = (within * self.batches.size) as usize;
        &order[from..self.count.min(from.saturating_add(self.batches.size as usize))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Transform;
    use wengert_core::{DType, Scalar};

    fn batches(size: u64, shuffle: Option<u64>, last: LastBatch) -> Batches {
        Batches { size, shuffle, last }
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
        let checks = DataChecks::default();
        let examples =
            Examples::new(&[x.clone(), InputRecipe::new("y", "labels")], &data, &checks).unwrap();
        let batch = examples.batch(&[2, 0]);
        assert_eq!(
            batch[0],
            ("x", Literal::from_vec(&[2, 2], vec![2.0f32, 2.5, 0.0, 0.5]).unwrap())
        );
        assert_eq!(batch[1], ("y", Literal::from_vec(&[2], vec![9i32, 7]).unwrap()));

        let says = |inputs: &[InputRecipe], data: &Arrays, text: &str| {
            let error = Examples::new(inputs, data, &checks).unwrap_err().to_string();
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
}
