//! Trains a network on digits by K-FAC, and by gradient descent for comparison: see
//! [`python_free_examples::kfac`].
//!
//!     cargo run --release -p python-free-examples --example kfac [-- DEVICE]
//!
//! Each step uses all images. Writes `kfac.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::digits::{TEST, digits, inputs};
use python_free_examples::kfac::program;
use std::process::ExitCode;
use wengert::prelude::*;

/// Training ends below this loss.
const GOAL: f64 = 1e-3;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Running::from_command_line();
    let digits = digits()?;
    let (train, test) = (inputs(&digits, "train")?, inputs(&digits, "test")?);
    let binding = bind!(B = train[1].1.len() as i64);

    for (name, rate) in
        [("kfac_step", 1.0), ("sgd_step", 0.5), ("sgd_step", 1.0), ("sgd_step", 2.0)]
    {
        let program = program(&[64, 32, 10], 0.03, rate)?;
        program.save("kfac.graph")?;
        let mut session = Session::open(device)?;
        session.initialize(&program, 1)?;
        let mut step = session.compile(&program, name, &binding)?;
        let (mut steps, mut loss, begin) = (0, f64::INFINITY, std::time::Instant::now());
        while loss > GOAL && steps < 2000 {
            loss = step.run(&train)?.scalar("loss")?;
            steps += 1;
            if name == "kfac_step" {
                println!("step {steps:2}: loss {loss:.5}");
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let mut accuracy = session.compile(&program, "accuracy", bind!(B = TEST as i64))?;
        let accuracy = accuracy.run(&test)?.scalar("accuracy")?;
        let how = if name == "kfac_step" {
            "K-FAC".into()
        } else {
            format!("gradient descent, rate {rate}")
        };
        println!(
            "{how}: loss {loss:.5} after {steps} steps, {seconds:.2} s; test accuracy {accuracy:.4}"
        );
    }
    println!("wrote kfac.graph");
    Ok(())
}
