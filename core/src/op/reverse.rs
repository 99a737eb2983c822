//! `reverse`: reverses axes (`rev` of `jax.lax`).

use super::attribute::{attributes, named};
use super::batch::shifted;
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Traits, distinct_axes, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::Affine;
use crate::ty::TensorType;

attributes! {
    /// `reverse %x {axes=[…]}`: the last element of each of `axes` comes first.
    Reverse {
        /// The reversed axes, each once.
        axes: Vec<usize>,
    }
}

impl Operation for Reverse {
    named!("reverse");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        distinct_axes("axes", &self.axes, operands[0].rank())?;
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        Ok(vec![Array::from_fn(&results[0], |index| {
            let mut at = index.to_vec();
            self.axes.iter().for_each(|a| at[*a] = x.shape[*a] - 1 - index[*a]);
            x.at(&at).clone()
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extents = operands[0].extents().expect("compute is asked for bound types only");
        Compute::Element {
            rule: Box::new(move |c, index| {
                let mut at: Vec<Affine> = index.to_vec();
                self.axes
                    .iter()
                    .for_each(|a| at[*a] = index[*a].scale(-1).offset(extents[*a] as i64 - 1));
                c.operand(0, &at)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::Reverse(op) = t.op else { unreachable!("the rule of reverse") };
            vec![t.cotangents[0].as_ref().map(|ct| ct.reverse(&op.axes))]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Reverse { axes: shifted(&self.axes) })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |axes: &[usize]| {
            Sample::new(Reverse { axes: axes.to_vec() }, vec![floats(&[3, 4], -2.0, 2.0)])
        };
        vec![Entry {
            name: "reverse",
            doc: "x reversed along `axes`.",
            derivative: "linear",
            samples: vec![
                sample(&[0]),
                sample(&[1, 0]),
                sample(&[]),
                Sample::new(Reverse { axes: vec![] }, vec![floats(&[], -2.0, 2.0)]),
                Sample::new(Reverse { axes: vec![0, 2] }, vec![floats(&[2, 0, 3], -2.0, 2.0)]),
                Sample::new(Reverse { axes: vec![0] }, vec![values(&[3], [true, false, false])]),
                Sample::new(
                    Reverse { axes: vec![1] },
                    vec![values(&[2, 3], [1i8, 2, 3, -4, 5, 6])],
                ),
            ],
        }]
    }
}
