//! Learns to tag words as determiner, adjective, noun or verb by a conditional random field: see
//! [`python_free_examples::crf`].
//!
//!     cargo run --release -p python-free-examples --example crf [-- DEVICE]
//!
//! In the made-up language most words can be several parts of speech, so the tags depend on the
//! whole sentence. Writes `crf.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::crf::{TAGS, WORDS, program, sentences, word};
use std::process::ExitCode;
use wengert::prelude::*;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let program = program()?;
    let device = Running::from_command_line();
    let mut session = Session::open(device)?;
    program.save("crf.graph")?;
    println!("training on {}, wrote crf.graph", session.device());

    let (words, tags) = sentences(512, 12, 1)?;
    session.initialize(&program, 0)?;
    let mut train_step = session.compile(&program, "train_step", bind!(B = 512, T = 12))?;
    for step in 1..=100 {
        let loss = train_step.run(&[("words", &words), ("tags", &tags)])?.scalar("loss")?;
        if step % 20 == 0 {
            println!("step {step:3}: -log p(tags | words) {loss:.4}");
        }
    }

    let (words, tags) = sentences(500, 12, 2)?;
    let found =
        session.compile(&program, "tag", bind!(B = 500, T = 12))?.run(&[("words", &words)])?;
    let right = found.get("tags")?.scalars().zip(tags.scalars()).filter(|(a, b)| a == b).count();
    println!("accuracy on other sentences: {:.4}\n", right as f64 / tags.len() as f64);

    for sentence in [
        "the old man likes the green boat",
        "the old man the boat",
        "a light light light light a light",
    ] {
        let words: Vec<i32> = sentence.split(' ').filter_map(word).map(|w| w as i32).collect();
        let length = words.len();
        let words = Literal::from_vec(&[1, length], words)?;
        let mut tag = session.compile(&program, "tag", bind!(B = 1, T = length as i64))?;
        let found = tag.run(&[("words", &words)])?;
        println!("{sentence}: probability {:.3}", found.scalar("probability")?);
        for (place, tag) in found.get("tags")?.scalars().enumerate() {
            let (word, marginals) =
                (WORDS[words.get(place).to_f64() as usize].0, found.get("marginals")?);
            let each: Vec<String> = TAGS
                .iter()
                .enumerate()
                .map(|(k, name)| {
                    format!("{name} {:.3}", marginals.get(place * TAGS.len() + k).to_f64())
                })
                .collect();
            println!("  {word:8} {}   {}", TAGS[tag.to_f64() as usize], each.join("  "));
        }
    }
    Ok(())
}
