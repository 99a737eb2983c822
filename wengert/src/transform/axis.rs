//! Transforms along an axis of each example: normalize, crop, flip, pad.

use super::{Examples, Place};
use wengert_core::{Literal, Result, Scalar, diagnostic, with_native};

/// The extents around an axis: of the axes before it, its own, of the axes after it.
fn around(batch: &Literal, axis: usize, what: &str) -> Result<(usize, usize, usize)> {
    let shape = batch.shape();
    match shape.get(axis) {
        Some(extent) if axis > 0 => {
            Ok((shape[..axis].iter().product(), *extent, shape[axis + 1..].iter().product()))
        }
        _ => Err(diagnostic!("cannot {what} axis {axis} of a batch {}{shape:?}", batch.dtype())
            .help("axis 0 counts the examples; the others are those of an example")),
    }
}

/// The shape with another extent of an axis.
fn resized(batch: &Literal, axis: usize, extent: usize) -> Vec<usize> {
    let mut shape = batch.shape().to_vec();
    shape[axis] = extent;
    shape
}

/// `(x − mean) / deviation`, by the index of an axis.
pub(super) fn normalize(
    batch: &Literal,
    axis: usize,
    mean: &[Scalar],
    deviation: &[Scalar],
) -> Result<Literal> {
    let dtype = batch.dtype();
    let (_, extent, inner) = around(batch, axis, "normalize")?;
    if extent != mean.len() || extent != deviation.len() {
        return Err(diagnostic!(
            "axis {axis} has {extent} channels, there are {} means and {} deviations",
            mean.len(),
            deviation.len()
        ));
    }
    if mean.iter().chain(deviation).any(|number| number.dtype() != dtype) {
        return Err(diagnostic!("cannot normalize {dtype} elements by {:?}", mean[0])
            .help("convert them to the float dtype of the numbers first"));
    }
    let channel = |at: usize| at / inner % extent;
    if let Some(values) = batch.as_slice::<f32>() {
        let numbers = |of: &[Scalar]| of.iter().map(|n| n.get::<f32>()).collect::<Vec<_>>();
        let (mean, deviation) = (numbers(mean), numbers(deviation));
        let mut made = Vec::with_capacity(values.len());
        if inner == 1 {
            for pixel in values.chunks_exact(extent.max(1)) {
                let channels = pixel.iter().zip(mean.iter().zip(&deviation));
                made.extend(channels.map(|(v, (mean, deviation))| (v - mean) / deviation));
            }
        } else {
            for (number, plane) in values.chunks_exact(inner.max(1)).enumerate() {
                let (mean, deviation) = (mean[number % extent], deviation[number % extent]);
                made.extend(plane.iter().map(|v| (v - mean) / deviation));
            }
        }
        return Literal::from_vec(batch.shape(), made);
    }
    let values: Vec<Scalar> = batch
        .scalars()
        .enumerate()
        .map(|(at, value)| {
            let centred = Scalar::from_f64(dtype, value.to_f64() - mean[channel(at)].to_f64());
            Scalar::from_f64(dtype, centred.to_f64() / deviation[channel(at)].to_f64())
        })
        .collect();
    Literal::from_scalars(dtype, batch.shape(), &values)
}

/// Consecutive elements of an axis.
pub(super) fn crop(
    batch: &Literal,
    axis: usize,
    size: usize,
    place: Place,
    examples: &Examples<'_>,
) -> Result<Literal> {
    let (_, extent, inner) = around(batch, axis, "crop")?;
    if size > extent {
        return Err(diagnostic!("cannot crop axis {axis} to {size} elements: it has {extent}")
            .help("pad it first, or crop to fewer elements"));
    }
    let before = |example: usize| match place {
        Place::Centre => (extent - size) / 2,
        Place::Random => {
            let row = examples.row(example);
            let choices = (extent - size + 1) as u64;
            examples.draws.of("crop", axis, row).below(choices) as usize
        }
    };
    let count = batch.shape()[0];
    let shape = resized(batch, axis, size);
    let planes: usize = batch.shape()[1..axis].iter().product();
    with_native!(batch.dtype(), T => {
        let all = batch.as_slice::<T>().expect("the dtype is its own");
        let mut kept = Vec::with_capacity(shape.iter().product());
        for example in 0..count {
            let from = before(example);
            for plane in 0..planes {
                let start = ((example * planes + plane) * extent + from) * inner;
                kept.extend_from_slice(&all[start..start + size * inner]);
            }
        }
        Literal::from_vec(&shape, kept)
    })
}

/// The axis reversed in half of the examples.
pub(super) fn flip(batch: &Literal, axis: usize, examples: &Examples<'_>) -> Result<Literal> {
    let (_, extent, inner) = around(batch, axis, "flip")?;
    let count = batch.shape()[0];
    with_native!(batch.dtype(), T => {
        let all = batch.as_slice::<T>().expect("the dtype is its own");
        let width = all.len().checked_div(count).unwrap_or(0);
        let mut made = Vec::with_capacity(all.len());
        for example in 0..count {
            let values = &all[example * width..][..width];
            let row = examples.row(example);
            if examples.draws.of("flip", axis, row).below(2) == 0 || extent * inner == 0 {
                made.extend_from_slice(values);
                continue;
            }
            for plane in values.chunks_exact(extent * inner) {
                plane.chunks_exact(inner).rev().for_each(|part| made.extend_from_slice(part));
            }
        }
        Literal::from_vec(batch.shape(), made)
    })
}

/// Further elements before and after those of an axis.
pub(super) fn pad(
    batch: &Literal,
    axis: usize,
    (before, after): (usize, usize),
    value: Scalar,
) -> Result<Literal> {
    let (outer, extent, inner) = around(batch, axis, "pad")?;
    let dtype = batch.dtype();
    if value.dtype() != dtype {
        return Err(diagnostic!("cannot pad {dtype} elements with {value:?}")
            .help(format!("write a number of {dtype}, or convert the elements first")));
    }
    let wide = extent + before + after;
    let shape = resized(batch, axis, wide);
    let elements = shape.iter().try_fold(dtype.size(), |n, e| n.checked_mul(*e));
    crate::available_memory::check(elements.map_or(u64::MAX, |n| n as u64), || {
        format!("a batch {dtype}{shape:?}")
    })?;
    with_native!(dtype, T => {
        let all = batch.as_slice::<T>().expect("the dtype is its own");
        let value = value.get::<T>();
        let mut made = Vec::with_capacity(outer * wide * inner);
        for part in 0..outer {
            made.extend(std::iter::repeat_n(value, before * inner));
            made.extend_from_slice(&all[part * extent * inner..][..extent * inner]);
            made.extend(std::iter::repeat_n(value, after * inner));
        }
        Literal::from_vec(&shape, made)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Draws, Transform};
    use super::*;

    fn apply(text: &str, batch: &Literal, rows: &[usize], epoch: u64) -> Result<Literal> {
        let transform: Transform = text.parse().unwrap();
        transform.verify().unwrap();
        transform.apply(batch, &Examples::of(rows, Draws::new(7, epoch)))
    }

    /// `[3, 2, 4, 2]`: element = its number in row-major order.
    fn batch() -> Literal {
        Literal::from_vec(&[3, 2, 4, 2], (0..48).collect::<Vec<i32>>()).unwrap()
    }

    fn element(literal: &Literal, index: [usize; 4]) -> i64 {
        let shape = literal.shape();
        let flat = index.iter().zip(shape).fold(0, |flat, (i, extent)| flat * extent + i);
        literal.get(flat).to_i64().unwrap()
    }

    #[test]
    fn crops_are_the_elements_at_their_place() {
        let centre = apply("crop 2 2 centre", &batch(), &[0, 1, 2], 0).unwrap();
        assert_eq!(centre.shape(), [3, 2, 2, 2]);
        for (i, j, k, l) in indices([3, 2, 2, 2]) {
            assert_eq!(element(&centre, [i, j, k, l]), element(&batch(), [i, j, k + 1, l]));
        }
        let mut places = [0; 3];
        for epoch in 0..60 {
            let random = apply("crop 2 2 random", &batch(), &[5, 6, 7], epoch).unwrap();
            for i in 0..3 {
                let place = (element(&random, [i, 0, 0, 0]) as usize - i * 16) / 2;
                places[place] += 1;
                for (_, j, k, l) in indices([1, 2, 2, 2]) {
                    let wanted = element(&batch(), [i, j, k + place, l]);
                    assert_eq!(element(&random, [i, j, k, l]), wanted);
                }
            }
        }
        assert!(places.iter().all(|count| *count > 30), "{places:?}");
    }

    #[test]
    fn draws_belong_to_rows() {
        let one = |row: usize| {
            let part = batch().slice(wengert_core::s![1..2, .., .., ..]).unwrap();
            apply("flip 2", &part, &[row], 3).unwrap()
        };
        // Alone or in a batch, a row is transformed alike.
        for row in 0..20 {
            let whole = apply("flip 2", &batch(), &[40, row, 41], 3).unwrap();
            assert_eq!(whole.slice(wengert_core::s![1..2, .., .., ..]).unwrap(), one(row));
        }
        let flipped = (0..200).filter(|row| element(&one(*row), [0, 0, 0, 0]) != 16).count();
        assert!((70..130).contains(&flipped), "{flipped}");
    }

    #[test]
    fn flips_reverse_an_axis() {
        for epoch in 0..20 {
            let made = apply("flip 1", &batch(), &[1, 2, 3], epoch).unwrap();
            for i in 0..3 {
                let is_flipped = element(&made, [i, 0, 0, 0]) != element(&batch(), [i, 0, 0, 0]);
                for (_, j, k, l) in indices([1, 2, 4, 2]) {
                    let from = if is_flipped { 1 - j } else { j };
                    assert_eq!(element(&made, [i, j, k, l]), element(&batch(), [i, from, k, l]));
                }
            }
        }
    }

    #[test]
    fn padding_surrounds() {
        let made = apply("pad 1 1 2 i32 -1", &batch(), &[0, 1, 2], 0).unwrap();
        assert_eq!(made.shape(), [3, 5, 4, 2]);
        for (i, j, k, l) in indices([3, 5, 4, 2]) {
            let wanted = if (1..3).contains(&j) { element(&batch(), [i, j - 1, k, l]) } else { -1 };
            assert_eq!(element(&made, [i, j, k, l]), wanted);
        }
    }

    #[test]
    fn channels_are_normalized() {
        let text = "normalize 3 f32 1.0,2.0 0.5,4.0";
        let batch = batch().convert(wengert_core::DType::F32);
        let made = apply(text, &batch, &[0, 1, 2], 0).unwrap();
        let planes = apply("normalize 1 f32 1.0,2.0 0.5,4.0", &batch, &[0, 1, 2], 0).unwrap();
        for (at, value) in batch.as_slice::<f32>().unwrap().iter().enumerate() {
            let by = |channel: usize| (value - [1.0, 2.0][channel]) / [0.5, 4.0][channel];
            assert_eq!(made.get(at), Scalar::of(by(at % 2)));
            assert_eq!(planes.get(at), Scalar::of(by(at / 8 % 2)));
        }
        let half = batch.convert(wengert_core::DType::F16);
        let made = apply("normalize 3 f16 1.0,2.0 0.5,4.0", &half, &[0, 1, 2], 0).unwrap();
        assert_eq!(made.get(3).to_f64(), 0.25);
    }

    #[test]
    fn mistakes_are_named() {
        let says = |text: &str, says: &str| {
            let error = apply(text, &batch(), &[0, 1, 2], 0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        says("crop 4 1 centre", "cannot crop axis 4 of a batch i32[3, 2, 4, 2]");
        says("crop 2 5 centre", "cannot crop axis 2 to 5 elements: it has 4");
        says("pad 1 1 1 f32 0.0", "cannot pad i32 elements with 0.0:f32");
        says("normalize 3 f32 1.0,1.0 1.0,1.0", "cannot normalize i32 elements");
        says("normalize 1 f32 1.0,1.0,1.0 1.0,1.0,1.0", "axis 1 has 2 channels, there are 3 means");
    }

    fn indices(shape: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let [a, b, c, d] = shape;
        (0..a * b * c * d).map(move |n| (n / (b * c * d), n / (c * d) % b, n / d % c, n % d))
    }
}
