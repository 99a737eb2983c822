//! Predicts the sides of a karate club's members from their friendships: see
//! [`python_free_examples::graph_network`].
//!
//!     cargo run --release -p python-free-examples --example graph_network [-- DEVICE]
//!
//! Writes `graph_network.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::graph_network::{MEMBERS, club, friendships, program, sides};
use std::process::ExitCode;
use wengert::prelude::*;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Running::from_command_line();
    let program = program(&[MEMBERS, 8, 8, 2])?;
    program.save("graph_network.graph")?;
    let mut session = Session::open(device)?;
    session.initialize(&program, 1)?;
    println!("training on {}, wrote graph_network.graph", session.device());

    let club = club()?;
    let sizes = bind!(N = MEMBERS as i64, E = friendships().len() as i64);
    // The sides of the instructor and the president are known.
    let mut inputs = club.clone();
    inputs.push(("known", Literal::from_vec(&[2], vec![0, MEMBERS as i32 - 1])?));
    inputs.push(("sides", Literal::from_vec(&[2], vec![0, 1])?));
    let mut train_step = session.compile(&program, "train_step", sizes.clone().with("K", 2))?;
    for step in 1..=200 {
        let loss = train_step.run(&inputs)?.scalar("loss")?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {loss:.4}");
        }
    }

    let found = session.compile(&program, "predict", sizes)?.run(&club)?;
    let probabilities = found.get("sides")?;
    let mut right = 0;
    for (member, side) in sides().into_iter().enumerate() {
        let president = probabilities.get(2 * member + 1).to_f64();
        let guess = i32::from(president > 0.5);
        right += i32::from(guess == side);
        let name = ["instructor", "president"][guess as usize];
        let mark = if guess == side { "" } else { "  (wrong)" };
        println!("member {:2}: {name:10} {:.3}{mark}", member + 1, president.max(1.0 - president));
    }
    println!("{right} of {MEMBERS} are right");
    Ok(())
}
