//! Discrete Fourier transforms and windows. A transform of known length is the product with its
//! matrix.

use super::{Call, Row, one, row, table};
use crate::model::dtype;
use crate::refusal::{Class, refuse};
use crate::value::Value;
use std::f64::consts::PI;
use wengert_core::op::DotGeneral;
use wengert_core::{Diagnostic, Dim, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("DFT", 17, |call| {
        let axis = call.int("axis", 1)?;
        transform(call, axis)
    }),
    row("DFT", 20, |call| {
        let axis = call.number(2)?.unwrap_or(-2.0) as i64;
        transform(call, axis)
    }),
    row("STFT", 17, short_time),
    row("MelWeightMatrix", 17, mel_weights),
    row("HannWindow", 17, |call| window(call, |x| (PI * x).sin().powi(2))),
    row("HammingWindow", 17, |call| {
        let alpha = 25.0 / 46.0;
        window(call, |x| alpha - (1.0 - alpha) * (2.0 * PI * x).cos())
    }),
    row("BlackmanWindow", 17, |call| {
        window(call, |x| 0.42 - 0.5 * (2.0 * PI * x).cos() + 0.08 * (4.0 * PI * x).cos())
    }),
];

fn mel_weights(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let number = |n: usize| -> Result<f64> {
        call.number(n)?.ok_or_else(|| Diagnostic::new(format!("it has no operand {n}")))
    };
    let (bins, length, rate) = (call.listed(&[number(0)? as i64])?, number(1)? as i64, number(2)?);
    let length = call.listed(&[length])?;
    let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / 10f64.ln();
    let (low, high) = (mel(number(3)?), mel(number(4)?));
    let step = (high - low) / (bins + 2) as f64;
    let hertz = |n: usize| 700.0 * ((n as f64 * step + low) / 2595.0 * 10f64.ln()).exp_m1();
    let edge = |n: usize| ((length as f64 + 1.0) * hertz(n) / rate).floor() as usize;
    let rows = length / 2 + 1;
    let mut weights = vec![0f64; call.listed(&[rows as i64, bins as i64])?];
    for bin in 0..bins {
        let (left, centre, right) = (edge(bin), edge(bin + 1), edge(bin + 2));
        if right > rows {
            return Err(Diagnostic::new("the highest frequency is above half the sample rate"));
        }
        let mut set = |row: usize, value: f64| {
            if let Some(weight) = weights.get_mut(row * bins + bin) {
                *weight = value;
            }
        };
        if left > centre || centre > right {
            return Err(Diagnostic::new("its frequencies do not rise"));
        }
        match centre - left {
            0 => set(centre, 1.0),
            width => (left..=centre).for_each(|j| set(j, (j - left) as f64 / width as f64)),
        }
        (centre..right).for_each(|j| set(j, (right - j) as f64 / (right - centre) as f64));
    }
    let to = dtype(i32::try_from(call.int("output_datatype", 1)?).unwrap_or(0))?;
    one(Tensor::constant(table(&[rows, bins], weights, to)?))
}

/// A window as a function of positions from 0 to 1.
fn window(call: &Call<'_, '_, '_>, of: impl Fn(f64) -> f64) -> Result<Vec<Value>> {
    let size = call.ints(0)?.first().copied().unwrap_or(0);
    let to = dtype(i32::try_from(call.int("output_datatype", 1)?).unwrap_or(0))?;
    let length = if call.flag("periodic", true)? { size } else { size - 1 };
    call.listed(&[size])?;
    let values: Vec<f64> = (0..size).map(|n| of(n as f64 / length as f64)).collect();
    one(Tensor::constant(table(&[values.len()], values, to)?))
}

/// The product of an axis with a constant matrix `[to, from]`, in the axis' place.
fn along(
    call: &Call<'_, '_, '_>,
    x: &Tensor,
    axis: usize,
    [to, from]: [usize; 2],
    of: impl Fn(usize, usize) -> f64,
) -> Result<Tensor> {
    let all =
        (0..call.listed(&[to as i64, from as i64])?).map(|n| of(n / from, n % from)).collect();
    let matrix = table(&[to, from], all, x.dtype())?;
    let dot = DotGeneral { contract: (vec![axis], vec![1]), batch: (vec![], vec![]), result: None };
    let product = Tensor::apply(dot, &[x, &Tensor::constant(matrix)]);
    let mut order: Vec<i64> = (0..x.rank() as i64 - 1).collect();
    order.insert(axis, x.rank() as i64 - 1);
    Ok(product.permute(&order))
}

/// The transform of a tensor whose last axis has the real and perhaps the imaginary part.
fn fourier(
    call: &Call<'_, '_, '_>,
    x: &Tensor,
    axis: usize,
    length: usize,
    [inverse, onesided]: [bool; 2],
) -> Result<Tensor> {
    let unknown = || refuse(Class::Shape, format!("a transform of {}", x.ty()));
    if axis + 1 >= x.rank() {
        return Err(Diagnostic::new(format!("axis {axis} of {} is not one of time", x.ty())));
    }
    let from = x.shape()[axis].as_extent().ok_or_else(unknown)?;
    let last = x.rank() - 1;
    let parts = x.shape()[last].as_extent().ok_or_else(unknown)?;
    // A longer signal is cut, a shorter one continued by zeros.
    let used = from.min(length);
    let x = x.slice_axis(axis, 0, used);
    let part = |n: i64| x.slice_axis(last, n, n + 1).squeeze(last);
    let real = part(0);
    let imaginary = (parts > 1).then(|| part(1));
    let sign = if inverse { 1.0 } else { -1.0 };
    let norm = if inverse { 1.0 / length as f64 } else { 1.0 };
    let angle = |k: usize, n: usize| sign * 2.0 * PI * ((k * n) % length) as f64 / length as f64;
    if inverse && onesided {
        // The half that is left out is the conjugate of the one that is given.
        let weight = |n: usize| match n {
            0 => 1.0,
            n if 2 * n == length => 1.0,
            _ => 2.0,
        };
        let cos =
            along(call, &real, axis, [length, used], |k, n| norm * weight(n) * angle(k, n).cos())?;
        let result = match &imaginary {
            Some(i) => {
                cos - along(call, i, axis, [length, used], |k, n| {
                    norm * weight(n) * angle(k, n).sin()
                })?
            }
            None => cos,
        };
        return Ok(result.unsqueeze(-1));
    }
    let to = if onesided { length / 2 + 1 } else { length };
    let product = |x: &Tensor, sine: bool| {
        along(call, x, axis, [to, used], |k, n| {
            norm * if sine { angle(k, n).sin() } else { angle(k, n).cos() }
        })
    };
    let (mut re, mut im) = (product(&real, false)?, product(&real, true)?);
    if let Some(i) = &imaginary {
        (re, im) = (re - product(i, true)?, im + product(i, false)?);
    }
    Ok(Tensor::stack(&[re, im], -1))
}

fn transform(call: &Call<'_, '_, '_>, axis: i64) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(axis, x.rank())?;
    let flags = [call.flag("inverse", false)?, call.flag("onesided", false)?];
    let length = match call.number(1)? {
        Some(length) => call.listed(&[length as i64])?,
        None => {
            let extent = x.shape()[axis]
                .as_extent()
                .ok_or_else(|| refuse(Class::Shape, format!("a transform of {}", x.ty())))?;
            if flags == [true, true] { 2 * extent.saturating_sub(1) } else { extent }
        }
    };
    one(fourier(call, &x, axis, length, flags)?)
}

fn short_time(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let step = call.ints(1)?.first().copied().unwrap_or(0);
    let window = call.optional(2)?;
    let extent =
        |d: &Dim| d.as_constant().ok_or_else(|| refuse(Class::Shape, format!("an extent of {d}")));
    let [_, samples, _] = x.shape() else {
        return Err(Diagnostic::new(format!("{} is no batch of signals", x.ty())));
    };
    let samples = extent(samples)?;
    let length = match (call.number(3)?, &window) {
        (Some(length), _) => length as i64,
        (None, Some(window)) => extent(window.shape().first().unwrap_or(&Dim::constant(1)))?,
        (None, None) => samples,
    };
    if step < 1 || length < 1 || length > samples {
        return Err(Diagnostic::new(format!("frames of {length} every {step} of {samples}")));
    }
    let frames = 1 + (samples - length) / step;
    call.listed(&[frames, length])?;
    let starts = (0..frames).flat_map(|f| (0..length).map(move |n| (f * step + n) as i32));
    let numbers = Literal::from_vec(&[frames as usize, length as usize], starts.collect())?;
    let mut all = x.index_select(1, &Tensor::constant(numbers));
    if let Some(window) = window {
        all = all * window.unsqueeze(-1);
    }
    let onesided = call.flag("onesided", true)?;
    one(fourier(call, &all, 2, length as usize, [false, onesided])?)
}
