//! Losses: plain structs of options with a `call`.
//!
//! | loss | of |
//! |---|---|
//! | [`MeanSquaredError`], [`MeanAbsoluteError`], [`Huber`], [`SmoothL1`] | numbers |
//! | [`BinaryCrossEntropy`], [`Focal`] | logits of classes that do not exclude each other |
//! | [`CrossEntropy`], [`cross_entropy`], [`linear_cross_entropy`] | logits of one class of several |
//! | [`KlDivergence`] | distributions |
//! | [`CosineEmbedding`], [`TripletMargin`] | vectors whose distances matter |
//! | [`Ctc`] | log-probabilities of a sequence whose alignment to the labels is not known |
//!
//! `Default` gives each option the value that PyTorch gives it. The classes, or the elements of a
//! vector, are the last axis; the axes before it are rows. Every loss of f16 and bf16 operands is
//! computed in f32, and its result is f32.
//!
//! ```
//! # use wengert::prelude::*;
//! # use wengert::nn::loss::{CrossEntropy, Huber, Reduction};
//! # fn main() -> Result<()> {
//! # let mut program = Program::new();
//! # program.function("losses", |f| {
//! let (logits, labels) = (f.input("logits", f32("B,10")), f.input("labels", i32("B")));
//! let loss = CrossEntropy { label_smoothing: 0.1, ignored: Some(-1), ..Default::default() };
//! f.output("loss", loss.call(&logits, &labels));
//! let (x, y) = (f.input("x", f32("B,3")), f.input("y", f32("B,3")));
//! f.output("distance", Huber { delta: 0.5, reduction: Reduction::Sum }.call(&x, &y));
//! # })
//! # }
//! ```

mod absolute_error;
mod binary_cross_entropy;
mod cosine_embedding;
mod cross_entropy;
mod ctc;
mod focal;
mod huber;
mod kl_divergence;
mod linear_cross_entropy;
mod reduction;
mod squared_error;
mod triplet_margin;

pub use absolute_error::MeanAbsoluteError;
pub use binary_cross_entropy::BinaryCrossEntropy;
pub use cosine_embedding::CosineEmbedding;
pub use cross_entropy::CrossEntropy;
pub use ctc::Ctc;
pub use focal::Focal;
pub use huber::{Huber, SmoothL1};
pub use kl_divergence::KlDivergence;
pub use linear_cross_entropy::linear_cross_entropy;
pub use reduction::Reduction;
pub use squared_error::MeanSquaredError;
pub use triplet_margin::TripletMargin;
pub use wengert_core::build::composite::cross_entropy;

use wengert_core::{Tensor, diagnostic};

/// Operands of one float dtype and one shape, converted to f32 if they are halves. The names are
/// those of the operands in the error.
///
/// Error: a poisoned tensor, if a type differs from the first or is not of floats.
#[track_caller]
fn alike<const N: usize>(operands: [(&str, &Tensor); N]) -> Result<[Tensor; N], Tensor> {
    let tensors = operands.map(|(_, tensor)| tensor);
    if let Some(poisoned) = tensors.iter().find(|t| t.error().is_some()) {
        return Err((*poisoned).clone());
    }
    let first = tensors[0].ty();
    if !first.dtype.is_float() || tensors.iter().any(|t| t.ty() != first) {
        let types = operands.map(|(name, tensor)| format!("{name} {}", tensor.ty()));
        let error = diagnostic!("a loss of {}", types.join(", "));
        return Err(Tensor::fail_of(
            &tensors,
            error.help("all have one float dtype and one shape"),
        ));
    }
    Ok(tensors.map(|t| t.convert(t.dtype().wide())))
}

/// Checks that a tensor has the shape of the rows of `of`: its shape without the last axis.
///
/// Error: a poisoned tensor.
#[track_caller]
fn check_rows(of: (&str, &Tensor), rows: (&str, &Tensor)) -> Result<(), Tensor> {
    if let Some(poisoned) = [of.1, rows.1].into_iter().find(|t| t.error().is_some()) {
        return Err(poisoned.clone());
    }
    match of.1.shape().split_last() {
        Some((_, shape)) if shape == rows.1.shape() => Ok(()),
        _ => {
            let error = diagnostic!("a loss of {} {}, {} {}", of.0, of.1.ty(), rows.0, rows.1.ty());
            let help = format!(
                "{} have a last axis, and the axes before it are those of {}",
                of.0, rows.0
            );
            Err(Tensor::fail_of(&[of.1, rows.1], error.help(help)))
        }
    }
}

/// The error of an option that is not a number of its range.
#[track_caller]
fn refused(option: &str, value: f64, range: &str, operands: &[&Tensor]) -> Tensor {
    Tensor::fail_of(operands, diagnostic!("{option} of {value}").help(format!("it is {range}")))
}
