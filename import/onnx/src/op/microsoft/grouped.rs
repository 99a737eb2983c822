//! Attention of language models: groups of queries share keys and values, which are cached.

use crate::op::attention::{heads, merged, repeated, rotate};
use crate::op::{Call, extent};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Compare, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor};

/// `[batch, rows, heads · width]` of packed queries, keys and values, or three operands.
fn parts(call: &Call<'_, '_, '_>, [queries, own]: [i64; 2]) -> Result<[Tensor; 3]> {
    let q = call.ranked(0, 3)?;
    if call.given(1).is_some() {
        return Ok([
            heads(&q, Some(queries))?,
            heads(&call.tensor(1)?, Some(own))?,
            heads(&call.tensor(2)?, Some(own))?,
        ]);
    }
    let all = heads(&q, Some(queries + 2 * own))?;
    let part = |from: i64, count: i64| all.slice_axis(1, from, from + count);
    Ok([part(0, queries), part(queries, own), part(queries + own, own)])
}

/// Keys or values `[batch, heads, rows, width]` of earlier tokens, then those of new ones, and then
/// zeros. `before` is the number of earlier tokens, `[batch]`.
fn cached(past: Option<&Tensor>, new: &Tensor, before: &Tensor, rows: &Dim) -> Tensor {
    let mut shape = new.shape().to_vec();
    shape[2] = rows.clone();
    let place = Tensor::iota(DType::I64, shape.clone(), 2);
    let before = before.unsqueeze([1, 2, 3]).broadcast_to(&shape);
    let count = Tensor::dim_as_value(new.shape()[2].clone(), DType::I64).broadcast_to(&shape);
    let own = &place - &before;
    // Positions that are beyond an operand are clamped, and not selected.
    let of_new = new.take_along_axis(&own, 2);
    let is_new = own.ge(0) & own.compare(Compare::Lt, &count);
    let zeros = of_new.zeros_like();
    let of_past = match past {
        Some(past) => own.lt(0).select(&past.take_along_axis(&place, 2), &zeros),
        None => zeros,
    };
    is_new.select(&of_new, &of_past)
}

/// Attention with rotary embeddings, and caches of keys and values.
pub(super) fn grouped(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let counts = [call.int("num_heads", 0)?, call.int("kv_num_heads", 0)?];
    if counts.iter().any(|count| *count < 1) {
        return Err(Diagnostic::new(format!("{counts:?} heads of queries and of keys")));
    }
    for n in 11..=call.count().max(11) {
        if call.given(n).is_some() {
            return Err(refuse(Class::Attribute, format!("operand {n} is given")));
        }
    }
    for name in ["smooth_softmax", "qk_output", "k_quant_type", "v_quant_type"] {
        if call.some_int(name).is_ok_and(|value| value.is_some_and(|value| value > 0)) {
            return call.refuse(name, "given");
        }
    }
    let [q, k, v] = parts(call, counts)?;
    let dtype = q.dtype();
    let [batch, new] = [q.shape()[0].clone(), q.shape()[2].clone()];
    let (past_k, past_v) = (call.optional(3)?, call.optional(4)?);
    let total = call.tensor(5)?.convert(DType::I64).reshape(std::slice::from_ref(&batch)) + 1;
    let length = Tensor::dim_as_value(new.clone(), DType::I64);
    let known = call.dims(6).ok().and_then(|total| total.into_iter().next());
    let past = match &past_k {
        Some(past) => extent(past, 2)?.clone(),
        None => Dim::constant(0),
    };
    let missing = || Diagnostic::new("its tokens are too many");
    let rows = match known.and_then(|total| total.checked_sub(&past)?.as_constant()) {
        // The caches have room for the new tokens.
        Some(more) if more <= 0 => past,
        Some(more) => past.checked_add(&Dim::constant(more)).ok_or_else(missing)?,
        None => past.checked_add(&new).ok_or_else(missing)?,
    };
    let before = match past_k {
        Some(_) => &total - &length,
        None => total.zeros_like(),
    };
    let places = Tensor::iota(DType::I64, [batch.clone(), new.clone()], 1);
    let places = places + before.unsqueeze(1);
    let (mut q, mut k) = (q, k);
    if call.flag("do_rotary", false)? {
        let own = call.optional(9)?.map_or(places.clone(), |own| own.convert(DType::I64));
        let tables = [call.tensor(7)?, call.tensor(8)?];
        let half = extent(&tables[0], 1)?.clone();
        let rotated = half.checked_mul(&Dim::constant(2)).ok_or_else(missing)?;
        let [cos, sin] = tables.map(|table| table.index_select(0, &own));
        let interleaved = call.flag("rotary_interleaved", false)?;
        let turned = |x: &Tensor| -> Result<Tensor> {
            let x = x.permute([0, 2, 1, 3]);
            Ok(rotate(&x, &cos, &sin, rotated.clone(), interleaved)?.permute([0, 2, 1, 3]))
        };
        (q, k) = (turned(&q)?, turned(&k)?);
    }
    let k = cached(past_k.as_ref(), &k, &before, &rows);
    let v = cached(past_v.as_ref(), &v, &before, &rows);
    let scale = match call.some_float("scale")?.filter(|scale| *scale != 0.0) {
        Some(scale) => Tensor::constant(scale),
        None => Tensor::dim_as_value(q.shape()[3].clone(), DType::F64).unary(Unary::Rsqrt),
    };
    let all_k = repeated(&k, &q.shape()[1])?;
    let mut scores = q.matmul(&all_k.matrix_transpose()) * scale.convert(dtype);
    let softcap = call.float("softcap", 0.0)?;
    if softcap > 0.0 {
        scores = (&scores / softcap).unary(Unary::Tanh) * softcap;
    }
    if let Some(bias) = call.optional(10)? {
        scores = scores + bias;
    }
    // A query attends to the example's keys up to its own, and within a window.
    let pairs = [batch, Dim::constant(1), new, rows];
    let key = Tensor::iota(DType::I64, pairs.clone(), 3);
    let query = places.unsqueeze([1, 3]).broadcast_to(&pairs);
    let distance = &query - &key;
    let total = total.unsqueeze([1, 2, 3]).broadcast_to(&pairs);
    let mut allowed = distance.ge(0) & key.compare(Compare::Lt, &total);
    let window = call.int("local_window_size", -1)?;
    if window > 0 {
        allowed = allowed & distance.lt(window);
    }
    let ty = scores.ty().clone();
    let lowest = Tensor::full(&ty, Scalar::from_f64(dtype, f64::NEG_INFINITY));
    let scores = allowed.broadcast_to(&ty.shape).select(&scores, &lowest);
    let result = merged(&scores.softmax(-1).matmul(&repeated(&v, &q.shape()[1])?))?;
    Ok([result, k, v].map(Value::Tensor).into())
}
