//! Trains a variational autoencoder on digits, and writes new ones: see
//! [`python_free_examples::vae`].
//!
//!     cargo run --release -p python-free-examples --example vae [-- DEVICE [STEPS]]
//!
//! Writes `vae.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Training, run};
use python_free_examples::vae::{evidence, images, picture, program, rows, train};
use std::process::ExitCode;
use wengert::prelude::*;
use wengert::random;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (device, steps) = Training::from_command_line(3000);
    let program = program(128, 8)?;
    program.save("vae.graph")?;
    let mut session = Session::open(device)?;
    session.initialize(&program, 1)?;
    println!("training on {}, wrote vae.graph", session.device());

    let [images, test] = images()?;
    let mut sum = 0.0;
    train(&mut session, &program, &images, steps, &mut |step, loss| {
        sum += loss;
        if step % 500 == 0 {
            println!("step {step}: {:.3} nats for each image", sum / 500.0);
            sum = 0.0;
        }
    })?;
    let (reconstruction, divergence) = evidence(&mut session, &program, &test)?;
    println!("test: reconstruction {reconstruction:.3}, divergence {divergence:.3} nats");

    let first = rows(&test, &[0, 1, 2, 3, 4, 5, 6, 7])?;
    let mut reconstruct = session.compile(&program, "reconstruct", bind!(B = 8))?;
    println!("\nimages for testing\n{}", picture(&first));
    let found = reconstruct.run(&[("x", &first)])?;
    println!("the same from their codes\n{}", picture(found.get("images")?));
    let mut generate = session.compile(&program, "generate", bind!(B = 8))?;
    let drawn = generate.run(&[("key", random::key(3, 0))])?;
    println!("from random codes\n{}", picture(drawn.get("images")?));
    Ok(())
}
