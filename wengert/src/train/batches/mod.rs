//! The examples of each step.
//!
//! The order depends only on the recipe's seed and the number of the epoch. The batch of any step
//! can be drawn without the batches before it, so resuming is exact, also within an epoch.
//!
//! Examples in memory are converted once, before the first step. Examples on a disk are read,
//! converted and checked batch by batch, ahead of their steps ([`loader`](crate::data::loader)).
//! Both give the same batches.

mod feed;
mod schedule;

pub(super) use feed::{Feed, for_each_batch};
pub use schedule::Schedule;

use super::check_data::{DataChecks, non_finite_in};
use super::ranks::Ranks;
use crate::available_memory;
use crate::data::loader::{HELD, Windows};
use crate::data::source::{ArrayType, Source, missing};
use crate::recipe::InputRecipe;
use crate::transform::{Draws, Examples as OfBatch};
use schedule::Drawn;
use std::fmt;
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
    /// Those that share a batch.
    ranks: Ranks<'a>,
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
    /// The rows of its examples, on all ranks.
    pub rows: Vec<usize>,
    /// The number of examples before this rank's part.
    pub first: usize,
    /// The tensors by input: this rank's part.
    pub inputs: Vec<(&'a str, Literal)>,
}

impl<'a> Batch<'a> {
    /// The location of the first NaN or infinity of these inputs, as text.
    pub(super) fn non_finite(&self, examples: &Examples<'a>) -> Option<String> {
        self.inputs.iter().zip(&examples.inputs).find_map(|((_, values), input)| {
            let (example, value) = non_finite_in(values)?;
            let row = self.rows.get(self.first + example).copied().unwrap_or(example);
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
        let ranks = Ranks::default();
        Ok(Examples { inputs: found, data, checks, seed, count, windows, ranks })
    }

    /// The same, of which each batch is divided among ranks.
    pub(super) fn among(self, ranks: Ranks<'a>) -> Self {
        Examples { ranks, ..self }
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
        let Drawn { step, epoch, rows: all_rows, place } = drawn;
        // Transforms that join examples get the whole batch, of which the rank then takes its part.
        let joins = |input: &Input<'_>| input.recipe.transforms.iter().any(|t| t.joins_examples());
        let whole = self.ranks.count() == 1 || self.inputs.iter().any(joins);
        let part = self.ranks.part(all_rows.len());
        let rows = if whole { &all_rows[..] } else { &all_rows[part.clone()] };
        let on_disk = self.inputs.iter().any(|input| input.ready.is_none());
        let blocks = match &place {
            Some(place) if on_disk => Some(self.windows.read(place, rows)?),
            _ => None,
        };
        let of_batch = OfBatch::of(rows, Draws::new(self.seed, epoch));
        let inputs = self.inputs.iter().map(|input| {
            let Input { recipe, ready, .. } = input;
            let name = recipe.input.as_str();
            let all = recipe.transforms.len();
            if let Some((array, done)) = ready {
                let rows = take_rows(array, rows);
                if *done == all {
                    return Ok((name, rows));
                }
                return Ok((name, self.checks.transformed(recipe, &rows, *done..all, &of_batch)?));
            }
            let read = match blocks.as_ref().and_then(|arrays| arrays.get(recipe.array.as_str())) {
                Some(rows) => rows.clone(),
                None => self.data.read(&recipe.array, rows)?,
            };
            Ok((name, self.checks.converted(recipe, &read, &of_batch)?))
        });
        let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
        if whole && self.ranks.count() > 1 {
            for (_, values) in &mut inputs {
                let rows: Vec<usize> = self.ranks.part(values.shape()[0]).collect();
                *values = take_rows(values, &rows);
            }
        }
        Ok(Batch { step, epoch, rows: all_rows, first: part.start, inputs })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Arrays;
    use crate::recipe::Transform;
    use wengert_core::{DType, Scalar};

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
}
