//! Programs with nested regions, differentiated to third order: calls, checkpoints, branches and loops up to nine deep, with
//! samples of the catalogue and attention in them, compiled for the CPU, some of them within a budget of memory.
//!
//! The interpreter has the values. Derivatives are made twice: by a random sequence of forward and reverse mode, and along one
//! direction by forward mode alone; for the derivative D of order n and a direction t, ⟨Dⁿ⁻¹∇f(t, …), t⟩ = Dⁿf(t, …, t). A plan
//! within a budget gives the bits of the plan without one. A budget may be too small; then the error says so.
//!
//! `WENGERT_PROGRAMS=20000` runs so many programs, from the seed `WENGERT_PROGRAMS_SEED` on (`ci/deep/programs`).

use super::{Random, choose, compare, operand, run, samples};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use wengert::control;
use wengert::core::graph::{self, Function};
use wengert::core::op::{Attention, AttentionKind, Checkpoint, Sample};
use wengert::core::plan::Account;
use wengert::core::{Scalar, Target};
use wengert::operators::{call, checkpoint};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

type Values = Vec<Tensor>;

/// Elements of what loops carry, `[2, 2]`.
const STATE: [usize; 2] = [2, 2];

/// Regions at most within one another.
const DEEPEST: usize = 9;

/// Runs of the innermost region, at most, in one evaluation of the function.
const RUNS: usize = 8;

/// Elements of an operand or a result, at most.
const SMALL: usize = 32;

/// What is drawn for a region.
#[derive(Clone, Copy)]
struct Room {
    /// How many regions there are to be within one another yet.
    depth: usize,
    /// How often the innermost may still run.
    runs: usize,
    /// Whether all of them are loops.
    loops: bool,
    /// Whether a construct may still keep checkpoints. Its derivative has several copies of its region, so in a nest of them
    /// the derivative grows exponentially.
    checkpoints: bool,
}

/// A value in the shape of the state, in −1..1.
fn squashed(value: &Tensor) -> Tensor {
    match value.ty().elements() {
        Some(4) => value.reshape(STATE).tanh(),
        _ => (value.tanh().sum() * 0.3).tanh().broadcast_in_dim(STATE.map(Dim::from).to_vec(), &[]),
    }
}

/// What comes of some values: a state.
fn mixed(values: &[Tensor]) -> Tensor {
    let last = &values[values.len().saturating_sub(3)..];
    let sum = last.iter().map(squashed).reduce(|a, b| a * 0.7 + b).expect("there are values");
    sum.tanh()
}

/// Some equations, and a region among them. The same seed gives the same program.
fn block(samples: &[Sample], seed: u64, room: Room, values: &[Tensor]) -> Tensor {
    let mut random = Random(seed);
    let mut values = values.to_vec();
    let before = random.below(2) == 0;
    if before {
        equation(samples, &mut random, &mut values);
    }
    if room.depth > 0 {
        let made = region(samples, &mut random, room, &values);
        values.push(made);
    }
    if !before {
        equation(samples, &mut random, &mut values);
    }
    mixed(&values)
}

fn equation(samples: &[Sample], random: &mut Random, values: &mut Values) {
    if random.below(5) == 0 {
        values.push(attention(random, values));
        return;
    }
    let sample = &samples[random.below(samples.len())];
    let operands: Vec<Tensor> =
        (0..sample.operands.len()).map(|i| choose(sample, i, values, random)).collect();
    let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
    let operands: Vec<&Tensor> = operands.iter().collect();
    let results = Tensor::apply_with(sample.op.clone(), &operands, sample.regions(&types));
    values.extend(results.into_iter().filter(|t| t.dtype() == DType::F64));
}

fn attention(random: &mut Random, values: &[Tensor]) -> Tensor {
    let [causal, bias, packed] = [0; 3].map(|_| random.below(2) == 0);
    let mut shapes = match packed {
        true => vec![vec![1, 2, 3, 1, 2]],
        false => vec![vec![1, 2, 1, 2]; 3],
    };
    shapes.extend(bias.then(|| vec![1, 1, 2, 1]));
    let mut operands = Values::new();
    for shape in shapes {
        let value = &values[random.below(values.len())];
        let weights = Tensor::constant(random.literal(&shape));
        operands.push(match value.ty().elements() == Some(shape.iter().product()) {
            true => value.tanh().reshape(shape) + weights,
            false => weights * (value.tanh().sum() * 0.2).exp(),
        });
    }
    let op = Attention { kind: AttentionKind::Value, causal, bias, scale: Scalar::of(0.7f64) };
    Tensor::apply_many(op, &operands.iter().collect::<Vec<_>>()).swap_remove(0)
}

/// A construct that runs a block, or several; a state.
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
    // A block that sees all values so far, and what the construct gives it.
    let run = |room: Room, more: &[&Tensor]| {
        let all: Values = values.iter().chain(more.iter().copied()).cloned().collect();
        block(samples, seed, room, &all)
    };
    let step = |state: &Tensor| run(inside(steps), &[state]);
    // A number of steps, or of a branch, that only the run knows.
    let number = (&state * 3.0).sum().abs().convert(DType::I32);
    let xs = Tensor::constant(random.literal(&[steps, STATE[0], STATE[1]]));
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
            let step = |(n, state): &(Tensor, Tensor)| (n + 1, step(state));
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
            control::switch(&number, vec![Box::new(plain(0.5)), Box::new(taken), Box::new(plain(-0.5))])
        }
        10 => {
            let policy = if random.below(2) == 0 { Checkpoint::nothing() } else { Checkpoint::dots() };
            checkpoint(policy, &state, |state| run(inside(1), &[state]))
        }
        _ => {
            // Functions see their arguments only.
            let arguments: Values = values.iter().chain([&state]).cloned().collect();
            call("g", &arguments, |values| block(samples, seed, inside(1), values))
        }
    }
}

/// The function that a seed stands for.
struct Drawn {
    seed: u64,
    room: Room,
    /// Forward or reverse mode for each order behind the first, which is the gradient.
    reverse: Vec<bool>,
    /// The part of the plan's bytes that the second plan has to do with.
    budget: Option<f64>,
    inputs: Vec<(String, Literal)>,
    direction: Vec<Literal>,
}

impl Drawn {
    fn new(seed: u64) -> Drawn {
        let mut random = Random(seed ^ 0x9e57ed);
        let (depth, loops) = match random.below(10) {
            0..=5 => (1 + random.below(3), false),
            6 | 7 => (4 + random.below(3), false),
            8 => (4 + random.below(3), true),
            _ => (DEEPEST, true),
        };
        let order = [1, 2, 2, 3, 3, 3][random.below(6)];
        let reverse = (1..order).map(|_| random.below(2) == 0).collect();
        let budget = (random.below(3) == 0).then(|| 0.4 + 0.6 * random.unit());
        let shapes = [vec![2, 2], vec![1 + random.below(4)]];
        let inputs = shapes.iter().enumerate().map(|(i, s)| (format!("x{i}"), random.literal(s))).collect();
        let direction = shapes.iter().map(|s| random.literal(s)).collect();
        Drawn {
            seed,
            room: Room { depth, runs: RUNS, loops, checkpoints: true },
            reverse,
            budget,
            inputs,
            direction,
        }
    }

    /// One number.
    fn value(&self, samples: &[Sample], x: &Values) -> Tensor {
        let weights = Tensor::constant(Random(self.seed).literal(&STATE));
        (block(samples, self.seed, self.room, x) * weights).sum()
    }

    fn build(&self, f: impl FnOnce(&mut FunctionBuilder, &Values)) -> Function {
        let built = FunctionBuilder::build("f", |b| {
            let x: Values = self.inputs.iter().map(|(name, l)| b.input(name, l.ty())).collect();
            f(b, &x);
        });
        built.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The function without derivatives, for a report.
    fn plain(&self, samples: &[Sample]) -> Function {
        self.build(|b, x| b.output("value", self.value(samples, x)))
    }

    /// Value and derivatives, with the two numbers that are equal and their scale.
    fn differentiated(&self, samples: &[Sample]) -> Function {
        self.build(|b, x| {
            let f = |x: &Values| self.value(samples, x);
            let t: Values = self.direction.iter().cloned().map(Tensor::constant).collect();
            let derivative = higher(&self.reverse, &f, x, &t);
            b.output("value", f(x));
            b.output("along", along(self.reverse.len() + 1, &f, x, &t));
            b.output("inner", inner(&derivative, &t));
            let sizes = derivative.iter().zip(&t).map(|(d, t)| (d * t).abs().sum());
            b.output("size", sizes.fold(Tensor::constant(0.0f64), |a, b| a + b));
            derivative.iter().enumerate().for_each(|(i, d)| b.output(&format!("d{i}"), d));
        })
    }
}

type Function1<'a> = dyn Fn(&Values) -> Tensor + 'a;

fn inner(a: &[Tensor], b: &[Tensor]) -> Tensor {
    let terms = a.iter().zip(b).map(|(a, b)| (a * b).sum());
    terms.fold(Tensor::constant(0.0f64), |a, b| a + b)
}

/// The gradient, differentiated along `t` once for each mode.
fn higher(reverse: &[bool], f: &Function1<'_>, x: &Values, t: &Values) -> Values {
    match reverse.split_last() {
        None => grad(x, |x: &Values| f(x)),
        Some((true, rest)) => grad(x, |x: &Values| inner(&higher(rest, f, x, t), t)),
        Some((false, rest)) => jvp(x, t, |x: &Values| higher(rest, f, x, t)).1,
    }
}

/// The derivative of order n along `t`.
fn along(n: usize, f: &Function1<'_>, x: &Values, t: &Values) -> Tensor {
    match n {
        0 => f(x),
        _ => jvp(x, t, |x: &Values| along(n - 1, f, x, t)).1,
    }
}

/// How a program has passed.
#[derive(Clone, Copy, PartialEq)]
enum Passed {
    Whole,
    WithinBudget,
    /// There is no plan of so few bytes.
    BudgetTooSmall,
}

/// Runs one program, and says what is wrong with it.
fn check(samples: &[Sample], drawn: &Drawn) -> Result<Passed, String> {
    let function = drawn.differentiated(samples);
    let wanted = run(&function, Device::Interpreter, &drawn.inputs)?;
    let program = graph::Program::from_functions(vec![function.clone()]).map_err(|e| e.to_string())?;
    let plan = |memory_budget| {
        let options = Options { memory_budget, ..Options::default() };
        compile(&program, "f", &bind!(), &Target::cpu(), &options).map_err(|e| e.to_string())
    };
    let given: Vec<(&str, &Literal)> = drawn.inputs.iter().map(|(n, l)| (n.as_str(), l)).collect();
    let execute = |plan| {
        let mut session = Session::open(Device::Cpu).map_err(|e| e.to_string())?;
        let outputs = session.load_plan(plan).and_then(|mut f| f.run(&given)).map_err(|e| e.to_string())?;
        outputs.into_values().map_err(|e| e.to_string())
    };
    let whole = plan(None)?;
    let bytes = Account::sizes(&whole).total();
    let got = execute(whole)?;
    compare(&function, &wanted, &got, Device::Cpu)?;
    let Some(part) = drawn.budget else { return Ok(Passed::Whole) };
    let budget = (bytes as f64 * part) as u64;
    match plan(Some(budget)) {
        Err(error) if error.contains("budget") => Ok(Passed::BudgetTooSmall),
        Err(error) => Err(format!("within {budget} of {bytes} bytes: {error}")),
        Ok(plan) => {
            let taken = Account::sizes(&plan).total();
            if taken > budget {
                return Err(format!("a plan within {budget} bytes takes {taken}"));
            }
            match execute(plan)? == got {
                true => Ok(Passed::WithinBudget),
                false => Err(format!("a plan within {budget} of {bytes} bytes gives other bits")),
            }
        }
    }
}

/// [`check`], in which a panic is a failure like others.
fn outcome(samples: &[Sample], seed: u64) -> Result<Passed, String> {
    let drawn = Drawn::new(seed);
    let caught = catch_unwind(AssertUnwindSafe(|| check(samples, &drawn)));
    let found = caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")))
    });
    found.map_err(|what| {
        let plain = catch_unwind(AssertUnwindSafe(|| drawn.plain(samples).to_string()));
        let modes: String = drawn.reverse.iter().map(|r| if *r { ", grad" } else { ", jvp" }).collect();
        let function = plain.unwrap_or_else(|_| "its value cannot be built either".into());
        format!("program {seed}, grad{modes}: {what}\n{function}")
    })
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn nested_regions_have_the_interpreters_values_to_third_order() {
    let small = |sample: &Sample| {
        let types: Vec<TensorType> = (0..sample.operands.len()).map(|i| operand(sample, i).ty()).collect();
        let results = sample.infer(&types).unwrap_or_default();
        types.iter().chain(&results).all(|ty| ty.elements().is_some_and(|n| n <= SMALL))
    };
    let samples: Vec<Sample> = samples().into_iter().filter(small).collect();
    let first = number("WENGERT_PROGRAMS_SEED", 0);
    let last = first + number("WENGERT_PROGRAMS", 8);
    let (next, done) = (AtomicU64::new(first), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                break;
            }
            let found = outcome(&samples, seed);
            let mut done = done.lock().unwrap();
            match found {
                Ok(passed) => done.0.push(passed),
                Err(what) => {
                    println!("{what}\n");
                    done.1.push(what);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let (passed, failed) = done.into_inner().unwrap();
    let count = |kind: Passed| passed.iter().filter(|p| **p == kind).count();
    println!(
        "within a budget {}, budget too small {}",
        count(Passed::WithinBudget),
        count(Passed::BudgetTooSmall)
    );
    println!("{} passed, {} failed", passed.len(), failed.len());
    assert!(failed.is_empty(), "{} failed, the first of them\n{}", failed.len(), failed[0]);
}
