//! Scaled dot-product attention: `dot_product_attention`, its tangent `dot_product_attention_jvp`
//! and its cotangents `dot_product_attention_vjp` (Vaswani and others, *Attention is all you
//! need*, 2017; the name is `jax.nn`'s).
//!
//! For each example and each head, with queries q `[T, H]`, keys k and values v `[S, H]`,
//!
//! ```text
//! s = scale · q·kᵀ + bias    (−∞ where a query does not see a key)
//! l = ln Σ exp(s)     p = exp(s − l)      out = p·v
//! ```
//!
//! with sums along the keys. Composed of other ops, it would keep `[T, S]` scores for every head,
//! the largest tensors of a network, though only `out` is used. So attention is one op, and so
//! are its derivatives, which recompute `p` from `l` (Dao and others, *FlashAttention*, 2022):
//!
//! ```text
//! tangent:     ds = scale · (dq·kᵀ + q·dkᵀ) + dbias
//!              dl = Σ p∘ds
//!              dout = (p∘ds)·v − dl∘out + p·dv
//! cotangents:  m = Σ c̄∘out − l̄
//!              s̄ = scale · p∘(c̄·vᵀ − m)
//!              q̄ = s̄·k      k̄ = s̄ᵀ·q      v̄ = pᵀ·c̄
//! ```
//!
//! where c̄ and l̄ are the cotangents of `out` and `l`. The tangent is linear in dq, dk and dv
//! together, and the cotangents are its transpose: ordinary ops compute m, one op the rest. The
//! derivatives of these two come from their decompositions. An attention that a target's
//! [call](crate::call::Attention) does not support is decomposed too: heads too wide for GPUs, and
//! extents of 0.
//!
//! Keys and values may have fewer heads than queries, whose number theirs divides: head n of N
//! queries attends to head ⌊n·K / N⌋ of K (Ainslie and others, *GQA*, 2023). Their cotangents are
//! sums over the heads of queries that share them.
//!
//! Queries, keys and values are three operands, or one *packed* operand `[B, T, 3, N, H]`, the
//! result of one matrix product. The cotangents of a packed operand are one result too, without
//! slices or concatenations.
//!
//! The bias is optional. It is usually a constant: a mask or distances. So its cotangent,
//! p∘(c̄·vᵀ − m) summed to its shape, is computed by ordinary ops only where it is wanted; this
//! stores the scores.
//!
//! The *prefix* is optional too: one integer for each example, the number of keys that position 0
//! attends to. Position t attends to the first `prefix` keys, with a causal mask to the first
//! `prefix + t`; the number is clamped to 0 to S. So padded sequences have their lengths as
//! prefix. A cache of S positions, of which n are valid before T new ones, has the prefix n + 1
//! and a causal mask, where the keys of the new positions are in the cache already. Keys and
//! values that no position attends to are not read: they cost nothing, and may be NaN. A position
//! without keys has out = 0, l = −∞ and zero derivatives. A prefix has no derivative.

mod decompose;
mod evaluate;

use crate::call::{self, Call};
use crate::op::Lookup;
use crate::op::compute::DecomposeRule;
use crate::op::derivative::TangentRule;
use crate::op::prelude::*;

kinds! {
    /// The members of the family.
    AttentionKind {
        /// `out` and `l` from queries, keys and values.
        Value "dot_product_attention"
            "`%out, %l = dot_product_attention %q, %k, %v {causal=true, scale=f64(0.125)}`: out = \
             softmax(scale·q·kᵀ + bias)·v for each example and head; l is the logarithm of the \
             softmax denominator. q and out are `[B, T, N, H]` (examples, positions, heads, \
             width), k and v `[B, S, K, H]`, where K divides N: N / K heads of q in a row share a \
             head of k and v; l is `[B, N, T]`, f32 for halves. One operand `[B, T, \
             3, N, H]` may hold q, k and v. With `causal`, position t attends to positions up to \
             t. With `bias=true`, a further operand is added to the scores. It is `[B, N, T, S]`, \
             or 1 along repeated axes, of the dtype of l. With `prefix=true`, the last operand, \
             `i32[B]`, has the number of keys that position 0 of each example attends to. \
             Position t attends to the first prefix keys, with `causal` to the first prefix + t, \
             at least 0 and at most S. Keys and values beyond them are not read. A position \
             without keys has out = 0, l = −∞ and zero derivatives.",
        /// The tangents of `out` and `l`, from queries, keys and values, `out` and `l`, and the
        /// tangents of the first three.
        Jvp "dot_product_attention_jvp"
            "The tangents of the results of `dot_product_attention`: `%dout, %dl = \
             dot_product_attention_jvp %q, %k, %v, %out, %l, %dq, %dk, %dv`. It is jointly linear \
             in the last three operands. A bias follows %v, and its tangent dbias follows %dv. \
             A prefix comes before %out. With p = exp(s − l) and ds = scale·(dq·kᵀ + q·dkᵀ) + \
             dbias, dl = Σ p∘ds and dout = (p∘ds)·v − dl∘out + p·dv.",
        /// The cotangents of queries, keys and values, from these, `l`, the cotangent of `out`, and
        /// m.
        Vjp "dot_product_attention_vjp"
            "The cotangents of the operands of `dot_product_attention`: `%q, %k, %v = \
             dot_product_attention_vjp %q, %k, %v, %l, %c, %m`. c is the cotangent of out. m is Σ \
             c∘out minus the cotangent of l, `[B, N, T]`. A bias follows %v. A prefix comes before \
             %l. With p = exp(s − l) \
             and s̄ = scale·p∘(c·vᵀ − m), the cotangents are s̄·k, s̄ᵀ·q and pᵀ·c.",
    }
}

attributes! {
    /// `dot_product_attention %q, %k, %v {scale=f64(0.125)}` and its derivatives.
    #[derive(Copy)]
    Attention by kind: AttentionKind {
        /// Whether a position sees only earlier positions and itself.
        causal: bool = false,
        /// Whether the operand after queries, keys and values is added to the scores.
        bias: bool = false,
        /// Whether an operand before the results, `i32[B]`, has the number of keys that position 0
        /// of each example attends to. Without it the number is S, or 1 if `causal`.
        prefix: bool = false,
        /// The factor of the scores, a finite f64.
        scale: Scalar,
    }
}

/// Extents of an attention.
struct Sizes {
    batch: Dim,
    queries: Dim,
    keys: Dim,
    heads: Dim,
    /// Number of heads of queries that share a head of keys and values.
    group: usize,
    width: Dim,
    dtype: DType,
    packed: bool,
}

/// Number of operands that hold queries, keys and values: 1 if they are packed.
fn primals(operands: &[TensorType]) -> usize {
    if operands.first().is_some_and(|ty| ty.rank() == 5) { 1 } else { 3 }
}

/// Number of heads of queries for each head of keys; `None` if it is no whole number. Without
/// heads it is 1.
fn group(heads: &Dim, of_keys: &Dim) -> Option<usize> {
    if heads == of_keys {
        return Some(1);
    }
    let (heads, of_keys) = (heads.as_extent()?, of_keys.as_extent()?);
    (of_keys > 0 && heads > 0 && heads.is_multiple_of(of_keys)).then(|| heads / of_keys)
}

/// The operands of an op of the family.
struct Operands<'a, T> {
    /// Queries, keys and values, or the one that packs them.
    primals: &'a [T],
    bias: Option<&'a T>,
    prefix: Option<&'a T>,
    /// Those that only a derivative has.
    more: &'a [T],
}

impl Sizes {
    /// The extents, from the first operands of any op of the family.
    fn of(operands: &[TensorType]) -> Result<Self> {
        let help = "queries are [batch, positions, heads, width], keys and values alike, or with a \
                    divisor of the heads; or all in one [batch, positions, 3, heads, width]";
        let packed = primals(operands) == 1;
        if !packed && operands.len() < 3 {
            return Err(Diagnostic::new(format!("{} operands", operands.len())).help(help));
        }
        let q = &operands[0];
        Domain::Float.check(q.dtype)?;
        if packed {
            if q.shape[2] != Dim::from(3) {
                return Err(
                    Diagnostic::new(format!("queries, keys and values have type {q}")).help(help)
                );
            }
            let [batch, queries, _, heads, width] =
                [0, 1, 2, 3, 4].map(|axis| q.shape[axis].clone());
            let (keys, dtype) = (queries.clone(), q.dtype);
            return Ok(Sizes { batch, queries, keys, heads, group: 1, width, dtype, packed });
        }
        let (k, v) = (&operands[1], &operands[2]);
        let fits = q.rank() == 4
            && k.rank() == 4
            && [0, 3].into_iter().all(|axis| q.shape[axis] == k.shape[axis])
            && q.dtype == k.dtype
            && k == v;
        if !fits {
            return Err(
                Diagnostic::new(format!("queries have type {q}, keys {k}, values {v}")).help(help)
            );
        }
        let [batch, queries, heads, width] = [0, 1, 2, 3].map(|axis| q.shape[axis].clone());
        let Some(group) = group(&heads, &k.shape[2]) else {
            bail!("{heads} heads of queries, and {} of keys and values", k.shape[2];
                help "the number of heads of keys divides that of queries");
        };
        let (keys, dtype) = (k.shape[1].clone(), q.dtype);
        Ok(Sizes { batch, queries, keys, heads, group, width, dtype, packed })
    }

    fn out(&self) -> TensorType {
        let shape = [&self.batch, &self.queries, &self.heads, &self.width];
        TensorType::of(self.dtype, shape.map(Dim::clone).to_vec())
    }

    /// Checks the type of the bias.
    fn check_bias(&self, bias: &TensorType) -> Result<()> {
        let scores = [&self.batch, &self.heads, &self.queries, &self.keys];
        let fits = |(found, wanted): (&Dim, &&Dim)| found == *wanted || *found == Dim::from(1);
        if bias.rank() == 4
            && bias.dtype == self.dtype.wide()
            && bias.shape.iter().zip(&scores).all(fits)
        {
            return Ok(());
        }
        let scores = TensorType::of(self.dtype.wide(), scores.map(Dim::clone).to_vec());
        Err(Diagnostic::new(format!("scores have type {scores}, their bias {bias}"))
            .help("the bias has their dtype, and their extents or 1 where it repeats"))
    }

    /// Checks the type of the prefix.
    fn check_prefix(&self, prefix: &TensorType) -> Result<()> {
        let batch = &self.batch;
        ensure!(
            prefix.dtype == DType::I32 && prefix.shape == [batch.clone()],
            "the prefix of {batch} examples has type {prefix}";
            help "it has type i32[{batch}]: for each example, the number of keys that position 0 \
                  attends to"
        );
        Ok(())
    }

    fn logarithm(&self) -> TensorType {
        let shape = [&self.batch, &self.heads, &self.queries];
        TensorType::of(self.dtype.wide(), shape.map(Dim::clone).to_vec())
    }
}

impl Attention {
    /// Number of operands that hold queries, keys, values and the bias.
    fn primals(&self, operands: &[TensorType]) -> usize {
        primals(operands) + usize::from(self.bias)
    }

    /// Whether the operand of that number has the dtype of queries: it is multiplied, unlike the
    /// bias, logarithms and sums. `operands` are the types of all.
    pub fn is_factor(&self, operands: &[TensorType], operand: usize) -> bool {
        let first = self.primals(operands) + usize::from(self.prefix);
        let more: &[usize] = match self.kind {
            AttentionKind::Value => &[],
            AttentionKind::Jvp => &[0, 2, 3, 4],
            AttentionKind::Vjp => &[1],
        };
        operand < primals(operands) || more.iter().any(|n| operand == first + n)
    }

    /// The operands by their roles; `rank` is that of the first.
    fn split<'a, T>(&self, operands: &'a [T], rank: usize) -> Operands<'a, T> {
        let (primals, more) = operands.split_at(if rank == 5 { 1 } else { 3 });
        let (bias, more) = more.split_at(usize::from(self.bias));
        let (prefix, more) = more.split_at(usize::from(self.prefix));
        Operands { primals, bias: bias.first(), prefix: prefix.first(), more }
    }

    /// The value or a derivative of the same attention.
    fn of_kind(self, kind: AttentionKind) -> Self {
        Attention { kind, ..self }
    }

    /// The call that computes it; `None` if there is none.
    fn call(&self, operands: &[TensorType]) -> Option<Call> {
        let sizes = Sizes::of(operands).expect("compute is asked for what infer takes");
        let backward = match self.kind {
            AttentionKind::Value => false,
            AttentionKind::Vjp => true,
            AttentionKind::Jvp => return None,
        };
        let extent = |dim: &Dim| dim.as_extent().expect("compute is asked for bound types only");
        let bias = self.bias.then(|| operands[primals(operands)].extents()).flatten();
        let call = Call::Attention(call::Attention {
            batch: extent(&sizes.batch),
            queries: extent(&sizes.queries),
            keys: extent(&sizes.keys),
            heads: extent(&sizes.heads),
            group: sizes.group,
            width: extent(&sizes.width),
            packed: sizes.packed,
            bias: bias.unwrap_or_default(),
            prefix: self.prefix,
            causal: self.causal,
            backward,
            out_given: false,
            scale: self.scale,
            dtype: sizes.dtype,
        });
        call.verify().is_ok().then_some(call)
    }

    /// The op on tensors.
    fn apply(self, operands: &[&Tensor]) -> Vec<Tensor> {
        Tensor::apply_many(self, operands)
    }
}

fn op(op: &Op) -> Attention {
    let Op::Attention(op) = op else { unreachable!("the rules of attention") };
    *op
}

/// The tangent, computed by an op of its own; absent tangents are materialised as zeros.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let op = op(j.op);
    // The prefix comes last, and has no tangent.
    let primals = j.operands.len() - usize::from(op.prefix);
    let tangents: Vec<Tensor> = (j.operands[..primals].iter().zip(j.tangents))
        .map(|(x, tangent)| tangent.clone().unwrap_or_else(|| x.zeros_like()))
        .collect();
    let operands: Vec<&Tensor> = j.operands.iter().chain(j.results).chain(&tangents).collect();
    op.of_kind(AttentionKind::Jvp).apply(&operands).into_iter().map(Some).collect()
}

/// The cotangents: `vjp`, after ordinary ops for m.
fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let op = op(t.op);
    let primals = tangents(t.operands.len());
    let given = primals + usize::from(op.prefix);
    let known: Vec<&Tensor> =
        t.operands[..given + 2].iter().map(|operand| operand.known()).collect();
    let (out, l) = (known[given], known[given + 1]);
    let c = t.cotangents[0].clone().unwrap_or_else(|| out.zeros_like());
    // [B, T, N] to [B, N, T].
    let weighed =
        c.convert(l.dtype()).scaled_by(&out.convert(l.dtype())).sum_axes(&[3]).permute(&[0, 2, 1]);
    let m = match &t.cotangents[1] {
        Some(cotangent) => weighed - cotangent,
        None => weighed,
    };
    let operands: Vec<&Tensor> = known[..given].iter().copied().chain([l, &c, &m]).collect();
    let mut cotangents: Vec<Option<Tensor>> =
        op.of_kind(AttentionKind::Vjp).apply(&operands).into_iter().map(Some).collect();
    let tangents = &t.operands[given + 2..];
    if op.bias {
        let wanted = tangents[primals - 1].is_linear();
        cotangents.push(wanted.then(|| decompose::cotangent_of_bias(&op, &operands)));
    }
    let wanted =
        tangents.iter().zip(cotangents).map(|(operand, ct)| ct.filter(|_| operand.is_linear()));
    vec![None; given + 2].into_iter().chain(wanted).collect()
}

/// Number of tangents among the operands of a tangent op. Besides them it has as many primals, the
/// two results, and perhaps a prefix.
fn tangents(operands: usize) -> usize {
    (operands - 2) / 2
}

fn rule(kind: AttentionKind) -> Derivative {
    match kind {
        AttentionKind::Value => Derivative::Nonlinear(jvp),
        AttentionKind::Jvp => Derivative::Tangent(TangentRule {
            linear: tangents,
            decomposition: |o, _, tensors| decompose::decompose(&op(o), tensors),
            transpose,
        }),
        AttentionKind::Vjp => {
            Derivative::Decomposed(|o, _, tensors| decompose::decompose(&op(o), tensors))
        }
    }
}

impl Operation for Attention {
    named!(kind: AttentionKind, rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let sizes = Sizes::of(t.operands)?;
        if self.scale.dtype() != DType::F64 || !self.scale.to_f64().is_finite() {
            bail!("scores are multiplied by {}", self.scale; help "the scale is a finite f64");
        }
        let (three, primals) = (primals(t.operands), self.primals(t.operands));
        if self.bias {
            let Some(bias) = t.operands.get(three) else {
                bail!("{} operands, and none is the bias", t.operands.len();
                    help "the bias follows queries, keys and values");
            };
            sizes.check_bias(bias)?;
        }
        if self.prefix {
            let Some(prefix) = t.operands.get(primals) else {
                bail!("{} operands, and none is the prefix", t.operands.len();
                    help "the prefix follows queries, keys, values and the bias");
            };
            sizes.check_prefix(prefix)?;
        }
        let first = primals + usize::from(self.prefix);
        let (results, differentiated) =
            ([sizes.out(), sizes.logarithm()], &t.operands[..primals.min(t.operands.len())]);
        let more: Vec<&TensorType> = match self.kind {
            AttentionKind::Value => vec![],
            AttentionKind::Jvp => results.iter().chain(differentiated).collect(),
            AttentionKind::Vjp => vec![&results[1], &results[0], &results[1]],
        };
        ensure!(
            t.operands.len() == first + more.len(),
            "takes {} operands, found {}",
            first + more.len(),
            t.operands.len()
        );
        for (n, (found, wanted)) in t.operands[first..].iter().zip(more).enumerate() {
            ensure!(found == wanted, "operand {} has type {found}, not {wanted}", first + n);
        }
        Ok(match self.kind {
            AttentionKind::Value | AttentionKind::Jvp => results.to_vec(),
            AttentionKind::Vjp => t.operands[..three].to_vec(),
        })
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        evaluate::evaluate(self, e.operands, e.results)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let rule: DecomposeRule<'a> = Box::new(|tensors| decompose::decompose(self, tensors));
        match self.call(l.operands) {
            Some(call) => Compute::CallOrDecompose(call, rule),
            None => Compute::Decompose(rule),
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // The batch axis is merged into the axis of examples.
        let example = &b.results[0].shape[0];
        let Some(merged) = b.size.checked_mul(example) else {
            return b.fail(
                Diagnostic::new(format!("{} examples of {example} have no extent", b.size))
                    .help("a number in place of one of the two dimension variables decides it"),
            );
        };
        // The operand numbers of the bias and of its tangent, which is the last operand. Both
        // stay unbatched if all examples share them.
        let bias = if b.rank(0) == 5 { 1 } else { 3 };
        let tangent = (self.kind == AttentionKind::Jvp).then(|| b.operands.len() - 1);
        let biases: Vec<usize> =
            if self.bias { std::iter::once(bias).chain(tangent).collect() } else { Vec::new() };
        let one = |n: &usize| !b.batched[*n] && b.operands[*n].shape()[0] == Dim::from(1);
        let shared = biases.iter().all(one);
        let together = |n: usize| {
            if shared && biases.contains(&n) {
                return b.operands[n].clone();
            }
            let mut x = b.operand(n);
            if biases.contains(&n) && x.shape()[1] != *example {
                let mut shape = x.shape().to_vec();
                shape.remove(1);
                let flat = x.reshape(shape.clone());
                shape.insert(1, example.clone());
                x = flat.broadcast_in_dim(shape, &[0, 2, 3, 4]);
            }
            let shape = std::iter::once(merged.clone()).chain(x.shape()[2..].iter().cloned());
            x.reshape(shape)
        };
        let operands: Vec<Tensor> = (0..b.operands.len()).map(together).collect();
        let results = self.apply(&operands.iter().collect::<Vec<_>>());
        results.iter().zip(b.results).map(|(x, ty)| x.reshape(b.shape(&ty.shape))).collect()
    }

    /// A prefix beyond the keys is clamped, and still a mistake. The derivatives have the prefix
    /// of the value, which reports it.
    fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
        if !self.prefix || self.kind != AttentionKind::Value {
            return None;
        }
        let sizes = Sizes::of(operands).expect("the operands have passed `infer`");
        let count = sizes.keys.checked_add(&Dim::constant(1))?;
        Some(Lookup::elements(self.primals(operands), &count))
    }
}
