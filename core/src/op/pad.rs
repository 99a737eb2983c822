//! `pad`: adds padding around and between elements, or crops.

use crate::op::prelude::*;
use crate::op::{Reduce, ReduceKind, Slice};

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
    named!(
        "pad",
        "x padded with `value`: `low`, `high`, and `interior` between elements. Negative padding \
         crops."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, value] = t.exactly()?;
        ensure!(*value == TensorType::scalar(x.dtype), "the padding value has type {value}";
            help "it must be a scalar of type {}[]", x.dtype);
        ensure!(
            self.low.len() == x.rank()
                && self.high.len() == x.rank()
                && [0, x.rank()].contains(&self.interior.len()),
            "low, high and interior need one entry for each axis of {x}"
        );
        let mut shape = Vec::with_capacity(x.rank());
        for axis in 0..x.rank() {
            let step = self.step(axis);
            ensure!(step >= 1, "interior padding {} of axis {axis}", step - 1;
                help "interior padding is at least 0");
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
            ensure!(extent.at_least(0), "axis {axis} of {x} would have extent {extent}";
                help "crop no more than there is");
            shape.push(extent);
        }
        Ok(vec![x.with_shape(shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, value) = (&e.operands[0], &e.operands[1]);
        e.build(|index| {
            let mut at = Vec::with_capacity(index.len());
            for (axis, i) in index.iter().enumerate() {
                let (offset, step) = (*i as i64 - self.low_of(axis), self.step(axis));
                if offset < 0 || offset % step != 0 || offset / step >= x.shape[axis] as i64 {
                    return value.cells[0].clone();
                }
                at.push((offset / step) as usize);
            }
            x.at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let from = l.extents(0);
        let to = l.result_extents();
        Compute::element(move |c, index| {
            let fill = c.operand(1, &[]);
            let mut at: Vec<Affine> = Vec::with_capacity(index.len());
            let mut guards = Vec::new();
            for (axis, i) in index.iter().enumerate() {
                let (low, step, extent) = (self.low_of(axis), self.step(axis), from[axis] as i64);
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
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::Pad(op) = t.op else { unreachable!("the rule of pad") };
        let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
        let (x, rank) = (t.operands[0].ty(), t.operands[0].ty().rank());
        let zero = Tensor::constant(Literal::full(&[], Scalar::zero(x.dtype)));
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
            let constant = |b: bool| Tensor::constant(Literal::from(b));
            let operand = Tensor::full(&x.with_dtype(DType::Bool), Scalar::of(true));
            let mask = Tensor::apply(op.clone(), &[&operand, &constant(false)]);
            sum(&mask.select(&ct.zeros_like(), ct))
        });
        vec![t.operands[0].is_linear().then_some(inside), value]
    });

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
        let constant = |s: Scalar| Tensor::constant(Literal::full(&[], s));
        let no = constant(Scalar::of(false));
        let inside = Tensor::full(&TensorType::of(DType::Bool, example(x, 0)), Scalar::of(true));
        let inside = b.repeat(&Tensor::apply(self.clone(), &[&inside, &no]));
        let padded = Tensor::apply(
            if b.batched[0] { op } else { self.clone() },
            &[x, &constant(Scalar::zero(x.dtype()))],
        );
        let padded = if b.batched[0] { padded } else { b.repeat(&padded) };
        let value = b.operands[1].broadcast_in_dim(b.shape(&b.results[0].shape), &[0]);
        vec![inside.select(&padded, &value)]
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
