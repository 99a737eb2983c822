//! Trains an LSTM on a play, says how well it guesses what it has not seen, and lets it write.
//!
//!     cargo run --release -p python-free-examples --example lstm [-- DEVICE [STEPS]]
//!
//! Writes into the current folder what `graphrun` needs to go on without Rust: `lstm.graph` (the functions `init`, `train_step`, `loss` and `sample`, and the
//! recipe), `lstm.safetensors` (the trained weights) and `lstm.npz` (the data). The model is in `src/lstm.rs`.

#![allow(clippy::print_stdout)] // It is what the example is for.

use python_free_examples::lstm::{Characters, Settings, program, recipe};
use std::time::{Duration, Instant};
use wengert::data::npz;
use wengert::prelude::*;
use wengert::train::{Event, Options, train};
use wengert::{GraphFile, Scalar};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().map_or_else(Device::best, |name| name.parse())?;
    let mut settings = Settings::default();
    if let Some(steps) = arguments.next() {
        settings.steps = steps.parse()?;
    }
    let play = Characters::play()?;
    let (program, recipe) = (program(play.alphabet.len(), &settings)?, recipe(&settings));
    let data = play.arrays(&settings)?;
    let mut session = Session::open(device)?;
    println!("training on {}", session.device());

    // Training steps only; evaluations take their time besides.
    let (mut since, mut trained, mut loss, mut count) = (Instant::now(), Duration::ZERO, 0.0, 0.0);
    let report = train(
        &mut session,
        &program,
        &recipe,
        &data,
        Options::default(),
        &mut |event| match event {
            Event::Step { loss: of_step, .. } => {
                trained += since.elapsed();
                since = Instant::now();
                (loss, count) = (loss + of_step, count + 1.0);
            }
            Event::Evaluation { step, metrics, .. } => {
                let bits = metrics.iter().map(|(_, value)| *value).sum::<f64>();
                let learnt = loss / count * std::f64::consts::LOG2_E;
                let seconds = trained.as_secs_f64();
                println!(
                    "step {step:4}, {seconds:3.0} s: {learnt:.3} bits in training, {bits:.3} on the last tenth"
                );
                (since, loss, count) = (Instant::now(), 0.0, 0.0);
            }
            _ => {}
        },
    )?;
    let bits = report.metrics.first().map_or(f64::NAN, |(_, bits)| *bits);
    println!("bits per character after {} steps, {:.0} s: {bits:.4}", report.steps, trained.as_secs_f64());

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
