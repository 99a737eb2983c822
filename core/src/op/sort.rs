//! `sort`: sorts several operands along an axis by the first of them.
//!
//! A composite: [`Argsort`] of the keys gives the permutation, and every operand is permuted by
//! it. So its derivative permutes the tangents in the same way. Elements with equal keys are
//! ordered by position, in the derivative too.

use super::argsort::{check_axis, order, rows};
use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Argsort, Cost, Entry, Operation, TakeAlongAxis, Traits};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Cells, Real, Regions};
use crate::op::batch::Batch;
use crate::ty::TensorType;
use std::cmp::Ordering;

attributes! {
    /// `sort %a, %b {axis=0, num_keys=2}`: all operands in the order of the first `num_keys`,
    /// ascending and stable, in the order that [`Argsort`] describes.
    Sort {
        /// The sorted axis.
        axis: usize,
        /// Number of operands, from the first on, that are keys.
        num_keys: usize = 1,
    }
}

impl Operation for Sort {
    named!("sort");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        let Some(first) = operands.first() else {
            return Err(Diagnostic::new("takes at least one operand"));
        };
        if let Some(other) = operands.iter().find(|o| o.shape != first.shape) {
            return Err(Diagnostic::new(format!("operands have types {first} and {other}"))
                .help("all operands have one shape"));
        }
        check_axis(first, self.axis)?;
        if !(1..=operands.len()).contains(&self.num_keys) {
            return Err(Diagnostic::new(format!(
                "{} keys among {} operands",
                self.num_keys,
                operands.len()
            ))
            .help("the keys are the first operands, at least one"));
        }
        // Checks the number of keys, as the call does.
        let argsort = Argsort { axis: self.axis, descending: false };
        argsort.infer(&operands[..self.num_keys], &[])?;
        Ok(operands.to_vec())
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let mut sorted =
            operands.iter().map(|o| Cells::copied(&o.cells)).collect::<Result<Vec<_>>>()?;
        for row in rows(&operands[0].shape, self.axis) {
            let mut from = row.clone();
            from.sort_by(|a, b| {
                let by_key = |key: &Array<R>| order(&key.cells[*a], &key.cells[*b], key.dtype);
                let keys = operands[..self.num_keys].iter();
                keys.map(by_key).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            });
            for (cells, operand) in sorted.iter_mut().zip(operands) {
                from.iter()
                    .zip(&row)
                    .for_each(|(from, to)| cells[*to] = operand.cells[*from].clone());
            }
        }
        let arrays = operands.iter().zip(sorted);
        Ok(arrays.map(|(o, cells)| Array::new(o.dtype, o.shape.clone(), cells)).collect())
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Decompose(Box::new(move |tensors| {
            let keys: Vec<&Tensor> = tensors[..self.num_keys].iter().collect();
            let order = Tensor::apply(Argsort { axis: self.axis, descending: false }, &keys);
            let take = TakeAlongAxis { axis: self.axis, permutation: true };
            tensors.iter().map(|x| Tensor::apply(take.clone(), &[x, &order])).collect()
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Composite
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Sort { axis: self.axis + 1, ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |axis, num_keys, operands| Sample::new(Sort { axis, num_keys }, operands);
        vec![Entry {
            name: "sort",
            doc: "All operands sorted along `axis` by the first `num_keys`. The sort is ascending \
                  and stable; −0 equals +0, and NaN is last. Tangents are permuted like the \
                  elements. Equal elements keep their order.",
            derivative: Derivative::Composite.kind(),
            samples: vec![
                sample(0, 1, vec![floats(&[7], -2.0, 2.0)]),
                sample(1, 1, vec![floats(&[2, 5, 3], -2.0, 2.0)]),
                sample(
                    1,
                    2,
                    vec![
                        values(&[2, 4], [1i32, 0, 1, 0, 7, 7, 7, 7]),
                        floats(&[2, 4], -2.0, 2.0),
                        floats(&[2, 4], -2.0, 2.0),
                        values(&[2, 4], [true, false, false, true, true, true, false, false]),
                    ],
                ),
                sample(
                    0,
                    1,
                    vec![values(&[6], [f32::NAN, 1.0, -0.0, 0.0, f32::NEG_INFINITY, 1.0])],
                ),
                sample(0, 1, vec![floats(&[0, 2], -1.0, 1.0), floats(&[0, 2], -1.0, 1.0)]),
            ],
        }]
    }
}
