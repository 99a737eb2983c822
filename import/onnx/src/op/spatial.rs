//! Sampling of images at computed positions, and their parts.

use super::{Call, Row, one, row, table};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("AffineGrid", 20, affine_grid),
    row("GridSample", 16, grid_sample),
    row("CenterCropPad", 18, |call| {
        let mut x = call.tensor(0)?;
        let all = (0..x.rank() as i64).collect();
        let axes = call.axes(&call.some_ints("axes")?.unwrap_or(all), x.rank())?;
        let sizes = call.ints(1)?;
        let mut around = vec![(0, 0); x.rank()];
        for (axis, size) in axes.into_iter().zip(sizes) {
            let extent = x.shape()[axis].as_constant().ok_or_else(|| {
                refuse(Class::Shape, format!("the centre of an extent of {}", x.shape()[axis]))
            })?;
            if size < extent {
                let start = (extent - size) / 2;
                x = x.slice_axis(axis, start, start + size);
            } else {
                let low = (size - extent) / 2;
                around[axis] = (low, size - extent - low);
            }
        }
        one(x.pad(&around, 0))
    }),
    row("Col2Im", 18, col_to_image),
];

/// The most axes of an image that is sampled.
const MOST_AXES: usize = 5;

/// Known extents of some axes.
fn extents(x: &Tensor, from: usize) -> Result<Vec<i64>> {
    let known = x.shape().get(from..).unwrap_or_default();
    let known: Option<Vec<i64>> = known.iter().map(Dim::as_constant).collect();
    known.ok_or_else(|| refuse(Class::Shape, format!("the extents of {}", x.ty())))
}

fn affine_grid(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (theta, size) = (call.tensor(0)?, call.ints(1)?);
    let corners = call.flag("align_corners", false)?;
    let axes = size.len().saturating_sub(2) as i64 + 1;
    let count = size.get(2..).unwrap_or_default().iter().copied();
    let count = call.listed(&count.chain([axes]).collect::<Vec<_>>())? / axes as usize;
    let space: Vec<usize> = size.iter().skip(2).map(|n| *n as usize).collect();
    let position = |n: usize, extent: usize| {
        let (n, extent) = (n as f64, extent as f64);
        match corners {
            true => -1.0 + 2.0 * n / (extent - 1.0),
            false => -1.0 + (2.0 * n + 1.0) / extent,
        }
    };
    // Homogeneous coordinates of all points, the last axis of space first.
    let mut points = Vec::with_capacity(count * (space.len() + 1));
    for n in 0..count {
        let mut rest = n;
        for extent in space.iter().rev() {
            points.push(position(rest % extent, *extent));
            rest /= extent;
        }
        points.push(1.0);
    }
    let points = table(&[count, space.len() + 1], points, theta.dtype())?;
    let moved = Tensor::einsum("pk,nik->npi", &[Tensor::constant(points), theta.clone()]);
    let batch = theta.shape()[0].clone();
    let shape = [batch].into_iter().chain(space.iter().map(|e| Dim::from(*e)));
    let shape: Vec<Dim> = shape.chain([Dim::from(space.len())]).collect();
    one(moved.reshape(shape))
}

/// What lies outside an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// Positions reflected at both ends of a range until they lie within.
fn reflected(x: &Tensor, low: f64, high: f64) -> Tensor {
    let range = high - low;
    if range <= 0.0 {
        return x.full_like(low);
    }
    let distance = (x - low).unary(Unary::Abs);
    let turns = (&distance / range).unary(Unary::Floor);
    let rest = &distance - &turns * range;
    let even = turns.binary(Binary::Rem, &turns.full_like(2.0)).eq(0.0);
    even.select(&rest + low, high - &rest)
}

fn grid_sample(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, grid) = (call.ranked(0, 3)?, call.ranked(1, 2)?);
    let space = extents(&x, 2)?;
    // Each axis multiplies the neighbours of a point.
    if space.len() > MOST_AXES {
        return Err(Diagnostic::new(format!("{} is no image of at most 5 axes", x.ty()))
            .help("sample images, volumes, or batches of them"));
    }
    let corners = call.flag("align_corners", false)?;
    let outside = match call.text("padding_mode", "zeros")? {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return call.refuse("padding_mode", other),
    };
    let mode = call.text("mode", "linear")?;
    let wide = x.dtype().wide();
    let x_wide = x.convert(wide);
    let count = space.len();
    // The last axis of space comes first in the grid.
    let mut positions = vec![];
    for (n, extent) in space.iter().enumerate() {
        let part = grid.slice_axis(-1, (count - 1 - n) as i64, (count - n) as i64).squeeze(-1);
        let (part, extent) = (part.convert(wide), *extent as f64);
        let mut at = match corners {
            true => (part + 1.0) * 0.5 * (extent - 1.0),
            false => ((part + 1.0) * extent - 1.0) * 0.5,
        };
        if mode == "nearest" {
            at = at.unary(Unary::Round);
        }
        let (low, high) = if corners { (0.0, extent - 1.0) } else { (-0.5, extent - 0.5) };
        let beyond = at.lt(low) | at.gt(high);
        at = match outside {
            Outside::Zeros => at,
            Outside::Border => beyond.select(&at.clamp(0.0, extent - 1.0), &at),
            Outside::Reflection => beyond.select(&reflected(&at, low, high), &at),
        };
        positions.push(at);
    }
    // For each axis the neighbours' distances from the floor, with their weights.
    let mut neighbours: Vec<Vec<(Tensor, Option<Tensor>)>> = vec![];
    for at in &positions {
        let floor = at.unary(Unary::Floor);
        let t = at - &floor;
        neighbours.push(match mode {
            "nearest" => vec![(at.clone(), None)],
            "linear" | "bilinear" => {
                vec![(floor.clone(), Some(1.0 - &t)), (&floor + 1.0, Some(t))]
            }
            "cubic" | "bicubic" => {
                let a = -0.75;
                let near = |t: &Tensor| ((t * (a + 2.0) - (a + 3.0)) * t * t) + 1.0;
                let far = |t: &Tensor| ((t * a - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
                let u = 1.0 - &t;
                vec![
                    (&floor - 1.0, Some(far(&(&t + 1.0)))),
                    (floor.clone(), Some(near(&t))),
                    (&floor + 1.0, Some(near(&u))),
                    (&floor + 2.0, Some(far(&(&u + 1.0)))),
                ]
            }
            other => return call.refuse("mode", other),
        });
    }
    // Space as one axis, and channels last, so that a row is gathered for each position.
    let flat = x_wide.flatten_axes(2, -1).permute([0, 2, 1]);
    let batch = x.shape()[0].clone();
    let points = grid.rank() - 2;
    let mut sum: Option<Tensor> = None;
    let total: usize = neighbours.iter().map(Vec::len).product();
    for combination in 0..total {
        let (mut rest, mut index, mut weight, mut inside) = (combination, None, None, None);
        for (n, of_axis) in neighbours.iter().enumerate() {
            let (at, own) = &of_axis[rest % of_axis.len()];
            rest /= of_axis.len();
            let extent = space[n] as f64;
            let (low, high) = if corners { (0.0, extent - 1.0) } else { (-0.5, extent - 0.5) };
            let at = match outside {
                Outside::Zeros => {
                    let within = at.ge(0.0) & at.le(extent - 1.0);
                    inside = Some(match inside.take() {
                        Some(other) => within & other,
                        None => within,
                    });
                    at.clone()
                }
                Outside::Border => at.clone(),
                Outside::Reflection => {
                    let beyond = at.lt(low) | at.gt(high);
                    beyond.select(&reflected(at, low, high), at)
                }
            };
            let number = at.clamp(0.0, extent - 1.0).convert(DType::I32);
            index = Some(match index.take() {
                Some(index) => index * space[n] + number,
                None => number,
            });
            if let Some(own) = own {
                weight = Some(match weight.take() {
                    Some(weight) => own * weight,
                    None => own.clone(),
                });
            }
        }
        let index: Tensor = index.ok_or_else(|| Diagnostic::new("an image has axes of space"))?;
        let rows = index.reshape([batch.clone(), Dim::INFER]).unsqueeze(-1);
        let channels = x.shape()[1].clone();
        let wanted = vec![batch.clone(), rows.shape()[1].clone(), channels];
        let mut values = flat.take_along_axis(&rows.broadcast_to(&wanted), 1);
        for factor in
            [weight, inside.map(|within: Tensor| within.convert(wide))].into_iter().flatten()
        {
            values = values * factor.reshape([batch.clone(), Dim::INFER]).unsqueeze(-1);
        }
        sum = Some(match sum.take() {
            Some(sum) => sum + values,
            None => values,
        });
    }
    let all = sum.ok_or_else(|| Diagnostic::new("an image has axes of space"))?.permute([0, 2, 1]);
    let shape = [x.shape()[..2].to_vec(), grid.shape()[1..1 + points].to_vec()].concat();
    one(all.reshape(shape).convert(x.dtype()))
}

/// Sums of the windows of an image, each at its place.
fn col_to_image(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, size, window) = (call.tensor(0)?, call.ints(1)?, call.ints(2)?);
    let axes = size.len();
    let list = |name: &str, usual: Vec<i64>| -> Result<Vec<i64>> {
        let list = call.some_ints(name)?.unwrap_or_else(|| usual.clone());
        match list.len() == usual.len() {
            true => Ok(list),
            false => Err(Diagnostic::new(format!("attribute `{name}` has {} entries", list.len()))),
        }
    };
    let (strides, dilations) = (list("strides", vec![1; axes])?, list("dilations", vec![1; axes])?);
    let pads = list("pads", vec![0; 2 * axes])?;
    let area = call.listed(&window)? as i64;
    call.listed(&size)?;
    if strides.contains(&0) {
        return call.refuse("strides", 0);
    }
    let counts: Vec<i64> = (0..axes)
        .map(|n| {
            let reach = dilations[n] * (window[n] - 1) + 1;
            (size[n] + pads[n] + pads[axes + n] - reach) / strides[n] + 1
        })
        .collect();
    let number = call.listed(&counts)? as i64;
    call.listed(&[area, number])?;
    let pixels: i64 = size.iter().product();
    // The pixel of each element of a window, or one beyond the image.
    let mut pixel = Vec::with_capacity((area * number) as usize);
    for element in 0..area {
        for place in 0..number {
            let (mut e, mut p, mut at, mut stride, mut inside) = (element, place, 0, 1, true);
            for n in (0..axes).rev() {
                let (k, o) = (e % window[n], p % counts[n]);
                (e, p) = (e / window[n], p / counts[n]);
                let position = o * strides[n] + k * dilations[n] - pads[n];
                inside &= (0..size[n]).contains(&position);
                at += position * stride;
                stride *= size[n];
            }
            pixel.push(if inside { at as i32 } else { pixels as i32 });
        }
    }
    let [batch, all, _] = x.shape() else {
        return Err(Diagnostic::new(format!("{} is no batch of columns", x.ty())));
    };
    let channels = all
        .checked_exact_div(&Dim::constant(area))
        .ok_or_else(|| Diagnostic::new(format!("{all} rows of windows of {area}")))?;
    let batch = batch.clone();
    let values = x.reshape([batch.clone(), channels.clone(), Dim::constant(area * number)]);
    let values = values.permute([2, 0, 1]);
    let indices = Literal::from_vec(&[pixel.len(), 1], pixel)?;
    let numbers = wengert_core::build::indexing::ScatterDimensionNumbers {
        update_window_dims: vec![1, 2],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        ..Default::default()
    };
    let zeros = wengert_core::TensorType::of(
        x.dtype(),
        vec![Dim::constant(pixels), batch.clone(), channels.clone()],
    );
    let mode = wengert_core::build::indexing::ScatterMode::Drop;
    let image =
        Tensor::zeros(&zeros).scatter_add(&Tensor::constant(indices), &values, &numbers, mode);
    let shape = [vec![batch, channels], size.into_iter().map(Dim::constant).collect()].concat();
    one(image.permute([1, 2, 0]).reshape(shape))
}
