//! The derivatives of scatters.
//!
//! *Add* and *replace* are linear in operand and updates together. An update that a later one
//! replaces has cotangent zero. The transpose finds the last updates by scattering the numbers of
//! the positions and gathering them again.
//!
//! *Mul*: the tangent of an element x · Πuᵢ is dx · Πuᵢ + Σⱼ duⱼ · x · Π_{i≠j} uᵢ. The products
//! without one factor are computed without division, so zeros are correct to every order. Where
//! elements get at most one update, the coefficient of duⱼ is x itself.
//!
//! *Min* and *max*: the element and those of its updates that equal the extremum share the
//! gradient in equal parts, as in `reduce_max`.

use crate::call::ScatterKind;
use crate::op::binary::sum;
use crate::op::prelude::*;
use crate::op::scatter::Scatter;
use crate::op::{Gather, TakeAlongAxis};

pub(super) fn rule(kind: ScatterKind) -> Derivative {
    match kind {
        ScatterKind::Add => Derivative::Linear(transpose_add),
        ScatterKind::Replace => Derivative::Linear(transpose_replace),
        ScatterKind::Mul => Derivative::Nonlinear(jvp_mul),
        ScatterKind::Min | ScatterKind::Max => Derivative::Nonlinear(jvp_extremum),
    }
}

fn scatter(op: &Op) -> &Scatter {
    match op {
        Op::Scatter(op) => op,
        _ => unreachable!("the rule of a scatter"),
    }
}

impl Scatter {
    /// For each update, the element of `x` that it meets; 0 if it meets none. `x` has the
    /// operand's shape.
    fn met(&self, x: &Tensor, indices: &Tensor, updates: &TensorType) -> Tensor {
        let gather = Gather {
            offset_dims: self.update_window_dims.clone(),
            collapsed_slice_dims: self.inserted_window_dims.clone(),
            start_index_map: self.scatter_dims_to_operand_dims.clone(),
            slice_sizes: self.window(x.ty(), updates),
            operand_batching_dims: self.operand_batching_dims.clone(),
            start_indices_batching_dims: self.scatter_indices_batching_dims.clone(),
            fill: (!self.clip).then(|| Scalar::zero(x.dtype())),
        };
        Tensor::apply(gather, &[x, indices])
    }

    /// A scatter of another kind to the same positions.
    fn as_kind(&self, kind: ScatterKind, x: &Tensor, indices: &Tensor, updates: &Tensor) -> Tensor {
        Tensor::apply(Scatter { kind, ..self.clone() }, &[x, indices, updates])
    }

    /// A number for each update, from 1 on, ascending with its scatter position.
    fn numbers(&self, updates: &TensorType) -> Tensor {
        let outside = (0..updates.rank()).filter(|a| !self.update_window_dims.contains(a));
        let mut number = Tensor::zeros(&updates.with_dtype(DType::I64));
        for axis in outside {
            let extent: &Dim = &updates.shape[axis];
            let digit = Tensor::iota(DType::I64, updates.shape.clone(), axis);
            number = number * Tensor::dim_as_value(extent.clone(), DType::I64) + digit;
        }
        number + 1
    }

    /// Whether each update of a replacing scatter is in its result.
    fn winners(&self, x: &TensorType, indices: &Tensor, updates: &TensorType) -> Tensor {
        let numbers = self.numbers(updates);
        let nobody = Tensor::zeros(&x.with_dtype(DType::I64));
        let last = self.as_kind(ScatterKind::Replace, &nobody, indices, &numbers);
        self.met(&last, indices, updates).eq(numbers)
    }
}

impl Scatter {
    /// For each update, the product of all other updates of the same element.
    ///
    /// Updates are sorted by element, so that those of one element are adjacent. Then the
    /// products of the earlier and of the later updates of the same element are computed in log₂
    /// n rounds (Hillis and Steele's scan); each round doubles the distance.
    fn products_of_others(&self, x: &TensorType, indices: &Tensor, updates: &Tensor) -> Tensor {
        let all = updates.flatten(0);
        if all.error().is_some() {
            return all;
        }
        let Some(count) = all.shape()[0].as_extent() else {
            return updates.fail(
                Diagnostic::new(format!(
                    "the derivative of scatter_mul needs the extents of its updates, which are {}",
                    updates.ty()
                ))
                .help(
                    "give the axes numbers instead of dimension variables, or promise \
                     `unique_indices` if no element gets two updates",
                ),
            );
        };
        // Elements are numbered from 1. Number 0 is outside, where the product is not used.
        let elements = x.shape.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
        let Some(elements) = elements else {
            return updates.fail(
                Diagnostic::new(format!(
                    "the derivative of scatter_mul needs the number of elements of {x}"
                ))
                .help("give the axes numbers instead of dimension variables"),
            );
        };
        let number = Tensor::iota(DType::I64, [elements], 0).reshape(x.shape.clone()) + 1;
        let element = self.met(&number, indices, updates.ty()).flatten(0);
        let order = element.argsort(0);
        let take = |x: &Tensor, order: &Tensor| {
            Tensor::apply(TakeAlongAxis { axis: 0, permutation: true }, &[x, order])
        };
        let (element, all) = (take(&element, &order), take(&all, &order));
        let before = products_before(&element, &all, count);
        let behind =
            products_before(&element.reverse(&[0]), &all.reverse(&[0]), count).reverse(&[0]);
        take(&(before * behind), &order.argsort(0)).reshape(updates.shape().to_vec())
    }
}

/// For each of `count` factors, the product of the earlier ones with the same key. Equal keys are
/// adjacent.
fn products_before(keys: &Tensor, factors: &Tensor, count: usize) -> Tensor {
    let one = |shape: usize| {
        Tensor::full(&factors.ty().with_shape(vec![Dim::from(shape)]), Scalar::one(factors.dtype()))
    };
    // The factor at this distance before, if it has the same key, else 1.
    let earlier = |x: &Tensor, distance: usize| {
        let end = (count - distance) as i64;
        let same = keys.slice_axis(0, distance as i64, count as i64).eq(keys.slice_axis(0, 0, end));
        let x = x.slice_axis(0, 0, end);
        Tensor::concatenate(&[&one(distance), &same.select(&x, &x.ones_like())], 0)
    };
    if count == 0 {
        return factors.clone();
    }
    let mut products = earlier(factors, 1);
    let mut distance = 1;
    while distance < count {
        products = &products * earlier(&products, distance);
        distance *= 2;
    }
    products
}

fn transpose_add(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let op = scatter(t.op);
    let Some(ct) = &t.cotangents[0] else { return vec![None; 3] };
    let update = || op.met(ct, t.operands[1].known(), t.operands[2].ty());
    vec![
        t.operands[0].is_linear().then(|| ct.clone()),
        None,
        t.operands[2].is_linear().then(update),
    ]
}

fn transpose_replace(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let op = scatter(t.op);
    let Some(ct) = &t.cotangents[0] else { return vec![None; 3] };
    let (indices, updates) = (t.operands[1].known(), t.operands[2].ty());
    let operand = || op.as_kind(ScatterKind::Replace, ct, indices, &Tensor::zeros(updates));
    let update = || {
        let met = op.met(ct, indices, updates);
        if op.unique_indices {
            return met;
        }
        op.winners(t.operands[0].ty(), indices, updates).select(&met, &met.zeros_like())
    };
    vec![t.operands[0].is_linear().then(operand), None, t.operands[2].is_linear().then(update)]
}

fn jvp_mul(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let op = scatter(j.op);
    let [x, indices, updates] = j.operands else { unreachable!("infer admits three operands") };
    let operand = j.tangents[0].as_ref().map(|t| {
        let factor = op.as_kind(ScatterKind::Mul, &x.ones_like(), indices, updates);
        t.scaled_by(&factor)
    });
    let update = j.tangents[2].as_ref().map(|t| {
        let mut others = op.met(x, indices, updates.ty());
        if !op.unique_indices {
            others = others * op.products_of_others(x.ty(), indices, updates);
        }
        op.as_kind(ScatterKind::Add, &x.zeros_like(), indices, &t.scaled_by(&others))
    });
    vec![sum(operand, update)]
}

fn jvp_extremum(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let op = scatter(j.op);
    let [x, indices, updates] = j.operands else { unreachable!("infer admits three operands") };
    let result = &j.results[0];
    let chosen = [x.eq(result), updates.eq(op.met(result, indices, updates.ty()))];
    // A half holds consecutive integers only up to a small bound, so counts are f32.
    let counter = x.dtype().wide();
    let total = |x: &Tensor, updates: &Tensor| op.as_kind(ScatterKind::Add, x, indices, updates);
    let count = total(&chosen[0].convert(counter), &chosen[1].convert(counter));
    let share = count.reciprocal().convert(x.dtype());
    let part = |chosen: &Tensor, tangent: &Option<Tensor>, primal: &Tensor| match tangent {
        Some(t) => chosen.select(t, &t.zeros_like()),
        None => primal.zeros_like(),
    };
    let operand = part(&chosen[0], &j.tangents[0], x);
    let update = part(&chosen[1], &j.tangents[2], updates);
    vec![Some(total(&operand, &update).scaled_by(&share))]
}
