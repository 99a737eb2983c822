//! Cross-entropy of one class of several.

use super::{Reduction, check_rows, refused};
use wengert_core::{Diagnostic, Location, Scalar, Tensor, diagnostic};

/// For each row of logits x with label y, the cross-entropy −Σ qₖ·wₖ·ln softmax(x)ₖ over the
/// classes k. The distribution q is 1 at the label and 0 elsewhere, or smoothed:
/// qₖ = (1 − ε)·[k = y] + ε/C for C classes (Szegedy and others, *Rethinking the Inception
/// architecture*, 2016, section 7).
///
/// The mean of the rows' losses is weighted: it divides by the sum of the labels' weights w over
/// the rows that are not ignored.
#[derive(Clone, Debug, Default)]
pub struct CrossEntropy {
    /// ε, in 0..=1: the part of a label that is spread over all classes.
    pub label_smoothing: f64,
    /// A label whose rows do not count: their loss and their gradient are 0.
    pub ignored: Option<i64>,
    /// w: the weight of each class, floats `[C]`. Without it w is 1.
    pub class_weights: Option<Tensor>,
    /// Of the rows.
    pub reduction: Reduction,
}

impl CrossEntropy {
    /// The loss of logits, floats `[…, C]`, and labels, integers `[…]` below C. A row whose label
    /// is out of range has the loss NaN, unless the label is ignored. Without a row that counts
    /// the mean is NaN.
    ///
    /// # Errors
    ///
    /// The labels are not integers of the shape of the rows; there are not as many weights as
    /// classes; ε is not in 0..=1; the dtype of the labels does not hold the ignored label.
    #[track_caller]
    pub fn call(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let operands = [logits, labels];
        if let Err(poisoned) = check_rows(("logits", logits), ("labels", labels)) {
            return poisoned;
        }
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let range = "at least 0 and at most 1";
            return refused("a label smoothing", self.label_smoothing, range, &operands);
        }
        let counted = match self.counted(labels) {
            Ok(counted) => counted,
            Err(error) => return Tensor::fail_of(&operands, error),
        };
        // An ignored label may be out of range, where the loss is NaN.
        let valid = match &counted {
            Some(counted) => counted.select(labels, &labels.zeros_like()),
            None => labels.clone(),
        };
        let mut losses = logits.softmax_cross_entropy(&valid);
        if losses.error().is_some() {
            return losses;
        }
        let class_weights = match self.weights_of(logits) {
            Ok(weights) => weights,
            Err(poisoned) => return poisoned,
        };
        let mut weights = losses.ones_like();
        if let Some(class_weights) = &class_weights {
            weights = class_weights.gather_rows(&valid);
            losses = losses * &weights;
        }
        if self.label_smoothing > 0.0 {
            let uniform = smoothing(logits, class_weights.as_ref()) * self.label_smoothing;
            losses = losses * (1.0 - self.label_smoothing) + uniform;
        }
        if let Some(counted) = &counted {
            losses = counted.select(&losses, &losses.zeros_like());
            weights = counted.select(&weights, &weights.zeros_like());
        }
        match self.reduction {
            Reduction::Mean if counted.is_some() || class_weights.is_some() => {
                losses.sum() / weights.sum()
            }
            reduction => reduction.call(&losses),
        }
    }

    /// Whether each row counts; `None` if all do.
    #[track_caller]
    fn counted(&self, labels: &Tensor) -> Result<Option<Tensor>, Diagnostic> {
        let Some(ignored) = self.ignored else { return Ok(None) };
        let dtype = labels.dtype();
        if !dtype.is_integer() {
            return Ok(None);
        }
        let label = Scalar::from_i64(dtype, ignored);
        if label.to_i64() != Some(ignored) {
            return Err(diagnostic!("labels of {dtype} are never {ignored}, the ignored label")
                .help("give an ignored label that the dtype holds, or convert the labels"));
        }
        Ok(Some(labels.ne(labels.splat(label))))
    }

    /// The weights of the classes in the dtype of the losses.
    #[track_caller]
    fn weights_of(&self, logits: &Tensor) -> Result<Option<Tensor>, Tensor> {
        let Some(weights) = &self.class_weights else { return Ok(None) };
        let classes = logits.shape().last();
        if weights.error().is_some()
            || (weights.dtype().is_float() && weights.shape().iter().eq(classes))
        {
            return Ok(Some(weights.convert(logits.dtype().wide())));
        }
        let error = diagnostic!("logits have type {}, class weights {}", logits.ty(), weights.ty())
            .help("there is one weight for each class: floats of the logits' last extent");
        Err(Tensor::fail_of(&[logits, weights], error))
    }
}

/// The cross-entropy of each row and the uniform distribution: −Σ wₖ·ln softmax(x)ₖ / C.
#[track_caller]
fn smoothing(logits: &Tensor, class_weights: Option<&Tensor>) -> Tensor {
    let axis = logits.rank() - 1;
    let mut logs = logits.convert(logits.dtype().wide()).log_softmax(axis);
    if let Some(weights) = class_weights {
        logs = logs * weights;
    }
    -logs.mean_axes(&[axis])
}
