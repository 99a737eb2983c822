//! First-order estimates against values by hand.

use crate::{f32s, function};
use wengert_compiler::certificate::{Deviation, Norm, certify, first_order, reference};
use wengert_compiler::kernels::interpret as kernels;
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::target::Approximations;
use wengert_core::{DType, Literal, Target, interpret};
use wengert_testing::naive;

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
    let certificate = certify(&function, &inputs, &computed, Approximations::None).unwrap();
    let first = &certificate.contributions[0];
    assert_eq!((first.op, first.output.as_str()), ("convert_element_type", "y"));
    assert!(first.location.to_string().starts_with("test.ir:3:"), "{first:?}");
    assert!(is_near(first.part.relative, HALF) && first.share > 0.999, "{first:?}");
    assert_eq!(certificate.contributions.len(), 2);
}

/// The estimate of the only output and its part without partial sums, for an error that a machine
/// has made.
fn estimate_of_sum(text: &str, inputs: &[Literal], computed: f32) -> (f64, f64, f64) {
    let function = function(text);
    let found = first_order(&function, inputs).unwrap();
    let estimate = found.outputs[0].as_ref().unwrap();
    let whole = found.roundings.iter().zip(&estimate.parts).filter(|(of, _)| !of.is_partial);
    let without = whole.map(|(_, part)| part).sum();
    let exact = reference(&function, inputs).unwrap();
    let observed = Deviation::of(&Literal::from(computed), &exact[0]).unwrap().greatest;
    (estimate.error, without, observed)
}

/// A machine that adds in a chain of f32 exceeds an estimate without partial sums, and stays below
/// one with them.
#[test]
fn partial_sums_of_long_sums_count() {
    let numbers = vec![0.1f32; 4096];
    let sum = numbers.iter().fold(0.0f32, |sum, x| sum + x);
    let products = numbers.iter().fold(0.0f32, |sum, x| x.mul_add(*x, sum));
    let last = "func @f(%x: f32[4096]) -> (y: f32[4096]) {
        %0: f32[4096] = cumsum %x {axis=0}
        return %0
    }";
    let product = "func @f(%x: f32[4096]) -> (y: f32[]) {
        %0: f32[] = dot_general %x, %x {contract=[[0],[0]]}
        return %0
    }";
    // The last of the running sums.
    let scalar = last.replace("(y: f32[4096])", "(y: f32[])").replace(
        "return %0",
        "%1: f32[1] = slice %0 {start=[4095], limit=[4096]}
             %2: f32[] = reshape %1 {shape=[]}
             return %2",
    );
    for (text, computed) in [(scalar.as_str(), sum), (product, products)] {
        let (estimate, without, observed) = estimate_of_sum(text, &[f32s(&numbers)], computed);
        assert!(observed > 10.0 * without, "{observed:e} of {without:e}: {text}");
        assert!(observed <= estimate, "{observed:e} is above {estimate:e}: {text}");
        assert!(estimate <= 1000.0 * observed, "{estimate:e} of {observed:e}: {text}");
    }
}

/// The same for the kernels of this compiler, which add in lanes and blocks. Without
/// partial sums each observed error is above the estimate.
#[test]
fn estimates_of_long_sums_are_above_the_errors_of_kernels() {
    let sum = "func @f(%x: f32[60000]) -> (y: f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        return %0
    }";
    let columns = "func @f(%x: f32[60000]) -> (y: f32[2]) {
        %0: f32[30000,2] = reshape %x {shape=[30000,2]}
        %1: f32[2] = reduce_sum %0 {axes=[0]}
        return %1
    }";
    let window = "func @f(%x: f32[60000]) -> (y: f32[2]) {
        %0: f32[2] = reduce_window_sum %x {window=[30000], stride=[30000]}
        return %0
    }";
    let numbers: Vec<f32> = vec![0.1; 60_000];
    let inputs = [f32s(&numbers)];
    for text in [sum, columns, window] {
        let function = function(text);
        let lowered = compile_kernels(&function, &Target::cpu(), &Options::default()).unwrap();
        let found = kernels::interpret(&lowered.kernels, &inputs, &mut naive::execute).unwrap();
        let exact = reference(&function, &inputs).unwrap();
        let observed = Deviation::of(&found[0], &exact[0]).unwrap().greatest;
        let estimates = first_order(&function, &inputs).unwrap();
        let estimate = estimates.outputs[0].as_ref().unwrap();
        let without =
            estimate.parts.iter().zip(&estimates.roundings).filter(|(_, r)| !r.is_partial);
        let without: f64 = without.map(|(part, _)| part).sum();
        assert!(observed > 10.0 * without && observed <= estimate.error, "{text}");
    }
}

/// A rounding of a partial product changes the product by the same factor.
#[test]
fn partial_products_count() {
    let text = "func @f(%x: f32[5]) -> (y: f32[]) {
        %0: f32[] = reduce_prod %x {axes=[0]}
        return %0
    }";
    let found = first_order(&function(text), &[f32s(&[1.5, -2.0, 0.3, 7.0, 1.1])]).unwrap();
    let product = 1.5 * 2.0 * f64::from(0.3f32) * 7.0 * f64::from(1.1f32);
    assert!(is_near(found.outputs[0].as_ref().unwrap().error, 4.0 * product * SINGLE));
}

/// Of every op that adds, a machine's partial sums count. The terms of each element have one sign.
#[test]
fn each_op_that_adds_has_partial_sums() {
    let rest = [
        ("dot_general %m, %m {contract=[[1],[1]]}", "f32[4,4]", 4.0),
        ("cumsum %x {axis=0}", "f32[16]", 0.0),
        ("reduce_sum %m {axes=[0]}", "f32[4]", 4.0),
        ("reduce_window_sum %x {window=[4], stride=[4]}", "f32[4]", 4.0),
        ("segment_sum %x, %i {num_segments=2}", "f32[2]", 8.0),
        ("cumprod %x {axis=0}", "f32[16]", 0.0),
    ];
    for (op, ty, terms) in rest {
        let text = format!(
            "func @f(%x: f32[16], %i: i32[16]) -> (y: {ty}) {{
                %m: f32[4,4] = reshape %x {{shape=[4,4]}}
                %0: {ty} = {op}
                return %0
            }}"
        );
        let ids = Literal::from_vec(&[16], (0..16).map(|n| n / 8).collect::<Vec<i32>>()).unwrap();
        let found = first_order(&function(&text), &[f32s(&[1.0; 16]), ids]).unwrap();
        let partial: Vec<_> = found.roundings.iter().filter(|of| of.is_partial).collect();
        assert_eq!(partial.len(), 1, "{op}");
        let estimate = found.outputs[0].as_ref().unwrap();
        assert!(estimate.parts[0] > 0.0 && partial[0].dtype == DType::F32, "{op}: {estimate:?}");
        // A chain of n ones, without its result: at most n²/2.
        if terms > 0.0 {
            let most = (terms * terms / 2.0 + terms) * SINGLE * 16.0;
            assert!(estimate.parts[0] <= most, "{op}: {estimate:?}");
        }
    }
}
