//! Fine-tunes an ONNX classifier, and exports it again: see
//! [`python_free_examples::onnx_classifier`].
//!
//!     cargo run --release -p python-free-examples --example onnx_classifier [-- DEVICE [STEPS]]
//!
//! Writes into the current folder `onnx_classifier.onnx`, the fine-tuned model, and for `graphrun`
//! `onnx_classifier.graph` (the function `predict`) and `onnx_classifier.safetensors` (its
//! weights).

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Training, run};
use python_free_examples::onnx_classifier::{STEPS, difference, exported, fine_tune, predictions};
use std::path::Path;
use std::process::ExitCode;
use wengert::prelude::*;
use wengert::train::Event;
use wengert::{ProgramFile, Weights, data};

/// The most that predictions may differ, as a part of the largest logit.
const MOST: f64 = 1e-5;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (device, steps) = Training::from_command_line(STEPS);
    println!("fine-tuning on {device}");
    let tuned = fine_tune(device, steps, &mut |event| {
        if let Event::Epoch { epoch, loss, .. } = event {
            println!("epoch {:2}: loss {loss:.4}", epoch + 1);
        }
    })?;
    let [before, after] = tuned.accuracy;
    println!("test accuracy {before:.4}, after {steps} steps {after:.4}");

    let again = exported(&tuned.merged, Path::new("onnx_classifier.onnx"))?;
    let adapted = predictions(device, &tuned.adapted)?;
    for (what, file) in [("merged", &tuned.merged), ("exported and imported", &again)] {
        let difference = difference(&adapted, &predictions(device, file)?);
        println!("{what}: predictions differ by {difference:.1e} of the largest logit");
        if difference > MOST {
            let message = format!("{what}: a difference of {difference:.1e} is above {MOST:.0e}");
            return Err(Diagnostic::new(message).into());
        }
    }

    if let Weights::Inline(weights) = &tuned.merged.weights {
        let weights = weights.iter().map(|(path, value)| (path.as_str(), value));
        data::write_all("onnx_classifier.safetensors", weights)?;
    }
    tuned.merged.program.save("onnx_classifier.graph")?;
    println!("wrote onnx_classifier.onnx, onnx_classifier.graph, onnx_classifier.safetensors");
    Ok(())
}
