//! Attention whose state has a fixed size: linear attention, and causal convolutions with a state.

use super::product::depthwise;
use super::{Call, Row, extent, row};
use crate::value::Value;
use wengert_core::build::control;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor, TensorType};

pub(super) const ROWS: &[Row] =
    &[row("LinearAttention", 1, linear_attention), row("CausalConvWithState", 1, causal)];

/// `[batch, length, heads · width]` as `[length, batch, heads, width]` in f32.
fn steps(x: &Tensor, heads: &Dim) -> Result<Tensor> {
    let [batch, length, all] = x.shape() else {
        return Err(Diagnostic::new(format!("{} has three axes", x.ty())));
    };
    let width = all
        .checked_exact_div(heads)
        .ok_or_else(|| Diagnostic::new(format!("{all} features in {heads} heads")))?;
    let apart = x.reshape([batch.clone(), length.clone(), heads.clone(), width]);
    Ok(apart.permute([1, 0, 2, 3]).convert(DType::F32))
}

fn linear_attention(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (queries, own) = (call.int("q_num_heads", 0)?, call.int("kv_num_heads", 0)?);
    if own < 1 || queries < 1 || queries % own != 0 {
        return Err(Diagnostic::new(format!("{queries} heads of queries, {own} of keys")));
    }
    let (gated, corrected) = match call.text("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return call.refuse("update_rule", other),
    };
    let query = call.tensor(0)?;
    let heads = Dim::constant(own);
    let q = steps(&query, &Dim::constant(queries))?;
    let (k, v) = (steps(&call.tensor(1)?, &heads)?, steps(&call.tensor(2)?, &heads)?);
    // One number for each head, or for each feature of a key.
    let decay = if gated { Some(steps(&call.tensor(4)?, &heads)?) } else { None };
    let beta = match corrected {
        true => {
            let beta = call.tensor(5)?;
            let last = extent(&beta, 2)?.clone();
            Some(steps(&beta, &last)?)
        }
        false => None,
    };
    let (batch, keys, values) = (q.shape()[1].clone(), k.shape()[3].clone(), v.shape()[3].clone());
    let (past, dtype) = match call.optional(3)? {
        Some(past) => (past.convert(DType::F32), past.dtype()),
        None => {
            let shape = vec![batch, heads, keys.clone(), values.clone()];
            let ty = TensorType::of(DType::F32, shape);
            (Tensor::full(&ty, Scalar::of(0f32)), query.dtype())
        }
    };
    let scale = match call.float("scale", 0.0)? {
        0.0 => Tensor::dim_as_value(keys, DType::F32).unary(Unary::Rsqrt),
        scale => Tensor::constant(scale as f32),
    };
    let times = queries / own;
    let mut xs = vec![q, k, v];
    xs.extend(decay.iter().chain(&beta).cloned());
    let (state, outputs) = control::scan(&past, &xs, |state: &Tensor, x: &Vec<Tensor>| {
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        let mut state = state.clone();
        if gated {
            state = state * x[3].unary(Unary::Exp).unsqueeze(-1);
        }
        let mut v = v.clone();
        if corrected {
            let retrieved = Tensor::einsum("bhdm,bhd->bhm", &[state.clone(), k.clone()]);
            v = x[x.len() - 1].binary(Binary::Mul, &(v - retrieved));
        }
        let state = state + k.unsqueeze(-1) * v.unsqueeze(-2);
        let read = if times == 1 { state.clone() } else { state.repeat_interleave(times, 1) };
        let output = Tensor::einsum("bhd,bhdm->bhm", &[q.clone(), read]) * &scale;
        (state, output)
    });
    let all = values
        .checked_mul(&Dim::constant(queries))
        .ok_or_else(|| Diagnostic::new("too many features"))?;
    let shape = [query.shape()[0].clone(), query.shape()[1].clone(), all];
    let result = outputs.permute([1, 0, 2, 3]).reshape(shape).convert(query.dtype());
    Ok(vec![Value::Tensor(result), Value::Tensor(state.convert(dtype))])
}

fn causal(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, weight) = (call.tensor(0)?, call.tensor(1)?);
    let before = weight
        .shape()
        .get(2)
        .and_then(Dim::as_constant)
        .ok_or_else(|| Diagnostic::new(format!("a filter of {}", weight.ty())))?
        - 1;
    let padded = match call.optional(3)? {
        Some(past) => Tensor::concatenate(&[past, x.clone()], 2),
        None => x.pad(&[(0, 0), (0, 0), (before, 0)], 0),
    };
    let result = depthwise(&padded, &weight, call.optional(2)?);
    let result = match call.text("activation", "none")? {
        "none" => result,
        "silu" | "swish" => result.convert(DType::F32).silu().convert(x.dtype()),
        other => return call.refuse("activation", other),
    };
    let length = padded.shape()[2].clone();
    let start = length
        .checked_sub(&Dim::constant(before))
        .ok_or_else(|| Diagnostic::new("the signal is too long"))?;
    let present = padded.slice_axis(2, start, length);
    Ok(vec![Value::Tensor(result), Value::Tensor(present)])
}
