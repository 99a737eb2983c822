//! Transforms of a batch between the data and an input of a function.
//!
//! | text | transform |
//! |---|---|
//! | `convert f32` | to another dtype |
//! | `scale f32 0.0625` | times a number |
//! | `offset f32 -0.5` | plus a number |
//! | `normalize 3 f32 0.5,0.4,0.3 0.2,0.2,0.1` | minus the mean, over the deviation, by channel |
//! | `crop 1 24 random` | 24 consecutive elements of axis 1, at a random place or the `centre` |
//! | `flip 2` | axis 2 reversed, for half of the examples |
//! | `pad 1 4 4 u8 0` | 4 elements before axis 1 and 4 after it |
//! | `one_hot 10 f32` | an axis of 10 classes, with 1 for the class and 0 elsewhere |
//! | `mixup 0.2` | a mixture of each example and the next one of its batch |
//! | `pack 4 128 i32 0 elements` | each 4 sequences in a row of 128, without their padding |
//!
//! Axis 0 of a batch counts the examples, so axes of an image `[N, height, width, channels]` are 1
//! to 3. A crop of height and width is two transforms.
//!
//! **Random transforms** draw from the recipe's key seed, the epoch, the row of the example and
//! the kind and axis of the transform, from nothing else. So a resumed run transforms as an
//! uninterrupted one, and two inputs with the same transform, such as an image and its mask, are
//! transformed alike. Likewise `mixup` of an input and its `one_hot` labels mixes both by the
//! same numbers.
//!
//! **Packing** joins short sequences into rows of a fixed length. A sequence is a row up to its
//! trailing padding. The parts `segments` and `positions` number each element's sequence within
//! the row, from 1, and its place within the sequence, from 0; both are 0 at padding. An attention
//! mask compares segments.

mod axis;
mod draws;
mod mix;
mod pack;
mod text;

pub use draws::Draws;

use std::fmt;
use wengert_core::{DType, Literal, Result, Scalar, diagnostic};

/// The place of a crop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// As many elements are left out before as after it, or one fewer before.
    Centre,
    /// Random for each example.
    Random,
}

/// What packing gives for each element of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packed {
    /// The element.
    Elements,
    /// The number of its sequence within the row, from 1; 0 at padding.
    Segments,
    /// Its position within its sequence, from 0; 0 at padding.
    Positions,
}

/// A transform of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transform {
    /// To another dtype: `as` of Rust (rounded to nearest even, saturating, truncating).
    Convert(DType),
    /// Times a number of the batch's own float dtype (each product rounded to it).
    Scale(Scalar),
    /// Plus a number of the batch's own float dtype (each sum rounded to it).
    Offset(Scalar),
    /// Minus a mean, then divided by a deviation, both of the batch's own float dtype and each
    /// rounded to it. There is one of both for each index of the axis.
    Normalize {
        /// The axis of channels.
        axis: usize,
        /// Means.
        mean: Vec<Scalar>,
        /// Deviations.
        deviation: Vec<Scalar>,
    },
    /// Consecutive elements of an axis.
    Crop {
        /// The axis.
        axis: usize,
        /// Number of elements that are kept.
        size: usize,
        /// Where they are.
        place: Place,
    },
    /// The axis reversed, with probability one half for each example.
    Flip {
        /// The axis.
        axis: usize,
    },
    /// Further elements of an axis.
    Pad {
        /// The axis.
        axis: usize,
        /// Elements before the first one.
        before: usize,
        /// Elements after the last one.
        after: usize,
        /// The elements, of the batch's own dtype.
        value: Scalar,
    },
    /// A further axis at the end, with 1 at the index that is the element, 0 elsewhere.
    OneHot {
        /// Its extent.
        classes: usize,
        /// Dtype of the result.
        dtype: DType,
    },
    /// `λ` times each example plus `1 − λ` times the next one of its batch; the first one follows
    /// the last. `λ` is drawn from Beta(α, α), with α a positive f64.
    Mixup(Scalar),
    /// Joins each `count` sequences of a batch `[N, T]` into a row of `[N / count, length]`.
    Pack {
        /// Sequences of a row.
        count: usize,
        /// Elements of a row.
        length: usize,
        /// The element after the end of a sequence and of a row, of the batch's own dtype.
        padding: Scalar,
        /// The result.
        part: Packed,
    },
}

/// The examples of a batch, on which random transforms depend.
#[derive(Clone, Copy, Debug)]
pub struct Examples<'a> {
    rows: Option<&'a [usize]>,
    draws: Draws,
}

impl<'a> Examples<'a> {
    /// Examples with these rows in the data, and the random numbers of their epoch.
    pub fn of(rows: &'a [usize], draws: Draws) -> Self {
        Examples { rows: Some(rows), draws }
    }

    /// All examples of the data, in their order.
    pub fn all(draws: Draws) -> Self {
        Examples { rows: None, draws }
    }

    /// The row of an example of the batch.
    pub fn row(&self, example: usize) -> usize {
        match self.rows {
            Some(rows) => rows.get(example).copied().unwrap_or(example),
            None => example,
        }
    }
}

impl Transform {
    /// Whether an element of the result depends on one element only, whatever its batch. Such
    /// transforms may be applied to all data at once.
    pub fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Transform::Convert(_)
                | Transform::Scale(_)
                | Transform::Offset(_)
                | Transform::Normalize { .. }
        )
    }

    /// Whether the result has another number of examples, or depends on others of the batch.
    pub fn joins_examples(&self) -> bool {
        matches!(self, Transform::Mixup(_) | Transform::Pack { .. })
    }

    /// Applies the transform to a batch of these examples.
    ///
    /// Errors: the dtype is another one than the transform's; the batch has no such axis, or one
    /// that is too short; a class is out of range; sequences do not fit.
    pub fn apply(&self, batch: &Literal, examples: &Examples<'_>) -> Result<Literal> {
        match self {
            Transform::Convert(dtype) => Ok(batch.convert(*dtype)),
            Transform::Scale(by) => with_number(batch, *by, "scale", |a, b| a * b, |a, b| a * b),
            Transform::Offset(by) => with_number(batch, *by, "offset", |a, b| a + b, |a, b| a + b),
            Transform::Normalize { axis, mean, deviation } => {
                axis::normalize(batch, *axis, mean, deviation)
            }
            Transform::Crop { axis, size, place } => {
                axis::crop(batch, *axis, *size, *place, examples)
            }
            Transform::Flip { axis } => axis::flip(batch, *axis, examples),
            Transform::Pad { axis, before, after, value } => {
                axis::pad(batch, *axis, (*before, *after), *value)
            }
            Transform::OneHot { classes, dtype } => mix::one_hot(batch, *classes, *dtype, examples),
            Transform::Mixup(alpha) => mix::mixup(batch, *alpha, examples),
            Transform::Pack { count, length, padding, part } => {
                pack::pack(batch, (*count, *length), *padding, *part, examples)
            }
        }
    }

    /// Checks what can be checked without a batch.
    ///
    /// Errors: an extent, a number of classes or a deviation of 0; an α that is not positive; as
    /// many means as deviations are needed; axis 0.
    pub fn verify(&self) -> Result<()> {
        let good = match self {
            Transform::Convert(_) | Transform::Scale(_) | Transform::Offset(_) => true,
            Transform::Normalize { axis, mean, deviation } => {
                let dtype = mean.first().map(|m| m.dtype());
                let same = |s: &Scalar| Some(s.dtype()) == dtype && s.dtype().is_float();
                let positive = |s: &Scalar| s.to_f64() > 0.0 && s.to_f64().is_finite();
                *axis > 0
                    && mean.len() == deviation.len()
                    && mean.iter().all(|m| same(m) && m.to_f64().is_finite())
                    && dtype.is_some()
                    && deviation.iter().all(|d| same(d) && positive(d))
            }
            Transform::Crop { axis, size, .. } => *axis > 0 && *size > 0,
            Transform::Flip { axis } => *axis > 0,
            // The sum of two extents of the address space does not wrap.
            Transform::Pad { axis, before, after, .. } => {
                *axis > 0 && before.checked_add(*after).is_some_and(|n| n <= 1 << 40)
            }
            Transform::OneHot { classes, .. } => *classes > 0,
            Transform::Mixup(alpha) => {
                let value = alpha.to_f64();
                alpha.dtype() == DType::F64 && value.is_finite() && value > 0.0
            }
            Transform::Pack { count, length, .. } => *count > 0 && *length > 0,
        };
        if good {
            return Ok(());
        }
        Err(diagnostic!("the transform `{self}` makes no sense").help(
            "axes, extents, counts, deviations and α are positive; there are as many means as \
             deviations, of one float dtype",
        ))
    }
}

/// An elementwise op of the batch with a number of its dtype.
fn with_number(
    batch: &Literal,
    by: Scalar,
    what: &str,
    single: impl Fn(f32, f32) -> f32,
    double: impl Fn(f64, f64) -> f64,
) -> Result<Literal> {
    let dtype = batch.dtype();
    if dtype != by.dtype() || !dtype.is_float() {
        return Err(diagnostic!("cannot {what} {dtype} elements by {by:?}")
            .help("convert them to the float dtype of the number first"));
    }
    let filled = "there are as many elements as before";
    if let Some(values) = batch.as_slice::<f32>() {
        let by = by.get::<f32>();
        let values = values.iter().map(|a| single(*a, by)).collect();
        return Ok(Literal::from_vec(batch.shape(), values).expect(filled));
    }
    // The product of two floats of at most 24 significant bits is exact in f64. Their sum, rounded
    // to f64 and then to the dtype, is the rounded sum, because 53 ≥ 2·24 + 2. Each element is
    // thus rounded as if once.
    let values: Vec<Scalar> =
        batch.scalars().map(|s| Scalar::from_f64(dtype, double(s.to_f64(), by.to_f64()))).collect();
    Literal::from_scalars(dtype, batch.shape(), &values)
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::print(self, f)
    }
}

impl std::str::FromStr for Transform {
    type Err = wengert_core::Diagnostic;

    /// Reads the text of a transform.
    fn from_str(text: &str) -> Result<Transform> {
        text::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn every_sum_and_product_of_f32_is_rounded_as_f32_does() {
        let mut stream = SplitMix64::new(5);
        let examples = Examples::of(&[0], Draws::new(0, 0));
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            for _ in 0..5_000 {
                let mut draw = || Scalar::from_f64(dtype, (stream.unit_f64() - 0.5) * 64.0);
                let (a, b) = (draw(), draw());
                let apply =
                    |t: Transform| t.apply(&Literal::full(&[1], a), &examples).unwrap().get(0);
                let (x, y) = (a.to_f64(), b.to_f64());
                assert_eq!(apply(Transform::Scale(b)), Scalar::from_f64(dtype, x * y));
                assert_eq!(apply(Transform::Offset(b)), Scalar::from_f64(dtype, x + y));
            }
        }
    }

    #[test]
    fn senseless_transforms_are_refused() {
        for text in [
            "crop 0 4 centre",
            "crop 1 0 random",
            "flip 0",
            "normalize 1 f32 1.0 0.0",
            "normalize 1 f32 1.0,2.0 1.0",
            "normalize 1 i32 1 1",
            "one_hot 0 f32",
            "mixup 0.0",
            "mixup -1.0",
            "mixup nan",
            "pack 0 8 i32 0 elements",
        ] {
            let transform: Transform = text.parse().unwrap();
            let error = transform.verify().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
