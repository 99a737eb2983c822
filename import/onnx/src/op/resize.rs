//! Resizing: along each axis, each element of the result is a sum of few elements of the operand,
//! with weights that are known at import. So an axis is resized by a gather, or by the product with
//! a constant matrix.

use super::{Call, Row, one, row, table};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::DotGeneral;
use wengert_core::{DType, Diagnostic, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("Upsample", 7, |call| resize(call, None, call.some_floats("scales")?, None)),
    row("Upsample", 9, |call| resize(call, None, Some(floats(call, 1)?), None)),
    row("Resize", 10, |call| resize(call, None, Some(floats(call, 1)?), None)),
    row("Resize", 11, |call| {
        let given = |n: usize| -> Result<Option<Vec<f64>>> {
            let list = call.given(n).map(|_| floats(call, n)).transpose()?;
            Ok(list.filter(|list| !list.is_empty()))
        };
        let sizes = given(3)?.map(|sizes| sizes.into_iter().map(|n| n as i64).collect());
        resize(call, given(1)?, given(2)?, sizes)
    }),
];

fn floats(call: &Call<'_, '_, '_>, n: usize) -> Result<Vec<f64>> {
    Ok(call.known(n)?.scalars().map(|s| s.to_f64()).collect())
}

/// How an axis is resized.
struct Axis<'a> {
    /// Extents of the operand and of the result.
    from: usize,
    to: usize,
    scale: f64,
    /// The part of the operand that the result shows, from 0 to 1.
    region: [f64; 2],
    coordinates: &'a str,
    kernel: Kernel<'a>,
    exclude_outside: bool,
    antialias: bool,
}

/// Weights of neighbours.
#[derive(Clone, Copy)]
enum Kernel<'a> {
    /// One neighbour, chosen by this rounding.
    Nearest(&'a str),
    Linear,
    /// Keys' cubic convolution with this coefficient.
    Cubic(f64),
}

impl Axis<'_> {
    /// The position in the operand of element `n` of the result.
    fn source(&self, n: usize) -> Result<f64> {
        let (n, from, to) = (n as f64, self.from as f64, self.scale * self.from as f64);
        Ok(match self.coordinates {
            "align_corners" if to == 1.0 => 0.0,
            "align_corners" => n * (from - 1.0) / (to - 1.0),
            "asymmetric" => n / self.scale,
            "pytorch_half_pixel" if to == 1.0 => -0.5,
            "half_pixel" | "pytorch_half_pixel" => (n + 0.5) / self.scale - 0.5,
            "half_pixel_symmetric" => {
                let offset = from / 2.0 * (1.0 - self.to as f64 / to);
                offset + (n + 0.5) / self.scale - 0.5
            }
            "tf_crop_and_resize" => {
                let [start, end] = self.region;
                let within = match to == 1.0 {
                    true => (end - start) * (from - 1.0) / 2.0,
                    false => n * (end - start) * (from - 1.0) / (to - 1.0),
                };
                within + start * (from - 1.0)
            }
            other => {
                return Err(refuse(
                    Class::Attribute,
                    format!("attribute `coordinate_transformation_mode` is {other}"),
                ));
            }
        })
    }

    /// The part of the scale by which neighbours are spread.
    fn spread(&self) -> f64 {
        if self.antialias { self.scale.min(1.0) } else { 1.0 }
    }

    /// The most neighbours that an element of the result has.
    fn taps(&self) -> i64 {
        let reach = match self.kernel {
            Kernel::Nearest(_) => return 1,
            Kernel::Linear => 1.0,
            Kernel::Cubic(_) => 2.0,
        };
        // A scale near 0 gives an infinity, which is cut to the largest integer.
        ((reach / self.spread()).ceil() as i64).saturating_mul(2).max(1)
    }

    /// The number of the first neighbour of a position. `weights` become those of the neighbours.
    fn weights(&self, at: f64, weights: &mut Vec<f64>) -> Result<i64> {
        let floor = at.floor();
        // The neighbour on the left is preferred, so that a whole position is at the right end.
        let ratio = if at == floor { 1.0 } else { at - floor };
        let scale = self.spread();
        weights.clear();
        let first = if at == floor { floor as i64 - 1 } else { floor as i64 };
        let mut spread = |reach: f64, weight: &dyn Fn(f64) -> f64| {
            let start = (-reach / scale).floor() as i64 + 1;
            let count = 2 - 2 * start;
            weights.extend((start..start + count).map(|i| weight((i as f64 - ratio) * scale)));
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
            first + start
        };
        Ok(match self.kernel {
            Kernel::Nearest(rounding) => {
                let right = match rounding {
                    _ if ratio == 1.0 => true,
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "floor" => false,
                    "ceil" => true,
                    other => {
                        return Err(refuse(
                            Class::Attribute,
                            format!("attribute `nearest_mode` is {other}"),
                        ));
                    }
                };
                weights.push(1.0);
                first + i64::from(right)
            }
            Kernel::Linear => spread(1.0, &|x| (1.0 - x.abs()).clamp(0.0, 1.0)),
            Kernel::Cubic(a) => spread(2.0, &|x| {
                let x = x.abs();
                match x {
                    x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                    x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
                    _ => 0.0,
                }
            }),
        })
    }

    /// The operand, resized along an axis. Positions outside the region have `beyond`.
    fn apply(
        &self,
        call: &Call<'_, '_, '_>,
        x: &Tensor,
        axis: usize,
        beyond: f64,
    ) -> Result<Tensor> {
        let (from, last) = (self.from, self.from as i64 - 1);
        let is_outside = |at: f64| {
            self.coordinates == "tf_crop_and_resize" && !(0.0..=last as f64).contains(&at)
        };
        let mut outside = vec![];
        let mut result = match self.kernel {
            Kernel::Nearest(_) if !self.exclude_outside => {
                let mut numbers = Vec::with_capacity(call.listed(&[self.to as i64, 2])? / 2);
                for n in 0..self.to {
                    let at = self.source(n)?;
                    numbers.push(self.weights(at, &mut vec![])?.clamp(0, last) as i32);
                    outside.push(is_outside(at));
                }
                let numbers = Literal::from_vec(&[self.to], numbers)?;
                x.index_select(axis, &Tensor::constant(numbers))
            }
            _ => {
                call.listed(&[self.to as i64, self.taps()])?;
                let mut matrix = vec![0f64; call.listed(&[self.to as i64, from as i64])?];
                let mut weights = vec![];
                for n in 0..self.to {
                    let at = self.source(n)?;
                    outside.push(is_outside(at));
                    let first = self.weights(at, &mut weights)?;
                    if self.exclude_outside {
                        for (m, weight) in (first..).zip(weights.iter_mut()) {
                            if !(0..=last).contains(&m) {
                                *weight = 0.0;
                            }
                        }
                        let sum: f64 = weights.iter().sum();
                        let sum = if sum == 0.0 { 1.0 } else { sum };
                        weights.iter_mut().for_each(|w| *w /= sum);
                    }
                    for (m, weight) in (first..).zip(&weights) {
                        let m = usize::try_from(m.clamp(0, last)).unwrap_or(0);
                        matrix[n * from + m] += weight;
                    }
                }
                let matrix = table(&[self.to, from], matrix, x.dtype())?;
                let contract = (vec![axis], vec![1]);
                let dot = DotGeneral { contract, batch: (vec![], vec![]), result: None };
                let product = Tensor::apply(dot, &[x, &Tensor::constant(matrix)]);
                let mut order: Vec<i64> = (0..x.rank() as i64 - 1).collect();
                order.insert(axis, x.rank() as i64 - 1);
                product.permute(&order)
            }
        };
        if outside.contains(&true) {
            let mut shape = vec![1; x.rank()];
            shape[axis] = self.to;
            let mask = Literal::from_vec(&shape, outside)?;
            result = Tensor::constant(mask).select(&result.full_like(beyond), &result);
        }
        Ok(result)
    }
}

fn resize(
    call: &Call<'_, '_, '_>,
    region: Option<Vec<f64>>,
    scales: Option<Vec<f64>>,
    sizes: Option<Vec<i64>>,
) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axes = match call.some_ints("axes")? {
        Some(axes) => call.axes(&axes, x.rank())?,
        None => (0..x.rank()).collect(),
    };
    let mode = call.text("mode", "nearest")?;
    let kernel = match mode {
        // Before version 11 the neighbour on the left is taken.
        "nearest" if call.version < 11 => Kernel::Nearest("floor"),
        "nearest" => Kernel::Nearest(call.text("nearest_mode", "round_prefer_floor")?),
        "linear" | "bilinear" => Kernel::Linear,
        "cubic" => Kernel::Cubic(call.float("cubic_coeff_a", -0.75)?),
        other => return call.refuse("mode", other),
    };
    let usual = if call.version < 11 { "asymmetric" } else { "half_pixel" };
    let coordinates = call.text("coordinate_transformation_mode", usual)?;
    let count = axes.len();
    let wrong = |what: &str| Diagnostic::new(format!("its {what} are not of {count} axes"));
    if region.as_ref().is_some_and(|r| r.len() != 2 * count) {
        return Err(wrong("regions"));
    }
    if sizes.as_ref().is_some_and(|sizes| sizes.len() != count) {
        return Err(wrong("sizes"));
    }
    let mut extents = Vec::with_capacity(count);
    for axis in &axes {
        extents.push(x.shape()[*axis].as_extent());
    }
    let ratio = |n: usize, size: i64| extents[n].map(|from| size as f64 / from as f64);
    let policy = call.text("keep_aspect_ratio_policy", "stretch")?;
    let shared = match (&sizes, policy) {
        (None, _) | (_, "stretch") => None,
        (Some(sizes), "not_larger" | "not_smaller") => {
            let all = sizes.iter().enumerate().filter_map(|(n, size)| ratio(n, *size));
            Some(match policy {
                "not_larger" => all.fold(f64::INFINITY, f64::min),
                _ => all.fold(0.0, f64::max),
            })
        }
        (_, other) => return call.refuse("keep_aspect_ratio_policy", other),
    };
    let wide = if x.dtype().is_float() { x.dtype().wide() } else { DType::F32 };
    let moves_only = matches!(kernel, Kernel::Nearest(_));
    let mut result = if moves_only { x.clone() } else { x.convert(wide) };
    let beyond = call.float("extrapolation_value", 0.0)?;
    for (n, axis) in axes.iter().copied().enumerate() {
        let part = region.as_ref().map_or([0.0, 1.0], |r| [r[n], r[count + n]]);
        let given = match (&sizes, &scales) {
            (Some(sizes), _) => sizes.get(n).map(|size| (Some(*size), 0.0)),
            (None, Some(scales)) => scales.get(n).map(|scale| (None, *scale)),
            (None, None) => None,
        };
        let (size, scale) = given.ok_or_else(|| wrong("sizes or scales"))?;
        let Some(from) = extents[n] else {
            // An axis of unknown extent keeps it.
            if size.is_none() && scale == 1.0 {
                continue;
            }
            return Err(refuse(
                Class::Shape,
                format!("an extent of {} is resized", x.shape()[axis]),
            ));
        };
        let (to, scale) = match (size, shared) {
            (Some(_), Some(shared)) => ((shared * from as f64 + 0.5) as i64, shared),
            (Some(size), None) => (size, size as f64 / from as f64),
            (None, _) => ((scale * from as f64).floor() as i64, scale),
        };
        let to = usize::try_from(to).map_err(|_| Diagnostic::new(format!("an extent of {to}")))?;
        if to == from && (scale - 1.0).abs() < 1e-9 && part == [0.0, 1.0] {
            continue;
        }
        let resized = Axis {
            from,
            to,
            scale,
            region: part,
            coordinates,
            kernel,
            exclude_outside: call.flag("exclude_outside", false)?,
            antialias: call.flag("antialias", false)?,
        };
        result = resized.apply(call, &result, axis, beyond)?;
    }
    let converted = match x.dtype().is_float() || moves_only {
        true => result.convert(x.dtype()),
        false => result.unary(wengert_core::op::Unary::Round).convert(x.dtype()),
    };
    one(converted)
}
