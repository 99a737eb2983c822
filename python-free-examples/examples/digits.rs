//! Trains a small network to read handwritten digits, and writes all files that `graphrun` needs to
//! continue without Rust.
//!
//!     cargo run --release -p python-free-examples --example digits [-- DEVICE]
//!
//! Writes into the current folder: `digits.graph` (the functions `init`, `train_step`, `predict`
//! and `loss` over any batch size, and the training recipe), `digits.safetensors` (the trained
//! weights), `digits.npz` (the data, with the recipe's names) and `x.npy` (the test images as input
//! of `predict`).
//!
//! The data are those of [`python_free_examples::digits`].

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::digits::{TEST, digits};
use std::process::ExitCode;
use wengert::data::{npy, npz};
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, StepRecipe, Transform,
};
use wengert::train::{Event, Options, train};
use wengert::transform::{Draws, Examples};
use wengert::{GraphFile, Recipe, Scalar, prelude::*};

const BATCH: u32 = 32;
const EPOCHS: u32 = 20;
/// Number of training steps. The learning rate decreases until the last one.
const STEPS: u32 = EPOCHS * 1437u32.div_ceil(BATCH);

#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
    #[no_derivative]
    activation: Activation,
}

impl Mlp {
    fn new(pixels: usize, width: usize, digits: usize) -> Self {
        let (hidden, out) = (Linear::kaiming(pixels, width), Linear::new(width, digits));
        Mlp { hidden, out, activation: Activation::Relu }
    }

    fn call(&self, x: &Tensor) -> Tensor {
        self.out.call(&self.activation.call(&self.hidden.call(x)))
    }
}

fn model() -> Mlp {
    Mlp::new(64, 128, 10)
}

fn program() -> Result<Program> {
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = f.input("x", f32("B,64"));
        let y = f.input("y", i32("B"));
        let model = f.state("model", model());
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
        let rate = optim::Rate::warmup_cosine(5e-3, 20, STEPS, 0.0);
        AdamW::new(rate).report_rate().step(f, &model, &gradient);
        f.output("loss", loss);
        f.output(optim::GRAD_NORM, optim::global_norm(&gradient));
    })?;
    program.function("predict", |f| {
        let x = f.input("x", f32("B,64"));
        let model = f.param("model", model());
        f.output("y", model.call(&x).softmax(1));
    })?;
    program.function("loss", |f| {
        let x = f.input("x", f32("B,64"));
        let y = f.input("y", i32("B"));
        let model = f.param("model", model());
        let logits = model.call(&x);
        f.output("loss", cross_entropy(&logits, &y));
        f.output("correct", logits.argmax(1).eq(&y).convert(DType::I32).sum());
    })?;
    Ok(program)
}

fn recipe() -> Recipe {
    let images = |array: &str| {
        let sixteenth = Transform::Scale(Scalar::of(0.0625f32));
        InputRecipe::new("x", array).then(Transform::Convert(DType::F32)).then(sixteenth)
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
            batch_size: TEST as u64,
            metrics: vec![
                metric("loss", "loss", Aggregate::Mean),
                metric("accuracy", "correct", Aggregate::PerExample),
            ],
            every: Cadence::Epochs(1),
        }),
        batches: Batches {
            size: BATCH.into(),
            shuffle: Some(1),
            blocks: None,
            last: LastBatch::Smaller,
        },
        length: Length::Epochs(EPOCHS.into()),
        checkpoint: Cadence::Epochs(5),
        key_seed: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (program, recipe, data) = (program()?, recipe(), digits()?);
    let device = Running::from_command_line();
    let mut session = Session::open(device)?;
    println!("training on {}", session.device());

    let mut epoch_loss = 0.0;
    let report =
        train(
            &mut session,
            &program,
            &recipe,
            &data,
            Options::default(),
            &mut |event| match event {
                Event::Epoch { loss, .. } => epoch_loss = loss,
                Event::Evaluation { epoch, metrics, .. } => {
                    let metrics: Vec<String> =
                        metrics.iter().map(|(name, v)| format!("test {name} {v:.4}")).collect();
                    println!("epoch {:2}: loss {epoch_loss:.4}, {}", epoch + 1, metrics.join(", "));
                }
                _ => {}
            },
        )?;
    let accuracy =
        report.metrics.iter().find(|(name, _)| name == "accuracy").map_or(0.0, |(_, value)| *value);
    println!("test accuracy after {} steps: {accuracy:.4}", report.steps);

    let test = recipe.evaluate.iter().flat_map(|e| &e.inputs).find(|i| i.input == "x");
    if let Some(input) = test {
        let all = Examples::all(Draws::new(recipe.key_seed, 0));
        npy::write("x.npy", &input.apply(data[&input.array].clone(), &all)?)?;
    }
    npz::write("digits.npz", data.iter().map(|(name, array)| (name.as_str(), array)))?;
    session.save_for("digits.safetensors", &program, "predict")?;
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }.write("digits.graph")?;
    println!("wrote digits.graph, digits.safetensors, digits.npz, x.npy");
    Ok(())
}
