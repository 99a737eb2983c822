//! Certificates of precision on random functions, values and gradients.
//!
//! The observed error of no machine exceeds the worst-case bound. The machines are the interpreter,
//! and the kernels of the function, which add in other orders. Functions are certified as they are
//! drawn and in mixed precision. `WENGERT_CERTIFICATE_CASES=5000 cargo test --release --test
//! certificate -- --nocapture` draws as many functions as requested, and prints shares and medians.

#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.
#![allow(clippy::print_stdout)] // Prints shares and medians.

mod bounds;
mod estimates;
mod keep;

use std::collections::BTreeMap;
use wengert_compiler::certificate::{Certificate, Norm, certify};
use wengert_compiler::kernels::interpret as kernels;
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_compiler::precision::Precision;
use wengert_core::graph::{Function, parse_program};
use wengert_core::target::Approximations;
use wengert_core::{DType, Literal, Target, interpret};
use wengert_testing::{Random, functions, naive};

/// The number of functions that a test draws.
fn cases(usual: u64) -> u64 {
    match std::env::var("WENGERT_CERTIFICATE_CASES") {
        Ok(text) => text.parse().expect("WENGERT_CERTIFICATE_CASES is a number"),
        Err(_) => usual,
    }
}

/// A random function and inputs for it.
fn draw(seed: u64) -> Option<(Function, Vec<Literal>)> {
    let function =
        functions::function(seed, 3 + (seed % 23) as usize, &functions::samples()).ok()?;
    let mut random = Random(seed ^ 0x1234_5678);
    let inputs = (0..function.inputs.len())
        .map(|n| functions::literal(&mut random, function.input_type(n), false))
        .collect();
    Some((function, inputs))
}

fn function(text: &str) -> Function {
    parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}")).functions()[0].clone()
}

fn f32s(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

/// Counts over many certificates.
#[derive(Default)]
struct Seen {
    outputs: usize,
    /// For each op, the number of outputs whose bound it lost.
    lost: BTreeMap<&'static str, usize>,
    /// First-order estimate by observed error, where there are both.
    estimated: Vec<f64>,
    /// Worst-case bound by observed error, where there are both.
    bounded: Vec<f64>,
    no_estimate: BTreeMap<String, usize>,
}

impl Seen {
    /// The first output whose error exceeds its bound.
    fn note(&mut self, certificate: &Certificate, is_f64: bool) -> Option<String> {
        let mut wrong = None;
        if let Some(why) = &certificate.no_estimate {
            *self.no_estimate.entry(why.message.clone()).or_default() += 1;
        }
        for output in &certificate.outputs {
            self.outputs += 1;
            let observed = output.observed;
            match &output.worst_case {
                Ok(bound) => {
                    // The reference of a function in f64 has errors of the same size.
                    let room = if is_f64 { 2.0 } else { 1.0 + 1e-6 };
                    if observed.greatest > bound.absolute * room {
                        let name = &output.name;
                        wrong = Some(format!("{name}: {observed:?}, the bound is {bound:?}"));
                    }
                    if observed.greatest > 0.0 {
                        self.bounded.push(bound.absolute / observed.greatest);
                    }
                }
                Err(lost) => *self.lost.entry(lost.op).or_default() += 1,
            }
            if let Some((estimate, norm)) = output.first_order {
                let error = match norm {
                    Norm::Greatest => observed.greatest,
                    Norm::Euclidean => observed.norm,
                };
                if error > 0.0 && error.is_finite() && estimate.absolute.is_finite() {
                    self.estimated.push(estimate.absolute / error);
                }
            }
        }
        wrong
    }

    fn print(&mut self, what: &str) {
        let lost: usize = self.lost.values().sum();
        let share = 100.0 * lost as f64 / self.outputs.max(1) as f64;
        println!("{what}: {} outputs; {lost} have no bound, {share:.1} %", self.outputs);
        println!("  lost in {:?}", self.lost);
        println!("  first-order estimate by observed error: {}", spread(&mut self.estimated));
        println!("  worst-case bound by observed error: {}", spread(&mut self.bounded));
        println!("  no estimate: {:?}", self.no_estimate);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: &mut [f64]) -> String {
    if values.is_empty() {
        return "none".into();
    }
    let middle = median(values);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{} of {least:.2} to {most:.1e}, median {middle:.1}", values.len())
}

#[test]
fn no_machine_exceeds_the_bound() {
    let (mut drawn, mut wrong) = (Seen::default(), Vec::new());
    let mut mixed = Seen::default();
    let mut count = 0;
    for seed in 0..cases(300) {
        let Some((function, inputs)) = draw(seed) else { continue };
        count += 1;
        let halves = Precision::bf16().apply(&function).unwrap();
        let is_mixed = halves.body.values.iter().any(|(_, ty)| ty.dtype == DType::BF16)
            && halves.body != function.body;
        let both = [(&function, &mut drawn), (&halves, &mut mixed)];
        for (function, seen) in both.into_iter().take(1 + usize::from(is_mixed)) {
            let is_f64 = function.body.values.iter().any(|(_, ty)| ty.dtype == DType::F64);
            let computed = interpret::run(function, &inputs).unwrap();
            let certificate = certify(function, &inputs, &computed, Approximations::None).unwrap();
            wrong.extend(seen.note(&certificate, is_f64).map(|w| (seed, "interpreter", w)));
            // The same bounds, for kernels.
            let target = Target::cpu();
            let lowered = compile_kernels(function, &target, &Options::default()).unwrap();
            let found = kernels::interpret(&lowered.kernels, &inputs, &mut naive::execute).unwrap();
            wrong.extend(
                exceeds(&certificate, function, &inputs, &found, is_f64)
                    .map(|w| (seed, "kernels", w)),
            );
        }
    }
    drawn.print("as drawn");
    mixed.print("in mixed precision");
    let few = &wrong[..wrong.len().min(8)];
    assert!(wrong.is_empty(), "{} are wrong, the first of them {few:#?}", wrong.len());
    assert!(count > 0 && mixed.outputs > 0);
    assert!(median(&mut drawn.estimated) <= 100.0 && median(&mut mixed.estimated) <= 100.0);
    let lost: usize = drawn.lost.values().sum();
    assert!(lost * 10 <= drawn.outputs, "{lost} of {} outputs have no bound", drawn.outputs);
}

/// The first output of other results that exceeds its bound.
fn exceeds(
    certificate: &Certificate,
    function: &Function,
    inputs: &[Literal],
    found: &[Literal],
    is_f64: bool,
) -> Option<String> {
    let exact = wengert_compiler::certificate::reference(function, inputs).unwrap();
    let floats = (0..found.len()).filter(|n| found[*n].dtype().is_float());
    let room = if is_f64 { 2.0 } else { 1.0 + 1e-6 };
    floats.zip(&certificate.outputs).find_map(|(n, output)| {
        let bound = output.worst_case.as_ref().ok()?.absolute;
        let deviation = wengert_compiler::certificate::Deviation::of(&found[n], &exact[n]).unwrap();
        (deviation.greatest > bound * room)
            .then(|| format!("{}: {deviation:?}, the bound is {bound:e}", output.name))
    })
}

/// The comparison finds a machine that is wrong.
#[test]
fn a_wrong_machine_is_found() {
    let text = "func @f(%x: f32[2]) -> (y: f32[2]) {
        %0: f32[2] = exp %x
        return %0
    }";
    let (function, inputs) = (function(text), [f32s(&[1.0, 2.0])]);
    let mut seen = Seen::default();
    let right = interpret::run(&function, &inputs).unwrap();
    assert!(
        seen.note(&certify(&function, &inputs, &right, Approximations::None).unwrap(), false)
            .is_none()
    );
    let values = right[0].as_slice::<f32>().unwrap();
    let wrong = [f32s(&[values[0], values[1] * (1.0 + 4e-6)])];
    let certificate = certify(&function, &inputs, &wrong, Approximations::None).unwrap();
    assert!(seen.note(&certificate, false).is_some());
}
