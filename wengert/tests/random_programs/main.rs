//! Random programs over the whole catalogue, differentiated, compiled and executed. The graph
//! interpreter is compared with the CPU and the emulator, and forward with reverse mode.
//!
//! A program is a chain of samples of the catalogue in f64. An operand is an earlier value with as
//! many elements, if there is one, reshaped and squashed into the interval on which the op is
//! smooth. So values and derivatives stay bounded for any sequence of ops. The bounds: values and
//! derivatives of the two executions are equal to 1e-9 of the greatest element of their tensor, and
//! ⟨∇f, t⟩ = Df·t to 1e-8 of the sum of the terms' magnitudes. Programs with nested regions: see
//! [`nested`].
#![allow(clippy::print_stdout)] // Prints the greatest error that was found.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod nested;

use wengert::Outputs;
use wengert::core::graph::{self, Function};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::derivative::f64s;
use wengert_testing::samples::{self, Sample, SampleOperand};

/// The samples for programs: those that accept f64 and are not long.
fn samples() -> Vec<Sample> {
    let all = samples::catalogue().into_iter().flat_map(|e| e.samples);
    let fits = |s: &Sample| {
        let operands: Vec<Literal> = (0..s.operands.len()).map(|i| operand(s, i)).collect();
        let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
        let Ok(results) = s.infer(&types) else { return false };
        let finite = operands
            .iter()
            .flat_map(|l| l.scalars().collect::<Vec<_>>())
            .all(|s| s.to_f64().is_finite());
        let small = |ty: &TensorType| ty.elements().is_some_and(|n| (1..=600).contains(&n));
        // The rounding of tangents is not linear, so the two modes round differently.
        let left_out = s.op.name() == "reduce_precision";
        finite && types.iter().chain(&results).all(small) && !left_out
    };
    all.filter(fits).collect()
}

/// A sample's own operand, with f64 for floats.
fn operand(sample: &Sample, i: usize) -> Literal {
    let literal = sample.literals(DType::F64, 7).swap_remove(i);
    if literal.dtype().is_float() { literal.convert(DType::F64) } else { literal }
}

/// Runs a random chain on the inputs. The result is a scalar.
fn chain(samples: &[Sample], seed: u64, inputs: &[Tensor]) -> Tensor {
    let mut random = Random(seed);
    let mut values: Vec<Tensor> = inputs.to_vec();
    let mut loss = Tensor::constant(0.0f64);
    for _ in 0..2 + random.below(5) {
        let sample = &samples[random.below(samples.len())];
        let operands: Vec<Tensor> =
            (0..sample.operands.len()).map(|i| choose(sample, i, &values, &mut random)).collect();
        let types: Vec<TensorType> = operands.iter().map(|t| t.ty().clone()).collect();
        let regions = sample.regions(&types);
        let results =
            Tensor::apply_with(sample.op.clone(), &operands.iter().collect::<Vec<_>>(), regions);
        for result in results.into_iter().filter(|t| t.dtype() == DType::F64) {
            let shape: Vec<usize> = result.ty().extents().unwrap();
            let weights = Tensor::constant(random.literal(&f64s(&shape)));
            loss = loss + (result.tanh() * weights).sum();
            values.push(result);
        }
    }
    loss
}

/// The value that replaces a sample's operand.
fn choose(sample: &Sample, i: usize, values: &[Tensor], random: &mut Random) -> Tensor {
    let given = operand(sample, i);
    let SampleOperand::Float { low, high, .. } = sample.operands[i] else {
        return Tensor::constant(given);
    };
    let same: Vec<&Tensor> = values
        .iter()
        .filter(|t| t.ty().elements() == Some(given.shape().iter().product()))
        .collect();
    let shape: Vec<_> = given.shape().iter().map(|e| (*e).into()).collect();
    let value = match same.len() {
        // A scalar operand is the sum of some value.
        0 => {
            let value = &values[random.below(values.len())];
            (value.tanh().sum() * 0.3).broadcast_in_dim(shape, &[])
                + Tensor::constant(random.literal(&f64s(given.shape())))
        }
        n => same[random.below(n)].reshape(shape),
    };
    value.tanh() * ((high - low) * 0.45) + (high + low) * 0.5
}

/// The value, the gradient, the derivative along a direction, and the same derivative from the
/// gradient.
fn differentiated(samples: &[Sample], seed: u64) -> (Function, Vec<(String, Literal)>) {
    let mut random = Random(seed ^ 0xabcd);
    let shapes = [vec![2, 3], vec![4], vec![1 + random.below(6), 2]];
    let inputs: Vec<(String, Literal)> = shapes
        .iter()
        .enumerate()
        .map(|(i, s)| (format!("x{i}"), random.literal(&f64s(s))))
        .collect();
    let directions: Vec<Literal> = shapes.iter().map(|s| random.literal(&f64s(s))).collect();
    let function = FunctionBuilder::build("f", |f| {
        let x: Vec<Tensor> = inputs.iter().map(|(name, l)| f.input(name, l.ty())).collect();
        let t: Vec<Tensor> = directions.iter().map(|l| Tensor::constant(l.clone())).collect();
        let (value, gradient) = value_and_grad(&x, |x| chain(samples, seed, x));
        let along = jvp(&x, &t, |x| chain(samples, seed, x)).1;
        f.output("value", value);
        f.output("along", along);
        let terms: Vec<Tensor> = gradient.iter().zip(&t).map(|(g, t)| (g * t).sum()).collect();
        f.output("inner", terms.iter().fold(Tensor::constant(0.0f64), |a, b| a + b));
        let sizes: Vec<Tensor> =
            gradient.iter().zip(&t).map(|(g, t)| (g * t).abs().sum()).collect();
        f.output("size", sizes.iter().fold(Tensor::constant(0.0f64), |a, b| a + b));
        for (i, g) in gradient.iter().enumerate() {
            f.output(&format!("d{i}"), g);
        }
    });
    (function.unwrap_or_else(|e| panic!("program {seed}: {e}")), inputs)
}

fn run(
    function: &Function,
    device: Device,
    inputs: &[(String, Literal)],
) -> Result<Vec<Literal>, String> {
    let program = graph::Program::from_functions(vec![function.clone()]).unwrap();
    let inputs: Vec<(&str, &Literal)> = inputs.iter().map(|(n, l)| (n.as_str(), l)).collect();
    let outputs = Session::open(device)
        .unwrap()
        .compile(&program, "f", bind!())
        .and_then(|mut f| f.run(&inputs));
    outputs.and_then(Outputs::into_values).map_err(|e| format!("{device}: {e}\n{function}"))
}

/// The greatest error of one program, or a description of the failure.
fn error_of(samples: &[Sample], seed: u64, device: Device) -> Result<f64, String> {
    let (function, inputs) = differentiated(samples, seed);
    let (wanted, got) =
        (run(&function, Device::Interpreter, &inputs)?, run(&function, device, &inputs)?);
    compare(&function, &wanted, &got, device)
}

/// Compares both modes, and the device's results with the interpreter's. Returns the greatest
/// error, or a description of the failure.
fn compare(
    function: &Function,
    wanted: &[Literal],
    got: &[Literal],
    device: Device,
) -> Result<f64, String> {
    let number = |i: usize| wanted[i].get(0).to_f64();
    let (along, inner, size) = (number(1), number(2), number(3));
    if (along - inner).abs() > 1e-8 * size.max(1.0) && size.is_finite() {
        return Err(format!("Df·t = {along:e}, ⟨∇f, t⟩ = {inner:e}\n{function}"));
    }
    let mut worst = 0f64;
    for (output, (wanted, got)) in function.outputs.iter().zip(wanted.iter().zip(got)) {
        let scale = wanted.scalars().fold(1f64, |s, v| s.max(v.to_f64().abs()));
        for (w, g) in wanted.scalars().zip(got.scalars()) {
            let (w, g) = (w.to_f64(), g.to_f64());
            let error = (w - g).abs() / scale;
            if error <= 1e-9 {
                worst = worst.max(error);
            } else if w.to_bits() != g.to_bits() && !(w.is_nan() && g.is_nan()) {
                return Err(format!(
                    "{device}: `{}` has {g:e} instead of {w:e}\n{function}",
                    output.name
                ));
            }
        }
    }
    Ok(worst)
}

/// Runs all programs before it fails, so that a failure shows the number of wrong ones.
fn check(seeds: std::ops::Range<u64>, device: Device) {
    let samples = samples();
    assert!(samples.len() > 150, "{}", samples.len());
    let (mut worst, mut wrong) = (0f64, Vec::new());
    for seed in seeds.clone() {
        match error_of(&samples, seed, device) {
            Ok(error) => worst = worst.max(error),
            Err(what) => wrong.push((seed, what)),
        }
    }
    println!("{device}, programs {seeds:?}: at most {worst:.2e} of the greatest element");
    let shown: Vec<String> =
        wrong.iter().take(3).map(|(seed, what)| format!("program {seed}: {what}")).collect();
    assert!(wrong.is_empty(), "{} are wrong, among them\n{}", wrong.len(), shown.join("\n"));
}

/// The seeds of this run: `WENGERT_PROGRAMS` seeds from `WENGERT_PROGRAMS_SEED` on
/// (`ci/deep/programs`), or the `usual` number.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str, usual: u64| {
        std::env::var(name)
            .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let first = number("WENGERT_PROGRAMS_SEED", 0);
    first..first + number("WENGERT_PROGRAMS", usual)
}

#[test]
fn on_the_cpu() {
    check(seeds(1_500), Device::Cpu);
}

#[test]
fn on_the_emulator() {
    check(0..500, Device::Emulator);
}
