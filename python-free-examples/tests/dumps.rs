//! `graphrun dump` prints readable programs for the examples: without dead or duplicate equations,
//! and not too long.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::deep_equilibrium::{self, Depth};
use python_free_examples::neural_ode::{self, Memory};
use python_free_examples::{
    char_gpt, convnet, crf, dqn, graph_network, kfac, lstm, newton, speech, tree, vae,
};
use wengert::core::graph::{Body, Equation, Program, ValueId};

/// The programs by name, each with the maximum number of lines of its longest function.
fn programs() -> Vec<(&'static str, usize, Program)> {
    let ode = |field, memory| neural_ode::program(field, 0.1.into(), memory).unwrap().into_inner();
    vec![
        (
            "char_gpt",
            2950,
            char_gpt::program(74, &char_gpt::Settings::default()).unwrap().into_inner(),
        ),
        ("convnet", 460, convnet::program(&convnet::Settings::default()).unwrap().into_inner()),
        ("crf", 180, crf::program().unwrap().into_inner()),
        (
            "deep_equilibrium",
            420,
            deep_equilibrium::program(48, Depth::Infinite(1e-5)).unwrap().into_inner(),
        ),
        ("dqn", 230, dqn::program(64).unwrap().into_inner()),
        (
            "graph_network",
            280,
            graph_network::program(&[graph_network::MEMBERS, 8, 8, 2]).unwrap().into_inner(),
        ),
        ("kfac", 400, kfac::program(&[64, 32, 10], 0.03, 1.0).unwrap().into_inner()),
        ("lstm", 370, lstm::program(64, &lstm::Settings::default()).unwrap().into_inner()),
        ("neural_ode", 1130, ode(neural_ode::LotkaVolterra::default(), Memory::Checkpoints(4))),
        ("newton", 170, newton::program(1e-3, 1e-6).unwrap().into_inner()),
        ("speech", 550, speech::program(32).unwrap().into_inner()),
        ("tree", 450, tree::program(16).unwrap().into_inner()),
        ("vae", 340, vae::program(128, 8).unwrap().into_inner()),
    ]
}

/// The numbers of equations without used results, and of equations that repeat an earlier one.
fn superfluous(body: &Body) -> (usize, usize) {
    let used: Vec<ValueId> =
        body.equations.iter().flat_map(|e| &e.operands).chain(&body.outputs).copied().collect();
    let dead =
        body.equations.iter().filter(|e| !e.results.iter().any(|v| used.contains(v))).count();
    let again = body.equations.iter().enumerate().filter(|(n, e)| {
        let same =
            |o: &Equation| o.op == e.op && o.operands == e.operands && o.regions == e.regions;
        body.equations[..*n].iter().any(same)
    });
    let own = (dead, again.count());
    let regions = body.equations.iter().flat_map(|e| &e.regions);
    regions.map(|r| superfluous(r)).fold(own, |a, b| (a.0 + b.0, a.1 + b.1))
}

#[test]
fn dumps_of_examples_are_short_and_clean() {
    for (name, most, program) in programs() {
        for function in program.functions() {
            let lines = function.to_string().lines().count();
            let (dead, again) = superfluous(&function.body);
            println!("{name}@{}: {lines} lines, {dead} dead, {again} twice", function.name);
            assert!(lines <= most, "{name}@{}", function.name);
            assert_eq!((dead, again), (0, 0), "{name}@{}", function.name);
        }
    }
}
