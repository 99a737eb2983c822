//! Images read between their pixels, at positions that are computed: regions of interest, and
//! convolutions whose kernels are deformed.

use super::{Call, Row, one, row};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Literal, Result, Tensor};

pub(super) const ROWS: &[Row] =
    &[row("RoiAlign", 10, regions), row("DeformConv", 19, deformed_convolution)];

/// The four pixels around each position, times their weights. `rows` is `[pixels, channels]`, and
/// `first` the row of the image's first pixel. `at` has the positions along height and width.
/// The results have an axis of channels after those of the positions. Outside the image are zeros.
fn corners(rows: &Tensor, first: &Tensor, at: &[Tensor; 2], space: [i64; 2]) -> Vec<Tensor> {
    let floors = at.each_ref().map(|at| at.unary(Unary::Floor));
    let mut all = vec![];
    for corner in 0..4 {
        let (mut weight, mut row): (Option<Tensor>, Option<Tensor>) = (None, None);
        for axis in 0..2 {
            let above = corner >> axis & 1 == 1;
            let pixel = if above { &floors[axis] + 1.0 } else { floors[axis].clone() };
            let distance = &at[axis] - &floors[axis];
            let share = if above { distance } else { 1.0 - distance };
            let last = (space[axis] - 1) as f64;
            let inside = pixel.ge(0.0) & pixel.le(last);
            let share = inside.select(&share, &share.zeros_like());
            let number = pixel.clamp(0.0, last).convert(DType::I32);
            weight = Some(weight.map_or(share.clone(), |weight| weight * &share));
            row = Some(row.map_or(number.clone(), |row| row * space[axis] + &number));
        }
        let (weight, row) = (weight.expect("two axes"), row.expect("two axes"));
        let first = first.broadcast_to(row.shape());
        all.push(rows.index_select(0, &(row + first)) * weight.unsqueeze(-1));
    }
    all
}

/// Images `[batch, channels, height, width]` as rows of pixels, with height and width.
fn pixels(x: &Tensor, groups: i64) -> Result<(Tensor, [i64; 2])> {
    let unknown = || refuse(Class::Shape, format!("the extents of images of {}", x.ty()));
    let [_, channels, height, width] = x.shape() else {
        return Err(Diagnostic::new(format!("{} is no batch of images", x.ty()))
            .help("images have the axes batch, channels, height and width"));
    };
    let space = [height, width].map(Dim::as_constant);
    let [Some(height), Some(width)] = space else { return Err(unknown()) };
    let own = channels
        .checked_exact_div(&Dim::constant(groups))
        .ok_or_else(|| Diagnostic::new(format!("{channels} channels in {groups} groups")))?;
    let apart = x.unflatten(1, [Dim::constant(groups), own.clone()]);
    let rows = apart.permute([0, 1, 3, 4, 2]).reshape([Dim::INFER, own]);
    Ok((rows, [height, width]))
}

fn regions(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, regions, images) = (call.tensor(0)?, call.ranked(1, 2)?, call.ranked(2, 1)?);
    let (rows, space) = pixels(&x, 1)?;
    let usual = if call.version < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = match call.text("coordinate_transformation_mode", usual)? {
        "half_pixel" => 0.5,
        "output_half_pixel" => 0.0,
        other => return call.refuse("coordinate_transformation_mode", other),
    };
    let samples = call.int("sampling_ratio", 0)?;
    if !(1..=1 << 12).contains(&samples) {
        // The number of samples is then that of a region's pixels.
        return call.refuse("sampling_ratio", samples);
    }
    let counts = [call.int("output_height", 1)?, call.int("output_width", 1)?];
    call.listed(&[counts[0], samples, counts[1], samples])?;
    let scaled = regions.convert(x.dtype().wide()) * call.float("spatial_scale", 1.0)? - half;
    let count = regions.shape()[0].clone();
    let mut at = vec![];
    for (axis, bins) in counts.into_iter().enumerate() {
        let column = |n: i64| scaled.slice_axis(1, n, n + 1);
        let (low, high) = (column(1 - axis as i64), column(3 - axis as i64));
        let length = &high - &low;
        // Without the shift of half a pixel, a region has a pixel at least.
        let length = match half == 0.0 {
            true => length.binary(Binary::Max, &length.ones_like()),
            false => length,
        };
        let steps = bins * samples;
        let shares = (0..steps).map(|n| (n as f64 + 0.5) / steps as f64).collect();
        let shares = Literal::from_vec(&[1, steps as usize], shares)?.convert(low.dtype());
        at.push(low + length * Tensor::constant(shares));
    }
    // Positions [regions, height, samples, width, samples], flat.
    let all =
        [count.clone(), Dim::constant(counts[0] * samples), Dim::constant(counts[1] * samples)];
    let spread = [at[0].unsqueeze(2).broadcast_to(&all), at[1].unsqueeze(1).broadcast_to(&all)];
    let mut inside: Option<Tensor> = None;
    let mut held = vec![];
    for (at, extent) in spread.iter().zip(space) {
        let own = at.ge(-1.0) & at.le(extent as f64);
        inside = Some(inside.map_or(own.clone(), |inside| inside & own));
        held.push(at.clamp(0.0, (extent - 1) as f64));
    }
    let held: [Tensor; 2] = held.try_into().expect("two axes");
    let first = (images.convert(DType::I32) * (space[0] * space[1])).unsqueeze([1, 2]);
    let parts = corners(&rows.convert(x.dtype().wide()), &first, &held, space);
    let inside = inside.expect("two axes").unsqueeze(-1);
    let shape = vec![
        count,
        Dim::constant(counts[0]),
        Dim::constant(samples),
        Dim::constant(counts[1]),
        Dim::constant(samples),
        x.shape()[1].clone(),
    ];
    let of_bins = |value: Tensor| {
        let value = inside.broadcast_to(value.shape()).select(&value, &value.zeros_like());
        value.reshape(shape.clone())
    };
    let bins = match call.text("mode", "avg")? {
        "avg" => {
            let sum = parts.into_iter().reduce(|sum, part| sum + part).expect("four corners");
            of_bins(sum).mean_axes([2i64, 4])
        }
        // The greatest of the weighted pixels, as in the standard's own implementation.
        "max" => {
            let most = parts.into_iter().reduce(|a, b| a.binary(Binary::Max, &b));
            of_bins(most.expect("four corners")).max_axes([2i64, 4])
        }
        other => return call.refuse("mode", other),
    };
    one(bins.permute([0, 3, 1, 2]).convert(x.dtype()))
}

fn deformed_convolution(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, w, offset) = (call.tensor(0)?, call.ranked(1, 4)?, call.ranked(2, 4)?);
    let groups = [call.int("offset_group", 1)?, call.int("group", 1)?];
    if groups.iter().any(|groups| *groups < 1) {
        return Err(Diagnostic::new(format!("{groups:?} groups")));
    }
    let (rows, space) = pixels(&x, groups[0])?;
    let list = |name: &str, usual: Vec<i64>| -> Result<Vec<i64>> {
        let list = call.some_ints(name)?.unwrap_or_else(|| usual.clone());
        match list.len() == usual.len() {
            true => Ok(list),
            false => Err(Diagnostic::new(format!("attribute `{name}` has {} entries", list.len()))),
        }
    };
    let (strides, dilations) = (list("strides", vec![1; 2])?, list("dilations", vec![1; 2])?);
    let pads = list("pads", vec![0; 4])?;
    let extents = [w.shape()[2].as_constant(), w.shape()[3].as_constant()];
    let [Some(height), Some(width)] = extents else {
        return Err(refuse(Class::Shape, format!("a kernel {}", w.ty())));
    };
    let batch = x.shape()[0].clone();
    let (taps, group) = (height * width, Dim::constant(groups[0]));
    call.listed(&[taps])?;
    let space_out = offset.shape()[2..].to_vec();
    let all = [vec![batch.clone(), group.clone(), Dim::constant(taps)], space_out.clone()].concat();
    let apart = offset.unflatten(1, [group.clone(), Dim::constant(taps), Dim::constant(2)]);
    let at = [0usize, 1].map(|axis| {
        // The position of each tap without its offset.
        let numbers = (0..taps).map(|tap| if axis == 0 { tap / width } else { tap % width });
        let starts = numbers.map(|n| (n * dilations[axis] - pads[axis]) as f32).collect();
        let starts = Literal::from_vec(&[taps as usize, 1, 1], starts).expect("one for each tap");
        let places = Tensor::iota(DType::I64, space_out.clone(), axis) * strides[axis];
        let own = apart.slice_axis(3, axis as i64, axis as i64 + 1).squeeze(3);
        own + Tensor::constant(starts.convert(x.dtype())) + places.convert(x.dtype())
    });
    // The row of the first pixel of each image and group.
    let image = Tensor::iota(DType::I32, [batch.clone(), group.clone()], 0) * groups[0];
    let image = image + Tensor::iota(DType::I32, [batch.clone(), group.clone()], 1);
    let first = (image * (space[0] * space[1])).unsqueeze([2, 3, 4]);
    let parts = corners(&rows, &first, &at, space);
    let mut read = parts.into_iter().reduce(|sum, part| sum + part).expect("four corners");
    if let Some(mask) = call.optional(4)? {
        read = read * mask.reshape(all).unsqueeze(-1);
    }
    // [batch, group, taps, height, width, channels] as columns of the groups of channels.
    let columns = read.permute([0, 1, 5, 2, 3, 4]).flatten_axes(1, 2);
    let own = Dim::constant(groups[1]);
    let parts = |whole: &Dim| {
        whole
            .checked_exact_div(&own)
            .ok_or_else(|| Diagnostic::new(format!("{whole} channels in {} groups", groups[1])))
    };
    let columns = columns.unflatten(1, [own.clone(), parts(&x.shape()[1])?]);
    let kernels = w.unflatten(0, [own.clone(), parts(&w.shape()[0])?]).flatten_axes(3, 4);
    let sums = Tensor::einsum("goct,ngcthw->ngohw", &[kernels, columns]).flatten_axes(1, 2);
    one(match call.optional(3)? {
        Some(bias) => sums + bias.unsqueeze([1, 2]),
        None => sums,
    })
}
