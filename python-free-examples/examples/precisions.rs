//! Trains two networks from several seeds in f32, with products in bf16 and in f16 (whose loss is
//! scaled), and with states in bf16, rounded to the nearest and stochastically: see
//! [`python_free_examples::states`].
//!
//!     cargo run --release -p python-free-examples --example precisions [-- DEVICE [SEEDS]]
//!
//! Prints the accuracy of the convolutional network and the bits per character of the GPT, with
//! the differences from f32.

#![allow(clippy::print_stdout)] // The example prints its results.

use clap::Parser;
use python_free_examples::command::run;
use python_free_examples::states::{States, paired};
use python_free_examples::{char_gpt, convnet};
use std::process::ExitCode;
use wengert::Recipe;
use wengert::data::Arrays;
use wengert::prelude::*;
use wengert::train::{Options, train};

/// The command line.
#[derive(Parser)]
struct Study {
    /// Device: cpu, cuda:0 or emulator; the default is the first GPU, or the CPU if there is none
    device: Option<Device>,
    /// Seeds
    #[arg(value_parser = clap::value_parser!(u64).range(2..), default_value = "5")]
    seeds: u64,
}

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let study = Study::parse();
    let device = study.device.unwrap_or_else(Device::best);
    let images = convnet::mnist()?;
    compare("accuracy of the convolutional network", device, study.seeds, &images, |states| {
        let settings = convnet::Settings { steps: 150, states, ..Default::default() };
        Ok((convnet::program(&settings)?, convnet::recipe(&settings)))
    })?;
    let books = char_gpt::Books::two()?;
    let texts = books.arrays(&char_gpt::Settings::default())?;
    let characters = books.characters.alphabet.len();
    compare("bits per character of the GPT", device, study.seeds, &texts, |states| {
        let settings = char_gpt::Settings { steps: 60, states, ..Default::default() };
        Ok((char_gpt::program(characters, &settings)?, char_gpt::recipe(&settings)))
    })?;
    Ok(())
}

/// What a training computes in, and how it stores its states.
#[derive(Clone)]
struct Kind {
    name: String,
    states: States,
    policy: Option<Precision>,
}

impl Kind {
    /// All kinds, of which the first is f32.
    fn all() -> Vec<Kind> {
        let policies =
            [("products in bf16", Precision::bf16()), ("products in f16", Precision::f16())];
        let policies = policies.map(|(name, policy)| Kind {
            name: name.into(),
            states: States::F32,
            policy: Some(policy),
        });
        let states =
            States::ALL.map(|states| Kind { name: states.to_string(), states, policy: None });
        let (f32, rest) = states.split_first().expect("there are states in f32");
        [f32].into_iter().chain(&policies).chain(rest).cloned().collect()
    }
}

/// Trains from each seed in each precision. Prints the last metric of each, and its mean
/// difference from f32.
fn compare(
    what: &str,
    device: Device,
    seeds: u64,
    data: &Arrays,
    made: impl Fn(States) -> Result<(Program, Recipe)>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    println!("{what}, from {seeds} seeds");
    let mut in_f32 = Vec::new();
    for Kind { name, states, policy } in Kind::all() {
        let (mut program, mut recipe) = made(states)?;
        if let Some(policy) = &policy {
            program.precision(policy)?;
        }
        let mut found = Vec::new();
        for seed in 1..=seeds {
            recipe.key_seed = seed;
            recipe.batches.shuffle = Some(seed);
            let mut session = Session::open(device)?;
            let options = Options::default();
            let report = train(&mut session, &program, &recipe, data, options, &mut |_| {})?;
            found.push(report.metrics.last().map_or(f64::NAN, |(_, value)| *value));
        }
        let shown: Vec<String> = found.iter().map(|value| format!("{value:.4}")).collect();
        println!("  {name}: {}", shown.join(" "));
        if in_f32.is_empty() {
            in_f32 = found;
        } else {
            let (mean, error) = paired(&found, &in_f32);
            println!("    difference from f32: {mean:+.4} ± {error:.4}");
        }
    }
    Ok(())
}
