//! `softmax_cross_entropy`: the loss of a classifier, a composite (see [`super::softmax`]).

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::{Derivative, Jvp};
use super::elementwise::Domain;
use super::sample::{Sample, floats, values};
use super::softmax::{Shifted, restore, shifted_row, wide};
use super::{Batch, Cost, Entry, Lookup, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::ty::TensorType;

attributes! {
    /// `softmax_cross_entropy %logits, %labels`: −ln softmax(logits) at the label, along the last
    /// axis, which vanishes.
    ///
    /// The loss of half-precision logits is f32. The loss of a label out of range is NaN. The
    /// gradient with respect to the logits is computed as softmax(logits) − onehot(label).
    SoftmaxCrossEntropy {}
}

/// Labels in a dtype that holds every class, and the one-hot mask of the label in the shape of
/// the logits.
fn mask(logits: &Tensor, labels: &Tensor) -> (Tensor, Tensor) {
    let dtype = match labels.dtype() {
        DType::I8 | DType::U8 | DType::I32 => DType::I32,
        _ => DType::I64,
    };
    let (labels, axis) = (labels.convert(dtype), logits.rank().saturating_sub(1));
    let classes = Tensor::iota(dtype, logits.shape().to_vec(), axis);
    let mask = classes.eq(restore(&labels, logits.shape(), axis));
    (labels, mask)
}

/// Σ (softmax − onehot)∘t, whose transpose is (softmax − onehot) · c.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let (logits, axis) = (&j.operands[0], j.operands[0].rank() - 1);
    let dtype = wide(logits.dtype());
    let coefficient =
        logits.convert(dtype).softmax(axis) - mask(logits, &j.operands[1]).1.convert(dtype);
    vec![Some(tangent.convert(dtype).scaled_by(&coefficient).sum_axes(&[axis]))]
}

impl Operation for SoftmaxCrossEntropy {
    named!("softmax_cross_entropy");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let (logits, labels) = (&operands[0], &operands[1]);
        Domain::Float.check(logits.dtype)?;
        if !labels.dtype.is_integer() {
            return Err(Diagnostic::new(format!("labels of dtype {}", labels.dtype))
                .help("labels are the numbers of classes: an integer dtype"));
        }
        match logits.shape.split_last() {
            Some((_, rest)) if *rest == labels.shape => {
                Ok(vec![labels.with_dtype(wide(logits.dtype))])
            }
            _ => Err(Diagnostic::new(format!("logits have type {logits}, labels {labels}")).help(
                "logits have the labels' shape and a last axis with one entry for each class",
            )),
        }
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (logits, labels) = (&operands[0], &operands[1]);
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
        Ok(vec![Array::new(results[0].dtype, labels.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let classes = operands[0].shape.last().and_then(crate::Dim::as_constant);
        let classes = classes.expect("compute is asked for bound types only");
        Compute::Decompose(Box::new(move |tensors| {
            let logits = tensors[0].convert(wide(tensors[0].dtype()));
            let axis = logits.rank().saturating_sub(1);
            let (labels, mask) = mask(&logits, &tensors[1]);
            let steps = Shifted::new(&logits, axis);
            let picked = mask.select(&steps.shifted, &steps.shifted.zeros_like()).sum_axes(&[axis]);
            let loss = steps.sum.log() - picked;
            let valid = labels.ge(0).and(labels.lt(classes));
            vec![valid.select(&loss, &loss.full_like(f64::NAN))]
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(jvp)
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
        operands[0].shape.last().map(|classes| Lookup::elements(1, classes))
    }

    fn entries() -> Vec<Entry> {
        let sample = |logits: &[usize], labels| {
            Sample::new(SoftmaxCrossEntropy {}, vec![floats(logits, -3.0, 3.0), labels])
        };
        vec![Entry {
            name: "softmax_cross_entropy",
            doc: "−ln softmax(logits)[label] along the last axis. The result is f32 for halves, \
                  and NaN for a label out of range. The gradient is softmax − onehot.",
            derivative: "nonlinear",
            samples: vec![
                sample(&[4, 5], values(&[4], [0i32, 4, 2, 2])),
                sample(&[2, 3, 4], values(&[2, 3], [0i64, 1, 2, 3, 0, 3])),
                sample(&[7], values(&[], [6u8])),
                Sample::new(
                    SoftmaxCrossEntropy {},
                    vec![
                        values(&[2, 3], [500.0f32, -500.0, 0.0, f32::NEG_INFINITY, 1.0, 2.0]),
                        values(&[2], [1u32, 2]),
                    ],
                ),
            ],
        }]
    }
}
