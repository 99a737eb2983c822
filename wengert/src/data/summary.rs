//! Summaries of arrays: range, mean, numbers that are not finite, classes, some rows.
//!
//! Rows are read in pieces, so a summary of any array takes little memory.

use super::source::{Source, chunks, missing};
use crate::data::source::ArrayType;
use std::collections::BTreeMap;
use wengert_core::{Diagnostic, Literal, Result, Scalar, with_native};

/// Number of different integers that are counted. An array with more has no classes.
pub const MOST_CLASSES: usize = 100;
/// Rows of a summary.
const SAMPLES: usize = 3;
/// Elements of these rows, from the first one on.
const SHOWN: usize = 8;

/// A summary of an array.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Type of the array.
    pub ty: ArrayType,
    /// The least number; `None` if there is none, or all are NaN.
    pub least: Option<Scalar>,
    /// The greatest number.
    pub greatest: Option<Scalar>,
    /// The mean of the finite numbers.
    pub mean: Option<f64>,
    /// Number of NaN.
    pub nan: u64,
    /// Number of infinities.
    pub infinite: u64,
    /// How often each integer occurs; `None` for floats, and for more than [`MOST_CLASSES`]
    /// integers.
    pub classes: Option<BTreeMap<i128, u64>>,
    /// Numbers of some rows, with their first elements.
    pub samples: Vec<(usize, Vec<Scalar>)>,
}

/// Summarizes an array of a source.
///
/// Errors: there is no such array; a row cannot be read.
pub fn summarize(source: &dyn Source, array: &str) -> Result<Summary> {
    let ty = source.arrays().remove(array).ok_or_else(|| missing(source, array))?;
    let rows = ty.rows();
    let mut counted = Counted::new(&ty);
    let mut samples = Vec::new();
    let mut take = |range: std::ops::Range<usize>| {
        let read = source.read_range(array, range.clone())?;
        let width = ty.width();
        for row in range.clone().take(SAMPLES - samples.len()) {
            let from = (row - range.start) * width;
            samples.push((row, (from..from + width.min(SHOWN)).map(|i| read.get(i)).collect()));
        }
        counted.add(&read);
        Ok::<(), Diagnostic>(())
    };
    match source.block_rows() {
        Some(block) => {
            let mut starts = (0..rows).step_by(block.max(1));
            starts.try_for_each(|from| take(from..rows.min(from + block.max(1))))?;
        }
        None => chunks(&ty, 0..rows).try_for_each(&mut take)?,
    }
    let Counted { least, greatest, sum, finite, nan, infinite, classes } = counted;
    let mean = (finite > 0).then(|| sum / finite as f64);
    let scalar = |number: Option<(f64, Scalar)>| number.map(|(_, scalar)| scalar);
    Ok(Summary {
        least: scalar(least),
        greatest: scalar(greatest),
        mean,
        nan,
        infinite,
        classes,
        samples,
        ty,
    })
}

struct Counted {
    /// With its value, for comparisons of floats.
    least: Option<(f64, Scalar)>,
    greatest: Option<(f64, Scalar)>,
    sum: f64,
    finite: u64,
    nan: u64,
    infinite: u64,
    classes: Option<BTreeMap<i128, u64>>,
}

impl Counted {
    fn new(ty: &ArrayType) -> Counted {
        let classes = (!ty.dtype.is_real()).then(BTreeMap::new);
        let (least, greatest) = (None, None);
        Counted { least, greatest, sum: 0.0, finite: 0, nan: 0, infinite: 0, classes }
    }

    fn add(&mut self, array: &Literal) {
        let is_real = array.dtype().is_real();
        with_native!(array.dtype(), T => {
            for value in array.as_slice::<T>().expect("the dtype is its own") {
                let scalar = Scalar::of(*value);
                let number = scalar.to_f64();
                if number.is_nan() {
                    self.nan += 1;
                    continue;
                }
                if number.is_infinite() {
                    self.infinite += 1;
                } else {
                    self.finite += 1;
                    self.sum += number;
                }
                // Integers beyond 2⁵³ are compared as integers.
                let less = |a: Scalar, b: Scalar| match is_real {
                    true => a.to_f64() < b.to_f64(),
                    false => integer(a) < integer(b),
                };
                if self.least.is_none_or(|(_, least)| less(scalar, least)) {
                    self.least = Some((number, scalar));
                }
                if self.greatest.is_none_or(|(_, greatest)| less(greatest, scalar)) {
                    self.greatest = Some((number, scalar));
                }
                if let Some(classes) = &mut self.classes {
                    *classes.entry(integer(scalar)).or_insert(0) += 1;
                    if classes.len() > MOST_CLASSES {
                        self.classes = None;
                    }
                }
            }
        });
    }
}

/// The value of a scalar that is no float.
fn integer(scalar: Scalar) -> i128 {
    match scalar.dtype() {
        wengert_core::DType::U64 => i128::from(scalar.bits()),
        _ => scalar.to_i64().map_or(0, i128::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Arrays;
    use wengert_core::DType;

    #[test]
    fn numbers_are_those_of_the_array() {
        let x = vec![1.5f32, f32::NAN, -2.0, f32::INFINITY, 0.5, 0.0];
        let labels: Vec<u64> = vec![3, u64::MAX, 3, u64::MAX - 1];
        let data = Arrays::from([
            ("x".to_owned(), Literal::from_vec(&[3, 2], x).unwrap()),
            ("y".to_owned(), Literal::from_vec(&[4], labels).unwrap()),
            ("many".to_owned(), Literal::from_vec(&[200], (0..200).collect::<Vec<i32>>()).unwrap()),
            ("none".to_owned(), Literal::zeros(DType::F32, &[0, 2])),
        ]);
        let x = summarize(&data, "x").unwrap();
        assert_eq!((x.least, x.greatest), (Some((-2.0f32).into()), Some(f32::INFINITY.into())));
        assert_eq!((x.mean, x.nan, x.infinite, x.classes), (Some(0.0), 1, 1, None));
        assert_eq!(x.samples[2], (2, vec![0.5f32.into(), 0.0f32.into()]));
        let y = summarize(&data, "y").unwrap();
        assert_eq!((y.least, y.greatest), (Some(3u64.into()), Some(u64::MAX.into())));
        let classes = [(3, 2), (i128::from(u64::MAX) - 1, 1), (i128::from(u64::MAX), 1)];
        assert_eq!(y.classes, Some(classes.into()));
        let many = summarize(&data, "many").unwrap();
        assert_eq!((many.classes, many.mean), (None, Some(99.5)));
        let none = summarize(&data, "none").unwrap();
        assert_eq!((none.least, none.mean, none.samples.len()), (None, None, 0));
        assert!(summarize(&data, "z").is_err());
    }
}
