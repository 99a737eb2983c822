//! Attention and rotary embeddings.

use super::{Call, Row, extent, one, row, sound};
use crate::model::dtype;
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor};

pub(super) const ROWS: &[Row] =
    &[row("Attention", 23, attention), row("RotaryEmbedding", 23, rotary)];

/// `[batch, length, heads · width]` as `[batch, heads, length, width]`.
pub(super) fn heads(x: &Tensor, count: Option<i64>) -> Result<Tensor> {
    if x.rank() == 4 {
        return Ok(x.clone());
    }
    let [batch, length, all] = x.shape() else {
        return Err(Diagnostic::new(format!("{} has three or four axes", x.ty())));
    };
    let count =
        Dim::constant(count.ok_or_else(|| Diagnostic::new("the number of heads is not given"))?);
    let width = all
        .checked_exact_div(&count)
        .ok_or_else(|| Diagnostic::new(format!("{all} features in {count} heads")))?;
    let apart = x.reshape([batch.clone(), length.clone(), count, width]);
    Ok(apart.permute([0, 2, 1, 3]))
}

/// `[batch, heads, length, width]` as `[batch, length, heads · width]`.
pub(super) fn merged(x: &Tensor) -> Result<Tensor> {
    let x = sound(x)?;
    let [batch, count, length, width] = x.shape() else {
        return Err(Diagnostic::new(format!("{} has four axes", x.ty())));
    };
    let all = count.checked_mul(width).ok_or_else(|| Diagnostic::new("too many features"))?;
    let shape = [batch.clone(), length.clone(), all];
    Ok(x.permute([0, 2, 1, 3]).reshape(shape))
}

/// Heads of keys and values, each repeated for the queries that share it.
pub(super) fn repeated(x: &Tensor, queries: &Dim) -> Result<Tensor> {
    let own = &x.shape()[1];
    let times = queries
        .checked_exact_div(own)
        .ok_or_else(|| Diagnostic::new(format!("{queries} heads of queries, {own} of keys")))?;
    Ok(if times == Dim::constant(1) { x.clone() } else { x.repeat_interleave(times, 1) })
}

fn attention(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let flat = call.tensor(0)?.rank() == 3;
    let (queries, own) = (call.some_int("q_num_heads")?, call.some_int("kv_num_heads")?);
    let q = heads(&call.tensor(0)?, queries)?;
    let (mut k, mut v) = (heads(&call.tensor(1)?, own)?, heads(&call.tensor(2)?, own)?);
    let width = &q.shape()[3];
    let dtype_of = q.dtype();
    let width_as_number = Tensor::dim_as_value(width.clone(), DType::F64);
    let scale = match call.some_float("scale")? {
        Some(scale) => Tensor::constant(scale.sqrt()),
        None => width_as_number.unary(Unary::Rsqrt).unary(Unary::Sqrt),
    };
    let scale = scale.convert(dtype_of);
    let past = call.optional(4)?;
    if let (Some(past_k), Some(past_v)) = (&past, call.optional(5)?) {
        k = Tensor::concatenate(&[past_k.clone(), k], 2);
        v = Tensor::concatenate(&[past_v, v], 2);
    }
    let (present_k, present_v) = (k.clone(), v.clone());
    let (rows, columns) = (q.shape()[2].clone(), k.shape()[2].clone());
    let (k, v) = (repeated(&k, &q.shape()[1])?, repeated(&v, &q.shape()[1])?);
    let scores = (&q * &scale).matmul(&(k * &scale).matrix_transpose());
    let softcap = call.float("softcap", 0.0)?;
    let capped = match softcap > 0.0 {
        true => (&scores / softcap).unary(Unary::Tanh) * softcap,
        false => scores.clone(),
    };
    let bias = bias(call, dtype_of, [&rows, &columns], past.as_ref())?;
    let biased = match &bias {
        Some(bias) => capped.binary(Binary::Add, bias),
        None => capped.clone(),
    };
    let wide = match call.some_int("softmax_precision")? {
        Some(number) => dtype(i32::try_from(number).unwrap_or(0))?,
        None => dtype_of,
    };
    let mut shares = biased.convert(wide).softmax(-1);
    if let Some(bias) = &bias {
        // A query that may attend to no key has no result.
        let last = bias.rank() as i64 - 1;
        let none = bias.max_axes(last).unsqueeze(last).eq(f64::NEG_INFINITY);
        shares = none.select(shares.zeros_like(), &shares);
    }
    let shares = shares.convert(dtype_of);
    let mut result = shares.matmul(&v);
    if flat {
        result = merged(&result)?;
    }
    let exposed = match call.int("qk_matmul_output_mode", 0)? {
        0 => scores,
        1 if softcap > 0.0 => capped,
        1 | 2 if call.version < 25 || bias.is_some() => biased,
        1 | 2 => capped,
        3 => shares,
        other => return call.refuse("qk_matmul_output_mode", other),
    };
    Ok([result, present_k, present_v, exposed].map(Value::Tensor).into())
}

/// What is added to scores: 0 where a query may attend to a key, else −∞, and a mask of floats.
fn bias(
    call: &Call<'_, '_, '_>,
    dtype: DType,
    [rows, columns]: [&Dim; 2],
    past: Option<&Tensor>,
) -> Result<Option<Tensor>> {
    let hidden = |allowed: &Tensor| {
        let ty = allowed.ty().with_dtype(dtype);
        let of = |value: f64| Tensor::full(&ty, Scalar::from_f64(dtype, value));
        allowed.select(&of(0.0), &of(f64::NEG_INFINITY))
    };
    let mut sum: Option<Tensor> = None;
    let mut add = |bias: Tensor| {
        sum = Some(match sum.take() {
            Some(sum) => sum.binary(Binary::Add, &bias),
            None => bias,
        });
    };
    if call.given(3).is_some() {
        let mask = call.ranked(3, 1)?;
        let is_bool = mask.dtype() == DType::Bool;
        let own = mask.shape()[mask.rank() - 1].clone();
        let missing = columns.checked_sub(&own).and_then(|d| d.as_constant()).unwrap_or(0);
        let mut around = vec![(0, 0); mask.rank()];
        around[mask.rank() - 1].1 = missing.max(0);
        let mask = match (is_bool, missing > 0) {
            (true, true) => mask.convert(DType::I32).pad(&around, 0).ne(0),
            (false, true) => mask.pad(&around, f64::NEG_INFINITY),
            _ => mask,
        };
        add(if is_bool { hidden(&mask) } else { mask.convert(dtype) });
    }
    let lengths = call.optional(6)?.map(|lengths| lengths.convert(DType::I64));
    let all = vec![rows.clone(), columns.clone()];
    let query = Tensor::iota(DType::I64, all.clone(), 0);
    let key = Tensor::iota(DType::I64, all, 1);
    // The position of the first query among the keys.
    let first = match (&lengths, past) {
        (Some(lengths), None) => {
            let before = lengths - Tensor::dim_as_value(rows.clone(), DType::I64);
            before.unsqueeze([1, 2, 3])
        }
        (_, Some(past)) => Tensor::dim_as_value(extent(past, 2)?.clone(), DType::I64),
        (None, None) => Tensor::constant(0i64),
    };
    let distance = (query + first) - &key;
    if call.flag("is_causal", false)? {
        add(hidden(&distance.ge(0)));
    }
    for (name, sign) in [("left_window_size", 1i64), ("right_window_size", -1)] {
        let size = call.int(name, -1)?;
        if size >= 0 {
            add(hidden(&(&distance * sign).le(size)));
        }
    }
    if let Some(lengths) = lengths {
        let numbers = Tensor::iota(DType::I64, [columns.clone()], 0);
        add(hidden(&numbers.compare(wengert_core::op::Compare::Lt, &lengths.unsqueeze([1, 2, 3]))));
    }
    Ok(sum)
}

fn rotary(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let count = call.some_int("num_heads")?.filter(|n| *n > 0);
    let apart = heads(&x, count)?.permute([0, 2, 1, 3]);
    let width = &apart.shape()[3];
    let rotated = match call.int("rotary_embedding_dim", 0)? {
        0 => width.clone(),
        n => Dim::constant(n),
    };
    let (mut cos, mut sin) = (call.tensor(1)?, call.tensor(2)?);
    if let Some(at) = call.optional(3)? {
        (cos, sin) = (cos.index_select(0, &at), sin.index_select(0, &at));
    }
    let interleaved = call.flag("interleaved", false)?;
    let all = rotate(&apart, &cos, &sin, rotated, interleaved)?;
    one(match x.rank() {
        3 => all.reshape(x.shape().to_vec()),
        _ => all.permute([0, 2, 1, 3]),
    })
}

/// Turns the first features of `[batch, length, heads, width]` by the angles of each position.
///
/// The two numbers of a pair are neighbours if they are `interleaved`, else half of the features
/// apart.
pub(super) fn rotate(
    x: &Tensor,
    cos: &Tensor,
    sin: &Tensor,
    rotated: Dim,
    interleaved: bool,
) -> Result<Tensor> {
    let (cos, sin) = (cos.unsqueeze(2), sin.unsqueeze(2));
    let width = x.shape()[3].clone();
    let part = x.slice_axis(3, 0, rotated.clone());
    let rest = x.slice_axis(3, rotated.clone(), width);
    let half = rotated
        .checked_exact_div(&Dim::constant(2))
        .ok_or_else(|| Diagnostic::new(format!("a rotation of {rotated} features")))?;
    let (a, b) = match interleaved {
        true => {
            let pairs = part.unflatten(3, [half.clone(), Dim::constant(2)]);
            (pairs.slice_axis(4, 0, 1).squeeze(4), pairs.slice_axis(4, 1, 2).squeeze(4))
        }
        false => (part.slice_axis(3, 0, half.clone()), part.slice_axis(3, half, rotated)),
    };
    let (real, imaginary) = (&cos * &a - &sin * &b, &sin * &a + &cos * &b);
    let turned = match interleaved {
        true => Tensor::stack(&[real, imaginary], 4).reshape(part.shape().to_vec()),
        false => Tensor::concatenate(&[real, imaginary], 3),
    };
    Ok(Tensor::concatenate(&[turned, rest], 3))
}
