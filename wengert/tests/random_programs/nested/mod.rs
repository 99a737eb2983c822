//! Programs with nested regions, differentiated to third order: calls, checkpoints, branches and
//! loops up to nine deep, with samples of the catalogue and attention in them. They are compiled
//! for the CPU, some of them within a memory budget.
//!
//! The interpreter gives the reference values. Derivatives are made twice: by a random sequence of
//! forward and reverse mode, and along one direction by forward mode alone. For the derivative D of
//! order n and a direction t, ⟨Dⁿ⁻¹∇f(t, …), t⟩ = Dⁿf(t, …, t). A plan within a budget gives the
//! bits of the plan without one. A budget may be too small; then the error must say so.
//!
//! `ci/deep/programs` runs 20,000 of them.

mod draw;

use super::{compare, operand, run, samples};
use draw::{DEEPEST, RUNS, Room, STATE, Values, block};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use wengert::core::Target;
use wengert::core::graph::Function;
use wengert::core::plan::Account;
use wengert::pipeline::{Bound, Options, compile_kernels, plan_kernels};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::derivative::f64s;
use wengert_testing::samples::Sample;

/// Maximum number of elements of an operand or a result.
const SMALL: usize = 32;

/// Maximum number of equations of a function, counted with all regions inlined; twice as many for
/// the deepest functions. The order of a larger function is lowered.
const LARGE: u64 = 13_000;

/// The function for a seed.
struct Drawn {
    seed: u64,
    room: Room,
    /// Forward or reverse mode for each order after the first. The first order is the gradient.
    reverse: Vec<bool>,
    /// The budget of the second plan, as a share of the first plan's bytes.
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
        let budget = (random.below(5) == 0).then(|| 0.6 + 0.4 * random.unit());
        let shapes = [vec![2, 2], vec![1 + random.below(4)]];
        let inputs = shapes
            .iter()
            .enumerate()
            .map(|(i, s)| (format!("x{i}"), random.literal(&f64s(s))))
            .collect();
        let direction = shapes.iter().map(|s| random.literal(&f64s(s))).collect();
        Drawn {
            seed,
            room: Room { depth, runs: RUNS, loops, checkpoints: true, prints: true },
            reverse,
            budget,
            inputs,
            direction,
        }
    }

    /// The scalar result.
    fn value(&self, samples: &[Sample], x: &Values) -> Tensor {
        let weights = Tensor::constant(Random(self.seed).literal(&f64s(&STATE)));
        (block(samples, self.seed, self.room, x) * weights).sum()
    }

    fn build(&self, f: impl FnOnce(&mut FunctionBuilder, &Values)) -> Function {
        let built = FunctionBuilder::build("f", |b| {
            let x: Values = self.inputs.iter().map(|(name, l)| b.input(name, l.ty())).collect();
            f(b, &x);
        });
        built.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The function without derivatives, for a failure report.
    fn plain(&self, samples: &[Sample]) -> Function {
        self.build(|b, x| b.output("value", self.value(samples, x)))
    }

    /// The value and the derivatives, with the two numbers that must be equal and their scale.
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

/// The checks that a program has passed.
#[derive(Clone, Copy)]
struct Passed {
    depth: usize,
    order: usize,
    budget: Budget,
}

#[derive(Clone, Copy, PartialEq)]
enum Budget {
    None,
    Kept,
    /// No plan fits in the budget.
    TooSmall,
}

/// Runs one program. An error describes the failure.
fn check(samples: &[Sample], drawn: &mut Drawn) -> Result<Passed, String> {
    let mut function = drawn.differentiated(samples);
    let most = if drawn.room.depth == DEEPEST { 2 * LARGE } else { LARGE };
    while function.body.extent().equations > most && drawn.reverse.pop().is_some() {
        function = drawn.differentiated(samples);
    }
    let budget = compiled(drawn, &function)?;
    Ok(Passed { depth: drawn.room.depth, order: drawn.reverse.len() + 1, budget })
}

/// Compares the function's results on the CPU, also within a budget, with those of the interpreter.
fn compiled(drawn: &Drawn, function: &Function) -> Result<Budget, String> {
    let wanted = run(function, Device::Interpreter, &drawn.inputs)?;
    let (target, binding) = (Target::cpu(), bind!());
    // Both plans have the same kernels.
    let compiled = Bound::new(function, &binding)
        .and_then(|bound| compile_kernels(&bound.function, &target, &Options::default()));
    let kernels = compiled.map_err(|e| e.to_string())?.kernels;
    let plan = |budget| {
        let planned = plan_kernels(&kernels, &target, &binding, budget);
        planned.map(|planned| planned.plan).map_err(|e| e.to_string())
    };
    let given: Vec<(&str, &Literal)> = drawn.inputs.iter().map(|(n, l)| (n.as_str(), l)).collect();
    let execute = |plan| {
        let mut session = Session::open(Device::Cpu).map_err(|e| e.to_string())?;
        let outputs =
            session.load_plan(plan).and_then(|mut f| f.run(&given)).map_err(|e| e.to_string())?;
        outputs.into_values().map_err(|e| e.to_string())
    };
    let whole = plan(None)?;
    let bytes = Account::sizes(&whole).total();
    let got = execute(whole)?;
    compare(function, &wanted, &got, Device::Cpu)?;
    let Some(part) = drawn.budget else { return Ok(Budget::None) };
    let budget = (bytes as f64 * part) as u64;
    match plan(Some(budget)) {
        Err(error) if error.contains("budget") => Ok(Budget::TooSmall),
        Err(error) => Err(format!("within {budget} of {bytes} bytes: {error}")),
        Ok(plan) => {
            let taken = Account::sizes(&plan).total();
            if taken > budget {
                return Err(format!("a plan within {budget} bytes takes {taken}"));
            }
            match execute(plan)? == got {
                true => Ok(Budget::Kept),
                false => Err(format!("a plan within {budget} of {bytes} bytes gives other bits")),
            }
        }
    }
}

/// [`check`], with a panic reported as a failure.
fn outcome(samples: &[Sample], seed: u64) -> Result<Passed, String> {
    let mut drawn = Drawn::new(seed);
    let caught = catch_unwind(AssertUnwindSafe(|| check(samples, &mut drawn)));
    let found = caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!(
            "panic: {}",
            text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
        ))
    });
    found.map_err(|what| {
        let plain = catch_unwind(AssertUnwindSafe(|| drawn.plain(samples).to_string()));
        let modes: String =
            drawn.reverse.iter().map(|r| if *r { ", grad" } else { ", jvp" }).collect();
        let function = plain.unwrap_or_else(|_| "its value cannot be built either".into());
        format!("program {seed}, grad{modes}: {what}\n{function}")
    })
}

#[test]
fn nested_regions_have_the_interpreters_values_to_third_order() {
    let small = |sample: &Sample| {
        let types: Vec<TensorType> =
            (0..sample.operands.len()).map(|i| operand(sample, i).ty()).collect();
        let results = sample.infer(&types).unwrap_or_default();
        types.iter().chain(&results).all(|ty| ty.elements().is_some_and(|n| n <= SMALL))
    };
    let samples: Vec<Sample> = samples().into_iter().filter(small).collect();
    let seeds = super::seeds(8);
    let (next, done) = (AtomicU64::new(seeds.start), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
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
    let count = |is: &dyn Fn(&Passed) -> bool| passed.iter().filter(|p| is(p)).count();
    println!(
        "third order {}, of these nine deep {}; within a budget {}, budget too small {}",
        count(&|p| p.order == 3),
        count(&|p| p.order == 3 && p.depth == DEEPEST),
        count(&|p| p.budget == Budget::Kept),
        count(&|p| p.budget == Budget::TooSmall)
    );
    println!("{} passed, {} failed", passed.len(), failed.len());
    assert!(failed.is_empty(), "{} failed, the first of them\n{}", failed.len(), failed[0]);
}
