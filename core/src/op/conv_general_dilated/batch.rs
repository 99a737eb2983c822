//! Convolutions of a batch: the batch axis becomes part of an axis that a convolution has anyway.
//!
//! Images for one filter are more images: the axis joins that of the batch. Filters for one image are more filters: it joins the output
//! features. Of both, each example is a group of its own: a *grouped* convolution has no product between groups. Axes are joined with
//! the examples outside, so that groups of features are those of the examples, in order. Where the convolution itself has groups and the
//! examples share an operand, the examples stand within each group, since groups of one operand meet those of the other.

use super::{ConvGeneralDilated, group_of};
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::graph::tensor::Tensor;
use crate::op::batch::{Batch, moved, to_front};

/// Joins the batch axis of `x`, which is in front, with axis `axis` of an example, within each of `groups` of it.
fn join(x: &Tensor, axis: usize, groups: usize, size: &Dim) -> Option<Tensor> {
    let mut shape = x.shape()[1..].to_vec();
    let one_group = group_of(&shape[axis], groups)?;
    shape[axis] = shape[axis].checked_mul(size)?;
    let mut split = x.shape().to_vec();
    split.splice(axis + 1..=axis + 1, [Dim::from(groups), one_group]);
    Some(moved(&x.reshape(split), 0, axis + 1).reshape(shape))
}

/// Undoes [`join`] for a result of which one example has shape `example`.
fn part(y: &Tensor, axis: usize, groups: usize, size: &Dim, example: &[Dim]) -> Option<Tensor> {
    let one_group = group_of(&example[axis], groups)?;
    let mut split = example.to_vec();
    split.splice(axis..=axis, [Dim::from(groups), size.clone(), one_group]);
    let shape: Vec<Dim> = std::iter::once(size).chain(example).cloned().collect();
    Some(to_front(&y.reshape(split), axis + 1).reshape(shape))
}

pub(super) fn batch(op: &ConvGeneralDilated, b: &Batch<'_>) -> Vec<Tensor> {
    let specs = op.specs();
    let (features, batches) = (op.feature_group_count, op.batch_group_count);
    let groups = features.max(batches);
    let (x, w) = (&b.operands[0], &b.operands[1]);
    let [lhs, rhs, out] = [&specs.lhs, &specs.rhs, &specs.out];
    let example = &b.results[0].shape;
    let apply = |op: ConvGeneralDilated, x: &Tensor, w: &Tensor| Tensor::apply(op, &[x, w]);
    let result = match (b.batched[0], b.batched[1]) {
        (true, false) => join(x, lhs[0], batches, b.size)
            .map(|x| apply(op.clone(), &x, w))
            .and_then(|y| part(&y, out[0], 1, b.size, example)),
        (false, _) => join(w, rhs[0], groups, b.size)
            .map(|w| apply(op.clone(), x, &w))
            .and_then(|y| part(&y, out[1], groups, b.size, example)),
        (true, true) => {
            let Some(count) = b.size.as_extent().and_then(|n| n.checked_mul(groups)) else {
                return b.fail(
                    Diagnostic::new(format!("a convolution of {} images with a filter each", b.size))
                        .help("the number of groups of a convolution is a number: bind the dimension variable first"),
                );
            };
            let (axis, op) = match batches {
                1 => (lhs[1], ConvGeneralDilated { feature_group_count: count, ..op.clone() }),
                _ => (lhs[0], ConvGeneralDilated { batch_group_count: count, ..op.clone() }),
            };
            join(x, axis, 1, b.size)
                .zip(join(w, rhs[0], 1, b.size))
                .map(|(x, w)| apply(op, &x, &w))
                .and_then(|y| part(&y, out[1], 1, b.size, example))
        }
    };
    match result {
        Some(result) => vec![result],
        None => b.fail(
            Diagnostic::new(format!(
                "a batch of {} convolutions of {} and {}: the product of two dimensions is not linear",
                b.size,
                x.ty(),
                w.ty()
            ))
            .help("bind one of the dimension variables first"),
        ),
    }
}
