//! Writes a training step of a language model with AdamW to a file, for `graphrun scale`:
//! docs/scale.md has plans that are made of such files.
//!
//!     cargo run --release -p wengert-graphrun --example scale_step -- gpt2-1558m 1024 step.graph
//!
//! Models are gpt2-124m and gpt2-1558m with sequences of 1024 tokens, and llama3-8b with 8192. The
//! second argument is the number of sequences of a batch.

use std::process::ExitCode;
use wengert::GraphFile;
use wengert::core::Differentiable;
use wengert::models::{Gpt, GptSettings, Llama, LlamaSettings};
use wengert::prelude::*;

const USAGE: &str = "usage: scale_step gpt2-124m|gpt2-1558m|llama3-8b SEQUENCES FILE.graph";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, sequences, path] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let Ok(batch) = sequences.parse::<usize>() else {
        eprintln!("`{sequences}` is no number of sequences\n{USAGE}");
        return ExitCode::FAILURE;
    };
    let program = match model.as_str() {
        "gpt2-124m" => gpt2(&GptSettings::SMALL, batch),
        "gpt2-1558m" => gpt2(&GptSettings::XL, batch),
        "llama3-8b" => {
            let settings = LlamaSettings::LLAMA_3_8B;
            step(batch, settings.positions, || Llama::new(&settings), Llama::loss)
        }
        _ => {
            eprintln!("there is no model `{model}`\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match program.and_then(|program| GraphFile::new(program).write(path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn gpt2(settings: &GptSettings, batch: usize) -> Result<Program> {
    step(batch, settings.positions, || Gpt::new(settings), Gpt::loss)
}

/// A step of AdamW on so many sequences of tokens.
fn step<M: Differentiable>(
    batch: usize,
    positions: usize,
    model: impl Fn() -> M,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
) -> Result<Program> {
    let mut program = Program::new();
    program.function("step", |f| {
        let tokens = TensorType::new(DType::I32, [batch, positions]);
        let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
        let model = f.state("model", model());
        let (loss, gradient) = value_and_grad(&model, |m| loss(m, &x, &y));
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    Ok(program)
}
