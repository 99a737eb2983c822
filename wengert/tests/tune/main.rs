//! Models that are trained after import. `generate.py` wrote the files.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // Clippy exempts tests, but not helpers.

mod gradients;
mod mistakes;
mod training;

use python_free_examples::digits;
use std::path::PathBuf;
use wengert::data::Arrays;
use wengert::{DType, Literal, onnx};

/// A file of the tests.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tune").join(name)
}

fn model(name: &str) -> onnx::Model {
    onnx::import(path(&format!("{name}.onnx")), &onnx::Options::default()).unwrap()
}

/// The shape of an image of a model.
fn image(name: &str) -> &'static [usize] {
    if name == "convolutions" { &[1, 8, 8] } else { &[8, 8] }
}

/// Images and labels of a part of the digits, by the names of the models' inputs.
fn data(name: &str, part: &str) -> Arrays {
    let arrays = digits::digits().unwrap();
    let [(_, images), (_, labels)] = digits::inputs(&arrays, part).unwrap();
    let shape = [&[images.shape()[0]], image(name)].concat();
    let images = Literal::from_vec(&shape, images.as_slice::<f32>().unwrap().to_vec()).unwrap();
    Arrays::from([("image".into(), images), ("labels".into(), labels.convert(DType::I64))])
}
