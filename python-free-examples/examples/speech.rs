//! Learns to recognise the vowels of synthetic speech: see [`python_free_examples::speech`].
//!
//!     cargo run --release -p python-free-examples --example speech [-- DEVICE [STEPS]]
//!
//! Writes `speech.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Training, run};
use python_free_examples::speech::{
    Utterance, VOWELS, batch, error_rate, program, spelled, utterance,
};
use std::process::ExitCode;
use wengert::prelude::*;
use wengert::random::SplitMix64;

const BATCH: usize = 32;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (device, steps) = Training::from_command_line(400);
    let program = program(32)?;
    program.save("speech.graph")?;
    let mut session = Session::open(device)?;
    session.initialize(&program, 1)?;
    println!("training on {}, wrote speech.graph", session.device());

    let mut random = SplitMix64::new(1);
    let mut train_step = session.compile(&program, "train_step", bind!(B = BATCH as i64))?;
    for step in 1..=steps {
        let utterances: Vec<Utterance> = (0..BATCH).map(|_| utterance(&mut random)).collect();
        let loss = train_step.run(&batch(&utterances)?)?.scalar("loss")?;
        if step % 50 == 0 {
            println!("step {step}: loss {loss:.4}");
        }
    }

    let mut random = SplitMix64::new(2);
    let utterances: Vec<Utterance> = (0..500).map(|_| utterance(&mut random)).collect();
    let [frames, ..] = batch(&utterances)?;
    let mut recognize = session.compile(&program, "recognize", bind!(B = 500))?;
    let found = recognize.run(&[frames])?;
    let classes = found.get("classes")?;
    println!("label error rate: {:.4}", error_rate(classes, &utterances));

    let text = |labels: &[i32]| -> String {
        labels.iter().map(|label| VOWELS[*label as usize - 1].0).collect::<Vec<_>>().join(" ")
    };
    for (heard, utterance) in spelled(classes, &utterances).iter().zip(&utterances).take(5) {
        println!("said {:12} heard {}", text(&utterance.labels), text(heard));
    }
    Ok(())
}
