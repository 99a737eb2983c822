//! Where the inputs of a function come from.

use crate::transform::{Examples, Transform};
use wengert_core::{Diagnostic, Literal, Result};

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

    /// Applies the transforms to a batch of these examples.
    pub fn apply(&self, batch: Literal, examples: &Examples<'_>) -> Result<Literal> {
        let mut transforms = self.transforms.iter();
        transforms
            .try_fold(batch, |batch, transform| transform.apply(&batch, examples))
            .map_err(|error| self.error(error))
    }

    /// An error of a transform.
    pub(crate) fn error(&self, error: Diagnostic) -> Diagnostic {
        error.context(format_args!("array `{}` for input `{}`", self.array, self.input))
    }

    /// Checks the transforms by themselves.
    pub(super) fn verify(&self) -> Result<()> {
        let mut transforms = self.transforms.iter();
        transforms
            .try_for_each(Transform::verify)
            .map_err(|error| self.error(error).context("recipe"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::Draws;
    use wengert_core::{DType, Scalar};

    #[test]
    fn transforms_round_once() {
        let pixels = Literal::from(ndarray::arr1(&[0u8, 3, 16]));
        let input = InputRecipe::new("x", "images")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(0.1f32)))
            .then(Transform::Offset(Scalar::of(-0.5f32)));
        let expected: Vec<f32> = [0.0f32, 3.0, 16.0].iter().map(|p| p * 0.1 + -0.5).collect();
        let examples = Examples::of(&[0, 1, 2], Draws::new(0, 0));
        let made = input.apply(pixels.clone(), &examples).unwrap();
        assert_eq!(made.as_slice::<f32>().unwrap(), expected);
        let error = InputRecipe::new("x", "images")
            .then(Transform::Scale(Scalar::of(0.1f32)))
            .apply(pixels, &examples);
        assert!(
            error.unwrap_err().message.contains("array `images` for input `x`: cannot scale u8")
        );
    }
}
