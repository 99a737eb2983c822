//! Attention, with and without its projections.

use crate::op::attention::{heads, merged};
use crate::op::{Call, extent};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Binary, Compare, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

/// What is added to the scores, and their scale.
struct Scores {
    scale: Option<f64>,
    /// Added, each of a shape that broadcasts to `[batch, heads, rows, columns]`.
    added: Vec<Tensor>,
}

impl Scores {
    /// `mask` is operand number `mask`: the number of keys of each row of the batch, or 1 for each
    /// key that may be attended to. `bias` is operand number `bias`.
    fn of(
        call: &Call<'_, '_, '_>,
        q: &Tensor,
        k: &Tensor,
        [mask, bias]: [usize; 2],
    ) -> Result<Self> {
        let filter = call.float("mask_filter_value", -10000.0)?;
        let (rows, columns) = (q.shape()[2].clone(), k.shape()[2].clone());
        let hidden = |allowed: &Tensor, by: f64| {
            let ty = allowed.ty().with_dtype(q.dtype());
            let of = |value| Tensor::full(&ty, wengert_core::Scalar::from_f64(q.dtype(), value));
            allowed.select(&of(0.0), &of(by))
        };
        let mut added = vec![];
        if let Some(mask) = call.optional(mask)? {
            let keys = Tensor::iota(DType::I32, [columns.clone()], 0);
            let allowed = match mask.rank() {
                1 if mask.shape()[0] == q.shape()[0] => {
                    keys.compare(Compare::Lt, &mask.convert(DType::I32).unsqueeze([1, 2, 3]))
                }
                2 => mask.ne(0).unsqueeze([1, 2]),
                3 => mask.ne(0).unsqueeze([1]),
                _ => {
                    let text = format!("a mask of the form {}", mask.ty());
                    return Err(refuse(Class::Attribute, text));
                }
            };
            added.push(hidden(&allowed, filter));
        }
        if call.flag("unidirectional", false)? {
            let all = vec![rows.clone(), columns.clone()];
            let query = Tensor::iota(DType::I64, all.clone(), 0);
            let key = Tensor::iota(DType::I64, all, 1);
            let first = columns
                .checked_sub(&rows)
                .ok_or_else(|| Diagnostic::new("more queries than keys"))?;
            let distance = query + Tensor::dim_as_value(first, DType::I64) - key;
            added.push(hidden(&distance.ge(0), f64::NEG_INFINITY));
        }
        added.extend(call.optional(bias)?);
        let scale = call.some_float("scale")?.filter(|scale| *scale != 0.0);
        Ok(Scores { scale, added })
    }

    /// The result of attention, `[batch, rows, heads · width]`.
    fn attend(&self, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
        let scale = match self.scale {
            Some(scale) => Tensor::constant(scale).convert(q.dtype()),
            None => {
                let width = Tensor::dim_as_value(q.shape()[3].clone(), DType::F64);
                width.unary(Unary::Rsqrt).convert(q.dtype())
            }
        };
        let mut scores = q.matmul(&k.matrix_transpose()) * scale;
        for added in &self.added {
            scores = scores.binary(Binary::Add, added);
        }
        merged(&scores.softmax(-1).matmul(v))
    }
}

/// Queries, keys and values that are projected, with a bias and earlier keys and values.
pub(super) fn multi_head(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let count = call.int("num_heads", 0)?;
    let mut parts = vec![];
    let mut first = Dim::constant(0);
    let bias = call.optional(3)?;
    for n in 0..3 {
        if call.given(n).is_none() {
            return Err(refuse(Class::Attribute, "queries, keys and values are one operand"));
        }
        let mut x = call.tensor(n)?;
        if let (Some(bias), 3) = (&bias, x.rank()) {
            let end = first.checked_add(&x.shape()[2]);
            let end = end.ok_or_else(|| Diagnostic::new("too many features"))?;
            x = x + bias.slice_axis(0, first.clone(), end.clone());
            first = end;
        }
        // Keys and values of four axes have their heads apart.
        parts.push(heads(&x, Some(count))?);
    }
    let [q, mut k, mut v]: [Tensor; 3] = parts.try_into().expect("three parts");
    if let (Some(past_k), Some(past_v)) = (call.optional(6)?, call.optional(7)?) {
        k = Tensor::concatenate(&[past_k, k], 2);
        v = Tensor::concatenate(&[past_v, v], 2);
    }
    let result = Scores::of(call, &q, &k, [4, 5])?.attend([&q, &k, &v])?;
    Ok([result, k, v].map(Value::Tensor).into())
}

/// Attention with the projection of queries, keys and values.
pub(super) fn attention(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    if call.flag("do_rotary", false)? {
        return call.refuse("do_rotary", 1);
    }
    let count = call.int("num_heads", 0)?;
    let mut all = call.tensor(0)?.matmul(&call.tensor(1)?);
    if let Some(bias) = call.optional(2)? {
        all = all + bias;
    }
    let width = extent(&all, 2)?.clone();
    let sizes = match call.some_ints("qkv_hidden_sizes")? {
        Some(sizes) if sizes.len() == 3 => sizes.into_iter().map(Dim::constant).collect(),
        _ => {
            let third = width.checked_exact_div(&Dim::constant(3));
            vec![third.ok_or_else(|| Diagnostic::new(format!("{width} features in 3 parts")))?; 3]
        }
    };
    let (mut parts, mut first) = (vec![], Dim::constant(0));
    for size in sizes {
        let end = first.checked_add(&size).ok_or_else(|| Diagnostic::new("too many features"))?;
        parts.push(heads(&all.slice_axis(2, first, end.clone()), Some(count))?);
        first = end;
    }
    let [q, mut k, mut v]: [Tensor; 3] = parts.try_into().expect("three parts");
    if let Some(past) = call.optional(4)? {
        let of = |n: i64| past.slice_axis(0, n, n + 1).squeeze(0);
        k = Tensor::concatenate(&[of(0), k], 2);
        v = Tensor::concatenate(&[of(1), v], 2);
    }
    let result = Scores::of(call, &q, &k, [3, 5])?.attend([&q, &k, &v])?;
    let mut results = vec![Value::Tensor(result)];
    if call.wants(1) {
        results.push(Value::Tensor(Tensor::stack(&[k, v], 0)));
    }
    Ok(results)
}
