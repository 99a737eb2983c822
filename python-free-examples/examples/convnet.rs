//! Trains a convolutional network to read MNIST's digits: see [`python_free_examples::convnet`].
//!
//!     cargo run --release -p python-free-examples --example convnet [-- DEVICE [STEPS]]
//!
//! Writes into the current folder what `graphrun` needs to go on without Rust: `convnet.graph` (the functions `init`, `train_step`, `predict` and `loss`, and the
//! recipe), `convnet.safetensors` (the trained weights) and `convnet.npz` (the data).

#![allow(clippy::print_stdout)] // It is what the example is for.

use python_free_examples::convnet::{Settings, mnist, program, recipe};
use std::time::{Duration, Instant};
use wengert::GraphFile;
use wengert::data::npz;
use wengert::prelude::*;
use wengert::train::{Event, Options, train};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().map_or_else(Device::best, |name| name.parse())?;
    let mut settings = Settings::default();
    if let Some(steps) = arguments.next() {
        settings.steps = steps.parse()?;
    }
    let (program, recipe, data) = (program(&settings)?, recipe(&settings), mnist()?);
    let mut session = Session::open(device)?;
    println!("{} parameters, training on {}", settings.network.parameters(), session.device());

    // Training steps only; evaluations take their time besides.
    let (mut since, mut trained, mut loss, mut count) = (Instant::now(), Duration::ZERO, 0.0, 0.0);
    let report =
        train(&mut session, &program, &recipe, &data, Options::default(), &mut |event| match event {
            Event::Step { loss: of_step, .. } => {
                trained += since.elapsed();
                since = Instant::now();
                (loss, count) = (loss + of_step, count + 1.0);
            }
            Event::Evaluation { step, metrics, .. } => {
                let metrics: Vec<String> =
                    metrics.iter().map(|(name, v)| format!("test {name} {v:.4}")).collect();
                let (seconds, loss_of_steps) = (trained.as_secs_f64(), loss / count);
                println!("step {step:4}, {seconds:3.0} s: loss {loss_of_steps:.4}, {}", metrics.join(", "));
                (since, loss, count) = (Instant::now(), 0.0, 0.0);
            }
            _ => {}
        })?;
    let accuracy = report.metrics.iter().find(|(name, _)| name == "accuracy").map_or(0.0, |(_, v)| *v);
    let seconds = trained.as_secs_f64();
    println!("test accuracy after {} steps, {seconds:.0} s: {accuracy:.4}", report.steps);

    npz::write("convnet.npz", data.iter().map(|(name, array)| (name.as_str(), array)))?;
    session.save_for("convnet.safetensors", &program, "predict")?;
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }.write("convnet.graph")?;
    println!("wrote convnet.graph, convnet.safetensors, convnet.npz");
    Ok(())
}
