//! Windows over images: their geometry, and pooling.

use super::{Call, Row, one, row};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Slice, Unary, WindowKind, Windows};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor, TensorType};

pub(super) const ROWS: &[Row] = &[
    row("MaxPool", 1, max_pool),
    row("AveragePool", 1, average_pool),
    row("LpPool", 1, lp_pool),
    row("GlobalMaxPool", 1, |call| over_space(call, |x, axes| x.max_axes(axes))),
    row("GlobalAveragePool", 1, |call| over_space(call, |x, axes| x.mean_axes(axes))),
    row("GlobalLpPool", 1, |call| {
        let p = call.int("p", 2)? as f64;
        over_space(call, move |x, axes| {
            let powers = power(&x.unary(Unary::Abs), p);
            power(&powers.sum_axes(axes), 1.0 / p)
        })
    }),
];

/// Most elements of a window whose maximum has a position: each is compared by an op of its own.
const MOST_POSITIONS: usize = 1024;

/// Number of spatial axes of a batch of images with channels first.
pub(super) fn spatial(x: &Tensor) -> Result<usize> {
    match x.rank() {
        0..=2 => Err(Diagnostic::new(format!("{} is no batch of images", x.ty()))),
        rank => Ok(rank - 2),
    }
}

/// Where windows lie.
pub(super) struct Geometry {
    pub extents: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    pub padding: Vec<(Dim, Dim)>,
    /// Padding that only rounding up adds, which no mean counts.
    pub beyond: Vec<i64>,
}

impl Geometry {
    /// From the attributes of a node.
    pub fn of(call: &Call<'_, '_, '_>, x: &Tensor, extents: &[Dim]) -> Result<Geometry> {
        let axes = spatial(x)?;
        let positive = |name: &str| -> Result<Vec<usize>> {
            let list = call.some_ints(name)?.unwrap_or_else(|| vec![1; axes]);
            let plain: Option<Vec<usize>> =
                list.iter().map(|n| usize::try_from(*n).ok().filter(|n| *n > 0)).collect();
            plain.filter(|list| list.len() == axes).ok_or_else(|| {
                Diagnostic::new(format!("attribute `{name}` is {list:?} for {axes} axes"))
            })
        };
        let (strides, dilations) = (positive("strides")?, positive("dilations")?);
        let extents: Option<Vec<usize>> = extents.iter().map(Dim::as_extent).collect();
        let extents = extents
            .filter(|e| e.len() == axes)
            .ok_or_else(|| Diagnostic::new(format!("the window is not of {axes} known extents")))?;
        let pads = call.some_ints("pads")?.unwrap_or_else(|| vec![0; 2 * axes]);
        if pads.len() != 2 * axes {
            return Err(Diagnostic::new(format!("{} pads for {axes} axes", pads.len())));
        }
        let ceil = call.flag("ceil_mode", false)?;
        let auto = call.text("auto_pad", "NOTSET")?;
        let (mut padding, mut beyond) = (vec![], vec![0; axes]);
        for n in 0..axes {
            let extent = &x.shape()[2 + n];
            let stride = strides[n] as i64;
            let reach = extents[n].checked_sub(1).and_then(|last| last.checked_mul(dilations[n]));
            let reach = reach.and_then(|reach| i64::try_from(reach).ok()?.checked_add(1));
            let reach = reach.filter(|reach| *reach <= 1 << 40).ok_or_else(|| {
                Diagnostic::new(format!("a window of extent {} in axis {n}", extents[n]))
            })?;
            let known = || {
                extent.as_constant().ok_or_else(|| {
                    refuse(Class::Shape, format!("padding of an extent of {extent}"))
                })
            };
            let (low, mut high) = match auto {
                "SAME_UPPER" | "SAME_LOWER" => {
                    let total = match stride {
                        1 => reach - 1,
                        _ => {
                            let extent = known()?;
                            ((extent + stride - 1) / stride - 1) * stride + reach - extent
                        }
                    }
                    .max(0);
                    let small = total / 2;
                    if auto == "SAME_UPPER" {
                        (small, total - small)
                    } else {
                        (total - small, small)
                    }
                }
                "VALID" => (0, 0),
                "NOTSET" => (pads[n], pads[axes + n]),
                other => return call.refuse("auto_pad", other),
            };
            if ceil && stride > 1 {
                let all = known()? + low + high - reach;
                let missing = (stride - all.rem_euclid(stride)) % stride;
                // A window that begins in the padding behind the operand is left out.
                let last = (all + missing) / stride * stride;
                if missing > 0 && last < known()? + low {
                    beyond[n] = missing;
                    high += missing;
                }
            }
            padding.push((Dim::constant(low), Dim::constant(high)));
        }
        Ok(Geometry { extents, strides, dilations, padding, beyond })
    }

    /// For a node with attribute `kernel_shape`.
    fn of_pool(call: &Call<'_, '_, '_>, x: &Tensor) -> Result<Geometry> {
        let extents = call.some_ints("kernel_shape")?.unwrap_or_default();
        let extents: Vec<Dim> = extents.into_iter().map(Dim::constant).collect();
        Geometry::of(call, x, &extents)
    }

    /// As windows over all axes.
    fn windows(&self) -> Windows {
        let around = |list: &[usize]| [&[1, 1], list].concat();
        let none = (Dim::constant(0), Dim::constant(0));
        Windows {
            window: around(&self.extents),
            stride: around(&self.strides),
            padding: [vec![none; 2], self.padding.clone()].concat(),
            base_dilation: vec![],
            window_dilation: around(&self.dilations),
        }
    }

    /// The position of the first maximum of each window, counted over the whole operand. Positions
    /// of a plane are counted along its last axis, or (`columns`) along its first one.
    fn positions(&self, x: &Tensor, greatest: &Tensor, columns: bool) -> Tensor {
        let (axes, shape) = (self.extents.len(), greatest.shape());
        let number = |d: &Dim| d.as_constant().unwrap_or(0);
        let mut around = vec![(0, 0); 2];
        around.extend(self.padding.iter().map(|(low, high)| (number(low), number(high))));
        let least = TensorType::scalar(x.dtype());
        let padded = x.pad(&around, Tensor::full(&least, Scalar::lowest(x.dtype())));
        let extent =
            |axis: usize| -> Tensor { Tensor::dim_as_value(x.shape()[axis].clone(), DType::I64) };
        let along = |axis: usize| Tensor::iota(DType::I64, shape.to_vec(), axis);
        let plane = &along(0) * extent(1) + along(1);
        let order: Vec<usize> =
            if columns { (0..axes).rev().collect() } else { (0..axes).collect() };
        let mut positions = Tensor::zeros(&greatest.ty().with_dtype(DType::I64));
        // From the last element of a window to the first, which stays.
        for element in (0..self.extents.iter().product::<usize>()).rev() {
            let mut within = vec![0; axes];
            let mut rest = element;
            for axis in (0..axes).rev() {
                within[axis] = (rest % self.extents[axis] * self.dilations[axis]) as i64;
                rest /= self.extents[axis];
            }
            let stride: Vec<i64> =
                [1, 1].into_iter().chain(self.strides.iter().map(|n| *n as i64)).collect();
            let start: Vec<Dim> = [0, 0].iter().chain(&within).map(|n| Dim::constant(*n)).collect();
            let limit = (start.iter().zip(&stride).zip(shape))
                .map(|((from, stride), extent)| {
                    from.clone() + (extent.clone() - 1) * Dim::constant(*stride) + 1
                })
                .collect();
            let part = Tensor::apply(Slice { start, limit, stride: stride.clone() }, &[&padded]);
            let mut here = plane.clone();
            for axis in &order {
                let first = within[*axis] - around[2 + axis].0;
                let index = along(2 + axis) * stride[2 + axis] + first;
                here = here * extent(2 + axis) + index;
            }
            positions = part.eq(greatest).select(&here, &positions);
        }
        positions
    }

    fn reduce(&self, x: &Tensor, kind: WindowKind) -> Tensor {
        let windows = self.windows();
        Tensor::apply(wengert_core::op::ReduceWindow { kind, windows }, &[x])
    }
}

fn max_pool(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let geometry = Geometry::of_pool(call, &x)?;
    let greatest = geometry.reduce(&x, WindowKind::Max);
    if !call.wants(1) {
        return one(greatest);
    }
    let elements = geometry.extents.iter().fold(1usize, |n, extent| n.saturating_mul(*extent));
    if elements > MOST_POSITIONS {
        let what = format!("positions of maxima in windows of {elements} elements");
        return Err(refuse(Class::Attribute, what));
    }
    let columns = call.flag("storage_order", false)?;
    let positions = geometry.positions(&x, &greatest, columns);
    Ok(vec![Value::Tensor(greatest), Value::Tensor(positions)])
}

fn average_pool(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let geometry = Geometry::of_pool(call, &x)?;
    let wide = x.convert(x.dtype().wide());
    let sum = geometry.reduce(&wide, WindowKind::Sum);
    let mut shape = x.shape().to_vec();
    shape[..2].fill(Dim::constant(1));
    let ones = Tensor::full(&TensorType::of(wide.dtype(), shape), Scalar::one(wide.dtype()));
    let count = if call.flag("count_include_pad", false)? {
        // Padding counts, but what rounding up adds does not.
        let mut around = vec![(0, 0); x.rank()];
        let mut inner = Geometry { padding: vec![], ..geometry };
        for (n, (low, high)) in geometry.padding.iter().enumerate() {
            let number = |d: &Dim| d.as_constant().unwrap_or(0);
            around[2 + n] = (number(low), number(high) - inner.beyond[n]);
            inner.padding.push((Dim::constant(0), Dim::constant(inner.beyond[n])));
        }
        inner.reduce(&ones.pad(&around, 1.0), WindowKind::Sum)
    } else {
        geometry.reduce(&ones, WindowKind::Sum)
    };
    one((sum / count).convert(x.dtype()))
}

fn lp_pool(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let p = call.int("p", 2)? as f64;
    let powers = power(&x.unary(Unary::Abs), p);
    let sums = Geometry::of_pool(call, &x)?.reduce(&powers, WindowKind::Sum);
    one(power(&sums, 1.0 / p))
}

/// x to a power that is no tensor.
fn power(x: &Tensor, power: f64) -> Tensor {
    match power {
        1.0 => x.clone(),
        0.5 => x.unary(Unary::Sqrt),
        p if p.fract() == 0.0 && p.abs() < 16.0 => x.integer_pow(p as i64),
        p => x.binary(wengert_core::op::Binary::Pow, &x.full_like(p)),
    }
}

fn over_space(
    call: &Call<'_, '_, '_>,
    reduce: impl Fn(&Tensor, &[i64]) -> Tensor,
) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axes: Vec<i64> = (2..2 + spatial(&x)? as i64).collect();
    one(reduce(&x, &axes).unsqueeze(&axes))
}
