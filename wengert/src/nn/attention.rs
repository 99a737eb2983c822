//! Attention.

use super::Linear;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::{DType, Differentiable, Dim, Scalar, Tensor, diagnostic};

/// Which positions a position may attend to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mask {
    /// All.
    #[default]
    None,
    /// Itself and earlier positions.
    Causal,
}

/// Scaled dot-product attention (Vaswani and others 2017): `softmax(q·kᵀ/√H)·v` for each head.
///
/// `q` is `[B, T, N, H]`, `k` and `v` are `[B, S, K, H]`: examples, positions, heads, width of a
/// head. K divides N, and N / K heads of q in a row share a head of k and v (Ainslie and others,
/// *GQA*, 2023). The result has q's shape. An optional `bias` is added to the scaled scores
/// `[B, N, T, S]` and has their shape, with extent 1 for broadcast axes; −∞ masks a position.
///
/// It is one op, [`Attention`], and stores no scores. Only the derivative by the bias is computed
/// from stored scores.
#[track_caller]
pub fn dot_product_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Mask,
    bias: Option<&Tensor>,
) -> Tensor {
    let poisoned = [q, k, v].into_iter().chain(bias).find(|t| t.error().is_some());
    if let Some(poisoned) = poisoned {
        return poisoned.clone();
    }
    for (name, tensor) in [("queries", q), ("keys", k), ("values", v)] {
        if tensor.rank() != 4 {
            let error = diagnostic!("{name} of attention have type {}", tensor.ty());
            return Tensor::fail_of(
                &[tensor],
                error.help("they are [batch, positions, heads, width]"),
            );
        }
    }
    let Some(width) = q.shape()[3].as_extent() else {
        let error = diagnostic!("attention with heads of width {}", q.shape()[3]);
        return Tensor::fail_of(&[q], error.help("the width of a head is a number"));
    };
    match bias {
        None => attention(&[q, k, v], mask, width, false),
        Some(bias) => {
            // Scores of f16 and bf16 are f32.
            let wide = if q.dtype().is_half() { DType::F32 } else { q.dtype() };
            attention(&[q, k, v, &bias.convert(wide)], mask, width, true)
        }
    }
}

/// The op on queries, keys and values, or on one tensor that holds them, and on an optional bias.
#[track_caller]
fn attention(operands: &[&Tensor], mask: Mask, width: usize, bias: bool) -> Tensor {
    let scale = Scalar::of(1.0 / (width as f64).sqrt());
    let causal = mask == Mask::Causal;
    let (kind, prefix) = (AttentionKind::Value, false);
    Tensor::apply_many(Attention { kind, causal, bias, prefix, scale }, operands).swap_remove(0)
}

/// Self-attention of several heads, with one layer for queries, keys and values and one for the
/// result; its variables have GPT-2's names.
#[derive(Differentiable, Clone, Debug)]
pub struct SelfAttention {
    /// Width to thrice the width: queries, keys, values.
    pub c_attn: Linear,
    /// Width to width.
    pub c_proj: Linear,
    /// Heads; they share the width.
    #[no_derivative]
    pub heads: usize,
    /// Which positions attend to which.
    #[no_derivative]
    pub mask: Mask,
}

impl SelfAttention {
    /// A layer of this width, which is a multiple of the heads.
    #[track_caller]
    pub fn new(width: usize, heads: usize, mask: Mask) -> Self {
        SelfAttention {
            c_attn: Linear::new(width, 3 * width),
            c_proj: Linear::new(width, width),
            heads,
            mask,
        }
    }

    /// `[B, T, width]` to the same.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let qkv = self.c_attn.call(x);
        if qkv.error().is_some() {
            return qkv;
        }
        let Some(width) = qkv.shape().last().and_then(Dim::as_extent).map(|w| w / 3) else {
            let error = diagnostic!("the layer of queries, keys and values gives {}", qkv.ty());
            return Tensor::fail_of(
                &[&qkv],
                error.help("its last axis is a number, thrice the width"),
            );
        };
        if qkv.rank() != 3 {
            let error = diagnostic!("self-attention of {}", x.ty());
            return Tensor::fail_of(&[x], error.help("it takes [batch, positions, width]"));
        }
        if self.heads == 0 || width % self.heads != 0 {
            let error = diagnostic!("a width of {width} is not divided by {} heads", self.heads);
            return Tensor::fail_of(
                &[x],
                error.help("the width is a multiple of the number of heads"),
            );
        }
        let (shape, heads) = (qkv.shape().to_vec(), self.heads);
        let apart: [Dim; 5] =
            [shape[0].clone(), shape[1].clone(), 3.into(), heads.into(), (width / heads).into()];
        let qkv = qkv.reshape(apart);
        let mixed = attention(&[&qkv], self.mask, width / heads, false);
        self.c_proj.call(&mixed.reshape([shape[0].clone(), shape[1].clone(), width.into()]))
    }
}

/// A projection `[B, T, heads · H]` as `[B, T, heads, H]`.
#[track_caller]
pub(super) fn split_heads(projected: &Tensor, heads: usize) -> Tensor {
    if projected.error().is_some() {
        return projected.clone();
    }
    if projected.rank() != 3 {
        let error = diagnostic!("heads of a projection {}", projected.ty());
        let help = "it is [batch, positions, width], so the weights are a matrix";
        return Tensor::fail_of(&[projected], error.help(help));
    }
    let share = i64::try_from(heads).ok().filter(|heads| *heads > 0).map(Dim::constant);
    let [batch, positions, width] = [0, 1, 2].map(|axis| projected.shape()[axis].clone());
    let Some(share) = share.and_then(|heads| width.checked_exact_div(&heads)) else {
        let error = diagnostic!("a width of {width} is not divided by {heads} heads");
        let help = "the width is a multiple of the number of heads";
        return Tensor::fail_of(&[projected], error.help(help));
    };
    projected.reshape([batch, positions, heads.into(), share])
}
