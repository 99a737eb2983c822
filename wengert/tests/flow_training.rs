//! Training steps with control flow on the emulated GPU. The sanitizers must report nothing, and
//! the results must agree with the CPU.
//!
//! The plan for GPUs has its own reduction trees. Run on the CPU, the same plan gives the same
//! bits: nests have equal bits on all machines, and the sums of its matrix products are so short
//! that both machines compute them as one chain of fused multiply-adds. The CPU's own plan has
//! other trees and agrees within rounding.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::Verified;
use wengert::core::plan::{Plan, Step};
use wengert::core::{KeyPath, Target};
use wengert::data::Arrays;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const STEPS: usize = 7;
const BATCH: usize = 3;
const RUNS: u64 = 4;

#[derive(Differentiable)]
struct Tagger {
    lstm: Lstm,
    out: Linear,
}

impl Tagger {
    fn new() -> Self {
        Tagger { lstm: Lstm::new(4, 5), out: Linear::new(5, 3) }
    }
}

fn inputs(f: &mut FunctionBuilder) -> (Tensor, Tensor) {
    (f.input("x", f32([STEPS, BATCH, 4])), f.input("y", i32([STEPS, BATCH])))
}

/// An LSTM by `scan`. The cotangents of its state are clipped inside the loop.
fn scanned() -> Program {
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let (x, y) = inputs(f);
        let model = f.state("model", Tagger::new());
        let (loss, gradient) = value_and_grad(&model, |m| {
            let begin = m.lstm.zero_state(BATCH);
            let (_, hidden) = control::scan(&begin, &m.lstm.project(&x), |state, projected| {
                let state = with_derivative(&m.lstm.step(state, projected), |ct| {
                    ct.map_tensors(&KeyPath::default(), &mut |_, ct| ct.clamp(-0.01, 0.01))
                });
                (state.clone(), state.hidden)
            });
            cross_entropy(&m.out.call(&hidden), &y)
        });
        AdamW::new(0.05).step(f, &model, &gradient);
        f.output("loss", loss);
    };
    program.function("step", build).unwrap();
    program
}

/// Conditions in the model (one of two branches for a batch), in the loss and around the update.
/// Those in the model and in the loss are differentiated.
fn conditional() -> Program {
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let (x, y) = inputs(f);
        let model = f.state("model", Tagger::new());
        let rows = x.reshape([STEPS * BATCH, 4]);
        let labels = y.reshape([STEPS * BATCH]);
        let (loss, gradient) = value_and_grad(&model, |m| {
            let projected = m.lstm.project(&rows);
            let part = |n: usize| projected.slice_axis(1, 5 * n, 5 * n + 5);
            let warm = rows.sum().gt(0.0);
            let hidden = control::cond(
                &warm,
                || part(0).tanh() * part(1).logistic(),
                || part(2).sin() + part(3),
            );
            let loss = cross_entropy(&m.out.call(&hidden), &labels);
            control::cond(&loss.lt(0.9), || loss.square(), || &loss * 2.0 - 0.81)
        });
        let (clipped, norm) = optim::clip_by_global_norm(&gradient, 0.5);
        let gradient = control::cond(&norm.gt(0.5), || clipped, || gradient);
        AdamW::new(0.05).step(f, &model, &gradient);
        f.output("loss", loss);
        f.output("norm", norm);
    };
    program.function("step", build).unwrap();
    program
}

fn batch(run: u64) -> [(&'static str, Literal); 2] {
    let mut stream = SplitMix64::of(3, &[run]);
    let count = STEPS * BATCH;
    // Some batches are centred at 0.3, the others at −0.3.
    let middle = if run.is_multiple_of(2) { 0.3 } else { -0.3 };
    let x: Vec<f32> =
        (0..4 * count).map(|_| (2.0 * stream.unit_f64() - 1.0 + middle) as f32).collect();
    let y: Vec<i32> = (0..count).map(|_| stream.below(3) as i32).collect();
    let x = Literal::from_vec(&[STEPS, BATCH, 4], x).unwrap();
    [("x", x), ("y", Literal::from_vec(&[STEPS, BATCH], y).unwrap())]
}

/// Outputs of all runs, and the variables after them.
fn train(device: Device, plan: &Verified<Plan>, begin: &Arrays) -> (Vec<f64>, Arrays) {
    let mut session = Session::open(device).unwrap();
    session.set_variables(begin).unwrap();
    let mut step = session.load_plan(plan.clone()).unwrap();
    let mut outputs = Vec::new();
    for run in 0..RUNS {
        let found =
            step.run(&batch(run)).unwrap_or_else(|error| panic!("{device}: {error}\n{plan}"));
        outputs.extend(found.iter().unwrap().map(|(_, value)| value.get(0).to_f64()));
    }
    (outputs, session.variables().unwrap())
}

fn worst(a: &Arrays, b: &Arrays) -> f64 {
    let all = a.iter().flat_map(|(name, value)| value.scalars().zip(b[name].scalars()));
    all.map(|(x, y)| (x.to_f64() - y.to_f64()).abs() / (1.0 + y.to_f64().abs())).fold(0.0, f64::max)
}

/// Trains on the emulator and on the CPU, compares them, and returns the losses.
fn agree(program: &Program, is_there: fn(&Step) -> bool) -> Vec<f64> {
    let mut first = Session::open(Device::Cpu).unwrap();
    let key = Literal::from_vec(&[2], vec![1u32, 7]).unwrap();
    first.compile(program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
    let begin = first.variables().unwrap();
    let plan =
        |target: &Target| compile(program, "step", &bind!(), target, &Options::default()).unwrap();
    let for_gpus = plan(&wengert::target("sm_90").unwrap());
    assert!(for_gpus.steps.iter().any(is_there), "{for_gpus}");
    let emulated = train(Device::Emulator, &for_gpus, &begin);
    let mut renamed = for_gpus.into_inner();
    renamed.target.name = "cpu".into();
    let renamed = Verified::new(renamed).unwrap();
    assert_eq!(emulated, train(Device::Cpu, &renamed, &begin), "the same plan gives the same bits");
    let (outputs, variables) = train(Device::Cpu, &plan(&Target::cpu()), &begin);
    assert!(worst(&emulated.1, &variables) < 1e-4, "{}", worst(&emulated.1, &variables));
    assert!(
        outputs.iter().zip(&emulated.0).all(|(a, b)| (a - b).abs() < 1e-4),
        "{outputs:?}\n{:?}",
        emulated.0
    );
    let weights = begin.into_iter().filter(|(name, _)| name.starts_with("model.")).collect();
    assert!(worst(&weights, &emulated.1) > 0.01, "training moves the weights");
    outputs
}

#[test]
fn a_scanned_training_step_is_emulated() {
    let losses = agree(&scanned(), |step| matches!(step, Step::Loop(_)));
    assert!(losses[RUNS as usize - 1] < losses[0], "{losses:?}");
}

#[test]
fn a_conditional_training_step_is_emulated() {
    let outputs = agree(&conditional(), |step| matches!(step, Step::If { .. }));
    // Both branches of the loss and both branches around the update have been taken.
    let (losses, norms): (Vec<f64>, Vec<f64>) = outputs.chunks(2).map(|o| (o[0], o[1])).unzip();
    let both = |values: &[f64], bound: f64| {
        values.iter().any(|v| *v < bound) && values.iter().any(|v| *v > bound)
    };
    assert!(both(&losses, 0.81) || both(&norms, 0.5), "{losses:?} {norms:?}");
}
