//! Decomposition of attention and its derivatives into other ops.
//!
//! Everything is computed in f32 if operands are halves, and results are rounded once. Products
//! of halves accumulate in f32; weights are rounded to halves before they multiply halves.

use crate::op::attention::{Attention, AttentionKind, group};
use crate::op::prelude::*;
use crate::op::softmax::{Shifted, restore};
use crate::op::{Concatenate, DotGeneral};

/// The axis of keys in scores, `[B, N, T, S]`.
const KEYS: usize = 3;

/// Queries, keys and values, `[B, T or S, N, H]`. Keys and values that several heads of queries
/// share are repeated.
struct Three {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

impl Three {
    /// Three tensors; a packed operand is split.
    fn of(operands: &[Tensor]) -> Self {
        let [q, k, v] = match operands {
            [one] => [0, 1, 2].map(|part| {
                let mut shape = one.shape().to_vec();
                shape.remove(2);
                one.slice_axis(2, part, part + 1).reshape(shape)
            }),
            three => [0, 1, 2].map(|n: usize| repeated_heads(&three[n], &three[0].shape()[2])),
        };
        Three { q, k, v }
    }

    /// The transpose of `of`, in the dtype of the operands: one packed tensor if there is one.
    fn like(self, operands: &[Tensor]) -> Vec<Tensor> {
        let parts = [self.q, self.k, self.v];
        if operands.len() == 3 {
            let parts = parts.iter().zip(operands);
            return parts
                .map(|(x, like)| summed_heads(x, &like.shape()[2]).convert(like.dtype()))
                .collect();
        }
        let mut shape = operands[0].shape().to_vec();
        shape[2] = 1.into();
        let dtype = operands[0].dtype();
        let parts = parts.map(|x| x.convert(dtype).reshape(shape.clone()));
        vec![Tensor::apply(Concatenate { axis: 2 }, &parts.each_ref())]
    }
}

/// `[B, S, N, H]`: heads of `[B, S, K, H]`, each N / K times.
fn repeated_heads(x: &Tensor, heads: &Dim) -> Tensor {
    let Some(group) = group(heads, &x.shape()[2]).filter(|group| *group > 1) else {
        return x.clone();
    };
    let mut shape = x.shape().to_vec();
    shape.insert(3, group.into());
    let repeated = x.broadcast_in_dim(shape, &[0, 1, 2, 4]);
    let mut shape = x.shape().to_vec();
    shape[2] = heads.clone();
    repeated.reshape(shape)
}

/// The transpose of [`repeated_heads`].
fn summed_heads(x: &Tensor, heads: &Dim) -> Tensor {
    let Some(group) = group(&x.shape()[2], heads).filter(|group| *group > 1) else {
        return x.clone();
    };
    let mut shape = x.shape().to_vec();
    shape[2] = heads.clone();
    shape.insert(3, group.into());
    x.reshape(shape).sum_axes(&[3])
}

/// `[B, N, T, S]`: products of `[B, T, N, H]` and `[B, S, N, H]`, summed over the width.
fn scores(x: &Tensor, y: &Tensor) -> Tensor {
    product(x, y, 3, 3, [0, 2], [0, 2])
}

/// `[B, T, N, H]`: rows of `[B, S, N, H]` weighted by `[B, N, T, S]` and summed over the axis
/// `along` of the weights.
fn weigh(weights: &Tensor, along: usize, rows: &Tensor) -> Tensor {
    product(&weights.convert(rows.dtype()), rows, along, 1, [0, 1], [0, 2]).permute(&[0, 2, 1, 3])
}

fn product(
    x: &Tensor,
    y: &Tensor,
    along_x: usize,
    along_y: usize,
    a: [usize; 2],
    b: [usize; 2],
) -> Tensor {
    let result = x.dtype().is_half().then(|| x.dtype().wide());
    let contract = (vec![along_x], vec![along_y]);
    Tensor::apply(DotGeneral { contract, batch: (a.to_vec(), b.to_vec()), result }, &[x, y])
}

/// Scores of queries and keys, masked.
fn scored(op: &Attention, x: &Three, bias: Option<&Tensor>) -> Tensor {
    let products = scores(&x.q, &x.k) * op.scale.to_f64();
    seen(
        op.causal,
        &match bias {
            Some(bias) => biased(&products, bias),
            None => products,
        },
    )
}

/// Scores plus bias.
fn biased(scores: &Tensor, bias: &Tensor) -> Tensor {
    scores + repeated(bias, scores.shape())
}

/// A bias, or its tangent, broadcast to the shape of scores.
fn repeated(bias: &Tensor, shape: &[Dim]) -> Tensor {
    let axes: Vec<usize> = (0..4).filter(|axis| bias.shape()[*axis] == shape[*axis]).collect();
    let extents: Vec<Dim> = axes.iter().map(|axis| shape[*axis].clone()).collect();
    bias.reshape(extents).broadcast_in_dim(shape.to_vec(), &axes)
}

/// The cotangent of the bias, from the operands of the op that computes the other cotangents.
pub(super) fn cotangent_of_bias(op: &Attention, operands: &[&Tensor]) -> Tensor {
    let [given @ .., l, c, m] = operands else { unreachable!("infer has counted the operands") };
    let (bias, primals) = given.split_last().expect("infer has found the bias");
    let primals: Vec<Tensor> = primals.iter().map(|x| (*x).clone()).collect();
    let x = Three::of(&primals);
    let s = scored(op, &x, Some(bias));
    let p = (&s - restore(l, s.shape(), KEYS)).exp();
    let slopes = (scores(c, &x.v) - restore(m, s.shape(), KEYS)).scaled_by(&p);
    let along: Vec<usize> = (0..4).filter(|axis| bias.shape()[*axis] != s.shape()[*axis]).collect();
    slopes.sum_axes(&along).reshape(bias.shape().to_vec())
}

/// Scores with −∞ where a query does not see a key.
fn seen(causal: bool, scores: &Tensor) -> Tensor {
    if !causal {
        return scores.clone();
    }
    let along = |axis| Tensor::iota(DType::I32, scores.shape().to_vec(), axis);
    along(KEYS - 1).ge(along(KEYS)).select(scores, &scores.full_like(f64::NEG_INFINITY))
}

/// The results of the op.
pub(super) fn decompose(op: &Attention, operands: &[Tensor]) -> Vec<Tensor> {
    let primals = if operands[0].rank() == 5 { 1 } else { 3 };
    let (primals, rest) = operands.split_at(primals);
    let (bias, rest) = if op.bias { (Some(&rest[0]), &rest[1..]) } else { (None, rest) };
    let x = Three::of(primals);
    let dtype = x.q.dtype();
    let scale = op.scale.to_f64();
    let s = scored(op, &x, bias);
    if op.kind == AttentionKind::Value {
        let Shifted { max, exponentials, sum, .. } = Shifted::new(&s, KEYS);
        let p = exponentials / restore(&sum, s.shape(), KEYS);
        return vec![weigh(&p, KEYS, &x.v).convert(dtype), max + sum.log()];
    }
    let l = &rest[if op.kind == AttentionKind::Jvp { 1 } else { 0 }];
    let p = (&s - restore(l, s.shape(), KEYS)).exp();
    match op.kind {
        AttentionKind::Value => unreachable!("returned above"),
        AttentionKind::Jvp => {
            let out = &rest[0].convert(dtype.wide());
            let d = Three::of(&rest[2..2 + primals.len()]);
            let ds = (scores(&d.q, &x.k) + scores(&x.q, &d.k)) * scale;
            let ds = if op.bias { biased(&ds, &rest[2 + primals.len()]) } else { ds };
            let moved = ds.scaled_by(&p);
            let dl = moved.sum_axes(&[KEYS]);
            // [B, N, T] to [B, T, N, H].
            let shift = dl.permute(&[0, 2, 1]).broadcast_in_dim(out.shape().to_vec(), &[0, 1, 2]);
            let dout = weigh(&moved, KEYS, &x.v) - shift.scaled_by(out) + weigh(&p, KEYS, &d.v);
            vec![dout.convert(dtype), dl]
        }
        AttentionKind::Vjp => {
            let (c, m) = (&rest[1], &rest[2]);
            let difference = scores(c, &x.v) - restore(m, s.shape(), KEYS);
            let ds = difference.scaled_by(&p) * scale;
            let cotangents = Three {
                q: weigh(&ds, KEYS, &x.k),
                k: weigh(&ds, KEYS - 1, &x.q),
                v: weigh(&p, KEYS - 1, c),
            };
            cotangents.like(primals)
        }
    }
}
