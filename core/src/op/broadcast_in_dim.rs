//! `broadcast_in_dim`: repeats a tensor along new or unit axes.

use super::attribute::{attributes, named};
use super::batch::in_front;
use super::compute::Compute;
use super::derivative::Derivative;
use super::reduce::{Reduce, ReduceKind};
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, distinct_axes, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::Affine;
use crate::ty::TensorType;

attributes! {
    /// `broadcast_in_dim %x {dims=[…], shape=[…]}`: axis i of the operand becomes axis `dims[i]`
    /// of the result.
    BroadcastInDim {
        /// Shape of the result.
        shape: Vec<Dim>,
        /// For each axis of the operand, the axis of the result; strictly ascending. Its extent
        /// is the result's, or 1.
        dims: Vec<usize> = vec![],
    }
}

impl BroadcastInDim {
    /// Axes of the result along which the operand is repeated: those not in `dims`, and those
    /// where the operand has extent 1.
    fn repeated(&self, operand: &TensorType) -> Vec<usize> {
        (0..self.shape.len())
            .filter(|axis| match self.dims.iter().position(|d| d == axis) {
                None => true,
                Some(i) => operand.shape[i] != self.shape[*axis],
            })
            .collect()
    }
}

impl Operation for BroadcastInDim {
    named!("broadcast_in_dim");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        if self.dims.len() != x.rank() {
            return Err(Diagnostic::new(format!(
                "dims has {} entries for an operand of type {x}",
                self.dims.len()
            )));
        }
        distinct_axes("dims", &self.dims, self.shape.len())?;
        if !self.dims.is_sorted() {
            return Err(Diagnostic::new("dims must ascend").help("permute the operand first"));
        }
        let result = x.with_shape(self.shape.clone());
        for (i, axis) in self.dims.iter().enumerate() {
            if x.shape[i] != self.shape[*axis] && x.shape[i] != Dim::constant(1) {
                return Err(Diagnostic::new(format!(
                    "axis {i} of {x} has extent {}, axis {axis} of {result} has {}",
                    x.shape[i], self.shape[*axis]
                ))
                .help("extents must be equal, or 1 in the operand"));
            }
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        Ok(vec![Array::from_fn(&results[0], |index| {
            let at: Vec<usize> = self
                .dims
                .iter()
                .zip(&x.shape)
                .map(|(d, e)| if *e == 1 { 0 } else { index[*d] })
                .collect();
            x.at(&at).clone()
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let unit: Vec<bool> = operands[0].shape.iter().map(|d| *d == Dim::constant(1)).collect();
        Compute::Element {
            rule: Box::new(move |c, index| {
                let at: Vec<Affine> = self
                    .dims
                    .iter()
                    .zip(&unit)
                    .map(|(d, unit)| if *unit { Affine::constant(0) } else { index[*d].clone() })
                    .collect();
                c.operand(0, &at)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let super::Op::BroadcastInDim(op) = t.op else {
                unreachable!("the rule of broadcast_in_dim")
            };
            let operand = t.operands[0].ty();
            let axes = op.repeated(operand);
            let summed = t.cotangents[0].as_ref().map(|ct| {
                Tensor::apply(Reduce { kind: ReduceKind::Sum, axes }, &[ct])
                    .reshape(operand.shape.clone())
            });
            vec![summed]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(BroadcastInDim { shape: b.shape(&self.shape), dims: in_front(&self.dims) })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |shape: &[i64], dims: &[usize], operand: &[usize]| {
            let shape = shape.iter().map(|e| Dim::constant(*e)).collect();
            Sample::new(
                BroadcastInDim { shape, dims: dims.to_vec() },
                vec![floats(operand, -2.0, 2.0)],
            )
        };
        vec![Entry {
            name: "broadcast_in_dim",
            doc: "result[i…] = x[i[dims[0]], i[dims[1]], …]. Extents of 1 are repeated.",
            derivative: "linear",
            samples: vec![
                sample(&[4, 3], &[1], &[3]),
                sample(&[2, 3], &[], &[]),
                sample(&[2, 4, 3], &[0, 2], &[1, 3]),
                sample(&[], &[], &[]),
                sample(&[1, 3, 1], &[1], &[1]),
                sample(&[2, 0, 3], &[0, 2], &[2, 3]),
                sample(&[0, 3], &[0, 1], &[1, 3]),
                Sample::new(
                    BroadcastInDim {
                        shape: vec![Dim::constant(2), Dim::constant(2)],
                        dims: vec![0],
                    },
                    vec![values(&[2], [true, false])],
                ),
            ],
        }]
    }
}
