//! Every op × sample of the catalogue, in f64: first and second derivatives, forwards and in
//! reverse.
//!
//! Finite differences need results that are not rounded below f64. So conversions between floats
//! are compared only by the inner product, within the rounding of the narrow dtype.

use wengert_compiler::autodiff::operators::{jvp, vjp};
use wengert_core::graph::Function;
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::samples::{self, Sample};

fn floats<'a>(types: &'a [TensorType]) -> impl Iterator<Item = TensorType> + 'a {
    types.iter().filter(|t| t.dtype.is_float()).cloned()
}

/// A function of the float operands (first argument) and of the other operands (second argument).
type Program<'a> = dyn Fn(&[Tensor], &[Tensor]) -> Vec<Tensor> + 'a;

/// The float inputs, and the other inputs.
fn split(inputs: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
    inputs.iter().cloned().partition(|t| t.dtype().is_float())
}

/// (x…, t…) → J·t for the float outputs.
fn forward(inputs: &[TensorType], program: &Program<'_>) -> Function {
    let all: Vec<TensorType> = inputs.iter().cloned().chain(floats(inputs)).collect();
    build(&all, |values| {
        let (values, tangents) = values.split_at(inputs.len());
        let (x, others) = split(values);
        jvp(&x, &tangents.to_vec(), |x: &Vec<Tensor>| program(x, &others)).1
    })
}

/// (x…, c…) → Jᵀ·c.
fn reverse(inputs: &[TensorType], outputs: &[TensorType], program: &Program<'_>) -> Function {
    let all: Vec<TensorType> = inputs.iter().chain(outputs).cloned().collect();
    build(&all, |values| {
        let (values, cotangents) = values.split_at(inputs.len());
        let (x, others) = split(values);
        vjp(&x, |x: &Vec<Tensor>| program(x, &others)).1(&cotangents.to_vec())
    })
}

fn join(a: &[Literal], b: &[Literal]) -> Vec<Literal> {
    a.iter().chain(b).cloned().collect()
}

/// Compares both modes of `program` at `x` with finite differences and with each other.
fn compare(
    what: &str,
    x: &[Literal],
    outputs: &[TensorType],
    program: &Program<'_>,
    tolerance: f64,
    random: &mut Random,
) {
    let inputs = types(x);
    let t: Vec<Literal> = floats(&inputs).map(|ty| random.literal(&ty)).collect();
    let c: Vec<Literal> = outputs.iter().map(|ty| random.literal(ty)).collect();
    let primal = build(&inputs, |values| {
        let (x, others) = split(values);
        program(&x, &others)
    });
    let (forward, reverse) = (forward(&inputs, program), reverse(&inputs, outputs, program));
    if !flat(&run(&primal, x)).iter().all(|v| v.is_finite()) {
        return; // A long product of halves overflows. Then there is no derivative.
    }
    let tangents = flat(&run(&forward, &join(x, &t)));
    let of_differences = !SAY_OTHERWISE.iter().any(|name| what.split(' ').next() == Some(name));
    if of_differences
        && floats(&inputs).chain(outputs.iter().cloned()).all(|ty| ty.dtype == DType::F64)
    {
        assert_derivative(&tangents, &primal, x, &t, tolerance, what);
    }
    let cotangents = flat(&run(&reverse, &join(x, &c)));
    if what.starts_with(ROUNDING) {
        return;
    }
    let (left, scale) = inner(&flat(&c), &tangents);
    let (right, _) = inner(&cotangents, &flat(&t));
    let epsilon = inputs.iter().chain(outputs).fold(1e-12f64, |e, ty| e.max(epsilon(ty.dtype)));
    assert!(
        (left - right).abs() <= epsilon * scale.max(1.0),
        "{what}: ⟨c, J·t⟩ = {left}, ⟨Jᵀ·c, t⟩ = {right}"
    );
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        // bf16 has eight bits of mantissa, and some coefficients are products of a dozen rounded
        // factors.
        DType::BF16 => 6e-2,
        DType::F32 => 1e-6,
        _ => 1e-12,
    }
}

/// Ops whose derivative differs from that of their function by design. They are not compared with
/// finite differences.
const SAY_OTHERWISE: [&str; 2] = ["stop_gradient", "reduce_precision"];

/// Its derivative is a rounding, which is not a linear map. Only its types are compared here (see
/// `known.rs`).
const ROUNDING: &str = "reduce_precision";

/// Returns true if the sample was compared.
fn check(name: &str, sample: &Sample, dtype: DType, random: &mut Random) -> bool {
    let x = sample.literals(dtype, random.bits());
    let inputs = types(&x);
    let results = sample.infer(&inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
    let outputs: Vec<TensorType> = floats(&results).collect();
    if outputs.is_empty() || floats(&inputs).next().is_none() {
        return false;
    }
    // Merges the float operands with the other operands in their original order.
    let program = |x: &[Tensor], others: &[Tensor]| {
        let (mut x, mut others) = (x.iter(), others.iter());
        let operands: Vec<&Tensor> = inputs
            .iter()
            .map(|ty| if ty.dtype.is_float() { x.next() } else { others.next() }.unwrap())
            .collect();
        let results = Tensor::apply_with(sample.op.clone(), &operands, sample.regions(&inputs));
        results.into_iter().filter(|t| t.dtype().is_float()).collect()
    };
    let what = format!("{name} {:?} of {}", sample.op, list(&inputs));
    compare(&what, &x, &outputs, &program, 1e-7, random);

    // Second order: the derivative of (x, c) ↦ Jᵀ(x)·c, in the float operands and the cotangents.
    let c: Vec<Literal> = outputs.iter().map(|ty| random.literal(ty)).collect();
    let gradient = |values: &[Tensor], others: &[Tensor]| {
        let (x, c) = values.split_at(values.len() - outputs.len());
        vjp(&x.to_vec(), |x: &Vec<Tensor>| program(x, others)).1(&c.to_vec())
    };
    let gradients: Vec<TensorType> = floats(&inputs).collect();
    compare(&format!("{what}, second order"), &join(&x, &c), &gradients, &gradient, 1e-5, random);
    true
}

fn list(types: &[TensorType]) -> String {
    types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
}

/// An op's random numbers depend only on its name and the seed, not on the other ops of the
/// catalogue.
fn seeded(name: &str, seed: u64) -> Random {
    Random(name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)) | 1)
}

#[test]
fn every_op_has_the_derivative_that_finite_differences_have() {
    for entry in samples::catalogue() {
        let mut random = seeded(entry.name, 0x5eed);
        let mut compared = 0;
        for sample in &entry.samples {
            compared += check(entry.name, sample, DType::F64, &mut random) as usize;
        }
        // An op with a rule is compared at least once; a collective in `ranks.rs`. An op without
        // one may be compared too; its derivative must be zero.
        assert!(
            entry.derivative == "zero" || compared > 0 || !entry.collectives.is_empty(),
            "no sample of {} has float results",
            entry.name
        );
    }
}

/// In the narrower floats derivatives are built and have the types of their primals. Both modes
/// agree within rounding.
#[test]
fn every_op_has_derivatives_in_every_float_dtype() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for entry in samples::catalogue() {
            let mut random = seeded(entry.name, 0xd8);
            for sample in &entry.samples {
                check(entry.name, sample, dtype, &mut random);
            }
        }
    }
}
