//! Convolutions of a batch: the batch axis is merged into an axis of the convolution.
//!
//! Batched images for one filter are more images: the axis merges with that of the batch. Batched
//! filters for one image are more filters: it merges with the output features. If both are
//! batched, each example is a group: a *grouped* convolution has no product between groups. The
//! examples are the outer part of a merged axis, so that groups of features are those of the
//! examples, in order. Where the convolution itself has groups and the examples share an operand,
//! the examples are merged within each group, since group g of one operand meets group g of the
//! other.

use crate::op::batch::{moved, to_front};
use crate::op::conv_general_dilated::{ConvGeneralDilated, group_of};
use crate::op::prelude::*;

/// Merges the batch axis of `x`, which is in front, with axis `axis` of an example, within each
/// of the `groups` of that axis.
fn join(x: &Tensor, axis: usize, groups: &Dim, size: &Dim) -> Option<Tensor> {
    let mut shape = x.shape()[1..].to_vec();
    let one_group = group_of(&shape[axis], groups)?;
    shape[axis] = shape[axis].checked_mul(size)?;
    let mut split = x.shape().to_vec();
    split.splice(axis + 1..=axis + 1, [groups.clone(), one_group]);
    Some(moved(&x.reshape(split), 0, axis + 1).reshape(shape))
}

/// The inverse of [`join`] for a result whose examples have shape `example`.
fn part(y: &Tensor, axis: usize, groups: &Dim, size: &Dim, example: &[Dim]) -> Option<Tensor> {
    let one_group = group_of(&example[axis], groups)?;
    let mut split = example.to_vec();
    split.splice(axis..=axis, [groups.clone(), size.clone(), one_group]);
    let shape: Vec<Dim> = std::iter::once(size).chain(example).cloned().collect();
    Some(to_front(&y.reshape(split), axis + 1).reshape(shape))
}

/// Both operands batched: one group for each example and each group of the convolution.
fn grouped(op: &ConvGeneralDilated, b: &Batch<'_>) -> Option<Tensor> {
    let (specs, one) = (op.specs(), Dim::constant(1));
    let count = op.groups().checked_mul(b.size)?;
    let (axis, op) = match op.batch_group_count == one {
        true => (specs.lhs[1], ConvGeneralDilated { feature_group_count: count, ..op.clone() }),
        false => (specs.lhs[0], ConvGeneralDilated { batch_group_count: count, ..op.clone() }),
    };
    let x = join(&b.operands[0], axis, &one, b.size)?;
    let w = join(&b.operands[1], specs.rhs[0], &one, b.size)?;
    part(&Tensor::apply(op, &[&x, &w]), specs.out[1], &one, b.size, &b.results[0].shape)
}

/// One operand shared, within the groups of the convolution. In the result of batched images in
/// groups, the examples are the outer part.
fn shared(op: &ConvGeneralDilated, b: &Batch<'_>) -> Option<Tensor> {
    let (specs, one) = (op.specs(), Dim::constant(1));
    let (x, w, example) = (&b.operands[0], &b.operands[1], &b.results[0].shape);
    if b.batched[0] {
        let x = join(x, specs.lhs[0], &op.batch_group_count, b.size)?;
        return part(&Tensor::apply(op.clone(), &[&x, w]), specs.out[0], &one, b.size, example);
    }
    let w = join(w, specs.rhs[0], op.groups(), b.size)?;
    part(&Tensor::apply(op.clone(), &[x, &w]), specs.out[1], op.groups(), b.size, example)
}

pub(super) fn batch(op: &ConvGeneralDilated, b: &Batch<'_>) -> Vec<Tensor> {
    let result = if b.batched[0] && b.batched[1] { grouped(op, b) } else { shared(op, b) };
    match result {
        Some(result) => vec![result],
        None => b.fail(
            Diagnostic::new(format!(
                "a batch of {} convolutions of {} and {}: the product of two dimensions is not \
                 linear",
                b.size,
                b.operands[0].ty(),
                b.operands[1].ty()
            ))
            .help("a number in place of one of the dimension variables decides it"),
        ),
    }
}
