//! Ops that read and write at indices.

use super::{Call, Row, extent, one, row};
use crate::import::dims;
use crate::refusal::{Class, refuse};
use crate::value::{Dims, Value};
use wengert_core::build::indexing::{
    GatherDimensionNumbers, GatherMode, ScatterDimensionNumbers, ScatterMode,
};
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("Gather", 1, gather),
    row("GatherElements", 11, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.int("axis", 0)?, x.rank())?;
        one(elements(&x, &call.tensor(1)?, axis)?)
    }),
    row("GatherND", 11, gather_nd),
    row("ScatterElements", 11, scatter_elements),
    row("Scatter", 9, scatter_elements),
    row("ScatterND", 11, scatter_nd),
    row("Slice", 1, |call| {
        let of =
            |name: &str| -> Result<Vec<i64>> { Ok(call.some_bounds(name)?.unwrap_or_default()) };
        let (starts, ends) = (of("starts")?, of("ends")?);
        let axes = call.some_ints("axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let all = |list: Vec<i64>| list.into_iter().map(Dim::constant).collect::<Vec<_>>();
        slice(call, all(starts), all(ends), axes, None)
    }),
    row("Slice", 10, |call| {
        let (starts, ends) = (call.dims(1)?, call.dims(2)?);
        let axes = call.given(3).map(|_| call.ints(3)).transpose()?;
        let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = call.given(4).map(|_| call.ints(4)).transpose()?;
        slice(call, starts, ends, axes, steps)
    }),
    row("OneHot", 9, |call| {
        let (indices, values) = (call.tensor(0)?, call.tensor(2)?);
        let depth = call.ints(1)?.first().copied().unwrap_or(0);
        let axis = call.int("axis", -1)?;
        let axis = call.axis(axis, indices.rank() + 1)?;
        let indices = indices.convert(DType::I64);
        let wrapped = indices.lt(0).select(&indices + depth, &indices).unsqueeze(axis);
        let mut shape = indices.shape().to_vec();
        shape.insert(axis, Dim::constant(depth));
        let numbers = Tensor::iota(DType::I64, shape, axis);
        let value = |n: i64| values.slice_axis(0, n, n + 1).reshape(Vec::<Dim>::new());
        one(numbers.eq(&wrapped).select(&value(1), &value(0)))
    }),
    row("TopK", 1, |call| {
        let k = call.int("k", 0)?;
        top_k(call, k)
    }),
    row("TopK", 10, |call| {
        let k = call.ints(1)?.first().copied().unwrap_or(0);
        top_k(call, k)
    }),
    row("ReverseSequence", 10, |call| {
        let (x, lengths) = (call.tensor(0)?, call.tensor(1)?);
        let (batch, time) = (call.int("batch_axis", 1)?, call.int("time_axis", 0)?);
        let (batch, time) = (call.axis(batch, x.rank())?, call.axis(time, x.rank())?);
        let mut shape = vec![Dim::constant(1); x.rank()];
        shape[batch] = x.shape()[batch].clone();
        let lengths = lengths.convert(DType::I64).reshape(shape);
        let steps = Tensor::iota(DType::I64, x.shape().to_vec(), time);
        let turned = lengths - &steps - 1;
        one(x.take_along_axis(&turned.lt(0).select(&steps, &turned), time))
    }),
    row("TensorScatter", 24, tensor_scatter),
    row("MaxUnpool", 9, max_unpool),
];

/// Indices of which negative ones count from the end.
fn wrapped(indices: &Tensor, extent: &Dim) -> Tensor {
    let indices = indices.convert(DType::I64);
    let extent = Tensor::dim_as_value(extent.clone(), DType::I64);
    indices.lt(0).select(&indices + extent, &indices)
}

fn elements(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
    // Along other axes the indices may be shorter.
    let mut part = x.clone();
    for (n, own) in indices.shape().iter().enumerate() {
        if n != axis && *own != *extent(x, n)? {
            part = part.slice_axis(n, 0, own.clone());
        }
    }
    Ok(part.take_along_axis(&wrapped(indices, extent(x, axis)?), axis))
}

fn gather(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let axis = call.int("axis", 0)?;
    if let Value::Dims(of) = call.value(0)? {
        let at = call.value(1)?.dims()?;
        let Some(numbers) = at.numbers() else {
            return Err(refuse(Class::Operand, "an index of a shape depends on extents"));
        };
        let pick = |n: &i64| {
            let n = if *n < 0 { n + of.values.len() as i64 } else { *n };
            let found = usize::try_from(n).ok().and_then(|n| of.values.get(n)).cloned();
            found.ok_or_else(|| {
                Diagnostic::new(format!("element {n} of {} extents", of.values.len()))
            })
        };
        let values = numbers.iter().map(pick).collect::<Result<Vec<_>>>()?;
        return Ok(vec![match at.scalar {
            true => Value::Dims(Dims { values, scalar: true, dtype: of.dtype }),
            false => dims(values),
        }]);
    }
    let x = call.tensor(0)?;
    let axis = call.axis(axis, x.rank())?;
    one(x.index_select(axis, &wrapped(&call.tensor(1)?, &x.shape()[axis])))
}

/// The parts of index vectors along the last axis, each wrapped by the extent of its axis.
fn vectors(indices: &Tensor, x: &Tensor, first: usize) -> Result<(Tensor, usize)> {
    let length = indices
        .shape()
        .last()
        .and_then(Dim::as_extent)
        .ok_or_else(|| refuse(Class::Shape, format!("index vectors of {}", indices.ty())))?;
    let parts = (0..length)
        .map(|n| {
            let part = indices.slice_axis(-1, n as i64, n as i64 + 1);
            Ok(wrapped(&part, extent(x, first + n)?))
        })
        .collect::<Result<Vec<Tensor>>>()?;
    Ok((Tensor::concatenate(&parts, -1), length))
}

fn gather_nd(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, indices) = (call.tensor(0)?, call.tensor(1)?);
    let batch = usize::try_from(call.int("batch_dims", 0)?).unwrap_or(usize::MAX);
    if batch >= indices.rank() {
        return Err(Diagnostic::new(format!("{batch} batch axes of {}", indices.ty())));
    }
    let (vectors, length) = vectors(&indices, &x, batch)?;
    let outer = indices.rank() - 1;
    let rest = x.rank().saturating_sub(batch + length);
    let numbers = GatherDimensionNumbers {
        offset_dims: (outer..outer + rest).collect(),
        collapsed_slice_dims: (batch..batch + length).collect(),
        start_index_map: (batch..batch + length).collect(),
        operand_batching_dims: (0..batch).collect(),
        start_indices_batching_dims: (0..batch).collect(),
    };
    let mut sizes = x.shape().to_vec();
    sizes[..batch + length].fill(Dim::constant(1));
    one(x.gather(&vectors, &numbers, sizes, GatherMode::PromiseInBounds))
}

/// Writes updates in one of the ways of attribute `reduction`.
fn scattered(
    call: &Call<'_, '_, '_>,
    x: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    numbers: &ScatterDimensionNumbers,
) -> Result<Vec<Value>> {
    let mode = ScatterMode::PromiseInBounds;
    one(match call.text("reduction", "none")? {
        "none" => x.scatter(indices, updates, numbers, mode),
        "add" => x.scatter_add(indices, updates, numbers, mode),
        "mul" => x.scatter_mul(indices, updates, numbers, mode),
        "min" => x.scatter_min(indices, updates, numbers, mode),
        "max" => x.scatter_max(indices, updates, numbers, mode),
        other => return call.refuse("reduction", other),
    })
}

fn scatter_elements(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, indices, updates) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let axis = call.axis(call.int("axis", 0)?, x.rank())?;
    let (vectors, numbers) = positions(&x, &wrapped(&indices, &x.shape()[axis]), axis);
    scattered(call, &x, &vectors, &updates, &numbers)
}

fn scatter_nd(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, indices, updates) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    if indices.rank() == 0 {
        return Err(Diagnostic::new("its indices are a scalar"));
    }
    let (vectors, length) = vectors(&indices, &x, 0)?;
    let outer = indices.rank() - 1;
    let numbers = ScatterDimensionNumbers {
        update_window_dims: (outer..outer + x.rank().saturating_sub(length)).collect(),
        inserted_window_dims: (0..length).collect(),
        scatter_dims_to_operand_dims: (0..length).collect(),
        ..Default::default()
    };
    scattered(call, &x, &vectors, &updates, &numbers)
}

/// Writes consecutive rows of an axis, from a position of each example on.
fn tensor_scatter(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, update) = (call.tensor(0)?, call.tensor(1)?);
    let axis = call.axis(call.int("axis", -2)?, x.rank())?;
    let starts = match call.optional(2)? {
        Some(starts) => starts.convert(DType::I64),
        None => Tensor::iota(DType::I64, [x.shape()[0].clone()], 0).zeros_like(),
    };
    let mut shape = vec![Dim::constant(1); x.rank()];
    shape[0] = x.shape()[0].clone();
    let rows = Tensor::iota(DType::I64, update.shape().to_vec(), axis) + starts.reshape(shape);
    let extent = Tensor::dim_as_value(x.shape()[axis].clone(), DType::I64);
    let rows = match call.text("mode", "linear")? {
        "linear" => rows,
        "circular" => rows.binary(wengert_core::op::Binary::Rem, &extent),
        other => return call.refuse("mode", other),
    };
    one(written(&x, &rows, &update, axis))
}

/// `x` with updates at positions along an axis; other positions are those of the updates.
fn written(x: &Tensor, along: &Tensor, updates: &Tensor, axis: usize) -> Tensor {
    let (indices, numbers) = positions(x, along, axis);
    x.scatter(&indices, updates, &numbers, ScatterMode::PromiseInBounds)
}

/// Index vectors of elements whose position along an axis is given.
fn positions(x: &Tensor, along: &Tensor, axis: usize) -> (Tensor, ScatterDimensionNumbers) {
    let shape = along.shape().to_vec();
    let parts: Vec<Tensor> = (0..x.rank())
        .map(|n| match n == axis {
            true => along.unsqueeze(-1),
            false => Tensor::iota(DType::I64, shape.clone(), n).unsqueeze(-1),
        })
        .collect();
    let numbers = ScatterDimensionNumbers {
        inserted_window_dims: (0..x.rank()).collect(),
        scatter_dims_to_operand_dims: (0..x.rank()).collect(),
        ..Default::default()
    };
    (Tensor::concatenate(&parts, -1), numbers)
}

/// Puts the maxima of windows back to their positions among all elements of the images.
fn max_unpool(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, indices) = (call.tensor(0)?, call.tensor(1)?);
    let window = call.some_ints("kernel_shape")?.unwrap_or_default();
    let axes = window.len();
    let strides = call.some_ints("strides")?.unwrap_or_else(|| vec![1; axes]);
    let pads = call.some_ints("pads")?.unwrap_or_else(|| vec![0; 2 * axes]);
    if x.rank() != axes + 2 || strides.len() != axes || pads.len() != 2 * axes {
        return Err(Diagnostic::new(format!("attributes of {axes} axes for {}", x.ty())));
    }
    let extent = |n: usize| {
        let own = x.shape()[2 + n]
            .as_constant()
            .ok_or_else(|| refuse(Class::Shape, format!("an extent of {}", x.shape()[2 + n])))?;
        Ok((own - 1) * strides[n] - pads[n] - pads[axes + n] + window[n])
    };
    let space = (0..axes).map(extent).collect::<Result<Vec<i64>>>()?;
    let shape =
        [x.shape()[..2].to_vec(), space.iter().copied().map(Dim::constant).collect()].concat();
    let zeros = Tensor::zeros(&wengert_core::TensorType::of(x.dtype(), shape.clone()));
    let flat = written(&zeros.reshape([-1]), &indices.reshape([-1]), &x.reshape([-1]), 0);
    let image = flat.reshape(shape);
    one(match call.given(2) {
        Some(_) => {
            let wanted = call.ints(2)?;
            if wanted.len() != x.rank() {
                let axes = wanted.len();
                return Err(Diagnostic::new(format!("a shape of {axes} axes for {}", x.ty())));
            }
            let mut around = vec![(0, 0); x.rank()];
            for n in 0..axes {
                around[2 + n].1 = wanted[2 + n] - space[n];
            }
            image.pad(&around, 0)
        }
        None => image,
    })
}

/// The bound of a slice: negative numbers count from the end, and all are clamped.
fn bound(at: &Dim, extent: &Dim, least: i64, most: i64) -> Result<Dim> {
    let unknown = || refuse(Class::Shape, format!("a slice of an extent of {extent} at {at}"));
    let Some(at_number) = at.as_constant() else {
        // A bound that is the extent, or an offset from it, lies within it.
        let offset = at.checked_sub(extent).and_then(|d| d.as_constant());
        return match offset {
            Some(offset) if offset >= most => {
                extent.checked_add(&Dim::constant(most)).ok_or_else(unknown)
            }
            Some(_) => Ok(at.clone()),
            None => Err(unknown()),
        };
    };
    if let Some(extent) = extent.as_constant() {
        let at = if at_number < 0 { at_number.saturating_add(extent) } else { at_number };
        return Ok(Dim::constant(at.clamp(least, extent + most)));
    }
    if at_number >= 1 << 30 {
        return extent.checked_add(&Dim::constant(most)).ok_or_else(unknown);
    }
    if at_number <= -(1 << 30) {
        return Ok(Dim::constant(least));
    }
    // Of a variable extent, numbers from either end are taken to lie within it.
    match at_number < 0 {
        true => extent.checked_add(&Dim::constant(at_number)).ok_or_else(unknown),
        false => Ok(Dim::constant(at_number)),
    }
}

fn slice(
    call: &Call<'_, '_, '_>,
    starts: Vec<Dim>,
    ends: Vec<Dim>,
    axes: Vec<i64>,
    steps: Option<Vec<i64>>,
) -> Result<Vec<Value>> {
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|n| *n != starts.len()) {
        return Err(Diagnostic::new("it has different numbers of starts, ends, axes and steps"));
    }
    if let Value::Dims(of) = call.value(0)?
        && let ([start], [end], [step]) = (&starts[..], &ends[..], &steps[..])
    {
        let extent = Dim::constant(of.values.len() as i64);
        let (least, most) = if *step > 0 { (0, 0) } else { (-1, -1) };
        let from = bound(start, &extent, 0, most)?.as_constant().unwrap_or(0);
        let to = bound(end, &extent, least, 0)?.as_constant().unwrap_or(0);
        let at = std::iter::successors(Some(from), |n| Some(n + step));
        let within = at.take_while(|n| if *step > 0 { *n < to } else { *n > to });
        let values = within.filter_map(|n| of.values.get(n as usize).cloned()).collect();
        return Ok(vec![dims(values)]);
    }
    let mut x = call.tensor(0)?;
    for (n, axis) in axes.iter().enumerate() {
        let axis = call.axis(*axis, x.rank())?;
        let (extent, step) = (x.shape()[axis].clone(), steps[n]);
        if step == 0 {
            return Err(Diagnostic::new("a step of 0"));
        }
        let whole = |dim: Dim| dim.as_constant();
        if step < 0 {
            let from = bound(&starts[n], &extent, 0, -1)?;
            let to = match ends[n].as_constant() {
                Some(end) if end < -(1 << 30) => Dim::constant(-1),
                _ => bound(&ends[n], &extent, -1, 0)?,
            };
            let (Some(from), Some(to)) = (whole(from), whole(to)) else {
                // Backwards over the whole axis is a reversal.
                if step == -1 && ends[n].as_constant().is_some_and(|end| end < -(1 << 30)) {
                    x = x.reverse(axis);
                    continue;
                }
                return Err(refuse(Class::Shape, format!("backwards along an extent of {extent}")));
            };
            let indices: Vec<i32> = std::iter::successors(Some(from), |i| Some(i + step))
                .take_while(|i| *i > to)
                .map(|i| i as i32)
                .collect();
            x = at_indices(&x, axis, indices)?;
            continue;
        }
        let (from, to) = (bound(&starts[n], &extent, 0, 0)?, bound(&ends[n], &extent, 0, 0)?);
        if step == 1 {
            let empty = whole(from.clone()).zip(whole(to.clone())).is_some_and(|(f, t)| t < f);
            x = x.slice_axis(axis, from.clone(), if empty { from } else { to });
            continue;
        }
        let (Some(from), Some(to)) = (whole(from), whole(to)) else {
            return Err(refuse(
                Class::Shape,
                format!("every {step}th along an extent of {extent}"),
            ));
        };
        let indices = (from..to).step_by(step as usize).map(|i| i as i32).collect();
        x = at_indices(&x, axis, indices)?;
    }
    one(x)
}

fn at_indices(x: &Tensor, axis: usize, indices: Vec<i32>) -> Result<Tensor> {
    if indices.is_empty() {
        return Ok(x.slice_axis(axis, 0, 0));
    }
    let literal = Literal::from_vec(&[indices.len()], indices)?;
    Ok(x.index_select(axis, &Tensor::constant(literal)))
}

fn top_k(call: &Call<'_, '_, '_>, k: i64) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(call.int("axis", -1)?, x.rank())?;
    let k = usize::try_from(k).map_err(|_| Diagnostic::new(format!("the {k} greatest")))?;
    let (values, indices) = if call.flag("largest", true)? {
        x.top_k(k, axis)
    } else {
        // Integers and floats are in the reverse order of their complements and negations.
        let turned = match x.dtype().is_float() {
            true => -&x,
            false => !&x,
        };
        let (values, indices) = turned.top_k(k, axis);
        (if x.dtype().is_float() { -values } else { !values }, indices)
    };
    Ok(vec![Value::Tensor(values), Value::Tensor(indices.convert(DType::I64))])
}
