//! Solutions, gradients and learnt rates of differential equations, against a solution in plain
//! Rust, finite differences and the true rates.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::neural_ode::{
    Field, GAP, LotkaVolterra, Memory, Network, RATES, loss, observed, program, series, solve,
    windows,
};
use wengert::prelude::*;

fn numbers(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(|s| s.to_f64()).collect()
}

fn vector(values: &[f64]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

/// The true field: ln α, ln γ; ln β, ln δ.
fn world() -> [Vec<f64>; 2] {
    let [alpha, beta, gamma, delta] = RATES.map(f64::ln);
    [vec![alpha, gamma], vec![beta, delta]]
}

#[test]
fn solutions_are_as_near_as_is_asked_for_and_of_order_five() {
    let mut program = Program::new();
    let tolerances = [1e-5, 1e-10];
    program
        .function("solve", |f| {
            let [alone, together] = world().map(|logs| Tensor::constant(vector(&logs)));
            let field = LotkaVolterra { alone, together };
            let start = f.input("start", f64("2"));
            let gaps = f.input("gaps", f64("K"));
            for (i, tolerance) in tolerances.into_iter().enumerate() {
                let (series, tried) = solve(&field, &start, &gaps, tolerance, Memory::Tape(2000));
                f.output(&format!("series{i}"), series);
                f.output(&format!("steps{i}"), tried);
            }
        })
        .unwrap();
    let expected = series(41);
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut run = |gaps: &[f64]| {
        let mut solve = session.compile(&program, "solve", bind!(K = gaps.len() as i64)).unwrap();
        solve.run(&[("start", vector(&expected[0])), ("gaps", vector(gaps))]).unwrap()
    };
    let found = run(&[GAP; 40]);
    for (i, tolerance) in tolerances.into_iter().enumerate() {
        let series = numbers(found.get(&format!("series{i}")).unwrap());
        for (found, expected) in series.chunks(2).zip(&expected[1..]) {
            let error = (found[0] - expected[0]).abs().max((found[1] - expected[1]).abs());
            assert!(
                error < 100.0 * tolerance,
                "{found:?} instead of {expected:?} with {tolerance}"
            );
        }
    }
    // Only the error limits the steps. Five more decimals, with a method of fifth order, take ten
    // times as many steps.
    let found = run(&[40.0 * GAP]);
    let steps = [0, 1].map(|i| found.scalar(&format!("steps{i}")).unwrap());
    assert!((7.0..13.0).contains(&(steps[1] / steps[0])), "{steps:?}");
}

#[test]
fn gradients_are_differences_and_do_not_depend_on_how_steps_are_remembered() {
    let observed = observed(&series(13), 0.1, 3);
    let data = windows(&observed, 12).unwrap();
    let mut program = Program::new();
    program
        .function("gradients", |f| {
            let [start, gaps, seen] =
                [("start", f64("1,2")), ("gaps", f64("12")), ("seen", f64("12,1,2"))]
                    .map(|(name, ty)| f.input(name, ty));
            let field = LotkaVolterra {
                alone: f.input("alone", f64("2")),
                together: f.input("together", f64("2")),
            };
            let by =
                |memory| value_and_grad(&field, |field| loss(field, &start, &gaps, &seen, memory));
            let (value, tape) = by(Memory::Tape(64));
            let (_, one) = by(Memory::Checkpoints(1));
            let (_, three) = by(Memory::Checkpoints(3));
            f.output("loss", value);
            for (name, gradient) in [("tape", tape), ("one", one), ("three", three)] {
                f.output(name, Tensor::concatenate(&[&gradient.alone, &gradient.together], 0));
            }
            // Forward mode stores no steps. It takes one direction for each number.
            let forward =
                jacfwd(&field, |field| loss(field, &start, &gaps, &seen, Memory::Tape(64)));
            f.output("forward", Tensor::concatenate(&[&forward.alone, &forward.together], 0));
        })
        .unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut gradients = session.compile(&program, "gradients", bind!()).unwrap();
    let at = [0.2, 0.9, -0.1, 0.1];
    let mut run = |at: [f64; 4]| {
        let mut inputs = data.to_vec();
        inputs.extend([("alone", vector(&at[..2])), ("together", vector(&at[2..]))]);
        gradients.run(&inputs).unwrap()
    };
    let found = run(at);
    let tape = found.get("tape").unwrap();
    assert_eq!(tape, found.get("one").unwrap());
    assert_eq!(tape, found.get("three").unwrap());
    for (i, gradient) in numbers(tape).into_iter().enumerate() {
        let mut moved = |by: f64| {
            let mut at = at;
            at[i] += by;
            run(at).scalar("loss").unwrap()
        };
        let h = 1e-4;
        let difference =
            (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
        assert!(
            (gradient - difference).abs() < 1e-7 * (1.0 + gradient.abs()),
            "{gradient} is not {difference}"
        );
        let forward = found.get("forward").unwrap().get(i).to_f64();
        assert!(
            (gradient - forward).abs() < 1e-12 * (1.0 + gradient.abs()),
            "{gradient} is not {forward}"
        );
    }
}

/// Trains on windows of the series. Returns the session, the program and the last loss.
fn trained<F: Field + Clone>(field: F, rate: f64, steps: usize) -> (Session, Program, f64) {
    let program = program(field, rate.into(), Memory::Tape(32)).unwrap();
    let data = windows(&observed(&series(41), 0.01, 1), 4).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let mut step = session.compile(&program, "train_step", bind!(W = 37, K = 4)).unwrap();
    let losses: Vec<f64> =
        (0..steps).map(|_| step.run(&data).unwrap().scalar("loss").unwrap()).collect();
    (session, program, losses[steps - 1])
}

#[test]
fn the_rates_of_the_world_are_found() {
    let (session, _, loss) = trained(LotkaVolterra::default(), 0.1, 150);
    let found =
        ["field.alone", "field.together"].map(|name| numbers(&session.variable(name).unwrap()));
    for (found, world) in found.iter().flatten().zip(world().iter().flatten()) {
        let (found, world) = (found.exp(), world.exp());
        assert!((found / world - 1.0).abs() < 0.01, "{found} instead of {world}");
    }
    // The remaining loss is the noise of a window's first point and of the observations, each of
    // variance 1e-4.
    assert!(loss < 3e-4, "{loss}");
}

#[test]
fn a_network_learns_the_slopes() {
    let (mut session, program, loss) = trained(Network::new(2, 16), 0.03, 300);
    assert!(loss < 1e-3, "{loss}");
    let mut solve = session.compile(&program, "series", bind!(W = 1, K = 20)).unwrap();
    let start = Literal::zeros(DType::F64, &[1, 2]);
    let found = solve.run(&[("start", start), ("gaps", vector(&[GAP; 20]))]).unwrap();
    // The network was trained on windows of one unit of time, and here predicts five.
    for (found, world) in numbers(found.get("series").unwrap()).chunks(2).zip(&series(21)[1..]) {
        let error = (found[0] - world[0]).abs().max((found[1] - world[1]).abs());
        assert!(error < 0.1, "{found:?} instead of {world:?}");
    }
}
