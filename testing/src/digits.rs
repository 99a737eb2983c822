//! The repository's images of handwritten digits.

use flate2::read::GzDecoder;
use std::io::Read;
use wengert_core::{DType, Literal, Scalar};

/// The first `count` digits: images `[count, 64]` from 0 to 1, and labels.
///
/// # Panics
///
/// If the file is damaged.
pub fn digits(count: usize, dtype: DType) -> (Literal, Literal) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../python-free-examples/data/digits.csv.gz");
    let file = std::fs::File::open(path).expect("the repository has the digits");
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("the file is not damaged");
    let (mut pixels, mut labels) = (vec![], vec![]);
    for line in text.lines().take(count) {
        let numbers: Vec<i64> =
            line.split(',').map(|n| n.parse().expect("all cells are integers")).collect();
        pixels.extend(numbers[..64].iter().map(|n| Scalar::from_f64(dtype, *n as f64 / 16.0)));
        labels.push(Scalar::from_i64(DType::I32, numbers[64]));
    }
    let filled = "64 pixels and a label in every line";
    (
        Literal::from_scalars(dtype, &[count, 64], &pixels).expect(filled),
        Literal::from_scalars(DType::I32, &[count], &labels).expect(filled),
    )
}
