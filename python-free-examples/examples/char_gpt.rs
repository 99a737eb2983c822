//! Trains a GPT on the characters of two books, reports its loss on held-out text, and generates
//! text.
//!
//!     cargo run --release -p python-free-examples --example char_gpt [-- DEVICE [STEPS]]
//!
//! Writes into the current folder the files for `graphrun`: `char_gpt.graph` (the functions `init`,
//! `train_step`, `loss` and `sample`, and the recipe), `char_gpt.safetensors` (the trained weights)
//! and `char_gpt.npz` (the data). `src/char_gpt.rs` has the other code.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::char_gpt::{Books, Settings, program, recipe};
use python_free_examples::command::{Progress, Training, run};
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
    let books = Books::two()?;
    let characters = books.characters.alphabet.len();
    let (program, recipe) = (program(characters, &settings)?, recipe(&settings));
    let data = books.arrays(&settings)?;
    let mut session = Session::open(device)?;
    println!(
        "{} parameters, training on {}",
        settings.gpt(characters).parameters(),
        session.device()
    );

    let mut progress = Progress::begin();
    let report = train(&mut session, &program, &recipe, &data, Options::default(), &mut |event| {
        progress.hear(event, |progress, step, loss, metrics| {
            let bits = metrics.iter().map(|(_, value)| *value).sum::<f64>();
            let (learnt, seconds) = (loss * std::f64::consts::LOG2_E, progress.seconds());
            println!(
                "step {step:4}, {seconds:3.0} s: {learnt:.3} bits in training, {bits:.3} on the \
                 last tenths"
            );
        });
    })?;
    let bits = report.metrics.first().map_or(f64::NAN, |(_, bits)| *bits);
    println!(
        "bits per character after {} steps, {:.0} s: {bits:.4}",
        report.steps,
        progress.seconds()
    );

    let begin = "Alice ";
    let [prompt, given] = books.prompt(begin, &settings)?;
    let temperature = ("temperature", Literal::full(&[], Scalar::of(0.7f32)));
    let mut sample = session.compile(&program, "sample", bind!())?;
    let written = sample.run(&[prompt, given, temperature, ("key", recipe.key_for(1))])?;
    println!("\n{begin}{}\n", books.characters.text(written.get("text")?).replace('\r', ""));

    npz::write("char_gpt.npz", data.iter().map(|(name, array)| (name.as_str(), array)))?;
    session.save_for("char_gpt.safetensors", &program, "sample")?;
    GraphFile { recipe: Some(recipe), ..GraphFile::new(program) }.write("char_gpt.graph")?;
    println!("wrote char_gpt.graph, char_gpt.safetensors, char_gpt.npz");
    Ok(())
}
