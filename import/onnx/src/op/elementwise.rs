//! Elementwise ops.

use super::narrow::bitcast;
use super::shape::common_shape;
use super::{Call, Row, one, row};
use crate::model::Element;
use crate::refusal::{Class, refuse};
use crate::value::{Dims, Value};
use wengert_core::op::{Binary, Compare, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor};

/// Rows of ops that are one of the library's.
macro_rules! unary {
    ($($name:literal $since:literal $op:ident,)*) => {
        &[$(row($name, $since, |call| one(call.tensor(0)?.unary(Unary::$op)))),*]
    };
}

macro_rules! compare {
    ($call:ident, $op:ident) => {
        one($call.tensor(0)?.compare(Compare::$op, &$call.tensor(1)?))
    };
}

const UNARY: &[Row] = unary! {
    "Abs" 1 Abs, "Neg" 1 Neg, "Sign" 1 Sign, "Floor" 1 Floor, "Ceil" 1 Ceil, "Round" 1 Round,
    "Reciprocal" 1 Reciprocal, "Sqrt" 1 Sqrt, "Exp" 1 Exp, "Log" 1 Log, "Sigmoid" 1 Logistic,
    "Sin" 1 Sin, "Cos" 1 Cos, "Tan" 1 Tan, "Tanh" 1 Tanh, "Sinh" 1 Sinh, "Cosh" 1 Cosh,
    "Asin" 1 Asin, "Acos" 1 Acos, "Atan" 1 Atan, "Asinh" 1 Asinh, "Acosh" 1 Acosh,
    "Atanh" 1 Atanh, "Erf" 1 Erf, "Not" 1 Not, "BitwiseNot" 1 Not,
};

pub(super) const ROWS: &[Row] = &join();

/// The rows that are not unary.
const OTHERS: &[Row] = &[
    row("Identity", 1, |call| Ok(vec![call.value(0)?.clone()])),
    row("Add", 1, |call| arithmetic(call, Binary::Add, Dim::checked_add)),
    row("Sub", 1, |call| arithmetic(call, Binary::Sub, Dim::checked_sub)),
    row("Mul", 1, |call| arithmetic(call, Binary::Mul, Dim::checked_mul)),
    row("Div", 1, |call| arithmetic(call, Binary::Div, quotient)),
    row("Pow", 1, pow),
    row("Mod", 1, modulo),
    row("Max", 1, |call| fold(call, Binary::Max)),
    row("Min", 1, |call| fold(call, Binary::Min)),
    row("Sum", 1, |call| fold(call, Binary::Add)),
    row("Mean", 1, |call| {
        let count = call.count() as f64;
        let sum = fold_tensors(call, Binary::Add)?;
        one(sum / count)
    }),
    row("And", 1, |call| one(call.tensor(0)?.binary(Binary::And, &call.tensor(1)?))),
    row("Or", 1, |call| one(call.tensor(0)?.binary(Binary::Or, &call.tensor(1)?))),
    row("Xor", 1, |call| one(call.tensor(0)?.binary(Binary::Xor, &call.tensor(1)?))),
    row("BitwiseAnd", 1, |call| one(call.tensor(0)?.binary(Binary::And, &call.tensor(1)?))),
    row("BitwiseOr", 1, |call| one(call.tensor(0)?.binary(Binary::Or, &call.tensor(1)?))),
    row("BitwiseXor", 1, |call| one(call.tensor(0)?.binary(Binary::Xor, &call.tensor(1)?))),
    row("BitShift", 1, |call| {
        let op = match call.text("direction", "")? {
            "LEFT" => Binary::ShiftLeft,
            "RIGHT" if call.tensor(0)?.dtype().is_signed_integer() => Binary::ShiftRightArithmetic,
            "RIGHT" => Binary::ShiftRightLogical,
            other => return call.refuse("direction", other),
        };
        one(call.tensor(0)?.binary(op, &call.tensor(1)?))
    }),
    row("Equal", 1, |call| {
        if let (Ok(a), Ok(b)) = (call.value(0)?.dims(), call.value(1)?.dims())
            && let Some(same) = equal_dims(&a, &b)
        {
            return Ok(vec![same]);
        }
        compare!(call, Eq)
    }),
    row("Greater", 1, |call| compare!(call, Gt)),
    row("GreaterOrEqual", 1, |call| compare!(call, Ge)),
    row("Less", 1, |call| compare!(call, Lt)),
    row("LessOrEqual", 1, |call| compare!(call, Le)),
    row("Where", 1, |call| {
        if let Some(chosen) = chosen_dims(call)? {
            return Ok(vec![chosen]);
        }
        one(call.tensor(0)?.select(&call.tensor(1)?, &call.tensor(2)?))
    }),
    row("Relu", 1, |call| {
        let x = call.tensor(0)?;
        one(x.binary(Binary::Max, &x.zeros_like()))
    }),
    row("LeakyRelu", 1, |call| {
        let (x, slope) = (call.tensor(0)?, call.float("alpha", 0.01)?);
        one(x.lt(0.0).select(&x * slope, &x))
    }),
    row("PRelu", 1, |call| {
        let (x, slope) = (call.tensor(0)?, call.tensor(1)?);
        one(x.lt(0.0).select(&x * &slope, &x))
    }),
    row("ThresholdedRelu", 1, |call| {
        let x = call.tensor(0)?;
        one(x.gt(call.float("alpha", 1.0)?).select(&x, 0.0))
    }),
    row("Elu", 1, |call| {
        let (x, alpha) = (call.tensor(0)?, call.float("alpha", 1.0)?);
        one(x.lt(0.0).select(x.unary(Unary::Expm1) * alpha, &x))
    }),
    row("Celu", 1, |call| {
        let (x, alpha) = (call.tensor(0)?, call.float("alpha", 1.0)?);
        one(x.lt(0.0).select((&x / alpha).unary(Unary::Expm1) * alpha, &x))
    }),
    row("Selu", 1, |call| {
        let x = call.tensor(0)?;
        let alpha = call.float("alpha", 1.6732631921768188)?;
        let gamma = call.float("gamma", 1.0507010221481323)?;
        one(x.le(0.0).select(x.unary(Unary::Expm1) * alpha, &x) * gamma)
    }),
    row("HardSigmoid", 1, |call| {
        let (alpha, beta) = (call.float("alpha", 0.2)?, call.float("beta", 0.5)?);
        one((call.tensor(0)? * alpha + beta).clamp(0.0, 1.0))
    }),
    row("HardSwish", 1, |call| {
        let x = call.tensor(0)?;
        one(&x * (&x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0))
    }),
    row("Swish", 1, |call| {
        let (x, alpha) = (call.tensor(0)?, call.float("alpha", 1.0)?);
        one(&x * (&x * alpha).unary(Unary::Logistic))
    }),
    row("SwiGLU", 1, |call| {
        let (x, alpha) = (call.tensor(0)?, call.float("alpha", 1.0)?);
        one(&x * (&x * alpha).unary(Unary::Logistic) * call.tensor(1)?)
    }),
    row("BitCast", 1, |call| {
        let to = call.element("to")?.ok_or_else(|| Diagnostic::new("it has no dtype `to`"))?;
        let (x, from) = call.carried(0)?;
        Ok(vec![match (x.dtype(), to) {
            (DType::Bool, Element::Plain(to @ (DType::U8 | DType::I8))) => {
                Value::Tensor(x.convert(to))
            }
            (DType::U8 | DType::I8, Element::Plain(DType::Bool)) => Value::Tensor(x.ne(0)),
            _ => Value::of(bitcast(&x, from, to)?, to.narrow()),
        }])
    }),
    row("Mish", 1, |call| {
        let x = call.tensor(0)?;
        one(&x * x.softplus().unary(Unary::Tanh))
    }),
    row("Softplus", 1, |call| one(call.tensor(0)?.softplus())),
    row("Softsign", 1, |call| {
        let x = call.tensor(0)?;
        one(&x / (x.unary(Unary::Abs) + 1.0))
    }),
    row("Gelu", 1, |call| {
        let x = call.tensor(0)?;
        match call.text("approximate", "none")? {
            "none" => one(gelu(&x)),
            "tanh" => one(x.unary(Unary::GeluTanh)),
            other => call.refuse("approximate", other),
        }
    }),
    row("Shrink", 1, |call| {
        let (x, bias, lambda) =
            (call.tensor(0)?, call.float("bias", 0.0)?, call.float("lambd", 0.5)?);
        let high = x.gt(lambda).select(&x - bias, 0.0);
        one(x.lt(-lambda).select(&x + bias, &high))
    }),
    row("Clip", 1, |call| {
        let x = call.tensor(0)?;
        let low = call.some_float("min")?.map(|v| x.full_like(v));
        let high = call.some_float("max")?.map(|v| x.full_like(v));
        one(clipped(x, low, high))
    }),
    row("Clip", 11, |call| one(clipped(call.tensor(0)?, call.optional(1)?, call.optional(2)?))),
    row("Cast", 1, |call| {
        let to = call.element("to")?.ok_or_else(|| Diagnostic::new("it has no dtype `to`"))?;
        if let Element::Plain(to) = to
            && let Ok(dims) = call.value(0)?.dims()
            && to.is_integer()
            && !matches!(call.value(0)?, Value::Tensor(_) | Value::Narrow(..))
        {
            return Ok(vec![Value::Dims(Dims { dtype: to, ..dims })]);
        }
        cast(call, to)
    }),
    row("CastLike", 1, |call| {
        let to = match call.carried(1)? {
            (_, Some(narrow)) => Element::Narrow(narrow),
            (like, None) => Element::Plain(like.dtype()),
        };
        cast(call, to)
    }),
    row("IsNaN", 1, |call| {
        let x = call.tensor(0)?;
        one(x.ne(&x))
    }),
    row("IsInf", 1, |call| {
        let x = call.tensor(0)?;
        let infinity = |sign: f64, of: bool| of.then(|| x.eq(&x.full_like(sign * f64::INFINITY)));
        let high = infinity(1.0, call.flag("detect_positive", true)?);
        let low = infinity(-1.0, call.flag("detect_negative", true)?);
        one(match (high, low) {
            (Some(high), Some(low)) => high | low,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                let ty = x.ty().with_dtype(DType::Bool);
                Tensor::full(&ty, Scalar::of(false))
            }
        })
    }),
    row("Dropout", 1, |call| {
        let x = call.tensor(0)?;
        if call.trains() {
            let rate = match call.number(1)? {
                Some(rate) => rate,
                None => call.float("ratio", 0.5)?,
            };
            let kept = call.key().dropout_kept(x.shape().to_vec(), rate);
            let scaled = kept.select(&(&x * (1.0 / (1.0 - rate))), &x.zeros_like());
            return Ok(vec![Value::Tensor(scaled), Value::Tensor(kept)]);
        }
        if call.number(2)?.unwrap_or(0.0) != 0.0 && call.number(1)? != Some(0.0) {
            return Err(refuse(Class::Random, "it is in training mode"));
        }
        let kept = Tensor::full(&x.ty().with_dtype(DType::Bool), Scalar::of(true));
        Ok(vec![Value::Tensor(x), Value::Tensor(kept)])
    }),
    row("RandomNormal", 1, random),
    row("RandomNormalLike", 1, random),
    row("RandomUniform", 1, random),
    row("RandomUniformLike", 1, random),
    row("Bernoulli", 1, random),
    row("Multinomial", 1, random),
];

/// x·Φ(x), where Φ is the distribution function of the standard normal distribution.
pub(super) fn gelu(x: &Tensor) -> Tensor {
    x * ((x * std::f64::consts::FRAC_1_SQRT_2).unary(Unary::Erf) + 1.0) * 0.5
}

const fn join() -> [Row; UNARY.len() + OTHERS.len()] {
    let mut all = [UNARY[0]; UNARY.len() + OTHERS.len()];
    let mut n = 0;
    while n < all.len() {
        all[n] = if n < UNARY.len() { UNARY[n] } else { OTHERS[n - UNARY.len()] };
        n += 1;
    }
    all
}

fn random(_: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    Err(refuse(Class::Random, "its numbers differ in every runtime"))
}

/// Integers of shapes stay polynomials of dimension variables.
fn arithmetic(
    call: &Call<'_, '_, '_>,
    op: Binary,
    of_dims: impl Fn(&Dim, &Dim) -> Option<Dim>,
) -> Result<Vec<Value>> {
    let is_dims = |n| matches!(call.given(n), Some(Value::Dims(_)));
    if (is_dims(0) || is_dims(1))
        && let (Ok(a), Ok(b)) = (call.value(0)?.dims(), call.value(1)?.dims())
        && let Some(result) = pairwise(&a, &b, of_dims)
    {
        return Ok(vec![Value::Dims(result)]);
    }
    one(call.tensor(0)?.binary(op, &call.tensor(1)?))
}

/// The quotient of integers of shapes, which are not negative.
fn quotient(a: &Dim, b: &Dim) -> Option<Dim> {
    a.checked_exact_div(b).or_else(|| a.checked_floor_div(b.as_constant().filter(|b| *b > 0)?))
}

/// A function of two lists of integers that broadcast; `None` if one of the results is no
/// polynomial.
fn pairwise(a: &Dims, b: &Dims, of: impl Fn(&Dim, &Dim) -> Option<Dim>) -> Option<Dims> {
    let count = match (a.values.len(), b.values.len()) {
        (1, n) | (n, 1) => n,
        (n, m) if n == m => n,
        _ => return None,
    };
    let at = |d: &Dims, n: usize| d.values[if d.values.len() == 1 { 0 } else { n }].clone();
    let values = (0..count).map(|n| of(&at(a, n), &at(b, n))).collect::<Option<Vec<_>>>()?;
    Some(Dims { values, scalar: a.scalar && b.scalar, dtype: a.dtype })
}

/// Whether integers of shapes are equal, if that is known.
fn equal_dims(a: &Dims, b: &Dims) -> Option<Value> {
    let same = |x: &Dim, y: &Dim| {
        x.checked_sub(y)?.as_constant().map(|d| Dim::constant(i64::from(d == 0)))
    };
    let both = pairwise(a, b, same)?;
    let values = Dims { dtype: DType::Bool, ..both };
    Some(Value::Tensor(values.tensor()))
}

/// The choice between integers of shapes, if the condition is known.
fn chosen_dims(call: &Call<'_, '_, '_>) -> Result<Option<Value>> {
    let all = [call.value(0)?, call.value(1)?, call.value(2)?];
    if !all.iter().any(|value| matches!(value, Value::Dims(_))) {
        return Ok(None);
    }
    let [Ok(condition), Ok(x), Ok(y)] = all.map(Value::dims) else { return Ok(None) };
    let Some(condition) = condition.numbers() else { return Ok(None) };
    let count = condition.len().max(x.values.len()).max(y.values.len());
    let pick = |list: &[Dim], n: usize| list.get(if list.len() == 1 { 0 } else { n }).cloned();
    let values: Option<Vec<Dim>> = (0..count)
        .map(|n| {
            let holds = condition.get(if condition.len() == 1 { 0 } else { n })?;
            pick(if *holds != 0 { &x.values } else { &y.values }, n)
        })
        .collect();
    let scalar = x.scalar && y.scalar && count == 1;
    Ok(values.map(|values| Value::Dims(Dims { values, scalar, dtype: x.dtype })))
}

fn fold_tensors(call: &Call<'_, '_, '_>, op: Binary) -> Result<Tensor> {
    let tensors = call.tensors()?;
    let (first, rest) =
        tensors.split_first().ok_or_else(|| Diagnostic::new("it has no operands"))?;
    Ok(rest.iter().fold(first.clone(), |sum, x| sum.binary(op, x)))
}

fn fold(call: &Call<'_, '_, '_>, op: Binary) -> Result<Vec<Value>> {
    one(fold_tensors(call, op)?)
}

/// The result has the dtype of the base.
fn pow(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, y) = (call.tensor(0)?, call.tensor(1)?);
    let known = call.known(1).ok().and_then(|y| y.splat()).map(Scalar::to_f64);
    if let Some(power) = known.filter(|p| p.fract() == 0.0 && p.abs() <= 16.0)
        && (x.dtype().is_float() || power >= 0.0)
    {
        return one(x.integer_pow(power as i64).broadcast_to(&common_shape(x.shape(), y.shape())));
    }
    if x.dtype().is_float() {
        return one(x.binary(Binary::Pow, &y.convert(x.dtype())));
    }
    let wide = x.convert(DType::F64).binary(Binary::Pow, &y.convert(DType::F64));
    one(wide.convert(x.dtype()))
}

/// Of integers, and of floats with `fmod`, the remainder has the sign of the dividend; else that of
/// the divisor.
fn modulo(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, y) = (call.tensor(0)?, call.tensor(1)?);
    let remainder = x.binary(Binary::Rem, &y);
    if call.flag("fmod", false)? || x.dtype().is_unsigned_integer() {
        return one(remainder);
    }
    let y = y.broadcast_to(remainder.shape());
    let other_sign = remainder.ne(0) & remainder.lt(0).ne(&y.lt(0));
    one(other_sign.select(&remainder + &y, &remainder))
}

fn clipped(x: Tensor, low: Option<Tensor>, high: Option<Tensor>) -> Tensor {
    let x = low.map_or(x.clone(), |low| x.binary(Binary::Max, &low));
    high.map_or(x.clone(), |high| x.binary(Binary::Min, &high))
}

/// Conversions to floats of 8 bits saturate unless the node says otherwise.
fn cast(call: &Call<'_, '_, '_>, to: Element) -> Result<Vec<Value>> {
    let (x, _) = call.carried(0)?;
    let saturate = call.flag("saturate", true)?;
    let result = match to {
        Element::Narrow(narrow) => narrow.cast(&x, saturate),
        Element::Plain(to) if to.is_float8() && saturate => {
            let largest = if to == DType::F8E4M3FN { 448.0 } else { 57344.0 };
            x.convert(DType::F32).clamp(-largest, largest).convert(to)
        }
        Element::Plain(to) => x.convert(to),
    };
    Ok(vec![Value::of(result, to.narrow())])
}
