//! Checks of data against the recipe and the program. Data in memory are checked before anything is
//! computed, data on a disk batch by batch as they are read.
//!
//! A label that a conversion wraps, rounds or clamps becomes another label, and training accepts
//! it. So each element of an input is checked:
//!
//! 1. Floats are finite, in the file and after each transform. [`Allow::non_finite`] disables
//!    this.
//! 2. Elements converted to an integer dtype are integers that the dtype holds. Nothing disables
//!    this.
//! 3. An input whose elements are used as indices or labels ([`bounds`]) holds numbers from 0 up
//!    to the number of classes or rows. [`Allow::out_of_range`] disables this.
//!
//! An error names the file, the array and the row.

use super::Allow;
use crate::data::exact::{Found, Number, first, holds, not_held};
use crate::recipe::{InputRecipe, Transform};
use crate::transform::Examples;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use wengert_compiler::indices::{Bound, bounds};
use wengert_core::graph::Function;
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// The remedy for data that are not finite.
const LIFT: &str = "mend the data; `--allow-non-finite` trains on them as they are";

/// The checks of the arrays of a function's inputs.
#[derive(Clone, Debug, Default)]
pub struct DataChecks<'a> {
    file: Option<&'a Path>,
    allow: Allow,
    /// By the names of inputs.
    bounds: BTreeMap<String, Bound>,
}

impl<'a> DataChecks<'a> {
    /// The checks for the inputs of a function; `file` is the data file, for messages.
    pub fn new(function: &Function, file: Option<&'a Path>, allow: Allow) -> Self {
        DataChecks { file, allow, bounds: bounds(function) }
    }

    /// The array after all transforms of an input, checked. It is the examples of a batch, or the
    /// first of all examples.
    pub(super) fn converted(
        &self,
        input: &InputRecipe,
        array: &Literal,
        examples: &Examples<'_>,
    ) -> Result<Literal> {
        self.check_raw(input, array, examples)?;
        self.transformed(input, array, 0..input.transforms.len(), examples)
    }

    /// Checks an array as it is in the file.
    pub(super) fn check_raw(
        &self,
        input: &InputRecipe,
        array: &Literal,
        examples: &Examples<'_>,
    ) -> Result<()> {
        match non_finite(array) {
            Some(found) if !self.allow.non_finite => Err(self
                .error(input, (array.shape(), Some(examples)), found, "is not finite")
                .help(LIFT)),
            _ => Ok(()),
        }
    }

    /// The array after some transforms of an input, checked. The indices in it are checked after
    /// the last transform.
    pub(super) fn transformed(
        &self,
        input: &InputRecipe,
        array: &Literal,
        transforms: Range<usize>,
        examples: &Examples<'_>,
    ) -> Result<Literal> {
        let is_last = transforms.end == input.transforms.len();
        // Where the elements are, until a transform joins examples.
        let mut at = Some(examples);
        let mut elementwise = true;
        let mut current = array.clone();
        for transform in &input.transforms[transforms] {
            if let Transform::Convert(to) = transform
                && let Some(found) = not_held(&current, *to)
            {
                let error = self.error(input, (current.shape(), at), found, &format!("is no {to}"));
                return Err(error.help(holds(*to)));
            }
            current = transform.apply(&current, examples).map_err(|error| input.error(error))?;
            elementwise &= transform.is_elementwise();
            at = at.filter(|_| !transform.joins_examples());
            if !self.allow.non_finite
                && let Some(found) = non_finite(&current)
            {
                let what = format!(
                    "becomes {} as {} for input `{}`",
                    found.number,
                    current.dtype(),
                    input.input
                );
                let number = if elementwise { Number::at(array, found.at) } else { found.number };
                let found = Found { number, ..found };
                return Err(self.error(input, (current.shape(), at), found, &what).help(LIFT));
            }
        }
        if is_last {
            self.check_indices(input, &current, at)?;
        }
        Ok(current)
    }

    /// Checks the elements of an input that are indices or labels.
    fn check_indices(
        &self,
        input: &InputRecipe,
        array: &Literal,
        examples: Option<&Examples<'_>>,
    ) -> Result<()> {
        let Some(bound) = self.bounds.get(&input.input) else { return Ok(()) };
        if self.allow.out_of_range || !array.dtype().is_integer() {
            return Ok(());
        }
        let (indexed, count) = (&bound.indexed, i128::from(bound.count));
        let outside = |n: Number| matches!(n, Number::Integer(n) if n < 0 || n >= count);
        let Some(found) = first(array, outside) else { return Ok(()) };
        let what = match count {
            ..=0 => format!("is out of range: there is nothing to look up by `{indexed}`"),
            _ => {
                let last = count - 1;
                format!("is out of range: input `{}` has values from 0 to {last}", input.input)
            }
        };
        let help =
            "mend the data or the program; `--allow-out-of-range` trains on them as they are";
        Err(self
            .error(input, (array.shape(), examples), found, &what)
            .at(bound.location.clone(), format!("used by {indexed} here"))
            .help(help))
    }

    /// An error of an element of a batch with this shape. Where the examples are joined, so that
    /// their rows are unknown, they are counted within the batch.
    fn error(
        &self,
        input: &InputRecipe,
        (shape, examples): (&[usize], Option<&Examples<'_>>),
        found: Found,
        what: &str,
    ) -> Diagnostic {
        let file = self.file.map_or(String::new(), |path| format!(" of `{}`", path.display()));
        let width = shape[1..].iter().product::<usize>().max(1);
        let row = match examples {
            Some(examples) => format!("row {}", examples.row(found.at / width)),
            None => format!("example {} of the batch", found.at / width),
        };
        let place = match shape.len() {
            1 => row,
            _ => format!("{row}, element {}", found.at % width),
        };
        let more = match found.more {
            0 => String::new(),
            n => format!(" (and so are {n} more)"),
        };
        diagnostic!("`{}`{file}, {place}: {} {what}{more}", input.array, found.number)
    }
}

/// The first NaN or infinity of a batch: its example within the batch, and its value.
pub(super) fn non_finite_in(batch: &Literal) -> Option<(usize, f64)> {
    let found = non_finite(batch)?;
    let width = batch.shape()[1..].iter().product::<usize>().max(1);
    match found.number {
        Number::Real(value) => Some((found.at / width, value)),
        Number::Integer(_) => None,
    }
}

fn non_finite(array: &Literal) -> Option<Found> {
    if !array.dtype().is_real() {
        return None;
    }
    // This loop has no branch, so it takes several elements at a time.
    if let Some(values) = array.as_slice::<f32>()
        && values.iter().fold(true, |all, value| all & value.is_finite())
    {
        return None;
    }
    first(array, |number| matches!(number, Number::Real(real) if !real.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::Draws;
    use wengert_core::{DType, Location, Scalar};

    /// Ten classes.
    fn checks(allow: Allow) -> DataChecks<'static> {
        let bound =
            Bound { count: 10, indexed: "softmax_cross_entropy", location: Location::Unknown };
        DataChecks {
            file: Some(Path::new("data.npz")),
            allow,
            bounds: [("y".to_owned(), bound)].into(),
        }
    }

    fn labels() -> InputRecipe {
        InputRecipe::new("y", "labels").then(Transform::Convert(DType::I32))
    }

    /// An array as the first examples of the data.
    fn convert(checks: &DataChecks<'_>, input: &InputRecipe, array: &Literal) -> Result<Literal> {
        checks.converted(input, array, &Examples::all(Draws::new(0, 0)))
    }

    fn says(input: &InputRecipe, array: Literal, text: &str) {
        let error = convert(&checks(Allow::default()), input, &array).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn labels_are_integers_that_the_dtype_holds() {
        let rows = |values: Vec<f64>| Literal::from_vec(&[values.len()], values).unwrap();
        says(
            &labels(),
            rows(vec![1.0, 2.5, 0.5]),
            "`labels` of `data.npz`, row 1: 2.5 is no i32 (and so are 1 more)",
        );
        says(&labels(), rows(vec![1.0, f64::NAN]), "row 1: NaN is not finite");
        says(&labels(), rows(vec![f64::from(u32::MAX)]), "row 0: 4294967295 is no i32");
        says(
            &labels(),
            Literal::from_vec(&[2], vec![3i64, 1 << 40]).unwrap(),
            "row 1: 1099511627776 is no i32",
        );
        says(
            &labels(),
            Literal::from_vec(&[1], vec![u64::MAX]).unwrap(),
            "row 0: 18446744073709551615 is no i32",
        );
        let unsigned = InputRecipe::new("y", "labels").then(Transform::Convert(DType::U64));
        says(&unsigned, Literal::from_vec(&[2], vec![0i8, -1]).unwrap(), "row 1: -1 is no u64");
        // NaN is not an integer, even if it is allowed.
        let allow = Allow { non_finite: true, out_of_range: true };
        let error =
            convert(&checks(allow), &labels(), &rows(vec![f64::NAN])).unwrap_err().to_string();
        assert!(error.contains("row 0: NaN is no i32"), "{error}");
        let good = convert(&checks(Allow::default()), &labels(), &rows(vec![9.0, 0.0])).unwrap();
        assert_eq!(good, Literal::from_vec(&[2], vec![9i32, 0]).unwrap());
    }

    #[test]
    fn labels_are_below_the_number_of_classes() {
        let found = Literal::from_vec(&[3], vec![9i64, 10, -1]).unwrap();
        says(
            &labels(),
            found.clone(),
            "row 1: 10 is out of range: input `y` has values from 0 to 9",
        );
        says(&labels(), found.clone(), "--allow-out-of-range");
        let allow = Allow { out_of_range: true, ..Allow::default() };
        assert_eq!(
            convert(&checks(allow), &labels(), &found).unwrap().as_slice::<i32>(),
            Some(&[9, 10, -1][..])
        );
    }

    #[test]
    fn rows_are_those_of_the_data() {
        let array = Literal::from_vec(&[2, 2], vec![0.0f32, 1.0, 2.0, f32::NAN]).unwrap();
        let input = InputRecipe::new("x", "images");
        let examples = Examples::of(&[70, 31], Draws::new(0, 0));
        let error = checks(Allow::default()).converted(&input, &array, &examples).unwrap_err();
        assert!(error.message.contains("row 31, element 1: NaN"), "{error}");
    }

    #[test]
    fn floats_are_finite_before_and_after_their_transforms() {
        let plain = InputRecipe::new("x", "images");
        let images = |value: f32| Literal::from_vec(&[2, 2], vec![0.0, 1.0, 2.0, value]).unwrap();
        says(
            &plain,
            images(f32::INFINITY),
            "`images` of `data.npz`, row 1, element 1: inf is not finite",
        );
        let half = plain.clone().then(Transform::Convert(DType::F16));
        says(&half, images(1e6), "row 1, element 1: 1000000 becomes inf as f16 for input `x`");
        let scaled = plain.clone().then(Transform::Scale(Scalar::of(1e30f32)));
        says(&scaled, images(1e30), "becomes inf as f32");
        let allow = Allow { non_finite: true, ..Allow::default() };
        assert!(convert(&checks(allow), &plain, &images(f32::NAN)).is_ok());
        assert_eq!(non_finite_in(&images(3.0)), None);
        assert!(
            non_finite_in(&images(f32::NAN)).is_some_and(|(row, value)| row == 1 && value.is_nan())
        );
    }
}
