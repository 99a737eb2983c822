//! Bounds behind errors that exceed the numbers themselves.

use crate::{f32s, function};
use wengert_compiler::certificate::{certify, worst_case};
use wengert_core::target::Approximations;
use wengert_core::{Literal, interpret};

/// The bounds of the outputs, which the interpreter's results are within.
fn bounds(text: &str, inputs: &[Literal]) -> Vec<f64> {
    let function = function(text);
    let computed = interpret::run(&function, inputs).unwrap();
    let certificate = certify(&function, inputs, &computed, Approximations::None).unwrap();
    let found = certificate.outputs.iter().map(|output| {
        let bound = output.worst_case.as_ref().unwrap_or_else(|lost| panic!("{lost:?}"));
        assert!(output.observed.greatest <= bound.absolute, "{output:?}");
        bound.absolute
    });
    found.collect()
}

/// Numbers whose distances are less than a rounding to bf16.
fn close() -> [Literal; 1] {
    [f32s(&[1.001, 1.002, 1.003, 1.0005])]
}

const ROUNDED: &str = "func @f(%x: f32[4]) -> (y: f32[4]) {
        %r: bf16[4] = convert_element_type %x {dtype=bf16}
        %0: f32[4] = convert_element_type %r {dtype=f32}
";

/// The error of the variance is greater than the variance.
#[test]
fn a_variance_is_not_negative() {
    let text = format!(
        "{ROUNDED}
        %1: f32[] = reduce_sum %0 {{axes=[0]}}
        %q: f32[] = constant {{value=f32[] 0.25}}
        %2: f32[] = mul %1, %q
        %3: f32[4] = broadcast_in_dim %2 {{dims=[], shape=[4]}}
        %4: f32[4] = sub %0, %3
        %5: f32[4] = square %4
        %6: f32[] = reduce_sum %5 {{axes=[0]}}
        %7: f32[] = mul %6, %q
        %e: f32[] = constant {{value=f32[] 1e-5}}
        %8: f32[] = add %7, %e
        %9: f32[] = rsqrt %8
        %y: f32[4] = broadcast_in_dim %9 {{dims=[], shape=[4]}}
        return %y
    }}"
    );
    let bound = bounds(&text, &close())[0];
    // 1/√1e-5 is 316.2.
    assert!(bound < 317.0, "{bound}");
    // Without the constant the root may have a pole.
    let without = text.replace("f32[] 1e-5", "f32[] 0.0");
    let found = worst_case(&function(&without), &close(), Approximations::None).unwrap();
    assert!(!found.is_complete());
}

/// A sum of exponentials is positive, whatever the errors of the exponents.
#[test]
fn a_sum_of_exponentials_divides() {
    let text = "func @f(%x: f32[4]) -> (y: f32[4]) {
        %r: bf16[4] = convert_element_type %x {dtype=bf16}
        %0: f32[4] = convert_element_type %r {dtype=f32}
        %1: f32[4] = exp %0
        %2: f32[] = reduce_sum %1 {axes=[0]}
        %3: f32[4] = broadcast_in_dim %2 {dims=[], shape=[4]}
        %4: f32[4] = div %1, %3
        return %4
    }";
    // A rounding of 1000 is up to 4, which changes an exponential 50 times.
    let shifted = text.replace(
        "%1: f32[4] = exp %0",
        "%k: f32[4] = constant {value=f32[4] 1000.0}
        %d: f32[4] = sub %0, %k
        %1: f32[4] = exp %d",
    );
    let inputs = [f32s(&[1001.0, 999.0, 1003.0, 1002.0])];
    assert!(bounds(&shifted, &inputs)[0] < 1e4);
}

/// Composites say what their results are within.
#[test]
fn results_stay_in_their_range() {
    for (op, most) in [
        ("softmax %0 {axis=0}", 1.0),
        ("standardize %0 {axis=0, epsilon=f64(1e-5)}", 4.0),
        ("rms_normalize %0 {axis=0, epsilon=f64(0.0)}", 4.0),
    ] {
        let text = format!("{ROUNDED} %y: f32[4] = {op} return %y }}");
        let bound = bounds(&text, &close())[0];
        assert!(bound <= most * (1.0 + 1e-4), "{op}: {bound}");
    }
    // Behind ten standardised layers the bound is still that of the range.
    let mut text = ROUNDED.replace("%0: f32[4]", "%y0: f32[4]");
    for layer in 0..10 {
        let next = layer + 1;
        text +=
            &format!("%y{next}: f32[4] = standardize %y{layer} {{axis=0, epsilon=f64(1e-5)}}\n");
    }
    text += "return %y10 }";
    assert!(bounds(&text, &close())[0] <= 4.0 * (1.0 + 1e-4));
    // An operand without a bound may be NaN, and so may the result.
    let lost =
        format!("{ROUNDED} %l: f32[4] = log %0 %y: f32[4] = softmax %l {{axis=0}} return %y }}");
    let found =
        worst_case(&function(&lost), &[f32s(&[0.0, 1.0, 2.0, 3.0])], Approximations::None).unwrap();
    assert!(found.is_complete(), "0 is exact, and so is its logarithm");
    let lost = lost
        .replace("log %0", "log %n")
        .replace("%l: f32[4]", "%n: f32[4] = sub %0, %x %l: f32[4]");
    assert!(!worst_case(&function(&lost), &close(), Approximations::None).unwrap().is_complete());
}

/// Attention is a mean of values, whatever its weights.
#[test]
fn attention_is_within_its_values() {
    let text =
        "func @f(%q: f32[1,2,1,2], %k: f32[1,2,1,2], %v: f32[1,2,1,2]) -> (y: f32[1,2,1,2]) {
        %r: bf16[1,2,1,2] = convert_element_type %q {dtype=bf16}
        %0: f32[1,2,1,2] = convert_element_type %r {dtype=f32}
        %1: f32[1,2,1,2], %2: f32[1,1,2] = dot_product_attention %0, %k, %v {scale=f64(100.0)}
        return %1
    }";
    let of = |values: [f32; 4]| Literal::from_vec(&[1, 2, 1, 2], values.to_vec()).unwrap();
    let inputs =
        [of([1.001, 3.003, 0.7, 1.1]), of([1.0, 2.0, -3.0, 0.3]), of([1.0, -2.0, 0.5, 2.0])];
    let bound = bounds(text, &inputs)[0];
    assert!(bound <= 4.0 * 1.02, "{bound}");
}
