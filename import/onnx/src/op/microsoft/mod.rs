//! Ops of the domain `com.microsoft`, which exporters and optimizers of transformers emit.
//!
//! Source: `docs/ContribOperators.md` of ONNX Runtime, whose results the tests compare with.

mod attention;
mod few_bits;
mod grouped;

use super::attention::{heads, rotate};
use super::elementwise::gelu;
use super::normalization::Norm;
use super::{Call, Row, extent, one, row};
use crate::value::Value;
use wengert_core::op::Unary;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    microsoft("Gelu", |call| one(gelu(&call.tensor(0)?))),
    microsoft("BiasGelu", |call| one(gelu(&(call.tensor(0)? + call.tensor(1)?)))),
    microsoft("FastGelu", |call| {
        let x = call.tensor(0)?;
        one(match call.optional(1)? {
            Some(bias) => x + bias,
            None => x,
        }
        .unary(Unary::GeluTanh))
    }),
    microsoft("QuickGelu", |call| {
        let x = call.tensor(0)?;
        one((&x * call.float("alpha", 1.702)?).unary(Unary::Logistic) * &x)
    }),
    microsoft("FusedMatMul", |call| {
        let turned = |n: usize, name: &str, of_batch: &str| -> Result<Tensor> {
            if call.flag(of_batch, false)? {
                return call.refuse(of_batch, 1);
            }
            let x = call.tensor(n)?;
            // A vector has no axes to swap.
            Ok(if call.flag(name, false)? && x.rank() > 1 { x.matrix_transpose() } else { x })
        };
        let product =
            turned(0, "transA", "transBatchA")?.matmul(&turned(1, "transB", "transBatchB")?);
        let alpha = call.float("alpha", 1.0)?;
        one(if alpha == 1.0 { product } else { product * alpha })
    }),
    microsoft("MatMulNBits", few_bits::matmul),
    // It has ONNX's own domain, though ONNX itself has no such op.
    row("SimplifiedLayerNormalization", 1, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.int("axis", -1)?, x.rank())?;
        let norm =
            Norm::of(&x.convert(x.dtype().wide()), axis, call.float("epsilon", 1e-5)?, false);
        let result = norm.result.convert(x.dtype()) * call.tensor(1)?;
        Ok([result, norm.inverse].map(Value::Tensor).into())
    }),
    microsoft("SkipLayerNormalization", |call| skip_normalization(call, true)),
    microsoft("SkipSimplifiedLayerNormalization", |call| skip_normalization(call, false)),
    microsoft("EmbedLayerNormalization", embedding),
    microsoft("RotaryEmbedding", rotary),
    microsoft("MultiHeadAttention", attention::multi_head),
    microsoft("Attention", attention::attention),
    microsoft("GroupQueryAttention", grouped::grouped),
];

const fn microsoft(name: &'static str, rule: super::Rule) -> Row {
    Row { domain: "com.microsoft", name, since: 1, folds: true, rule }
}

/// The norm of a sum of an input, a skip connection and a bias, and that sum.
fn skip_normalization(call: &Call<'_, '_, '_>, centre: bool) -> Result<Vec<Value>> {
    let mut sum = call.ranked(0, 1)? + call.tensor(1)?;
    if let Some(bias) = call.optional(if centre { 4 } else { 3 })? {
        sum = sum + bias;
    }
    let last = sum.rank() - 1;
    let wide = sum.convert(sum.dtype().wide());
    let norm = Norm::of(&wide, last, call.float("epsilon", 1e-12)?, centre);
    let mut result = norm.result.convert(sum.dtype()) * call.tensor(2)?;
    if let (true, Some(shift)) = (centre, call.optional(3)?) {
        result = result + shift;
    }
    Ok([result, norm.mean, norm.inverse, sum].map(Value::Tensor).into())
}

/// The norm of the sum of embeddings of words, positions and segments.
fn embedding(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let words = call.tensor(0)?;
    let [batch, length] = words.shape() else {
        return Err(Diagnostic::new(format!("{} has two axes", words.ty())));
    };
    let positions = match call.optional(8)? {
        Some(positions) => positions,
        None => Tensor::iota(DType::I32, [length.clone()], 0),
    };
    let mut sum =
        call.tensor(2)?.index_select(0, &words) + call.tensor(3)?.index_select(0, &positions);
    if let (Some(segments), Some(table)) = (call.optional(1)?, call.optional(4)?) {
        sum = sum + table.index_select(0, &segments);
    }
    let wide = sum.convert(sum.dtype().wide());
    let norm = Norm::of(&wide, 2, call.float("epsilon", 1e-12)?, true);
    let result = norm.result.convert(sum.dtype()) * call.tensor(5)? + call.tensor(6)?;
    let count = match call.optional(7)? {
        Some(mask) => mask.eq(1).convert(DType::I32).sum_axes(1),
        None => Tensor::constant(0i32).broadcast_to(std::slice::from_ref(batch)),
    };
    Ok([result, count, sum].map(Value::Tensor).into())
}

fn rotary(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.tensor(0)?, call.tensor(1)?);
    let (cos, sin) = (call.tensor(2)?, call.tensor(3)?);
    if call.float("scale", 1.0)? != 1.0 {
        return call.refuse("scale", call.float("scale", 1.0)?);
    }
    let half = extent(&cos, 1)?.clone();
    let rotated = half.checked_mul(&Dim::constant(2));
    let rotated = rotated.ok_or_else(|| Diagnostic::new("too many features"))?;
    let count =
        match call.int("num_heads", 0)? {
            // The tables have all features of a head.
            0 if x.rank() == 3 => {
                let all = &x.shape()[2];
                let count = all.checked_exact_div(&rotated).and_then(|count| count.as_constant());
                Some(count.ok_or_else(|| {
                    Diagnostic::new(format!("{all} features in heads of {rotated}"))
                })?)
            }
            0 => None,
            count => Some(count),
        };
    let apart = heads(&x, count)?.permute([0, 2, 1, 3]);
    // One position is that of the first row.
    let at = match at.rank() {
        1 => {
            let length = apart.shape()[1].clone();
            (Tensor::iota(at.dtype(), [length], 0) + at).unsqueeze(0)
        }
        _ => at,
    };
    let [cos, sin] = [cos, sin].map(|table| table.index_select(0, &at));
    let all = rotate(&apart, &cos, &sin, rotated, call.flag("interleaved", false)?)?;
    one(match x.rank() {
        3 => all.reshape(x.shape().to_vec()),
        _ => all.permute([0, 2, 1, 3]),
    })
}
