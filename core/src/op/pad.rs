//! `pad`: adds padding around and between elements, or crops.

use super::attribute::{attributes, named};
use super::batch::prepended;
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Reduce, ReduceKind, Slice, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::{Affine, Guard};
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `pad %x, %value {high=[…], interior=[…], low=[…]}`: `low` elements of `value` before each
    /// axis, `high` behind, and `interior` between any two elements. Negative `low` and `high`
    /// crop (after the interior padding).
    Pad {
        /// Number of elements before, for each axis.
        low: Vec<Dim>,
        /// Number of elements behind, for each axis.
        high: Vec<Dim>,
        /// Number of elements between neighbours, for each axis; at least 0; empty: all 0.
        interior: Vec<i64> = vec![],
    }
}

impl Pad {
    /// Distance in the result between neighbours along an axis.
    fn step(&self, axis: usize) -> i64 {
        self.interior.get(axis).copied().unwrap_or(0).saturating_add(1)
    }

    fn low_of(&self, axis: usize) -> i64 {
        self.low[axis].as_constant().expect("the dimension is bound")
    }
}

impl Operation for Pad {
    named!("pad");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let (x, value) = (&operands[0], &operands[1]);
        if *value != TensorType::scalar(x.dtype) {
            return Err(Diagnostic::new(format!("the padding value has type {value}"))
                .help(format!("it must be a scalar of type {}[]", x.dtype)));
        }
        if self.low.len() != x.rank()
            || self.high.len() != x.rank()
            || ![0, x.rank()].contains(&self.interior.len())
        {
            return Err(Diagnostic::new(format!(
                "low, high and interior need one entry for each axis of {x}"
            )));
        }
        let mut shape = Vec::with_capacity(x.rank());
        for axis in 0..x.rank() {
            let step = self.step(axis);
            if step < 1 {
                return Err(Diagnostic::new(format!(
                    "interior padding {} of axis {axis}",
                    step - 1
                ))
                .help("interior padding is at least 0"));
            }
            let inner = if x.shape[axis].as_constant() == Some(0) {
                Some(Dim::constant(0))
            } else {
                x.shape[axis]
                    .checked_scale(step)
                    .and_then(|d| d.checked_add(&Dim::constant(1 - step)))
            };
            let extent = inner
                .and_then(|d| d.checked_add(&self.low[axis]))
                .and_then(|d| d.checked_add(&self.high[axis]));
            let extent = extent.ok_or_else(|| Diagnostic::new("the extents of a pad overflow"))?;
            if !extent.at_least(0) {
                return Err(Diagnostic::new(format!(
                    "axis {axis} of {x} would have extent {extent}"
                ))
                .help("crop no more than there is"));
            }
            shape.push(extent);
        }
        Ok(vec![x.with_shape(shape)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, value) = (&operands[0], &operands[1]);
        Ok(vec![Array::from_fn(&results[0], |index| {
            let mut at = Vec::with_capacity(index.len());
            for (axis, i) in index.iter().enumerate() {
                let (offset, step) = (*i as i64 - self.low_of(axis), self.step(axis));
                if offset < 0 || offset % step != 0 || offset / step >= x.shape[axis] as i64 {
                    return value.cells[0].clone();
                }
                at.push((offset / step) as usize);
            }
            x.at(&at).clone()
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let from = operands[0].extents().expect("compute is asked for bound types only");
        let to = results[0].extents().expect("compute is asked for bound types only");
        Compute::Element {
            rule: Box::new(move |c, index| {
                let fill = c.operand(1, &[]);
                let mut at: Vec<Affine> = Vec::with_capacity(index.len());
                let mut guards = Vec::new();
                for (axis, i) in index.iter().enumerate() {
                    let (low, step, extent) =
                        (self.low_of(axis), self.step(axis), from[axis] as i64);
                    let offset = i.offset(-low);
                    let span = (extent - 1) * step + 1;
                    // Without padding on either side every index is in bounds and needs no guard.
                    if low > 0 || to[axis] as i64 - low > span || extent == 0 {
                        guards.push(Guard { index: offset.clone(), low: 0, high: span.max(0) });
                    }
                    if step > 1 {
                        guards.push(Guard { index: offset.modulo(step), low: 0, high: 1 });
                    }
                    at.push(offset.floor_div(step));
                }
                if guards.is_empty() { c.operand(0, &at) } else { c.guarded(0, &at, guards, fill) }
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::Pad(op) = t.op else { unreachable!("the rule of pad") };
            let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
            let (x, rank) = (t.operands[0].ty(), t.operands[0].ty().rank());
            let zero = Tensor::constant(crate::Literal::full(&[], Scalar::zero(x.dtype)));
            let negate = |dims: &[Dim]| {
                dims.iter()
                    .map(|d| d.checked_scale(-1).expect("infer has added this dimension"))
                    .collect::<Vec<_>>()
            };
            // Undoes low and high with a pad of opposite sign, then takes every step-th element.
            let unpadded = |ct: &Tensor| {
                let undo = Pad { low: negate(&op.low), high: negate(&op.high), interior: vec![] };
                let inner = Tensor::apply(undo, &[ct, &zero]);
                let start = vec![Dim::constant(0); rank];
                let stride = (0..rank).map(|a| op.step(a)).collect();
                Tensor::apply(Slice { start, limit: inner.shape().to_vec(), stride }, &[&inner])
            };
            let inside = unpadded(ct);
            let sum = |t: &Tensor| Tensor::apply(Reduce::new(ReduceKind::Sum, 0..rank), &[t]);
            let value = t.operands[1].is_linear().then(|| {
                // The cotangent of the value is the sum over the padding, selected by a mask. A
                // difference of sums would cancel.
                let constant = |b: bool| Tensor::constant(crate::Literal::from(b));
                let operand = Tensor::full(&x.with_dtype(DType::Bool), Scalar::of(true));
                let mask = Tensor::apply(op.clone(), &[&operand, &constant(false)]);
                sum(&mask.select(&ct.zeros_like(), ct))
            });
            vec![t.operands[0].is_linear().then_some(inside), value]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let zero = Dim::constant(0);
        let op = Pad {
            low: prepended(zero.clone(), &self.low, false),
            high: prepended(zero, &self.high, false),
            interior: prepended(0, &self.interior, true),
        };
        if !b.batched[1] {
            return vec![Tensor::apply(op, &[&b.operands[0], &b.operands[1]])];
        }
        // If each example has a value, pads with zeros and then selects the value in the padding.
        let example = |t: &Tensor, i: usize| t.shape()[usize::from(b.batched[i])..].to_vec();
        let x = &b.operands[0];
        let constant = |s: Scalar| Tensor::constant(crate::Literal::full(&[], s));
        let no = constant(Scalar::of(false));
        let inside = Tensor::full(
            &TensorType { dtype: DType::Bool, shape: example(x, 0) },
            Scalar::of(true),
        );
        let inside = b.repeat(&Tensor::apply(self.clone(), &[&inside, &no]));
        let padded = Tensor::apply(
            if b.batched[0] { op } else { self.clone() },
            &[x, &constant(Scalar::zero(x.dtype()))],
        );
        let padded = if b.batched[0] { padded } else { b.repeat(&padded) };
        let value = b.operands[1].broadcast_in_dim(b.shape(&b.results[0].shape), &[0]);
        vec![inside.select(&padded, &value)]
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let dims = |v: &[i64]| v.iter().map(|e| Dim::constant(*e)).collect();
        let sample = |low: &[i64], high: &[i64], interior: &[i64]| {
            let op = Pad { low: dims(low), high: dims(high), interior: interior.to_vec() };
            Sample::new(op, vec![floats(&[3, 4], -2.0, 2.0), floats(&[], 0.5, 1.0)])
        };
        vec![Entry {
            name: "pad",
            doc: "x padded with `value`: `low`, `high`, and `interior` between elements. Negative \
                  padding crops.",
            derivative: "linear",
            samples: vec![
                sample(&[1, 0], &[0, 2], &[]),
                sample(&[-1, 2], &[1, -2], &[]),
                sample(&[1, -1], &[0, 2], &[1, 2]),
                // Cropped within the interior padding on both sides.
                sample(&[-2, -4], &[-1, -3], &[2, 3]),
                sample(&[-1, 1], &[-3, -2], &[1, 0]),
                // Only padding remains; nothing remains; the operand is empty.
                sample(&[-3, 0], &[2, 0], &[]),
                sample(&[-1, 0], &[-2, 0], &[]),
                Sample::new(
                    Pad { low: dims(&[2, -1]), high: dims(&[1, 1]), interior: vec![3, 1] },
                    vec![floats(&[0, 2], -2.0, 2.0), floats(&[], 0.5, 1.0)],
                ),
                Sample::new(
                    Pad { low: vec![], high: vec![], interior: vec![] },
                    vec![floats(&[], -2.0, 2.0), floats(&[], 0.5, 1.0)],
                ),
                Sample::new(
                    Pad { low: dims(&[-1]), high: dims(&[1]), interior: vec![1] },
                    vec![values(&[3], [1i8, 2, 3]), values(&[], [-7i8])],
                ),
                Sample::new(
                    Pad { low: dims(&[1]), high: dims(&[0]), interior: vec![] },
                    vec![values(&[2], [true, false]), values(&[], [true])],
                ),
            ],
        }]
    }
}
