//! Where the inputs of a function come from.

use wengert_core::{DType, Literal, Result, Scalar, diagnostic};

/// Where an input comes from. The first axis of the array counts the examples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputRecipe {
    /// Name of the function's input.
    pub input: String,
    /// Name of the array in the data file.
    pub array: String,
    /// Transforms of a batch, in order.
    pub transforms: Vec<Transform>,
}

impl InputRecipe {
    /// The array `array` without transforms.
    pub fn new(input: impl Into<String>, array: impl Into<String>) -> Self {
        InputRecipe { input: input.into(), array: array.into(), transforms: Vec::new() }
    }

    /// Adds a transform.
    #[must_use]
    pub fn then(mut self, transform: Transform) -> Self {
        self.transforms.push(transform);
        self
    }

    /// Applies the transforms.
    pub fn apply(&self, batch: Literal) -> Result<Literal> {
        self.transforms.iter().try_fold(batch, |batch, transform| transform.apply(&batch)).map_err(
            |error| {
                error.context(format_args!("array `{}` for input `{}`", self.array, self.input))
            },
        )
    }
}

/// An elementwise transform of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transform {
    /// To another dtype: `as` of Rust (rounded to nearest even, saturating, truncating).
    Convert(DType),
    /// Times a number of the batch's own float dtype (each product rounded to it).
    Scale(Scalar),
    /// Plus a number of the batch's own float dtype (each sum rounded to it).
    Offset(Scalar),
}

impl Transform {
    /// Applies the transform. A scale or offset of another dtype than the batch's is an error.
    pub fn apply(&self, batch: &Literal) -> Result<Literal> {
        let (by, what) = match *self {
            Transform::Convert(dtype) => return Ok(batch.convert(dtype)),
            Transform::Scale(by) => (by, "scale"),
            Transform::Offset(by) => (by, "offset"),
        };
        let dtype = batch.dtype();
        if dtype != by.dtype() || !dtype.is_float() {
            return Err(diagnostic!("cannot {what} {dtype} elements by {by:?}")
                .help("convert them to the float dtype of the number first"));
        }
        let op = |a: f64, b: f64| if matches!(self, Transform::Scale(_)) { a * b } else { a + b };
        // The product of two floats of at most 24 significant bits is exact in f64. Their sum,
        // rounded to f64 and then to the dtype, is the rounded sum, because 53 ≥ 2·24 + 2. Each
        // element is thus rounded as if once.
        let values: Vec<Scalar> =
            batch.scalars().map(|s| Scalar::from_f64(dtype, op(s.to_f64(), by.to_f64()))).collect();
        Literal::from_scalars(dtype, batch.shape(), &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_round_once() {
        let pixels = Literal::from(ndarray::arr1(&[0u8, 3, 16]));
        let input = InputRecipe::new("x", "images")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(0.1f32)))
            .then(Transform::Offset(Scalar::of(-0.5f32)));
        let expected: Vec<f32> = [0.0f32, 3.0, 16.0].iter().map(|p| p * 0.1 + -0.5).collect();
        assert_eq!(input.apply(pixels.clone()).unwrap().as_slice::<f32>().unwrap(), expected);
        let error = InputRecipe::new("x", "images")
            .then(Transform::Scale(Scalar::of(0.1f32)))
            .apply(pixels);
        assert!(
            error.unwrap_err().message.contains("array `images` for input `x`: cannot scale u8")
        );
    }

    #[test]
    fn every_sum_and_product_of_f32_is_rounded_as_f32_does() {
        let mut stream = crate::random::SplitMix64::new(5);
        for _ in 0..20_000 {
            let (a, b) = (
                f32::from_bits(stream.next_u64() as u32),
                f32::from_bits(stream.next_u64() as u32),
            );
            if a.is_nan() || b.is_nan() {
                continue;
            }
            let apply = |t: Transform| t.apply(&a.into()).unwrap().get(0);
            let same =
                |x: Scalar, y: f32| x == Scalar::of(y) || (x.to_f64().is_nan() && y.is_nan());
            assert!(same(apply(Transform::Scale(Scalar::of(b))), a * b), "{a} * {b}");
            assert!(same(apply(Transform::Offset(Scalar::of(b))), a + b), "{a} + {b}");
        }
    }
}
