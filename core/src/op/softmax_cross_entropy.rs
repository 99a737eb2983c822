//! `softmax_cross_entropy`: the loss of a classifier, a composite (see [`super::softmax`]).

use crate::op::Lookup;
use crate::op::prelude::*;
use crate::op::softmax::{Shifted, restore, shifted_row};

attributes! {
    /// `softmax_cross_entropy %logits, %labels`: −ln softmax(logits) at the label, along the last
    /// axis, which vanishes.
    ///
    /// The loss of half-precision logits is f32. The loss of a label out of range is NaN. The
    /// gradient with respect to the logits is computed as softmax(logits) − onehot(label).
    SoftmaxCrossEntropy {}
}

/// Labels in a dtype that holds every class.
fn wide(labels: &Tensor) -> Tensor {
    labels.convert(match labels.dtype() {
        DType::I8 | DType::U8 | DType::I32 => DType::I32,
        _ => DType::I64,
    })
}

/// The one-hot mask of the labels in the shape of the logits.
fn mask(logits: &Tensor, labels: &Tensor) -> Tensor {
    let (labels, axis) = (wide(labels), logits.rank().saturating_sub(1));
    let classes = Tensor::iota(labels.dtype(), logits.shape().to_vec(), axis);
    classes.eq(restore(&labels, logits.shape(), axis))
}

/// Σ (softmax − onehot)∘t, whose transpose is (softmax − onehot) · c.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let (logits, axis) = (&j.operands[0], j.operands[0].rank() - 1);
    let dtype = logits.dtype().wide();
    let coefficient =
        logits.convert(dtype).softmax(axis) - mask(logits, &j.operands[1]).convert(dtype);
    vec![Some(tangent.convert(dtype).scaled_by(&coefficient).sum_axes(&[axis]))]
}

impl Operation for SoftmaxCrossEntropy {
    named!(
        "softmax_cross_entropy",
        "−ln softmax(logits)[label] along the last axis. The result is f32 for halves, and NaN for \
         a label out of range. The gradient is softmax − onehot."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [logits, labels] = t.exactly()?;
        Domain::Float.check(logits.dtype)?;
        ensure!(labels.dtype.is_integer(), "labels of dtype {}", labels.dtype;
            help "labels are the numbers of classes: an integer dtype");
        match logits.shape.split_last() {
            Some((_, rest)) if *rest == labels.shape => {
                Ok(vec![labels.with_dtype(logits.dtype.wide())])
            }
            _ => Err(Diagnostic::new(format!("logits have type {logits}, labels {labels}")).help(
                "logits have the labels' shape and a last axis with one entry for each class",
            )),
        }
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (logits, labels) = (&e.operands[0], &e.operands[1]);
        let classes = logits.shape[logits.shape.len() - 1];
        let loss = |(row, label): (usize, &Cell<R>)| {
            let row = &logits.cells[row * classes..(row + 1) * classes];
            let row: Vec<R> = row.iter().map(|c| c.real().clone()).collect();
            let Some(picked) = usize::try_from(label.bits()).ok().and_then(|l| row.get(l)) else {
                return Ok(Cell::Real(R::from_f64(f64::NAN)));
            };
            let (max, _, sum) = shifted_row(&row)?;
            Ok(Cell::Real(sum.apply("log", libm::log)?.sub(&picked.sub(&max))))
        };
        let cells = Cells::try_collect(labels.cells.iter().enumerate().map(loss))?;
        Ok(vec![Array::new(e.results[0].dtype, labels.shape.clone(), cells)])
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let classes = l.operands[0].shape.last().and_then(Dim::as_constant);
        let classes = classes.expect("compute is asked for bound types only");
        Compute::Decompose(Box::new(move |tensors| {
            let logits = tensors[0].convert(tensors[0].dtype().wide());
            let axis = logits.rank().saturating_sub(1);
            let labels = wide(&tensors[1]);
            let steps = Shifted::new(&logits, axis);
            // The logit at the label, which is clamped.
            let picked = match classes {
                0 => steps.max.zeros_like(),
                _ => {
                    let at = labels.unsqueeze(-1);
                    let picked = tensors[0].take_along_axis(&at, -1).squeeze(-1);
                    picked.convert(logits.dtype()) - &steps.max
                }
            };
            let loss = steps.sum.log() - picked;
            let valid = labels.ge(0).and(labels.lt(classes));
            vec![valid.select(&loss, &loss.full_like(f64::NAN))]
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(jvp);

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(self.clone())
    }

    fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
        operands[0].shape.last().map(|classes| Lookup::elements(1, classes))
    }
}
