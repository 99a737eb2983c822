//! A training step whose states are bf16, beside the same step in f32.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::convnet::{Settings, program};
use python_free_examples::states::{States, paired};
use std::collections::BTreeMap;
use wengert::models::ConvnetSettings;
use wengert::prelude::*;

/// The variables and moments after one step from the same numbers, in f32.
fn after_a_step(states: States) -> BTreeMap<String, Vec<f32>> {
    let network = ConvnetSettings { features: [2, 3], width: 8, ..ConvnetSettings::MNIST };
    // A rate that moves weights by less than half a unit of bf16.
    let settings = Settings { network, rate: 1e-3, steps: 100, states, ..Settings::default() };
    let program = program(&settings).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 3).unwrap();
    let names: Vec<String> = {
        let step = program.get("train_step").unwrap();
        step.inputs.iter().map(|input| input.name.clone()).collect()
    };
    // Numbers that bf16 has.
    for path in names.iter().filter(|name| name.starts_with("model.")) {
        let value = session.variable(path).unwrap();
        let rounded = value.convert(DType::BF16).convert(value.dtype());
        session.set_variable(path, &rounded).unwrap();
    }
    let (x, y) = ((0..8 * 784).map(|n| (n % 17) as f32 / 17.0), (0..8).map(|n| n % 10));
    let inputs = [
        ("x", Literal::from_vec(&[8, 784], x.collect()).unwrap()),
        ("y", Literal::from_vec(&[8], y.collect::<Vec<i32>>()).unwrap()),
        ("key", Literal::from_vec(&[2], vec![3u32, 4]).unwrap()),
    ];
    session.compile(&program, "train_step", bind!(B = 8)).unwrap().run(&inputs).unwrap();
    let of_model = |name: &&String| name.starts_with("model.") || name.starts_with("adamw.");
    let value = |name: &String| {
        let value = session.variable(name).unwrap();
        let is_stored = name.contains("model.");
        let stored = if states == States::F32 { DType::F32 } else { DType::BF16 };
        assert!(!is_stored || value.dtype() == stored, "{name}: {}", value.ty());
        (name.clone(), value.convert(DType::F32).as_slice::<f32>().unwrap().to_vec())
    };
    names.iter().filter(of_model).map(value).collect()
}

/// Each variable is the nearest number of bf16 to that of the f32 step, or, stochastically, one of
/// the two beside it.
#[test]
fn states_are_rounded_to_a_neighbour() {
    let [exact, nearest, stochastic] = States::ALL.map(after_a_step);
    let (mut all, mut different) = (0, 0);
    for (name, exact) in exact.iter().filter(|(name, _)| name.starts_with("model.")) {
        for (n, x) in exact.iter().enumerate() {
            let [a, b] = [nearest[name][n], stochastic[name][n]];
            // The distance of neighbours: the sign, the exponent and 7 bits are those of bf16.
            let below = x.abs().to_bits() & 0xffff_0000;
            let unit = f32::from_bits(below + 0x1_0000) - f32::from_bits(below);
            let is_near = (a - x).abs() <= 0.501 * unit && (b - x).abs() <= 1.001 * unit;
            assert!(is_near, "{name} {n}: {x} became {a} and {b}");
            all += 1;
            different += usize::from(a != b);
        }
    }
    assert!(different * 50 > all, "{different} of {all}");
}

#[test]
fn differences_are_paired() {
    let (mean, error) = paired(&[1.0, 2.0, 4.0], &[0.5, 2.5, 2.0]);
    // Differences 0.5, −0.5, 2: deviations from 2/3 are −1/6, −7/6, 4/3.
    assert!((mean - 2.0 / 3.0).abs() < 1e-12);
    let squares: f64 = (1.0 + 49.0 + 64.0) / 36.0;
    assert!((error - (squares / 6.0).sqrt()).abs() < 1e-12);
}
