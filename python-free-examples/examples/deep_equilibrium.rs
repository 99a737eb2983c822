//! Trains a network of infinite depth to read handwritten digits: see
//! [`python_free_examples::deep_equilibrium`].
//!
//!     cargo run --release -p python-free-examples --example deep_equilibrium [-- DEVICE]
//!
//! Writes `deep_equilibrium.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::deep_equilibrium::{Depth, program};
use python_free_examples::digits::{digits, inputs};
use std::process::ExitCode;
use wengert::prelude::*;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let program = program(48, Depth::Infinite(1e-5))?;
    let device = Running::from_command_line();
    let mut session = Session::open(device)?;
    program.save("deep_equilibrium.graph")?;
    println!("training on {}, wrote deep_equilibrium.graph", session.device());

    let data = digits()?;
    let (train, test) = (inputs(&data, "train")?, inputs(&data, "test")?);
    session.initialize(&program, 1)?;
    let mut step = session.compile(&program, "train_step", bind!(B = 1437))?;
    for count in 1..=150 {
        let loss = step.run(&train)?.scalar("loss")?;
        if count % 30 == 0 {
            println!("step {count:3}: loss {loss:.4}");
        }
    }
    let mut accuracy = session.compile(&program, "accuracy", bind!(B = 360))?;
    println!("test accuracy {:.4}", accuracy.run(&test)?.scalar("accuracy")?);
    Ok(())
}
