//! `compute` against `evaluate`. Every op × sample × float dtype is lowered to a nest, a call or a
//! decomposition, run, and compared with the result of `evaluate`.
//!
//! The bounds:
//! - Integers and bool agree to the bit, and so do floats of ops whose instructions are all exact.
//! - An elementwise nest is within the sum of its instructions' ULP bounds ([`error_bound`]).
//! - A reduction or scan of n elements is within n times that sum, in ULPs of the sum of the
//!   elements' magnitudes.
//! - A call is within one ULP a term, in ULPs of the greatest of the result, the largest operand
//!   and the square of that.
//! - A composite is within 16 ULP of the greater of the result and its largest operand.

use super::cases;
use super::lower::{Lowered, error_bound, execute, lower, ulp};
use wengert_core::graph::{Body, Region};
use wengert_core::interpret::{Array, Regions};
use wengert_core::nest::Tree;
use wengert_core::op::Op;
use wengert_core::{DType, Literal, TensorType};
use wengert_testing::samples::Sample;

/// The result of `evaluate`, in f64 and not rounded to the result's dtype.
fn meaning(op: &Op, regions: &[Region], operands: &[Literal]) -> Vec<Array<f64>> {
    let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
    let results = op.infer(&types, regions).unwrap();
    let operands: Vec<Array<f64>> =
        operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
    op.evaluate(&operands, &results, &Regions::of(regions)).unwrap()
}

/// The largest finite magnitude, and the sum of all finite magnitudes.
fn magnitudes(operands: &[Literal]) -> (f64, f64) {
    let all = operands.iter().filter(|o| o.dtype().is_float()).flat_map(Literal::scalars);
    let finite = all.map(|s| s.to_f64().abs()).filter(|v| v.is_finite());
    finite.fold((0.0, 0.0), |(max, sum), v| (v.max(max), sum + v))
}

/// The tolerance for one result whose exact value is `expected`, by the bounds above.
fn tolerance(
    op: &Op,
    regions: &[Region],
    operands: &[Literal],
    result: &TensorType,
    expected: f64,
) -> f64 {
    let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
    let dtype = result.dtype;
    let (max, sum) = magnitudes(operands);
    match lower(op, regions, &types, std::slice::from_ref(result), Tree::SEQUENTIAL) {
        Lowered::Nest(nest) => {
            let bound = error_bound(&nest, dtype);
            let reduces = nest.phases.iter().any(|p| !p.axes.is_empty());
            // The reference has an error of its own where f64 approximates a function.
            let slack =
                if dtype == DType::F64 && bound > 0.5 { bound + 1.0 } else { bound * (1.0 + 1e-6) };
            if reduces {
                let count = operands[0].len() as f64;
                slack * count * ulp(expected.abs().max(sum), dtype)
            } else {
                // The errors of `lgamma` and `digamma` are bounded absolutely near their zeros.
                let near_zero = matches!(op.name(), "lgamma" | "digamma");
                slack * ulp(if near_zero { expected.abs().max(1.0) } else { expected }, dtype)
            }
        }
        Lowered::Call(call) => {
            let terms =
                1.0 + call.flops() as f64 / (2.0 * result.elements().unwrap().max(1) as f64);
            terms * ulp(expected.abs().max(max * max).max(max), dtype)
        }
        Lowered::Body(_) => 16.0 * ulp(expected.abs().max(max), dtype),
    }
}

fn compare(what: &str, sample: &Sample, operands: &[Literal], tree: Tree) {
    let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
    let (op, regions) = (&sample.op, &sample.regions(&types));
    let results = op.infer(&types, regions).unwrap();
    let got = execute(op, regions, operands, tree);
    for ((got, expected), ty) in got.iter().zip(meaning(op, regions, operands)).zip(&results) {
        assert_eq!(got.ty(), *ty, "{what}");
        for (i, (got, expected)) in got.scalars().zip(expected.cells.iter()).enumerate() {
            let rounded = expected.to_scalar(ty.dtype);
            let both_nan = got.to_f64().is_nan() && rounded.to_f64().is_nan();
            if got == rounded || both_nan {
                continue;
            }
            assert!(ty.dtype.is_float(), "{what}, element {i}: {got:?}, expected {rounded:?}");
            let (value, expected) = (got.to_f64(), *expected.real());
            let tolerance = tolerance(op, regions, operands, ty, expected);
            assert!(
                (value - expected).abs() <= tolerance,
                "{what}, element {i}: {got:?}, expected {expected:e} ± {tolerance:e}"
            );
        }
    }
}

/// True if a body contains loops or branches.
fn has_control(body: &Body) -> bool {
    body.equations
        .iter()
        .any(|e| e.op.control().is_some() || e.regions.iter().any(|r| has_control(r)))
}

#[test]
fn every_op_computes_what_it_means() {
    // Ops with loops or branches are left out. Their regions consist of other ops, and another test
    // compares the control flow with the interpreter.
    let straight = |sample: &Sample, operands: &[Literal]| {
        let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
        sample.op.control().is_none() && !sample.regions(&types).iter().any(|r| has_control(r))
    };
    for (entry, sample, operands) in cases().filter(|(_, s, o)| straight(s, o)) {
        let types: Vec<String> = operands.iter().map(|o| o.ty().to_string()).collect();
        let what = format!("{} {:?} of {}", entry.name, sample.op.attributes(), types.join(", "));
        for tree in [Tree::SEQUENTIAL, Tree { lanes: 8, block: 0 }, Tree { lanes: 4, block: 8 }] {
            compare(&what, &sample, &operands, tree);
        }
    }
}

#[test]
fn commutative_ops_commute_to_the_bit() {
    let mut compared = 0;
    for (entry, sample, operands) in cases() {
        if sample.op.traits().commutative {
            let swapped = [operands[1].clone(), operands[0].clone()];
            let there = execute(&sample.op, &[], &operands, Tree::SEQUENTIAL);
            assert_eq!(
                there,
                execute(&sample.op, &[], &swapped, Tree::SEQUENTIAL),
                "{}",
                entry.name
            );
            compared += 1;
        }
    }
    assert!(compared > 20);
}
