//! Attention.

use super::Linear;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::{DType, Diagnostic, Differentiable, Dim, Location, Scalar, Tensor, diagnostic};

/// Which positions a position may attend to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mask {
    /// All.
    #[default]
    None,
    /// Itself and earlier positions.
    Causal,
}

/// The keys that queries attend to, always a prefix of the keys. Keys and values that no query
/// attends to are not read.
#[derive(Clone, Copy, Debug)]
pub enum VisibleKeys<'a> {
    /// All.
    All,
    /// Query t attends to keys up to t.
    Causal,
    /// All queries of example b attend to the first `lengths[b]` keys: the others are padding. The
    /// lengths are integers `[B]`, or one integer for all examples.
    Lengths(&'a Tensor),
    /// The queries are those of the positions `first[b]`, `first[b] + 1`, … among the keys: query
    /// t of example b attends to the keys up to position `first[b] + t`, as with a cache of S
    /// positions that holds the queries' keys already. The positions are integers `[B]`, or one
    /// integer for all examples.
    CausalFrom(&'a Tensor),
}

impl From<Mask> for VisibleKeys<'_> {
    fn from(mask: Mask) -> Self {
        match mask {
            Mask::None => VisibleKeys::All,
            Mask::Causal => VisibleKeys::Causal,
        }
    }
}

impl<'a> VisibleKeys<'a> {
    fn is_causal(self) -> bool {
        matches!(self, VisibleKeys::Causal | VisibleKeys::CausalFrom(_))
    }

    /// The lengths or first positions.
    fn tensor(self) -> Option<&'a Tensor> {
        match self {
            VisibleKeys::All | VisibleKeys::Causal => None,
            VisibleKeys::Lengths(tensor) | VisibleKeys::CausalFrom(tensor) => Some(tensor),
        }
    }

    /// The op's operand `prefix`, `i32[batch]`, if there is one.
    #[track_caller]
    fn prefix(self, batch: &Dim) -> Result<Option<Tensor>, Tensor> {
        let (what, tensor, more) = match self {
            VisibleKeys::All | VisibleKeys::Causal => return Ok(None),
            VisibleKeys::Lengths(lengths) => ("lengths", lengths, 0),
            VisibleKeys::CausalFrom(first) => ("first positions", first, 1),
        };
        check_for_each_example(tensor, batch, what)
            .map_err(|error| Tensor::fail_of(&[tensor], error))?;
        let tensor = tensor.convert(DType::I32);
        let all = if tensor.rank() == 0 {
            tensor.broadcast_to(std::slice::from_ref(batch))
        } else {
            tensor
        };
        Ok(Some(if more == 0 { all } else { all + more }))
    }
}

/// Checks that a tensor is an integer for each example, or one for all. `what` names it.
pub(super) fn check_for_each_example(
    tensor: &Tensor,
    batch: &Dim,
    what: &str,
) -> Result<(), Diagnostic> {
    let fits = tensor.rank() == 0 || tensor.shape() == [batch.clone()];
    if fits && tensor.dtype().is_integer() {
        return Ok(());
    }
    Err(diagnostic!("{what} {} of {batch} examples", tensor.ty())
        .help("an integer for each example, [batch], or a scalar for all"))
}

/// Scaled dot-product attention (Vaswani and others 2017): `softmax(q·kᵀ/√H)·v` for each head.
///
/// `q` is `[B, T, N, H]`, `k` and `v` are `[B, S, K, H]`: examples, positions, heads, width of a
/// head. K divides N, and N / K heads of q in a row share a head of k and v (Ainslie and others,
/// *GQA*, 2023). The result has q's shape. `visible`, a [`Mask`] or [`VisibleKeys`], says which
/// keys a query attends to; a query without keys has the result 0 and derivatives 0. An optional
/// `bias` is added to the scaled scores `[B, N, T, S]` and has their shape, with extent 1 for
/// broadcast axes; −∞ masks a position.
///
/// It is one op, [`Attention`], and stores no scores. Only the derivative by the bias is computed
/// from stored scores. With lengths or first positions, its time is that of the keys that are
/// attended to, not of S.
///
/// ```
/// # use wengert::prelude::*;
/// # use wengert::nn::{VisibleKeys, dot_product_attention};
/// # fn main() -> Result<()> {
/// # let mut program = Program::new();
/// # program.function("f", |f| {
/// // Sentences of up to 20 words.
/// let (x, lengths) = (f.input("x", f32("8,20,2,16")), f.input("lengths", i32("8")));
/// f.output("y", dot_product_attention(&x, &x, &x, VisibleKeys::Lengths(&lengths), None));
/// // The next word of each, for a cache of 100.
/// let (q, cache) = (f.input("q", f32("8,1,2,16")), f.input("cache", f32("8,100,2,16")));
/// let next = VisibleKeys::CausalFrom(&lengths);
/// f.output("z", dot_product_attention(&q, &cache, &cache, next, None));
/// # })
/// # }
/// ```
///
/// # Errors
///
/// q, k and v do not fit each other; the width of a head is not known; the bias has another shape;
/// lengths or positions are not integers, or not one for each example.
#[track_caller]
pub fn dot_product_attention<'a>(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    visible: impl Into<VisibleKeys<'a>>,
    bias: Option<&Tensor>,
) -> Tensor {
    let _user = Location::caller().attributed();
    let visible = visible.into();
    let operands = [q, k, v].into_iter().chain(bias).chain(visible.tensor());
    if let Some(poisoned) = operands.into_iter().find(|t| t.error().is_some()) {
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
    // Scores of f16 and bf16 are f32.
    let bias = bias.map(|bias| bias.convert(q.dtype().wide()));
    attention(&[q, k, v], visible, width, bias.as_ref())
}

/// The op on queries, keys and values, or on one tensor that holds them, and on an optional bias.
#[track_caller]
fn attention(
    primals: &[&Tensor],
    visible: VisibleKeys<'_>,
    width: usize,
    bias: Option<&Tensor>,
) -> Tensor {
    if let Some(poisoned) = primals.iter().find(|t| t.error().is_some()) {
        return (*poisoned).clone();
    }
    let prefix = match visible.prefix(&primals[0].shape()[0]) {
        Ok(prefix) => prefix,
        Err(poisoned) => return poisoned,
    };
    let op = Attention {
        kind: AttentionKind::Value,
        causal: visible.is_causal(),
        bias: bias.is_some(),
        prefix: prefix.is_some(),
        scale: Scalar::of(1.0 / (width as f64).sqrt()),
    };
    let operands: Vec<&Tensor> = primals.iter().copied().chain(bias).chain(&prefix).collect();
    Tensor::apply_many(op, &operands).swap_remove(0)
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
        self.attend(x, self.mask.into())
    }

    /// [`call`](Self::call) for sequences of `lengths[b]` positions, after which there is padding:
    /// integers `[B]`, or one for all. Under a causal mask no position attends to padding after it,
    /// so `call` serves as well.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the lengths have another type; the mask is causal.
    #[track_caller]
    pub fn call_padded(&self, x: &Tensor, lengths: &Tensor) -> Tensor {
        if let Some(poisoned) = [x, lengths].into_iter().find(|t| t.error().is_some()) {
            return poisoned.clone();
        }
        if self.mask == Mask::Causal {
            let error = diagnostic!("lengths of sequences under a causal mask");
            let help = "no position attends to later padding: use `call`";
            return Tensor::fail_of(&[x, lengths], error.help(help));
        }
        self.attend(x, VisibleKeys::Lengths(lengths))
    }

    #[track_caller]
    fn attend(&self, x: &Tensor, visible: VisibleKeys<'_>) -> Tensor {
        let _user = Location::caller().attributed();
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
        let mixed = attention(&[&qkv], visible, width / heads, None);
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
