//! Learns a differential equation from a noisy time series of the numbers of prey and predators, in
//! two ways: see [`python_free_examples::neural_ode`].
//!
//!     cargo run --release -p python-free-examples --example neural_ode [-- DEVICE]
//!
//! First the equations are known, and their four rates are learnt. Then the equations are unknown,
//! and a network learns the derivatives. Writes `lotka_volterra.graph` and `neural_ode.graph`.

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::{Running, run};
use python_free_examples::neural_ode::{
    Field, GAP, LotkaVolterra, Memory, Network, RATES, observed, program, series, windows,
};
use std::process::ExitCode;
use wengert::prelude::*;

/// Number of observations, over 10 units of time. The field is trained on all windows: an
/// observation and the [`WINDOW`] observations after it.
const COUNT: usize = 41;
const WINDOW: usize = 4;

/// Trains a field. Returns the session, and the solution from the beginning to the end of the
/// series.
fn train<F: Field + Clone>(
    device: Device,
    field: F,
    memory: Memory,
    (rate, steps): (f64, usize),
    file: &str,
) -> Result<(Session, Literal)> {
    let program = program(field, rate.into(), memory)?;
    program.save(file)?;
    let mut session = Session::open(device)?;
    println!("\n{file}, on {}", session.device());
    session.initialize(&program, 1)?;
    let data = windows(&observed(&series(COUNT), 0.01, 1), WINDOW)?;
    let binding = bind!(W = (COUNT - WINDOW) as i64, K = WINDOW as i64);
    let mut train_step = session.compile(&program, "train_step", binding)?;
    for step in 1..=steps {
        let loss = train_step.run(&data)?.scalar("loss")?;
        if step % (steps / 5) == 0 {
            println!("step {step:3}: loss {loss:.6}");
        }
    }
    let mut solve = session.compile(&program, "series", bind!(W = 1, K = COUNT as i64 - 1))?;
    let gaps = Literal::from_vec(&[COUNT - 1], vec![GAP; COUNT - 1])?;
    let solution = solve.run(&[("start", Literal::zeros(DType::F64, &[1, 2])), ("gaps", gaps)])?;
    println!("solved to 1e-8 in {} steps", solution.scalar("steps")?);
    Ok((session, solution.get("series")?.clone()))
}

fn main() -> ExitCode {
    run(example)
}

fn example() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Running::from_command_line();

    let equations = LotkaVolterra::default();
    let (session, known) =
        train(device, equations, Memory::Checkpoints(4), (0.1, 150), "lotka_volterra.graph")?;
    let (alone, together) = (session.variable("field.alone")?, session.variable("field.together")?);
    for (i, (name, rate)) in ["alpha", "beta", "gamma", "delta"].into_iter().zip(RATES).enumerate()
    {
        let logs = if i % 2 == 0 { &alone } else { &together };
        println!("{name:6} {:.4}, the true value is {rate}", logs.get(i / 2).to_f64().exp());
    }

    let network = Network::new(2, 16);
    let (_, learnt) = train(device, network, Memory::Tape(32), (0.03, 400), "neural_ode.graph")?;

    println!("\nprey and predators: true, by the learnt rates, by the network");
    for (i, [x, y]) in series(COUNT).into_iter().enumerate().skip(1).step_by(4) {
        let at =
            |solution: &Literal, species: usize| solution.get(2 * (i - 1) + species).to_f64().exp();
        println!(
            "t = {:4.2}: {:6.3} {:6.3}   {:6.3} {:6.3}   {:6.3} {:6.3}",
            GAP * i as f64,
            x.exp(),
            y.exp(),
            at(&known, 0),
            at(&known, 1),
            at(&learnt, 0),
            at(&learnt, 1)
        );
    }
    Ok(())
}
