//! Trains a convolutional network to read MNIST's digits: see [`python_free_examples::convnet`].
//!
//!     cargo run --release -p python-free-examples --example convnet [-- DEVICE [STEPS]]
//!
//! Writes into the current folder the files for `graphrun`: `convnet.graph` (the functions `init`,
//! `train_step`, `predict` and `loss`, and the recipe), `convnet.safetensors` (the trained weights)
//! and `convnet.npz` (the data).

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Progress, Training, run};
use python_free_examples::convnet::{Settings, mnist, program, recipe};
use std::process::ExitCode;
use wengert::GraphFile;
use wengert::data::npz;
use wengert::prelude::*;
use wengert::train::{Options, train};

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let usual = Settings::default();
    let (device, steps) = Training::from_command_line(usual.steps);
    let settings = Settings { steps, ..usual };
    let (program, recipe, data) = (program(&settings)?, recipe(&settings), mnist()?);
    let mut session = Session::open(device)?;
    println!("{} parameters, training on {}", settings.network.parameters(), session.device());

    let mut progress = Progress::begin();
    let report = train(&mut session, &program, &recipe, &data, Options::default(), &mut |event| {
        progress.hear(event, |progress, step, loss, metrics| {
            let metrics: Vec<String> =
                metrics.iter().map(|(name, v)| format!("test {name} {v:.4}")).collect();
            println!(
                "step {step:4}, {:3.0} s: loss {loss:.4}, {}",
                progress.seconds(),
                metrics.join(", ")
            );
        });
    })?;
    let accuracy =
        report.metrics.iter().find(|(name, _)| name == "accuracy").map_or(0.0, |(_, v)| *v);
    let seconds = progress.seconds();
    println!("test accuracy after {} steps, {seconds:.0} s: {accuracy:.4}", report.steps);

    npz::write("convnet.npz", data.iter().map(|(name, array)| (name.as_str(), array)))?;
    session.save_for("convnet.safetensors", &program, "predict")?;
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }.write("convnet.graph")?;
    println!("wrote convnet.graph, convnet.safetensors, convnet.npz");
    Ok(())
}
