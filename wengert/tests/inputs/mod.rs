//! Inputs for models in tests: the repository's digits, and small random numbers.
// Each test uses only a part of this module.
#![allow(dead_code)]

use wengert::Scalar;
use wengert::data::csv::{Header, Table};
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// The first `count` digits: images `[count, 64]` from 0 to 1, and labels.
pub fn digits(count: usize, dtype: DType) -> (Literal, Literal) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../python-free-examples/data/digits.csv.gz");
    let table = Table::read(path, Header::Absent).unwrap();
    let (pixels, labels) =
        (table.slice(0..64, dtype).unwrap(), table.column(64, DType::I32).unwrap());
    let images: Vec<Scalar> = pixels
        .scalars()
        .take(64 * count)
        .map(|s| Scalar::from_f64(dtype, s.to_f64() / 16.0))
        .collect();
    let labels: Vec<Scalar> = labels.scalars().take(count).collect();
    (
        Literal::from_scalars(dtype, &[count, 64], &images).unwrap(),
        Literal::from_scalars(DType::I32, &[count], &labels).unwrap(),
    )
}

/// Random floats of a type, uniform in ±`scale`.
pub fn values(ty: &TensorType, scale: f64, stream: &mut SplitMix64) -> Literal {
    let shape = ty.extents().unwrap();
    let draw = |_| Scalar::from_f64(ty.dtype, (2.0 * stream.unit_f64() - 1.0) * scale);
    let scalars: Vec<Scalar> = (0..shape.iter().product::<usize>()).map(draw).collect();
    Literal::from_scalars(ty.dtype, &shape, &scalars).unwrap()
}

/// All elements as doubles.
pub fn floats(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(Scalar::to_f64).collect()
}
