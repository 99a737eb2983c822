//! Decomposition of attention and its derivatives into other ops.
//!
//! Everything is computed in f32 if operands are halves, and results are rounded once. Products
//! of halves accumulate in f32; weights are rounded to halves before they multiply halves.

use crate::op::attention::{Attention, AttentionKind, Operands, group};
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

/// Which keys a query attends to: a prefix of them. `prefix` is the operand, `[B]`.
#[derive(Clone, Copy)]
struct Visible<'a> {
    causal: bool,
    prefix: Option<&'a Tensor>,
}

impl Visible<'_> {
    /// Scores with −∞ where a query does not see a key.
    fn masked(self, scores: Tensor) -> Tensor {
        let along = |axis| Tensor::iota(DType::I32, scores.shape().to_vec(), axis);
        let seen = match self.prefix {
            None if !self.causal => return scores,
            None => along(KEYS - 1).ge(along(KEYS)),
            Some(prefix) => {
                // s < prefix + t, without overflow.
                let beyond = if self.causal { along(KEYS) - along(KEYS - 1) } else { along(KEYS) };
                beyond.lt(prefix.broadcast_in_dim(scores.shape().to_vec(), &[0]))
            }
        };
        seen.select(&scores, &scores.full_like(f64::NEG_INFINITY))
    }

    /// Rows `[B, S, N, H]` of keys, values or their tangents, with 0 for those that no query sees:
    /// a product with them would be NaN if they are not finite.
    fn rows(self, x: &Tensor, queries: &Dim) -> Tensor {
        let Some(prefix) = self.prefix else { return x.clone() };
        let key = Tensor::iota(DType::I32, x.shape().to_vec(), 1);
        let last = Tensor::dim_as_value(queries.clone(), DType::I32) - 1;
        let beyond = if self.causal { key - last } else { key };
        let seen = beyond.lt(prefix.broadcast_in_dim(x.shape().to_vec(), &[0]));
        seen.select(x, &x.zeros_like())
    }

    /// `[B, N, T]`: x, with `other` for queries that see no key.
    fn or(self, x: &Tensor, other: f64) -> Tensor {
        let Some(prefix) = self.prefix else { return x.clone() };
        let prefix = prefix.broadcast_in_dim(x.shape().to_vec(), &[0]);
        let sees = match self.causal {
            // prefix + t > 0, without overflow.
            true => prefix.gt(-Tensor::iota(DType::I32, x.shape().to_vec(), 2)),
            false => prefix.gt(0),
        };
        sees.select(x, &x.full_like(other))
    }
}

/// Queries, keys and values, and their scores, masked.
struct Scored<'a> {
    x: Three,
    s: Tensor,
    visible: Visible<'a>,
}

impl<'a> Scored<'a> {
    fn new(op: &Attention, operands: &Operands<'a, Tensor>) -> Self {
        let visible = Visible { causal: op.causal, prefix: operands.prefix };
        let Three { q, k, v } = Three::of(operands.primals);
        let queries = q.shape()[1].clone();
        let x = Three { k: visible.rows(&k, &queries), v: visible.rows(&v, &queries), q };
        let products = scores(&x.q, &x.k) * op.scale.to_f64();
        let s = visible.masked(match operands.bias {
            Some(bias) => biased(&products, bias),
            None => products,
        });
        Scored { x, s, visible }
    }

    /// `[B, N, T]`, repeated for each key.
    fn for_keys(&self, x: &Tensor) -> Tensor {
        restore(x, self.s.shape(), KEYS)
    }

    /// The probabilities, from the second result of the op.
    fn probabilities(&self, l: &Tensor) -> Tensor {
        // Without keys l is −∞, and so are the scores.
        (&self.s - self.for_keys(&self.visible.or(l, 0.0))).exp()
    }
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
    let operands: Vec<Tensor> = operands.iter().map(|x| (*x).clone()).collect();
    let operands = op.split(&operands, operands[0].rank());
    let bias = operands.bias.expect("infer has found the bias");
    let scored = Scored::new(op, &operands);
    let (s, slopes) = (&scored.s, slopes(&scored, &operands).0);
    let along: Vec<usize> = (0..4).filter(|axis| bias.shape()[*axis] != s.shape()[*axis]).collect();
    slopes.sum_axes(&along).reshape(bias.shape().to_vec())
}

/// The cotangent of biased scores, p∘(c̄·vᵀ − m), and p, from the operands of the op that computes
/// cotangents.
fn slopes(scored: &Scored<'_>, operands: &Operands<'_, Tensor>) -> (Tensor, Tensor) {
    let [l, c, m] = operands.more else { unreachable!("infer has counted the operands") };
    let p = scored.probabilities(l);
    let difference = scores(c, &scored.x.v) - scored.for_keys(m);
    (difference.scaled_by(&p), p)
}

/// The results of the op.
pub(super) fn decompose(op: &Attention, operands: &[Tensor]) -> Vec<Tensor> {
    let operands = op.split(operands, operands[0].rank());
    let primals = operands.primals;
    let scored = Scored::new(op, &operands);
    let Scored { x, s, visible } = &scored;
    let dtype = x.q.dtype();
    let scale = op.scale.to_f64();
    match op.kind {
        AttentionKind::Value => {
            let Shifted { max, exponentials, sum, .. } = Shifted::new(s, KEYS);
            let p = exponentials / scored.for_keys(&visible.or(&sum, 1.0));
            vec![weigh(&p, KEYS, &x.v).convert(dtype), max + sum.log()]
        }
        AttentionKind::Jvp => {
            let [out, l, tangents @ ..] = operands.more else {
                unreachable!("infer has counted the operands")
            };
            let out = &out.convert(dtype.wide());
            let p = scored.probabilities(l);
            let (of_primals, of_bias) = tangents.split_at(primals.len());
            let Three { q: dq, k: dk, v: dv } = Three::of(of_primals);
            let [dk, dv] = [dk, dv].map(|rows| visible.rows(&rows, &x.q.shape()[1]));
            let ds = (scores(&dq, &x.k) + scores(&x.q, &dk)) * scale;
            let ds = of_bias.iter().fold(ds, |ds, of_bias| biased(&ds, of_bias));
            let moved = ds.scaled_by(&p);
            let dl = moved.sum_axes(&[KEYS]);
            // [B, N, T] to [B, T, N, H].
            let shift = dl.permute(&[0, 2, 1]).broadcast_in_dim(out.shape().to_vec(), &[0, 1, 2]);
            let dout = weigh(&moved, KEYS, &x.v) - shift.scaled_by(out) + weigh(&p, KEYS, &dv);
            vec![dout.convert(dtype), dl]
        }
        AttentionKind::Vjp => {
            let (slopes, p) = slopes(&scored, &operands);
            let ds = slopes * scale;
            let cotangents = Three {
                q: weigh(&ds, KEYS, &x.k),
                k: weigh(&ds, KEYS - 1, &x.q),
                v: weigh(&p, KEYS - 1, &operands.more[1]),
            };
            cotangents.like(primals)
        }
    }
}
