//! Random programs with nested regions.

use super::super::choose;
use wengert::control;
use wengert::core::Scalar;
use wengert::core::op::{Attention, AttentionKind, Checkpoint, Op, ProbeKind};
use wengert::operators::{call, checkpoint};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::derivative::f64s;
use wengert_testing::samples::Sample;

pub type Values = Vec<Tensor>;

/// Shape of the state that loops carry.
pub const STATE: [usize; 2] = [2, 2];

/// Maximum nesting depth of regions.
pub const DEEPEST: usize = 9;

/// Maximum number of runs of the innermost region in one evaluation of the function.
pub const RUNS: usize = 8;

/// Limits for the construction of a region.
#[derive(Clone, Copy)]
pub struct Room {
    /// The remaining nesting depth.
    pub depth: usize,
    /// The remaining number of runs of the innermost region.
    pub runs: usize,
    /// Whether all regions are loops.
    pub loops: bool,
    /// Whether a construct may still keep checkpoints. Its derivative contains several copies of
    /// its region, so the derivative grows exponentially in the nesting depth.
    pub checkpoints: bool,
    /// Whether a value may be printed. A `while` without a bound has no stack for printed values.
    pub prints: bool,
}

/// A value in the shape of the state, in −1..1.
fn squashed(value: &Tensor) -> Tensor {
    match value.ty().elements() {
        Some(4) => value.reshape(STATE).tanh(),
        _ => (value.tanh().sum() * 0.3).tanh().broadcast_in_dim(STATE.map(Dim::from).to_vec(), &[]),
    }
}

/// Combines some values into a state.
fn mixed(values: &[Tensor]) -> Tensor {
    let last = &values[values.len().saturating_sub(3)..];
    let sum = last.iter().map(squashed).reduce(|a, b| a * 0.7 + b).expect("there are values");
    sum.tanh()
}

/// Some equations with a region among them. The same seed gives the same program.
pub fn block(samples: &[Sample], seed: u64, room: Room, values: &[Tensor]) -> Tensor {
    let mut random = Random(seed);
    let mut values = values.to_vec();
    let before = random.below(2) == 0;
    if before {
        equation(samples, &mut random, room, &mut values);
    }
    if room.depth > 0 {
        let made = region(samples, &mut random, room, &values);
        values.push(made);
    }
    if !before {
        equation(samples, &mut random, room, &mut values);
    }
    mixed(&values)
}

fn equation(samples: &[Sample], random: &mut Random, room: Room, values: &mut Values) {
    if random.below(5) == 0 {
        values.push(attention(random, values));
        return;
    }
    let sample = &samples[random.below(samples.len())];
    if !room.prints && matches!(&sample.op, Op::Probe(probe) if probe.kind == ProbeKind::Print) {
        return;
    }
    let operands: Vec<Tensor> =
        (0..sample.operands.len()).map(|i| choose(sample, i, values, random)).collect();
    let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
    let operands: Vec<&Tensor> = operands.iter().collect();
    let results = Tensor::apply_with(sample.op.clone(), &operands, sample.regions(&types));
    values.extend(results.into_iter().filter(|t| t.dtype() == DType::F64));
}

fn attention(random: &mut Random, values: &[Tensor]) -> Tensor {
    let [causal, bias, packed, prefix] = [0; 4].map(|_| random.below(2) == 0);
    let mut shapes = match packed {
        true => vec![vec![1, 2, 3, 1, 2]],
        false => vec![vec![1, 2, 1, 2]; 3],
    };
    shapes.extend(bias.then(|| vec![1, 1, 2, 1]));
    let mut operands = Values::new();
    for shape in shapes {
        let value = &values[random.below(values.len())];
        let weights = Tensor::constant(random.literal(&f64s(&shape)));
        operands.push(match value.ty().elements() == Some(shape.iter().product()) {
            true => value.tanh().reshape(shape) + weights,
            false => weights * (value.tanh().sum() * 0.2).exp(),
        });
    }
    if prefix {
        let keys = 1 + random.below(3) as i32;
        operands.push(Tensor::constant(Literal::from_vec(&[1], vec![keys]).expect("one number")));
    }
    let op =
        Attention { kind: AttentionKind::Value, causal, bias, prefix, scale: Scalar::of(0.7f64) };
    Tensor::apply_many(op, &operands.iter().collect::<Vec<_>>()).swap_remove(0)
}

/// A construct that runs one block or several. The result is a state.
fn region(samples: &[Sample], random: &mut Random, room: Room, values: &[Tensor]) -> Tensor {
    let state = mixed(values);
    let seed = random.bits();
    let kind = match random.below(if room.loops { 8 } else { 12 }) {
        2 | 7 | 10 if !room.checkpoints => 0,
        kind => kind,
    };
    let room = Room { checkpoints: room.checkpoints && !matches!(kind, 2 | 7 | 10), ..room };
    let steps = (1 + random.below(3)).min(room.runs);
    let inside = |steps: usize| Room { depth: room.depth - 1, runs: room.runs / steps, ..room };
    // A block that can use all values so far and the arguments of the construct.
    let run = |room: Room, more: &[&Tensor]| {
        let all: Values = values.iter().chain(more.iter().copied()).cloned().collect();
        block(samples, seed, room, &all)
    };
    let step = |state: &Tensor| run(inside(steps), &[state]);
    // A number of steps, or a branch index, that is known only at run time.
    let number = (&state * 3.0).sum().abs().convert(DType::I32);
    let xs = Tensor::constant(random.literal(&f64s(&[steps, STATE[0], STATE[1]])));
    let xs = if random.below(2) == 0 { xs * state.sum() } else { xs };
    let sliced = |state: &Tensor, x: &Tensor| {
        let next = run(inside(steps), &[x, state]);
        (next.clone(), next.sum())
    };
    let together = |(last, sums): (Tensor, Tensor)| last + sums.sum().tanh() * 0.2;
    let kept = 1 + random.below(3);
    match kind {
        0 => together(control::scan(&state, &xs, sliced)),
        1 => together(control::scan_reverse(&state, &xs, sliced)),
        2 => together(control::scan_checkpointed(kept, &state, &xs, sliced)),
        3 => control::fori(steps, &state, |_, state| step(state)),
        4 => control::fori_upto(&number, steps, &state, |_, state| step(state)),
        5 | 6 => {
            let goes_on = |(n, _): &(Tensor, Tensor)| n.lt(&number);
            let step = |(n, state): &(Tensor, Tensor)| (n + 1, step(state));
            control::while_at_most(steps, &(Tensor::constant(0i32), state), goes_on, step).1
        }
        7 => {
            let goes_on = |(n, _): &(Tensor, Tensor)| n.lt(steps as i32);
            let inside = Room { prints: false, ..inside(steps) };
            let step = |(n, state): &(Tensor, Tensor)| (n + 1, run(inside, &[state]));
            control::while_checkpointed(kept, &(Tensor::constant(0i32), state), goes_on, step).1
        }
        8 => {
            let otherwise = || run(Room { depth: 0, ..room }, &[&state]);
            control::cond(&state.sum().gt(0.1), || run(inside(1), &[&state]), otherwise)
        }
        9 => {
            let plain = |factor: f64| {
                let state = &state;
                move || state * factor
            };
            let taken = || run(inside(1), &[&state]);
            control::switch(
                &number,
                vec![Box::new(plain(0.5)), Box::new(taken), Box::new(plain(-0.5))],
            )
        }
        10 => {
            let policy =
                if random.below(2) == 0 { Checkpoint::nothing() } else { Checkpoint::dots() };
            checkpoint(policy, &state, |state| run(inside(1), &[state]))
        }
        _ => {
            // Functions can use their arguments only.
            let arguments: Values = values.iter().chain([&state]).cloned().collect();
            call("g", &arguments, |values| block(samples, seed, inside(1), values))
        }
    }
}
