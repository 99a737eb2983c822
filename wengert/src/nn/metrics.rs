//! Values per example, from which an evaluation computes metrics.
//!
//! An evaluation function gives these as outputs, and the recipe says what becomes of them over all
//! batches ([`Aggregate`](crate::recipe::Aggregate)):
//!
//! | metric | output of the function | aggregate |
//! |---|---|---|
//! | accuracy, precision, recall, F1, confusion matrix | [`predictions`] | `Classes` |
//! | accuracy among the first k | [`top_k_hits`] | `Elements` |
//! | area under the ROC curve | the scores themselves | `Auc` |
//! | perplexity | [`CrossEntropy`] without a reduction | `Perplexity` |
//! | mean squared error | [`MeanSquaredError`] without a reduction | `Elements` |
//! | mean absolute error | [`MeanAbsoluteError`] without a reduction | `Elements` |
//!
//! ```
//! # use wengert::prelude::*;
//! use wengert::nn::loss::{CrossEntropy, Reduction};
//! use wengert::nn::metrics::{predictions, top_k_hits};
//! # fn main() -> Result<()> {
//! # let mut program = Program::new();
//!
//! program.function("evaluate", |f| {
//!     let (x, y) = (f.input("x", f32("B,4")), f.input("y", i32("B")));
//!     let model = f.param("model", nn::Linear::new(4, 10));
//!     let logits = model.call(&x);
//!     let losses = CrossEntropy { reduction: Reduction::None, ..Default::default() };
//!     f.output("losses", losses.call(&logits, &y));
//!     f.output("classes", predictions(&logits));
//!     f.output("hits", top_k_hits(&logits, &y, 5));
//! })
//! # }
//! ```
//!
//! [`CrossEntropy`]: super::loss::CrossEntropy
//! [`MeanSquaredError`]: super::loss::MeanSquaredError
//! [`MeanAbsoluteError`]: super::loss::MeanAbsoluteError

use wengert_core::{DType, Tensor, diagnostic};

/// The class with the greatest score of each row: scores `[…, C]` give i32 `[…]`. Of equal scores
/// the first class wins.
#[track_caller]
pub fn predictions(scores: &Tensor) -> Tensor {
    scores.argmax(-1)
}

/// Whether each label is among the k classes with the greatest scores: scores `[…, C]` and integer
/// labels `[…]` give f32 `[…]`, 1 or 0. Of equal scores the first class precedes, so for k = 1 the
/// mean is the accuracy of [`predictions`]. A label that is no class is no hit.
///
/// # Errors
///
/// The labels are not integers of the shape of the rows; k is 0, or there are fewer classes.
#[track_caller]
pub fn top_k_hits(scores: &Tensor, labels: &Tensor, k: usize) -> Tensor {
    let operands = [scores, labels];
    if let Some(poisoned) = operands.into_iter().find(|tensor| tensor.error().is_some()) {
        return poisoned.clone();
    }
    let rows = scores.shape().split_last().map(|(_, rows)| rows);
    if rows != Some(labels.shape()) || !labels.dtype().is_integer() {
        let error = diagnostic!("hits of scores {} and labels {}", scores.ty(), labels.ty());
        return Tensor::fail_of(
            &operands,
            error.help("labels are integers, and have the axes of the scores without the last"),
        );
    }
    let (_, classes) = scores.top_k(k, -1);
    let label = labels.convert(DType::I64).unsqueeze(-1).broadcast_to(classes.shape());
    classes.convert(DType::I64).eq(&label).any_axes(-1).convert(DType::F32)
}
