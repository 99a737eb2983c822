//! Learns by Q-learning to walk to a goal and around a pit: see [`python_free_examples::dqn`].
//!
//!     cargo run --release -p python-free-examples --example dqn [-- DEVICE [STEPS]]
//!
//! Writes `dqn.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Training, run};
use python_free_examples::dqn::{SIDE, Settings, World, play, program, train};
use std::process::ExitCode;
use wengert::prelude::*;
use wengert::random::SplitMix64;

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let usual = Settings::default();
    let (device, rounds) = Training::from_command_line(usual.rounds);
    let settings = Settings { rounds, ..usual };
    let program = program(settings.width)?;
    program.save("dqn.graph")?;
    let mut session = Session::open(device)?;
    session.initialize(&program, 1)?;
    println!("training on {}, wrote dqn.graph", session.device());

    let mut sum = 0.0;
    train(&mut session, &program, &settings, &mut |round, loss| {
        sum += loss;
        if round % 500 == 0 {
            println!("round {round}: mean loss {:.5}", sum / 500.0);
            sum = 0.0;
        }
    })?;

    let mut random = SplitMix64::new(2);
    let worlds: Vec<World> = (0..1000).map(|_| World::new(&mut random)).collect();
    let arrived = play(&mut session, &program, &worlds, 4 * SIDE)?;
    let steps: Vec<usize> = arrived.iter().flatten().copied().collect();
    let mean = steps.iter().sum::<usize>() as f64 / steps.len().max(1) as f64;
    println!("{} of 1000 agents reach the goal, in {mean:.2} steps on average", steps.len());
    Ok(())
}
