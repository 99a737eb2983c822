//! Trains an LSTM on a play, reports its loss on held-out text, and generates text.
//!
//!     cargo run --release -p python-free-examples --example lstm [-- DEVICE [STEPS]]
//!
//! Writes into the current folder the files for `graphrun`: `lstm.graph` (the functions `init`,
//! `train_step`, `loss` and `sample`, and the recipe), `lstm.safetensors` (the trained weights) and
//! `lstm.npz` (the data). The model is in `src/lstm.rs`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Progress, Training, run};
use python_free_examples::lstm::{Characters, Settings, program, recipe};
use std::process::ExitCode;
use wengert::data::npz;
use wengert::prelude::*;
use wengert::train::{Options, train};
use wengert::{GraphFile, Scalar};

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let usual = Settings::default();
    let (device, steps) = Training::from_command_line(usual.steps);
    let settings = Settings { steps, ..usual };
    let play = Characters::play()?;
    let (program, recipe) = (program(play.alphabet.len(), &settings)?, recipe(&settings));
    let data = play.arrays(&settings)?;
    let mut session = Session::open(device)?;
    println!("training on {}", session.device());

    let mut progress = Progress::begin();
    let report = train(&mut session, &program, &recipe, &data, Options::default(), &mut |event| {
        progress.hear(event, |progress, step, loss, metrics| {
            let bits = metrics.iter().map(|(_, value)| *value).sum::<f64>();
            let (learnt, seconds) = (loss * std::f64::consts::LOG2_E, progress.seconds());
            println!(
                "step {step:4}, {seconds:3.0} s: {learnt:.3} bits in training, {bits:.3} on the \
                 last tenth"
            );
        });
    })?;
    let bits = report.metrics.first().map_or(f64::NAN, |(_, bits)| *bits);
    println!(
        "bits per character after {} steps, {:.0} s: {bits:.4}",
        report.steps,
        progress.seconds()
    );

    let prompt = play.numbers_of("ROSALIND\t")?;
    let binding = bind!(T = prompt.len() as i64);
    let mut sample = session.compile(&program, "sample", binding)?;
    let temperature = Literal::full(&[], Scalar::of(0.7f32));
    let given = [("prompt", prompt), ("temperature", temperature), ("key", recipe.key_for(1))];
    println!("\nROSALIND\t{}\n", play.text(sample.run(&given)?.get("text")?));

    npz::write("lstm.npz", data.iter().map(|(name, array)| (name.as_str(), array)))?;
    session.save_for("lstm.safetensors", &program, "sample")?;
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }.write("lstm.graph")?;
    println!("wrote lstm.graph, lstm.safetensors, lstm.npz");
    Ok(())
}
