//! `permute`: reorders axes (`transpose` of `jax.lax`; that word is the AD operation's here).

use super::attribute::{attributes, named};
use super::batch::in_front;
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Traits, distinct_axes, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::Affine;
use crate::ty::TensorType;

attributes! {
    /// `permute %x {permutation=[…]}`: axis i of the result is axis `permutation[i]` of the
    /// operand.
    Permute {
        /// Each axis of the operand once.
        permutation: Vec<usize>,
    }
}

impl Permute {
    /// The inverse permutation.
    pub fn inverse(&self) -> Permute {
        let mut permutation = vec![0; self.permutation.len()];
        self.permutation.iter().enumerate().for_each(|(i, axis)| permutation[*axis] = i);
        Permute { permutation }
    }
}

impl Operation for Permute {
    named!("permute");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        if self.permutation.len() != x.rank() {
            return Err(Diagnostic::new(format!(
                "permutation {:?} of an operand of type {x}",
                self.permutation
            ))
            .help("name each axis once"));
        }
        distinct_axes("permutation", &self.permutation, x.rank())?;
        Ok(vec![x.with_shape(self.permutation.iter().map(|a| x.shape[*a].clone()).collect())])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let mut at = vec![0; self.permutation.len()];
        Ok(vec![Array::from_fn(&results[0], |index| {
            self.permutation.iter().zip(index).for_each(|(axis, i)| at[*axis] = *i);
            operands[0].at(&at).clone()
        })?])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let mut at = vec![Affine::constant(0); index.len()];
                self.permutation.iter().zip(index).for_each(|(axis, i)| at[*axis] = i.clone());
                c.operand(0, &at)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::Permute(op) = t.op else { unreachable!("the rule of permute") };
            vec![t.cotangents[0].as_ref().map(|ct| ct.permute(&op.inverse().permutation))]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Permute { permutation: in_front(&self.permutation) })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |permutation: &[usize], shape: &[usize]| {
            Sample::new(
                Permute { permutation: permutation.to_vec() },
                vec![floats(shape, -2.0, 2.0)],
            )
        };
        vec![Entry {
            name: "permute",
            doc: "result[i₀, i₁, …] = x[j…] with j[permutation[k]] = iₖ.",
            derivative: "linear",
            samples: vec![
                sample(&[1, 0], &[3, 5]),
                sample(&[2, 0, 1], &[2, 3, 4]),
                sample(&[], &[]),
                sample(&[0, 1], &[2, 3]),
                sample(&[1, 2, 0], &[2, 0, 3]),
                Sample::new(
                    Permute { permutation: vec![1, 0] },
                    vec![values(&[2, 3], [1u8, 2, 3, 4, 5, 6])],
                ),
            ],
        }]
    }
}
