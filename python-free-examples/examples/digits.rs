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
//! The program, the recipe and the data are in [`python_free_examples::digits`].

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::digits::{digits, program, recipe, write};
use std::path::Path;
use std::process::ExitCode;
use wengert::Session;
use wengert::train::{Event, Options, train};

fn main() -> ExitCode {
    run(example)
}

fn example() -> Result<(), Box<dyn std::error::Error>> {
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

    write(Path::new("."), &session, program, recipe, &data)?;
    println!("wrote digits.graph, digits.safetensors, digits.npz, x.npy");
    Ok(())
}
