//! Fits a softmax regression to handwritten digits by Newton's method: see
//! [`python_free_examples::newton`].
//!
//!     cargo run --release -p python-free-examples --example newton [-- DEVICE]
//!
//! Writes `newton.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::digits::{digits, inputs};
use python_free_examples::newton::program;
use std::process::ExitCode;
use wengert::prelude::*;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let program = program(1e-3, 1e-6)?;
    let device = Running::from_command_line();
    let mut session = Session::open(device)?;
    program.save("newton.graph")?;
    println!("fitting on {}, wrote newton.graph", session.device());

    let data = digits()?;
    let wide = |part: &str| -> Result<[(&'static str, Literal); 2]> {
        let [(x, images), y] = inputs(&data, part)?;
        Ok([(x, images.convert(DType::F64)), y])
    };
    let (train, test) = (wide("train")?, wide("test")?);
    session.initialize(&program, 0)?;
    let mut step = session.compile(&program, "newton_step", bind!(B = 1437))?;
    for count in 0..15 {
        let found = step.run(&train)?;
        let size = found.scalar("gradient")?;
        println!("after {count:2} steps: loss {:.12}, gradient {size:.2e}", found.scalar("loss")?);
        if size < 1e-8 {
            break;
        }
    }
    let mut accuracy = session.compile(&program, "accuracy", bind!(B = 360))?;
    println!("test accuracy {:.4}", accuracy.run(&test)?.scalar("accuracy")?);
    Ok(())
}
