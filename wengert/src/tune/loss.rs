//! The losses of a model that is trained after import.

use crate::nn::loss::{
    BinaryCrossEntropy, CrossEntropy, Huber, MeanAbsoluteError, MeanSquaredError,
};
use std::fmt;
use std::str::FromStr;
use wengert_core::nearest::nearest;
use wengert_core::op::{SoftmaxKind, Unary};
use wengert_core::{DType, Diagnostic, Op, Result, Tensor, TensorType, diagnostic};

/// A loss, the mean over all elements or rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Of logits `[…, C]` and labels, integers `[…]` below C. Logits are the values before a
    /// softmax, if the model ends in one.
    CrossEntropy,
    /// Of logits `[…]` and targets from 0 to 1 of the same shape. Logits are the values before a
    /// sigmoid, if the model ends in one.
    BinaryCrossEntropy,
    /// (x − t)².
    SquaredError,
    /// |x − t|.
    AbsoluteError,
    /// Huber's, with δ = 1: quadratic near 0, and linear beyond.
    Huber,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 5] = [
        Loss::CrossEntropy,
        Loss::BinaryCrossEntropy,
        Loss::SquaredError,
        Loss::AbsoluteError,
        Loss::Huber,
    ];

    /// The name, as the option `--loss` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Loss::CrossEntropy => "cross_entropy",
            Loss::BinaryCrossEntropy => "binary_cross_entropy",
            Loss::SquaredError => "mse",
            Loss::AbsoluteError => "mae",
            Loss::Huber => "huber",
        }
    }

    /// Whether it is of one class of several.
    pub fn is_of_classes(self) -> bool {
        self == Loss::CrossEntropy
    }

    /// The type of the labels for predictions of a type.
    ///
    /// # Errors
    /// The predictions are not floats, or have no axis of classes.
    pub(super) fn labels(self, predictions: &TensorType) -> Result<TensorType> {
        if !predictions.dtype.is_float() {
            return Err(diagnostic!("a loss of {predictions}, which are no floats")
                .help("name an output of floats"));
        }
        if !self.is_of_classes() {
            return Ok(predictions.clone());
        }
        match predictions.shape.split_last() {
            Some((_, rows)) if !rows.is_empty() => Ok(TensorType::of(DType::I32, rows.to_vec())),
            _ => Err(diagnostic!("{} of {predictions}, which has no axis of classes", self.name())
                .help(
                    "logits have the shape [batch, classes]; for one number per example there is \
                     binary_cross_entropy",
                )),
        }
    }

    /// Whether the loss is computed of the operand of an op, the last one of the model, whose
    /// result has `rank` axes.
    pub(super) fn is_before(self, op: &Op, rank: usize) -> bool {
        match (self, op) {
            (Loss::CrossEntropy, Op::Softmax(op)) => {
                matches!(op.kind, SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax)
                    && op.axis + 1 == rank
            }
            (Loss::BinaryCrossEntropy, Op::Unary(Unary::Logistic)) => true,
            _ => false,
        }
    }

    /// The loss, a scalar.
    pub(super) fn call(self, predictions: &Tensor, labels: &Tensor) -> Tensor {
        match self {
            Loss::CrossEntropy => CrossEntropy::default().call(predictions, labels),
            Loss::BinaryCrossEntropy => BinaryCrossEntropy::default().call(predictions, labels),
            Loss::SquaredError => MeanSquaredError::default().call(predictions, labels),
            Loss::AbsoluteError => MeanAbsoluteError::default().call(predictions, labels),
            Loss::Huber => Huber::default().call(predictions, labels),
        }
    }
}

impl FromStr for Loss {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let names = || Loss::ALL.iter().map(|loss| loss.name());
        Loss::ALL.into_iter().find(|loss| loss.name() == text).ok_or_else(|| {
            let all = names().collect::<Vec<_>>().join(", ");
            diagnostic!("there is no loss `{text}`").help(match nearest(text, names()) {
                Some(near) => format!("did you mean `{near}`? there are {all}"),
                None => format!("there are {all}"),
            })
        })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
