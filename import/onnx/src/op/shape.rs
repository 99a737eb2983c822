//! Shapes, and ops that move elements without looking at indices.

use super::{Call, Row, one, row};
use crate::import::dims;
use crate::model::{Attribute, Stored};
use crate::refusal::{Class, refuse};
use crate::value::{Dims, Value};
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Scalar, Tensor, TensorType};

pub(super) const ROWS: &[Row] = &[
    row("Constant", 1, constant),
    row("ConstantOfShape", 1, |call| {
        let (value, narrow) = match call.attribute("value") {
            Some(Attribute::Tensor(stored)) if stored.literal.len() == 1 => {
                (stored.literal.get(0), stored.narrow)
            }
            None => (Scalar::of(0f32), None),
            Some(other) => return call.refuse("value", other.kind()),
        };
        let ty = TensorType::of(value.dtype(), call.dims(0)?);
        Ok(vec![Value::of(Tensor::full(&ty, value), narrow)])
    }),
    row("Shape", 1, |call| {
        let all = shape_of(call, 0)?;
        let rank = all.len() as i64;
        let bound = |n: i64| (if n < 0 { n + rank } else { n }).clamp(0, rank) as usize;
        let (start, end) = (bound(call.int("start", 0)?), bound(call.int("end", rank)?));
        Ok(vec![dims(all.get(start..end).unwrap_or_default().to_vec())])
    }),
    row("Size", 1, |call| {
        let shape = shape_of(call, 0)?;
        let product = shape.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
        let product = product.ok_or_else(|| Diagnostic::new("its elements are too many"))?;
        let size = Dims { values: vec![product], scalar: true, dtype: DType::I64 };
        Ok(vec![Value::Dims(size)])
    }),
    row("Reshape", 1, |call| {
        let shape = match call.some_ints("shape")? {
            Some(shape) => shape.into_iter().map(Dim::constant).collect(),
            None => call.dims(1)?,
        };
        if let Some(Value::Dims(of)) = call.given(0)
            && shape.len() <= 1
        {
            return Ok(vec![Value::Dims(Dims { scalar: shape.is_empty(), ..of.clone() })]);
        }
        let (x, zeros) = (call.tensor(0)?, call.flag("allowzero", false)?);
        // A 0 is the operand's extent of that axis.
        let extent = |(axis, dim): (usize, Dim)| match dim.as_constant() {
            Some(0) if !zeros => x.shape().get(axis).cloned().unwrap_or(dim),
            _ => dim,
        };
        one(x.reshape(shape.into_iter().enumerate().map(extent).collect::<Vec<_>>()))
    }),
    row("Flatten", 1, |call| {
        let x = call.tensor(0)?;
        let axis = call.int("axis", 1)?;
        let at = if axis < 0 { axis + x.rank() as i64 } else { axis };
        let at = usize::try_from(at).ok().filter(|at| *at <= x.rank());
        let at = at.ok_or_else(|| Diagnostic::new(format!("axis {axis} of {}", x.ty())))?;
        let product = |part: &[Dim]| {
            let all = part.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d));
            all.ok_or_else(|| Diagnostic::new("its elements are too many"))
        };
        let shape = [product(&x.shape()[..at])?, product(&x.shape()[at..])?];
        one(x.reshape(shape))
    }),
    row("Transpose", 1, |call| {
        let x = call.tensor(0)?;
        let reversed = || (0..x.rank() as i64).rev().collect();
        one(x.permute(&call.some_ints("perm")?.unwrap_or_else(reversed)))
    }),
    row("Squeeze", 1, |call| squeeze(call, call.some_ints("axes")?)),
    row("Squeeze", 13, |call| {
        let axes = call.given(1).map(|_| call.ints(1)).transpose()?;
        squeeze(call, axes)
    }),
    row("Unsqueeze", 1, |call| unsqueeze(call, call.some_ints("axes")?.unwrap_or_default())),
    row("Unsqueeze", 13, |call| unsqueeze(call, call.ints(1)?)),
    row("Concat", 1, concat),
    row("Split", 1, |call| {
        let parts = call.some_ints("split")?;
        split(call, parts)
    }),
    row("Split", 13, |call| {
        let parts = call.given(1).map(|_| call.ints(1)).transpose()?;
        split(call, parts)
    }),
    row("Expand", 1, |call| {
        let (x, shape) = (call.tensor(0)?, call.dims(1)?);
        one(x.broadcast_to(&common_shape(x.shape(), &shape)))
    }),
    row("Tile", 6, |call| {
        let (x, times) = (call.tensor(0)?, call.dims(1)?);
        one(x.tile(times))
    }),
    row("Pad", 1, |call| {
        let pads = call.some_ints("pads")?.or(call.some_ints("paddings")?).unwrap_or_default();
        let value = call.float("value", 0.0)?;
        let x = call.tensor(0)?;
        let fill = x.ty().dtype;
        let all: Vec<usize> = (0..x.rank()).collect();
        let fill = Tensor::constant(Literal::full(&[], Scalar::from_f64(fill, value)));
        pad(call, &x, &pads, &all, &fill)
    }),
    row("Pad", 11, |call| {
        let x = call.tensor(0)?;
        let all = (0..x.rank() as i64).collect();
        let axes = call.given(3).map(|_| call.ints(3)).transpose()?.unwrap_or(all);
        let axes = call.axes(&axes, x.rank())?;
        let fill = match call.optional(2)? {
            Some(fill) => fill.reshape(Vec::<Dim>::new()),
            None => Tensor::constant(Literal::full(&[], Scalar::zero(x.dtype()))),
        };
        pad(call, &x, &call.ints(1)?, &axes, &fill)
    }),
    row("Trilu", 14, |call| {
        let x = call.tensor(0)?;
        let offset = call.number(1)?.unwrap_or(0.0) as i64;
        one(if call.flag("upper", true)? { x.triu(offset) } else { x.tril(offset) })
    }),
    row("EyeLike", 9, |call| {
        let x = call.tensor(0)?;
        let dtype = match call.some_int("dtype")? {
            Some(number) => crate::model::dtype(i32::try_from(number).unwrap_or(0))?,
            None => x.dtype(),
        };
        let [rows, columns] = x.shape() else {
            return Err(Diagnostic::new(format!("{} is no matrix", x.ty())));
        };
        let offset = call.int("k", 0)?;
        let ones = Tensor::full(
            &TensorType::of(dtype, vec![rows.clone(), columns.clone()]),
            Scalar::one(dtype),
        );
        one(ones.tril(offset).triu(offset))
    }),
    row("Range", 11, range),
    row("DepthToSpace", 1, |call| blocks(call, true)),
    row("SpaceToDepth", 1, |call| blocks(call, false)),
];

/// The shape of two that broadcast: their last axes correspond, and an extent of 1 is repeated.
pub(super) fn common_shape(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let missing = long.len() - short.len();
    let pair = |(axis, extent): (usize, &Dim)| match axis.checked_sub(missing).map(|n| &short[n]) {
        Some(other) if *extent == Dim::constant(1) => other.clone(),
        _ => extent.clone(),
    };
    long.iter().enumerate().map(pair).collect()
}

/// The shape of an operand, without making it a parameter.
fn shape_of(call: &Call<'_, '_, '_>, n: usize) -> Result<Vec<Dim>> {
    Ok(match call.value(n)? {
        Value::Tensor(tensor) | Value::Narrow(_, tensor) => tensor.shape().to_vec(),
        Value::Initial(initial) => initial.literal.ty().shape,
        Value::Dims(dims) => dims.shape().into_iter().map(Dim::from).collect(),
        Value::Sequence(_) | Value::Absent => {
            return Err(refuse(Class::Container, "the shape of a sequence"));
        }
    })
}

fn constant(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let names = ["value", "value_float", "value_floats", "value_int", "value_ints"];
    let found = names.iter().find_map(|name| call.attribute(name));
    let literal = match found {
        Some(Attribute::Tensor(Stored { literal, narrow })) => {
            return Ok(vec![Value::of(Tensor::constant(literal.clone()), *narrow)]);
        }
        Some(Attribute::Float(value)) => Literal::full(&[], Scalar::of(*value)),
        Some(Attribute::Floats(values)) => Literal::from_vec(&[values.len()], values.clone())?,
        Some(Attribute::Int(value)) => Literal::full(&[], Scalar::of(*value)),
        Some(Attribute::Ints(values)) => Literal::from_vec(&[values.len()], values.clone())?,
        _ => return Err(refuse(Class::DType, "a constant that is no tensor of numbers")),
    };
    one(Tensor::constant(literal))
}

fn squeeze(call: &Call<'_, '_, '_>, axes: Option<Vec<i64>>) -> Result<Vec<Value>> {
    if let Value::Dims(of) = call.value(0)?
        && of.values.len() == 1
    {
        return Ok(vec![Value::Dims(Dims { scalar: true, ..of.clone() })]);
    }
    let x = call.tensor(0)?;
    let ones = || {
        let all = x.shape().iter().enumerate().filter(|(_, d)| **d == Dim::constant(1));
        all.map(|(axis, _)| axis as i64).collect()
    };
    one(x.squeeze(&axes.unwrap_or_else(ones)))
}

fn unsqueeze(call: &Call<'_, '_, '_>, axes: Vec<i64>) -> Result<Vec<Value>> {
    if let Value::Dims(of) = call.value(0)?
        && of.scalar
        && axes.len() == 1
    {
        return Ok(vec![Value::Dims(Dims { scalar: false, ..of.clone() })]);
    }
    one(call.tensor(0)?.unsqueeze(&axes))
}

fn concat(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let values = (0..call.count()).map(|n| call.value(n)).collect::<Result<Vec<_>>>()?;
    if values.iter().any(|value| matches!(value, Value::Dims(_))) {
        let parts = values.iter().map(|value| value.dims()).collect::<Result<Vec<_>>>();
        if let Ok(parts) = parts {
            call.entries(parts.iter().map(|part| part.values.len()).sum())?;
            return Ok(vec![dims(parts.into_iter().flat_map(|part| part.values).collect())]);
        }
    }
    one(Tensor::concatenate(&call.tensors()?, call.int("axis", 1)?))
}

fn split(call: &Call<'_, '_, '_>, parts: Option<Vec<i64>>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(call.int("axis", 0)?, x.rank())?;
    let parts = match parts {
        Some(parts) => parts.into_iter().map(Dim::constant).collect(),
        None => {
            let count = call.int("num_outputs", call.results() as i64)?.max(1);
            if usize::try_from(count) != Ok(call.results()) {
                let results = call.results();
                return Err(Diagnostic::new(format!("{count} parts, and {results} results")));
            }
            let extent = &x.shape()[axis];
            match extent.as_constant() {
                // The last part is smaller if they are not equal.
                Some(extent) => {
                    let part = (extent + count - 1) / count;
                    let sizes = (0..count).map(|n| (extent - n * part).clamp(0, part));
                    sizes.map(Dim::constant).collect()
                }
                None => {
                    let part =
                        extent.checked_exact_div(&Dim::constant(count)).ok_or_else(|| {
                            refuse(Class::Shape, format!("an extent of {extent} in {count} parts"))
                        })?;
                    vec![part; count as usize]
                }
            }
        }
    };
    Ok(x.split(parts, axis).into_iter().map(Value::Tensor).collect())
}

fn pad(
    call: &Call<'_, '_, '_>,
    x: &Tensor,
    pads: &[i64],
    axes: &[usize],
    fill: &Tensor,
) -> Result<Vec<Value>> {
    if pads.len() != 2 * axes.len() {
        return Err(Diagnostic::new(format!("{} pads for {} axes", pads.len(), axes.len())));
    }
    let mut around = vec![(0, 0); x.rank()];
    for (n, axis) in axes.iter().enumerate() {
        around[*axis] = (pads[n], pads[n + axes.len()]);
    }
    match call.text("mode", "constant")? {
        "constant" => one(x.pad(&around, fill.convert(x.dtype()))),
        mode @ ("reflect" | "edge" | "wrap") => {
            let mut padded = x.clone();
            for (axis, (low, high)) in around.into_iter().enumerate() {
                if (low, high) == (0, 0) {
                    continue;
                }
                let extent = padded.shape()[axis].as_constant().ok_or_else(|| {
                    refuse(
                        Class::Shape,
                        format!("mode {mode} along an extent of {}", padded.shape()[axis]),
                    )
                })?;
                if extent == 0 {
                    return Err(Diagnostic::new(format!("mode {mode} along an empty axis")));
                }
                let source = |n: i64| match mode {
                    "edge" => n.clamp(0, extent - 1),
                    "wrap" => n.rem_euclid(extent),
                    _ if extent == 1 => 0,
                    _ => {
                        let period = 2 * (extent - 1);
                        let m = n.rem_euclid(period);
                        if m < extent { m } else { period - m }
                    }
                };
                call.listed(&[(extent + low).saturating_add(high).max(0)])?;
                let indices: Vec<i32> = (-low..extent + high).map(|n| source(n) as i32).collect();
                let indices = Literal::from_vec(&[indices.len()], indices)?;
                padded = padded.index_select(axis, &Tensor::constant(indices));
            }
            one(padded)
        }
        other => call.refuse("mode", other),
    }
}

fn range(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    if let [Ok(start), Ok(limit), Ok(step)] = [0, 1, 2].map(|n| call.dims(n))
        && let ([start], [limit], [step]) = (&start[..], &limit[..], &step[..])
        && let Some(1) = step.as_constant()
        && let Some(count) = limit.checked_sub(start)
        && count.as_constant().is_none()
    {
        let numbers = Tensor::iota(DType::I64, [count], 0);
        return one(numbers + Tensor::dim_as_value(start.clone(), DType::I64));
    }
    let (start, limit, step) = (call.known(0)?, call.known(1)?, call.known(2)?);
    if let Some(list) = [&start, &limit, &step].into_iter().find(|n| n.len() != 1) {
        return Err(Diagnostic::new(format!("a bound or step of type {}", list.ty())));
    }
    let dtype = start.dtype();
    let of = |literal: &Literal| literal.get(0).to_f64();
    let count = ((of(&limit) - of(&start)) / of(&step)).ceil().max(0.0);
    if !count.is_finite() || count > (1u64 << 31) as f64 {
        return Err(Diagnostic::new(format!("a range of {count} numbers")));
    }
    let numbers = Tensor::iota(dtype, [count as usize], 0);
    let scalar = |literal: Literal| literal.reshape(&[]).map(Tensor::constant);
    one(numbers * scalar(step)? + scalar(start)?)
}

/// Blocks of an image that become channels, or the other way round.
fn blocks(call: &Call<'_, '_, '_>, to_space: bool) -> Result<Vec<Value>> {
    let (x, size) = (call.tensor(0)?, Dim::constant(call.int("blocksize", 1)?));
    let [batch, channels, height, width] = x.shape() else {
        return Err(Diagnostic::new(format!("{} is no batch of images", x.ty())));
    };
    let (batch, channels, height, width) =
        (batch.clone(), channels.clone(), height.clone(), width.clone());
    let exact = |a: &Dim, b: &Dim| {
        a.checked_exact_div(b).ok_or_else(|| Diagnostic::new(format!("{a} in blocks of {b}")))
    };
    let times = |a: &Dim, b: &Dim| {
        a.checked_mul(b).ok_or_else(|| Diagnostic::new("its extents are too large"))
    };
    if !to_space {
        let depth_first = match call.text("mode", "DCR")? {
            "DCR" => [0, 3, 5, 1, 2, 4],
            "CRD" => [0, 1, 3, 5, 2, 4],
            other => return call.refuse("mode", other),
        };
        let (rows, columns) = (exact(&height, &size)?, exact(&width, &size)?);
        let parts = x.reshape([
            batch.clone(),
            channels.clone(),
            rows.clone(),
            size.clone(),
            columns.clone(),
            size.clone(),
        ]);
        let channels = times(&channels, &times(&size, &size)?)?;
        return one(parts.permute(depth_first).reshape([batch, channels, rows, columns]));
    }
    let inner = exact(&channels, &times(&size, &size)?)?;
    let (rows, columns) = (times(&height, &size)?, times(&width, &size)?);
    let moved = match call.text("mode", "DCR")? {
        "DCR" => x
            .reshape([batch.clone(), size.clone(), size.clone(), inner.clone(), height, width])
            .permute([0, 3, 4, 1, 5, 2]),
        "CRD" => x
            .reshape([batch.clone(), inner.clone(), size.clone(), size.clone(), height, width])
            .permute([0, 1, 4, 2, 5, 3]),
        other => return call.refuse("mode", other),
    };
    one(moved.reshape([batch, inner, rows, columns]))
}
