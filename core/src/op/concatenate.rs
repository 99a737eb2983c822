//! `concatenate`: joins tensors along an axis.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Slice, Traits};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::Guard;
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `concatenate %a, %b, … {axis=0}`: the operands one behind the other along `axis`; along
    /// the other axes they have the same extents. Linear: a cotangent is cut into the operands'
    /// parts.
    Concatenate {
        /// The axis of concatenation.
        axis: usize,
    }
}

impl Operation for Concatenate {
    named!("concatenate");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        let Some(first) = operands.first() else {
            return Err(Diagnostic::new("needs at least one operand"));
        };
        if self.axis >= first.rank() {
            return Err(Diagnostic::new(format!("axis {} of operands of type {first}", self.axis)));
        }
        let mut extent = Dim::constant(0);
        for (i, operand) in operands.iter().enumerate() {
            let mut expected = first.clone();
            if operand.rank() == first.rank() {
                expected.shape[self.axis] = operand.shape[self.axis].clone();
            }
            if *operand != expected {
                return Err(Diagnostic::new(format!(
                    "operand 0 has type {first}, operand {i} has {operand}"
                ))
                .help(format!("they may differ along axis {} only", self.axis)));
            }
            extent = extent
                .checked_add(&operand.shape[self.axis])
                .ok_or_else(|| Diagnostic::new("the extents overflow"))?;
        }
        let mut result = first.clone();
        result.shape[self.axis] = extent;
        Ok(vec![result])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        Ok(vec![Array::from_fn(&results[0], |index| {
            let mut at = index.to_vec();
            for operand in operands {
                match at[self.axis].checked_sub(operand.shape[self.axis]) {
                    None => return operand.at(&at).clone(),
                    Some(rest) => at[self.axis] = rest,
                }
            }
            unreachable!("the result's extent is the sum of the operands'")
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extent = |ty: &TensorType| {
            ty.shape[self.axis].as_constant().expect("compute is asked for bound types only")
        };
        let extents: Vec<i64> = operands.iter().map(extent).collect();
        let dtype = results[0].dtype;
        Compute::Element {
            rule: Box::new(move |c, index| {
                let mut result = None;
                let mut start = 0;
                for (i, extent) in extents.iter().enumerate().filter(|(_, e)| **e > 0) {
                    let mut at = index.to_vec();
                    at[self.axis] = index[self.axis].offset(-start);
                    let guard = Guard { index: at[self.axis].clone(), low: 0, high: *extent };
                    result = Some(match result {
                        None if *extent == extents.iter().sum::<i64>() => c.operand(i, &at),
                        None => {
                            let zero = c.constant(Scalar::zero(dtype));
                            c.guarded(i, &at, vec![guard], zero)
                        }
                        // Where the guard fails, the fill is the element of an earlier operand.
                        Some(earlier) => c.guarded(i, &at, vec![guard], earlier),
                    });
                    start += extent;
                }
                result.unwrap_or_else(|| c.constant(Scalar::zero(dtype)))
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::Concatenate(op) = t.op else { unreachable!("the rule of concatenate") };
            let Some(ct) = &t.cotangents[0] else { return vec![None; t.operands.len()] };
            let mut start = Dim::constant(0);
            t.operands
                .iter()
                .map(|operand| {
                    let shape = &operand.ty().shape;
                    let end =
                        start.checked_add(&shape[op.axis]).expect("infer has added these extents");
                    let mut from = vec![Dim::constant(0); shape.len()];
                    let mut limit = shape.clone();
                    from[op.axis] = std::mem::replace(&mut start, end.clone());
                    limit[op.axis] = end;
                    let slice = Slice { start: from, limit, stride: vec![] };
                    operand.is_linear().then(|| Tensor::apply(slice, &[ct]))
                })
                .collect()
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Concatenate { axis: self.axis + 1 })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |axis: usize, shapes: &[&[usize]]| {
            Sample::new(Concatenate { axis }, shapes.iter().map(|s| floats(s, -2.0, 2.0)).collect())
        };
        vec![Entry {
            name: "concatenate",
            doc: "Concatenation of the operands along `axis`.",
            derivative: "linear",
            samples: vec![
                sample(0, &[&[2, 3], &[1, 3], &[4, 3]]),
                sample(1, &[&[2, 3], &[2, 5]]),
                sample(0, &[&[4]]),
                sample(1, &[&[2, 0], &[2, 3], &[2, 0], &[2, 1]]),
                sample(0, &[&[0, 2], &[0, 2]]),
                sample(2, &[&[1, 2, 1], &[1, 2, 2]]),
                Sample::new(
                    Concatenate { axis: 0 },
                    vec![values(&[2], [true, false]), values(&[1], [true])],
                ),
                Sample::new(
                    Concatenate { axis: 0 },
                    vec![values(&[2], [1u64, u64::MAX]), values(&[1], [7u64])],
                ),
            ],
        }]
    }
}
