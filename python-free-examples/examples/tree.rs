//! Learns the functions *and*, *or*, *xor* and *not* from the truth of expressions: see
//! [`python_free_examples::tree`].
//!
//!     cargo run --release -p python-free-examples --example tree [-- DEVICE]
//!
//! Trains on trees of up to 6 leaves, then evaluates larger ones. Writes `tree.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::tree::{Tree, batch, forest, program};
use std::process::ExitCode;
use wengert::prelude::*;

const BATCH: usize = 64;
const STEPS: u64 = 300;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Running::from_command_line();
    let program = program(16)?;
    program.save("tree.graph")?;
    let mut session = Session::open(device)?;
    session.initialize(&program, 1)?;
    println!("training on {}, wrote tree.graph", session.device());

    let nodes = |inputs: &[(&str, Literal)]| inputs[0].1.shape()[1] as i64;
    for step in 1..=STEPS {
        let inputs = batch(&forest(BATCH, 1..=6, step))?;
        // Batches share a plan if their longest trees have the same length.
        let binding = bind!(B = BATCH as i64, T = nodes(&inputs));
        let loss =
            session.compile(&program, "train_step", binding)?.run(&inputs)?.scalar("loss")?;
        if step % 50 == 0 {
            println!("step {step}: loss {loss:.4}");
        }
    }

    let trees = forest(1000, 7..=12, 0);
    let [kinds, values, truth] = batch(&trees)?;
    let binding = bind!(B = 1000, T = nodes(std::slice::from_ref(&kinds)));
    let found = session.compile(&program, "evaluate", binding)?.run(&[kinds, values])?;
    let guesses = found.get("probability")?.scalars().map(|p| i32::from(p.to_f64() > 0.5));
    let right =
        guesses.zip(truth.1.scalars()).filter(|(guess, truth)| f64::from(*guess) == truth.to_f64());
    println!("right about 1000 trees of 7 to 12 leaves: {}\n", right.count());

    // The derivative by a leaf is the effect of a small increase of its truth value.
    for tree in &forest(4, 4..=5, 7) {
        let [kinds, values, _] = batch(std::slice::from_ref(tree))?;
        let binding = bind!(B = 1, T = nodes(std::slice::from_ref(&kinds)));
        let found = session.compile(&program, "evaluate", binding)?.run(&[kinds, values])?;
        let slopes = found.get("leaves")?;
        println!("{tree} is true with probability {:.3}", found.scalar("probability")?);
        let mut leaves = tree.postfix().into_iter().enumerate().filter(|(_, (kind, _))| *kind == 0);
        let weighed: Tree<String> = tree.map(&mut |_| {
            leaves.next().map_or_else(String::new, |(place, _)| {
                format!("{:+.2}", slopes.get(place).to_f64())
            })
        });
        println!("  by leaves: {weighed}");
    }
    Ok(())
}
