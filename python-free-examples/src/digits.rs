//! Images of handwritten digits: 1797 of 8 × 8 pixels from the UCI repository (Alpaydin and Kaynak
//! 1998). Each line of `data/digits.csv.gz` has 64 numbers from 0 to 16 and the digit.

use wengert::data::Arrays;
use wengert::data::csv::{Header, Table};
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// Images for testing; the other 1437 are for training.
pub const TEST: usize = 360;

/// The digits in an order fixed by a seed: `train_images`, `train_labels`, `test_images`,
/// `test_labels`, all u8.
pub fn digits() -> Result<Arrays> {
    let table =
        Table::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.csv.gz"), Header::Absent)?;
    split(&table, 64, TEST, 1797)
}

/// Splits a table of images into parts for testing and training, in an order fixed by a seed. Each
/// line of the table has `pixels` pixels and a label. `test_images` and `test_labels` have `test`
/// rows, `train_images` and `train_labels` the others; all are u8.
pub(crate) fn split(table: &Table, pixels: usize, test: usize, seed: u64) -> Result<Arrays> {
    let (pixels, labels) = (table.slice(0..pixels, DType::U8)?, table.column(pixels, DType::U8)?);
    let order = SplitMix64::new(seed).permutation(table.rows());
    let (test, train) = order.split_at(test);
    let rows = |array: &Literal, rows: &[usize]| {
        let width = array.len() / array.shape()[0];
        let elements = array.as_slice::<u8>().unwrap_or_default();
        let taken: Vec<u8> = rows
            .iter()
            .flat_map(|row| &elements[row * width..(row + 1) * width])
            .copied()
            .collect();
        let mut shape = array.shape().to_vec();
        shape[0] = rows.len();
        Literal::from_vec(&shape, taken)
    };
    Ok(Arrays::from([
        ("train_images".into(), rows(&pixels, train)?),
        ("train_labels".into(), rows(&labels, train)?),
        ("test_images".into(), rows(&pixels, test)?),
        ("test_labels".into(), rows(&labels, test)?),
    ]))
}

/// The inputs `x`, pixels from 0 to 1, and `y` of a program, from the arrays `<part>_images` and
/// `<part>_labels`.
pub fn inputs(arrays: &Arrays, part: &str) -> Result<[(&'static str, Literal); 2]> {
    let array = |what: &str| {
        let name = format!("{part}_{what}");
        arrays.get(&name).ok_or_else(|| Diagnostic::new(format!("there is no array `{name}`")))
    };
    let images = array("images")?;
    let pixels = images.scalars().map(|pixel| pixel.to_f64() as f32 / 16.0).collect();
    let images = Literal::from_vec(images.shape(), pixels)?;
    Ok([("x", images), ("y", array("labels")?.convert(DType::I32))])
}
