//! An ONNX classifier, fine-tuned and exported again.
//!
//! [`MODEL`] is a convolutional network that PyTorch has trained and exported
//! (`wengert/tests/tune/generate.py`). It reads transposed digits. It is imported, and learns to
//! read upright ones by updates of low rank: its own weights stay as they are. At the end the
//! updates are added to the weights, so that the exported model has the nodes of the first one.

use crate::digits;
use std::path::Path;
use wengert::data::Arrays;
use wengert::lora::{Lora, merged};
use wengert::prelude::*;
use wengert::recipe::Length;
use wengert::train::{Event, Options, TrainError, evaluate, train};
use wengert::tune::{Loss, Tuning};
use wengert::{GraphFile, Weights, onnx};

/// The model's file.
pub const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/transposed_digits.onnx");

/// Training steps by default: ten times each image.
pub const STEPS: u32 = 450;

/// The model with updates of rank 4 of its weights, and a recipe that trains them.
pub fn adapted() -> Result<GraphFile> {
    let model = onnx::import(MODEL, &onnx::Options::default())?;
    let lora = Lora::new(4)?.alpha(8.0)?;
    let lora = lora.path("conv2.weight")?.path("hidden.weight")?.path("head.weight")?;
    let tuning = Tuning { learning_rate: 1e-2, ..Tuning::new(Loss::CrossEntropy) };
    model.tuned(tuning.lora(lora))
}

/// Images and labels of a part of the digits, `train` or `test`, as the model's recipe names them.
pub fn data(part: &str) -> Result<Arrays> {
    let [(_, images), (_, labels)] = digits::inputs(&digits::digits()?, part)?;
    let images = images.reshape(&[labels.len(), 1, 8, 8])?;
    Ok(Arrays::from([("image".into(), images), ("labels".into(), labels)]))
}

fn weights(file: &GraphFile) -> Result<&Arrays> {
    match &file.weights {
        Weights::Inline(weights) => Ok(weights),
        _ => Err(Diagnostic::new("the file has no weights")),
    }
}

/// The part of the test images that is read right.
pub fn accuracy(device: Device, file: &GraphFile, weights: &Arrays) -> Result<f64, TrainError> {
    let recipe = file.recipe.as_ref().ok_or_else(|| Diagnostic::new("the file has no recipe"))?;
    let options = Options { weights: Some(weights), partial: true, ..Options::default() };
    let mut session = Session::open(device)?;
    let found = evaluate(&mut session, &file.program, recipe, &data("test")?, options)?;
    Ok(found.metrics.iter().find(|(name, _)| name == "accuracy").map_or(0.0, |(_, value)| *value))
}

/// The logits `[360, 10]` of the test images.
pub fn predictions(device: Device, file: &GraphFile) -> Result<Literal> {
    let mut session = Session::open(device)?;
    session.set_variables(weights(file)?)?;
    let images = data("test")?.remove("image").expect("`data` gives images");
    let binding = bind!(batch = digits::TEST as i64);
    let mut predict = session.compile(&file.program, "predict", &binding)?;
    Ok(predict.run(&[("image", images)])?.get("class")?.clone())
}

/// The largest difference between two tensors of logits, as a part of the largest logit.
pub fn difference(left: &Literal, right: &Literal) -> f64 {
    let pairs = left.scalars().zip(right.scalars()).map(|(l, r)| (l.to_f64(), r.to_f64()));
    let (most, largest) = pairs.fold((0.0f64, 0.0f64), |(most, largest), (left, right)| {
        (most.max((left - right).abs()), largest.max(left.abs()))
    });
    most / largest
}

/// What a fine-tuning gives.
#[derive(Clone, Debug)]
pub struct FineTuned {
    /// The accuracy before and after.
    pub accuracy: [f64; 2],
    /// The model with the trained updates beside its weights.
    pub adapted: GraphFile,
    /// The model as it was, with the updates in its weights.
    pub merged: GraphFile,
}

/// Trains the updates.
pub fn fine_tune(
    device: Device,
    steps: u32,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<FineTuned, TrainError> {
    let mut adapted = adapted()?;
    let before = accuracy(device, &adapted, weights(&adapted)?)?;
    let recipe = adapted.recipe.as_ref().ok_or_else(|| Diagnostic::new("there is no recipe"))?;
    let options = Options {
        weights: Some(weights(&adapted)?),
        length: Some(Length::Steps(steps.into())),
        ..Options::default()
    };
    let mut session = Session::open(device)?;
    train(&mut session, &adapted.program, recipe, &data("train")?, options, observe)?;
    let predict = adapted.program.get("predict")?;
    let mut trained = session.variables()?;
    // Without the optimiser's state.
    trained.retain(|path, _| predict.input_index(path).is_some());
    let after = accuracy(device, &adapted, &trained)?;
    let merged = merged(&[predict], &trained)?;
    adapted.weights = Weights::Inline(trained);
    Ok(FineTuned { accuracy: [before, after], adapted, merged })
}

/// Writes a model as ONNX, and imports it again.
pub fn exported(file: &GraphFile, path: &Path) -> Result<GraphFile> {
    onnx::write(path, file, "predict", &onnx::ExportOptions::default())?;
    onnx::read(path, &onnx::Options::default())
}
