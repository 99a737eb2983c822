//! Writes a training step of GPT-2 with 124 million parameters to a file, for `ci/deep/report`.
//!
//!     cargo run --release -p wengert-graphrun --example gpt2_step -- gpt2.graph

use std::process::ExitCode;
use wengert::GraphFile;
use wengert::models::{Gpt, GptSettings};
use wengert::prelude::*;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: gpt2_step FILE.graph");
        return ExitCode::FAILURE;
    };
    match program().and_then(|program| GraphFile::new(program).write(path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A step of AdamW on four sequences of 1024 tokens.
fn program() -> Result<Program> {
    let settings = GptSettings::SMALL;
    let mut program = Program::new();
    program.function("step", |f| {
        let tokens = TensorType::new(DType::I32, [4, settings.positions]);
        let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
        let model = f.state("model", Gpt::new(&settings));
        let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    Ok(program)
}
