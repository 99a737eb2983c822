//! Attention whose scores and shares are changed by graphs of the model.

use super::attention::repeated;
use super::{Call, Row, one};
use crate::model::{Attribute, dtype};
use crate::value::Value;
use wengert_core::op::Unary;
use wengert_core::{DType, Diagnostic, Result, Tensor};

pub(super) const ROWS: &[Row] = &[Row {
    domain: "ai.onnx.preview",
    name: "FlexAttention",
    since: 1,
    folds: false,
    rule: flex_attention,
}];

/// A tensor as a graph in an attribute changes it, if it is there.
fn changed(call: &Call<'_, '_, '_>, name: &str, x: Tensor) -> Result<Tensor> {
    let graph = match call.attribute(name) {
        None => return Ok(x),
        Some(Attribute::Graph(graph)) => graph,
        Some(other) => return call.refuse(name, other.kind()),
    };
    let results = call.body(graph, vec![Value::Tensor(x.clone())])?;
    let [result] = &results[..] else {
        return Err(Diagnostic::new(format!("`{name}` has {} results, not one", results.len())));
    };
    let result = call.as_tensor(result)?;
    let result = super::sound(&result)?;
    match result.ty() == x.ty() {
        true => Ok(result.clone()),
        false => Err(Diagnostic::new(format!("`{name}` makes {} of {}", result.ty(), x.ty()))),
    }
}

fn flex_attention(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let [q, k, v] = [call.ranked(0, 4)?, call.ranked(1, 4)?, call.ranked(2, 4)?];
    let (k, v) = (repeated(&k, &q.shape()[1])?, repeated(&v, &q.shape()[1])?);
    let wide = match call.int("softmax_precision", 0)? {
        0 if q.dtype() == DType::F64 => DType::F64,
        0 => DType::F32,
        number => dtype(i32::try_from(number).unwrap_or(0))?,
    };
    let scale = match call.some_float("scale")? {
        Some(scale) => Tensor::constant(scale),
        None => Tensor::dim_as_value(q.shape()[3].clone(), DType::F64).unary(Unary::Rsqrt),
    };
    let scores = q.convert(wide).matmul(&k.convert(wide).matrix_transpose());
    let scores = changed(call, "score_mod", scores * scale.convert(wide))?;
    let shares = changed(call, "prob_mod", scores.softmax(-1))?;
    one(shares.matmul(&v.convert(wide)).convert(q.dtype()))
}
