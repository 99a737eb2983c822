//! Windows that slide over a tensor.

use super::graph::{Exporter, Value, attribute_ints};
use super::movement::{dilated, padded};
use super::table::{Rule, rule};
use super::walk::{Call, refuse};
use wengert_core::op::{Pad, Slice, WindowKind, Windows};
use wengert_core::{DType, Dim, Literal, Op, Result, Scalar, Tensor, TensorType, diagnostic};

pub(super) const RULES: &[Rule] = &[
    rule("reduce_window_sum", "Conv with ones; but for f32 and halves Slice, Add", pool),
    rule("reduce_window_max", "MaxPool; of integers Slice, Max", pool),
    rule("reduce_window_min", "MaxPool, Neg; of integers Slice, Min", pool),
];

fn entry<T: Clone>(list: &[T], axis: usize, default: T) -> T {
    list.get(axis).cloned().unwrap_or(default)
}

fn pool(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::ReduceWindow(op) = c.op else { unreachable!("the rule of windows") };
    let windows = &op.windows;
    let dtype = c.dtype();
    // Runtimes convolve f32 and halves, and find the extrema of floats.
    if !dtype.is_float() || (op.kind == WindowKind::Sum && dtype == DType::F64) {
        return by_slices(e, c);
    }
    let carrier = super::elementwise::computed(dtype);
    let x = e.full(c, 0)?;
    let mut x = e.cast(&x, carrier);
    if op.kind == WindowKind::Min {
        x = e.elementwise("Neg", &[&x], carrier);
    }
    let identity = match op.kind {
        WindowKind::Sum => Scalar::zero(carrier),
        _ => Scalar::lowest(carrier),
    };
    let fill = e.scalar(identity);
    let rank = x.ty.rank();
    for axis in 0..rank {
        x = dilated(e, &x, axis, entry(&windows.base_dilation, axis, 1), &fill)?;
    }
    let slides = |axis: &usize| windows.window[*axis] != 1 || entry(&windows.stride, *axis, 1) != 1;
    let (wide, rest): (Vec<usize>, Vec<usize>) = (0..rank).partition(slides);
    let pads = pads(windows, &wide, &rest).unwrap_or_default();
    if pads.is_empty() {
        x = padding(e, windows, x, &fill)?;
    }
    let mut result = match wide.is_empty() {
        true => x,
        false => slid(e, c, windows, &x, [&wide, &rest], pads)?,
    };
    if op.kind == WindowKind::Min {
        result = e.elementwise("Neg", &[&result], carrier);
    }
    Ok(vec![e.cast(&result, dtype)])
}

/// The padding of axes with windows as an attribute has it: before each, then after each. `None` if
/// it is empty or no attribute.
fn pads(windows: &Windows, wide: &[usize], rest: &[usize]) -> Option<Vec<usize>> {
    let of = |axis: usize| {
        let (low, high) = windows.padding.get(axis)?;
        Some([low.as_extent()?, high.as_extent()?])
    };
    if rest.iter().any(|axis| of(*axis) != Some([0, 0])) {
        return None;
    }
    let sides = wide.iter().map(|axis| of(*axis)).collect::<Option<Vec<_>>>()?;
    // A runtime's padding is less than a window.
    let fits = |(axis, sides): (&usize, &[usize; 2])| {
        sides.iter().all(|side| *side < windows.window[*axis])
    };
    let fit = wide.iter().zip(&sides).all(fits);
    fit.then(|| [0, 1].iter().flat_map(|n| sides.iter().map(|side| side[*n])).collect())
}

/// The padded operand.
fn padding(e: &mut Exporter, windows: &Windows, x: Value, fill: &Value) -> Result<Value> {
    if windows.padding.is_empty() {
        return Ok(x);
    }
    let (low, high): (Vec<Dim>, Vec<Dim>) = windows.padding.iter().cloned().unzip();
    let sum = |axis: usize| x.ty.shape[axis].checked_add(&low[axis])?.checked_add(&high[axis]);
    let shape = (0..x.ty.rank()).map(sum).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| diagnostic!("a padded extent overflows"))?;
    let ty = x.ty.with_shape(shape);
    padded(e, &x, &low, &high, fill, &ty)
}

fn slid(
    e: &mut Exporter,
    c: &Call<'_>,
    windows: &Windows,
    x: &Value,
    [wide, rest]: [&[usize]; 2],
    pads: Vec<usize>,
) -> Result<Value> {
    let Op::ReduceWindow(op) = c.op else { unreachable!("the rule of windows") };
    if wide.len() > 3 {
        return refuse("ONNX has windows along at most 3 axes", "reduce along one axis at a time");
    }
    let dtype = x.ty.dtype;
    let order = [rest, wide].concat();
    let moved = e.permuted(x, &order);
    let along = |axes: &[usize], of: &TensorType| {
        axes.iter().map(|axis| of.shape[*axis].clone()).collect::<Vec<_>>()
    };
    let extents = |of: &TensorType| along(wide, of);
    // Maxima are of each channel; sums are of an image of one.
    let front = if op.kind != WindowKind::Sum && rest.len() == 2 {
        along(rest, &x.ty)
    } else {
        let all = along(rest, &x.ty);
        let count = all.iter().try_fold(Dim::constant(1), |n, extent| n.checked_mul(extent));
        vec![
            count.ok_or_else(|| diagnostic!("the number of examples has no name"))?,
            Dim::constant(1),
        ]
    };
    let image = e.reshaped(&moved, &[front.clone(), extents(&x.ty)].concat())?;
    let list = |list: &[usize]| wide.iter().map(|axis| entry(list, *axis, 1)).collect::<Vec<_>>();
    let kernel: Vec<usize> = wide.iter().map(|axis| windows.window[*axis]).collect();
    let mut attributes = vec![
        attribute_ints("kernel_shape", kernel.clone()),
        attribute_ints("strides", list(&windows.stride)),
        attribute_ints("dilations", list(&windows.window_dilation)),
    ];
    if !pads.is_empty() {
        attributes.push(attribute_ints("pads", pads));
    }
    let result = &c.results[0];
    let ty = TensorType::of(dtype, [front, extents(result)].concat());
    let pooled = match op.kind {
        WindowKind::Sum => {
            let shape = [&[1, 1], kernel.as_slice()].concat();
            let ones = e.constant(&Literal::full(&shape, Scalar::one(dtype)));
            e.op("Conv", &[&image, &ones], attributes, ty)
        }
        _ => e.op("MaxPool", &[&image], attributes, ty),
    };
    let shape: Vec<Dim> = order.iter().map(|axis| result.shape[*axis].clone()).collect();
    let whole = e.reshaped(&pooled, &shape)?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, axis)| back[*axis] = at);
    Ok(e.permuted(&whole, &back))
}

/// Most elements of a window whose elements are slices.
const SLICES: usize = 1024;

/// Combines the slices of the padded operand that have element 0 of each window, element 1 and so
/// on.
fn by_slices(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::ReduceWindow(op) = c.op else { unreachable!("the rule of windows") };
    let (windows, result) = (&op.windows, &c.results[0]);
    let count = windows.window.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
    if count.is_none_or(|count| count > SLICES) {
        return refuse(
            format!("windows over {} of more than {SLICES} elements", c.dtype()),
            "convert the operand to f32",
        );
    }
    let bounds = bounds(windows, result)?;
    e.composed(c, |x| {
        let dtype = x[0].dtype();
        let identity = match op.kind {
            WindowKind::Sum => Scalar::zero(dtype),
            WindowKind::Max => Scalar::lowest(dtype),
            WindowKind::Min => Scalar::highest(dtype),
        };
        let rank = x[0].rank();
        let zeros = || vec![Dim::constant(0); rank];
        let (low, high) = match windows.padding.is_empty() {
            true => (zeros(), zeros()),
            false => windows.padding.iter().cloned().unzip(),
        };
        let interior = (0..rank).map(|a| entry(&windows.base_dilation, a, 1) as i64 - 1).collect();
        let fill = Tensor::constant(Literal::full(&[], identity));
        let whole = Tensor::apply(Pad { low, high, interior }, &[&x[0], &fill]);
        let mut position = vec![0; rank];
        let mut sum: Option<Tensor> = None;
        loop {
            let at = |axis: usize| {
                let step = entry(&windows.window_dilation, axis, 1) * position[axis];
                Dim::constant(step as i64)
            };
            let start: Vec<Dim> = (0..rank).map(at).collect();
            let end = |(start, bound): (&Dim, &Dim)| {
                start.checked_add(bound).unwrap_or_else(|| start.clone())
            };
            let limit = start.iter().zip(&bounds).map(end).collect();
            let stride = (0..rank).map(|a| entry(&windows.stride, a, 1) as i64).collect();
            let slice = Tensor::apply(Slice { start, limit, stride }, &[&whole]);
            sum = Some(match (sum, op.kind) {
                (None, _) => slice,
                (Some(sum), WindowKind::Sum) => sum + slice,
                (Some(sum), WindowKind::Max) => sum.max(&slice),
                (Some(sum), WindowKind::Min) => sum.min(&slice),
            });
            let Some(axis) = (0..rank).rev().find(|a| position[*a] + 1 < windows.window[*a]) else {
                break;
            };
            position[axis] += 1;
            position[axis + 1..].fill(0);
        }
        vec![sum.expect("a window has an element")]
    })
}

/// The end of the slice that starts at 0, for each axis: (windows − 1) · stride + 1.
fn bounds(windows: &Windows, result: &TensorType) -> Result<Vec<Dim>> {
    let bound = |(axis, extent): (usize, &Dim)| {
        let stride = entry(&windows.stride, axis, 1) as i64;
        extent.checked_scale(stride)?.checked_add(&Dim::constant(1 - stride))
    };
    let bounds = result.shape.iter().enumerate().map(bound).collect::<Option<Vec<_>>>();
    bounds.ok_or_else(|| diagnostic!("an extent of {result} overflows"))
}
