//! Norms and softmax.

use super::{Call, Row, one, row};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    // Before version 13 the operand is a matrix: all axes from `axis` on are one.
    row("Softmax", 1, |call| flattened(call, |x| x.softmax(-1))),
    row("Softmax", 13, |call| along(call, |x, axis| x.softmax(axis))),
    row("LogSoftmax", 1, |call| flattened(call, |x| x.log_softmax(-1))),
    row("LogSoftmax", 13, |call| along(call, |x, axis| x.log_softmax(axis))),
    row("Hardmax", 1, |call| flattened(call, |x| hardmax(x, x.rank() - 1))),
    row("Hardmax", 13, |call| along(call, hardmax)),
    row("BatchNormalization", 1, batch),
    row("InstanceNormalization", 1, |call| {
        let x = call.tensor(0)?;
        let epsilon = call.float("epsilon", 1e-5)?;
        let axes: Vec<i64> = (2..x.rank() as i64).collect();
        let normal = standardized(&x, &axes, epsilon);
        let (scale, bias) = (of_channels(&call.tensor(1)?, &x), of_channels(&call.tensor(2)?, &x));
        one(normal * scale + bias)
    }),
    row("GroupNormalization", 18, group),
    row("LayerNormalization", 17, layer),
    row("RMSNormalization", 23, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.int("axis", -1)?, x.rank())?;
        let epsilon = call.float("epsilon", 1e-5)?;
        let norm = Norm::of(&x.convert(x.dtype().wide()), axis, epsilon, false);
        one(norm.result.convert(x.dtype()) * call.tensor(1)?)
    }),
    row("LpNormalization", 1, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.int("axis", -1)?, x.rank())?;
        let norm = match call.int("p", 2)? {
            1 => x.unary(Unary::Abs).sum_axes(axis),
            2 => x.unary(Unary::Square).sum_axes(axis).unary(Unary::Sqrt),
            other => return call.refuse("p", other),
        };
        let norm = norm.unsqueeze(axis);
        // A norm of 0 divides by 1.
        one(&x / norm.eq(0.0).select(1.0, &norm))
    }),
    row("MeanVarianceNormalization", 9, |call| {
        let x = call.tensor(0)?;
        let axes = call.some_ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
        let mean = x.mean_axes(&axes).unsqueeze(&wrapped(call, &axes, x.rank())?);
        let centred = &x - mean;
        let variance = centred.unary(Unary::Square).mean_axes(&axes);
        let deviation = variance.unary(Unary::Sqrt).unsqueeze(&wrapped(call, &axes, x.rank())?);
        one(centred / (deviation + 1e-9))
    }),
    row("LRN", 1, local_response),
];

fn wrapped(call: &Call<'_, '_, '_>, axes: &[i64], rank: usize) -> Result<Vec<i64>> {
    Ok(call.axes(axes, rank)?.into_iter().map(|axis| axis as i64).collect())
}

fn flattened(call: &Call<'_, '_, '_>, of: impl Fn(&Tensor) -> Tensor) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(call.int("axis", 1)?, x.rank())?;
    let product = |part: &[Dim]| {
        let all = part.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
        all.ok_or_else(|| Diagnostic::new("its elements are too many"))
    };
    let matrix = [product(&x.shape()[..axis])?, product(&x.shape()[axis..])?];
    one(of(&x.reshape(matrix)).reshape(x.shape().to_vec()))
}

fn along(call: &Call<'_, '_, '_>, of: impl Fn(&Tensor, usize) -> Tensor) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    one(of(&x, call.axis(call.int("axis", -1)?, x.rank())?))
}

/// 1 at the first maximum along an axis, else 0.
fn hardmax(x: &Tensor, axis: usize) -> Tensor {
    let at = x.argmax(axis).convert(DType::I64).unsqueeze(axis);
    let numbers = Tensor::iota(DType::I64, x.shape().to_vec(), axis);
    numbers.eq(&at).convert(x.dtype())
}

/// A list with a number for each channel, which is axis 1.
fn of_channels(list: &Tensor, x: &Tensor) -> Tensor {
    list.unsqueeze(&(1..x.rank() as i64 - 1).collect::<Vec<_>>())
}

fn standardized(x: &Tensor, axes: &[i64], epsilon: f64) -> Tensor {
    let centred = x - x.mean_axes(axes).unsqueeze(axes);
    let variance = centred.unary(Unary::Square).mean_axes(axes).unsqueeze(axes);
    centred * (variance + epsilon).unary(Unary::Rsqrt)
}

fn batch(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let training = call.flag("training_mode", false)? || (call.version < 7 && call.results() > 1);
    if call.int("spatial", 1)? != 1 {
        return call.refuse("spatial", 0);
    }
    let epsilon = call.float("epsilon", 1e-5)?;
    let (scale, bias) = (call.tensor(1)?, call.tensor(2)?);
    let (mean, variance) = (call.statistic(3)?, call.statistic(4)?);
    let normal = |mean: &Tensor, variance: &Tensor| {
        let wide = |t: &Tensor| of_channels(&t.convert(x.dtype()), &x);
        let factor = (wide(variance) + epsilon).unary(Unary::Rsqrt) * wide(&scale);
        (&x - wide(mean)) * factor + wide(&bias)
    };
    if !training && !call.trains() {
        return one(normal(&mean, &variance));
    }
    let axes: Vec<i64> = (0..x.rank() as i64).filter(|axis| *axis != 1).collect();
    let momentum = call.float("momentum", 0.9)?;
    let own_mean = x.mean_axes(&axes);
    let centred = &x - of_channels(&own_mean, &x);
    let own_variance = centred.unary(Unary::Square).mean_axes(&axes);
    let running =
        |old: &Tensor, new: &Tensor| old * momentum + new.convert(old.dtype()) * (1.0 - momentum);
    let results = [
        normal(&own_mean, &own_variance),
        running(&mean, &own_mean),
        running(&variance, &own_variance),
    ];
    call.update_statistic(3, &results[1]);
    call.update_statistic(4, &results[2]);
    Ok(results.map(Value::Tensor).into())
}

fn group(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.ranked(0, 2)?, call.tensor(1)?, call.tensor(2)?);
    let groups = Dim::constant(call.int("num_groups", 1)?);
    let epsilon = call.float("epsilon", 1e-5)?;
    let channels = x.shape()[1].clone();
    let inner = channels
        .checked_exact_div(&groups)
        .ok_or_else(|| Diagnostic::new(format!("{channels} channels in {groups} groups")))?;
    let (batch, rest) = (x.shape()[0].clone(), x.shape()[2..].to_vec());
    let parts = x.reshape([vec![batch, groups.clone(), inner.clone()], rest].concat());
    let axes: Vec<i64> = (2..parts.rank() as i64).collect();
    let normal = standardized(&parts, &axes, epsilon);
    // Before version 21 there is a scale for each group, since then for each channel.
    if call.version < 21 {
        let of_groups =
            |list: &Tensor| list.unsqueeze(&axes.iter().map(|a| a - 1).collect::<Vec<_>>());
        let scaled = normal * of_groups(&scale) + of_groups(&bias);
        return one(scaled.reshape(x.shape().to_vec()));
    }
    let normal = normal.reshape(x.shape().to_vec());
    one(normal * of_channels(&scale, &x) + of_channels(&bias, &x))
}

/// A norm over all axes from one on. Mean and inverse deviation have axes of length 1.
pub(super) struct Norm {
    pub result: Tensor,
    pub mean: Tensor,
    pub inverse: Tensor,
}

impl Norm {
    /// Without `centre` the mean is not taken away.
    pub fn of(x: &Tensor, axis: usize, epsilon: f64, centre: bool) -> Norm {
        let axes: Vec<i64> = (axis as i64..x.rank() as i64).collect();
        let mean = x.mean_axes(&axes).unsqueeze(&axes);
        let centred = if centre { x - &mean } else { x.clone() };
        let square = centred.unary(Unary::Square).mean_axes(&axes).unsqueeze(&axes);
        let inverse = (square + epsilon).unary(Unary::Rsqrt);
        let result = match (centre, axes.len()) {
            (true, 1) => x.standardize(axis, epsilon),
            _ => &centred * &inverse,
        };
        Norm { result, mean, inverse }
    }
}

fn layer(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let axis = call.axis(call.int("axis", -1)?, x.rank())?;
    let epsilon = call.float("epsilon", 1e-5)?;
    let wide = if call.int("stash_type", 1)? == 1 { DType::F32 } else { x.dtype() };
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { wide };
    let Norm { result, mean, inverse } = Norm::of(&x.convert(wide), axis, epsilon, true);
    let scaled = result.convert(x.dtype()) * scale;
    let result = match bias {
        Some(bias) => scaled + bias,
        None => scaled,
    };
    Ok([result, mean, inverse].map(Value::Tensor).into())
}

/// Local response normalization over neighbouring channels.
fn local_response(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    use wengert_core::op::{ReduceWindow, WindowKind, Windows};
    let x = call.tensor(0)?;
    let size = call.int("size", 1)?;
    if size < 1 || x.rank() < 2 {
        return Err(refuse(Class::Attribute, format!("attribute `size` is {size}")));
    }
    let (alpha, beta) = (call.float("alpha", 1e-4)?, call.float("beta", 0.75)?);
    let bias = call.float("bias", 1.0)?;
    let mut window = vec![1; x.rank()];
    window[1] = size as usize;
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); x.rank()];
    padding[1] = (Dim::constant((size - 1) / 2), Dim::constant(size / 2));
    let windows = Windows { padding, ..Windows::new(&window, &vec![1; x.rank()]) };
    let op = ReduceWindow { kind: WindowKind::Sum, windows };
    let sums = Tensor::apply(op, &[&x.unary(Unary::Square)]);
    let factor = sums * (alpha / size as f64) + bias;
    // Networks have 3/4 or 1/2, whose roots are faster than a power.
    let power = match beta {
        0.5 => factor.sqrt(),
        0.75 => {
            let root = factor.sqrt();
            &root * root.sqrt()
        }
        _ => factor.binary(Binary::Pow, &factor.full_like(beta)),
    };
    one(&x / power)
}
