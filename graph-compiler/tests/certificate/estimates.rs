//! First-order estimates against values by hand.

use crate::{f32s, function};
use wengert_compiler::certificate::{Norm, certify, first_order};
use wengert_core::{DType, Literal, interpret};

/// Unit roundoffs of f32 and bf16.
const SINGLE: f64 = 1.0 / (1u64 << 24) as f64;
const HALF: f64 = 1.0 / 256.0;

fn is_near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-12 * wanted
}

#[test]
fn each_rounding_counts_with_its_derivative() {
    let text = "func @f(%x: f32[]) -> (y: f32[]) {
        %0: f32[] = mul %x, %x
        %1: bf16[] = convert_element_type %0 {dtype=bf16}
        %2: f32[] = convert_element_type %1 {dtype=f32}
        %3: f32[] = neg %2
        %4: f32[] = exp %3
        return %4
    }";
    let function = function(text);
    let found = first_order(&function, &[Literal::from(1.5f32)]).unwrap();
    let ops: Vec<&str> = found.roundings.iter().map(|rounding| rounding.op).collect();
    assert_eq!(ops, ["mul", "convert_element_type", "exp"]);
    let estimate = found.outputs[0].as_ref().unwrap();
    let y = (-2.25f64).exp();
    assert_eq!(estimate.norm, Norm::Greatest);
    assert!(is_near(estimate.parts[0], y * 2.25 * SINGLE), "{estimate:?}");
    assert!(is_near(estimate.parts[1], y * 2.25 * HALF), "{estimate:?}");
    assert!(is_near(estimate.parts[2], y * SINGLE), "{estimate:?}");
    assert!(is_near(estimate.error, estimate.parts.iter().sum()));
}

/// The output is x·w, so the derivatives of all its elements with respect to one are orthogonal,
/// and projections are exact.
#[test]
fn a_large_output_is_estimated_in_norm() {
    let text = "func @f(%x: f32[20], %w: f32[20]) -> (y: f32[20]) {
        %0: f32[20] = mul %x, %w
        return %0
    }";
    let numbers: Vec<f32> = (0..20).map(|n| 0.25 * n as f32 - 2.0).collect();
    let inputs = [f32s(&numbers), f32s(&numbers)];
    let found = first_order(&function(text), &inputs).unwrap();
    let estimate = found.outputs[0].as_ref().unwrap();
    assert_eq!(estimate.norm, Norm::Euclidean);
    let wanted: f64 = numbers.iter().map(|x| f64::from(x * x) * SINGLE).sum();
    assert!(is_near(estimate.error, wanted), "{estimate:?}, wanted {wanted:e}");
}

#[test]
fn steps_of_loops_count_one_by_one() {
    let text = "func @f(%x: f32[]) -> (y: f32[], s: f32[3]) {
        %0: f32[], %1: f32[3] = scan %x {carries=1, length=3} region (%c: f32[]) {
            %2: f32[] = mul %c, %c
            return %2, %2
        }
        return %0, %1
    }";
    let function = function(text);
    let found = first_order(&function, &[Literal::from(1.25f32)]).unwrap();
    // y = x⁸, and each squaring doubles the relative error before it.
    let estimate = found.outputs[0].as_ref().unwrap();
    let y = 1.25f64.powi(8);
    let wanted = [4.0, 2.0, 1.0].map(|factor| factor * y * SINGLE);
    assert_eq!(found.roundings.len(), 3);
    for (found, wanted) in estimate.parts.iter().zip(wanted) {
        assert!(is_near(*found, wanted), "{estimate:?}");
    }
    assert_eq!(found.roundings[0].dtype, DType::F32);
}

#[test]
fn an_error_passes_where_a_gradient_is_stopped() {
    let text = "func @f(%x: f32[]) -> (y: f32[]) {
        %0: f32[] = exp %x
        %1: f32[] = stop_gradient %0
        return %1
    }";
    let found = first_order(&function(text), &[Literal::from(0.0f32)]).unwrap();
    assert!(is_near(found.outputs[0].as_ref().unwrap().error, SINGLE));
}

#[test]
fn contributions_name_lines() {
    let text = "func @f(%x: f32[]) -> (y: f32[], d: f32[]) {
        %0: f32[] = exp %x
        %1: bf16[] = convert_element_type %0 {dtype=bf16}
        %2: f32[] = convert_element_type %1 {dtype=f32}
        return %2, %0
    }";
    let (function, inputs) = (function(text), [Literal::from(1.0f32)]);
    let computed = interpret::run(&function, &inputs).unwrap();
    let certificate = certify(&function, &inputs, &computed).unwrap();
    let first = &certificate.contributions[0];
    assert_eq!((first.op, first.output.as_str()), ("convert_element_type", "y"));
    assert!(first.location.to_string().starts_with("test.ir:3:"), "{first:?}");
    assert!(is_near(first.part.relative, HALF) && first.share > 0.999, "{first:?}");
    assert_eq!(certificate.contributions.len(), 2);
}
