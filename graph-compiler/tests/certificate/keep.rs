//! The equations that are kept in f32 for an error.

use crate::{cases, draw, f32s, function};
use wengert_compiler::certificate::{Kept, keep};
use wengert_compiler::precision::Precision;
use wengert_core::graph::Function;
use wengert_core::interpret::{self, Array, evaluate_unrounded};
use wengert_core::{Binding, DType, Literal};

/// The greatest error of an output relative to its greatest magnitude, without code of the library.
fn error(mixed: &Function, function: &Function, inputs: &[Literal]) -> f64 {
    let arrays: Vec<Array<f64>> = inputs.iter().map(|l| Array::from_literal(l).unwrap()).collect();
    let exact = evaluate_unrounded(&function.body, &function.locations, &arrays).unwrap();
    let found = interpret::run(mixed, inputs).unwrap();
    let mut greatest = 0.0f64;
    for (found, exact) in found.iter().zip(&exact).filter(|(f, _)| f.dtype().is_float()) {
        let (mut error, mut magnitude) = (0.0f64, 0.0f64);
        for (x, y) in found.scalars().map(|s| s.to_f64()).zip(exact.cells.iter()) {
            let y = *y.real();
            error = error.max(if x == y || x.is_nan() && y.is_nan() { 0.0 } else { (x - y).abs() });
            magnitude = magnitude.max(if y.is_finite() { y.abs() } else { 0.0 });
        }
        greatest = greatest.max(if error == 0.0 { 0.0 } else { error / magnitude });
    }
    greatest
}

fn found(function: &Function, inputs: &[Literal], within: f64) -> wengert_core::Result<Kept> {
    let mut run = |function: &Function, inputs: &[Literal]| interpret::run(function, inputs);
    keep(function, &Binding::new(), &Precision::bf16(), inputs, within, &mut run)
}

/// The function with these equations in f32.
fn keeping(function: &Function, numbers: impl Iterator<Item = usize>) -> Function {
    let policy = numbers.fold(Precision::bf16(), |p, n| p.keep_equation(&function.name, n));
    policy.apply(function).unwrap()
}

#[test]
fn kept_sets_are_enough_and_minimal() {
    let wanted = cases(1000) / 25;
    let (mut compared, mut members, mut candidates) = (0, 0, 0);
    for seed in 0.. {
        assert!(seed < 100 * wanted.max(20), "{compared} functions of {wanted} were found");
        let Some((function, inputs)) = draw(seed) else { continue };
        let mixed = Precision::bf16().apply(&function).unwrap();
        let (with, without) =
            (error(&function, &function, &inputs), error(&mixed, &function, &inputs));
        // The policy has an effect, and there is an error between.
        let is_between =
            without.is_finite() && without < 1e3 && without > 1e-4 && with * 16.0 < without;
        if !is_between {
            continue;
        }
        let within = [without / 2.0, without / 8.0][seed as usize % 2].max(with * 2.0);
        let Ok(kept) = found(&function, &inputs, within) else { continue };
        let numbers: Vec<usize> = kept.equations.iter().map(|e| e.number).collect();
        assert!(!numbers.is_empty(), "seed {seed}");
        let held = error(&keeping(&function, numbers.iter().copied()), &function, &inputs);
        assert!(held <= within, "seed {seed}: {held:e} is not within {within:e}");
        assert_eq!(held, kept.with, "seed {seed}");
        // No member can be dropped, the cheapest included.
        for dropped in &numbers {
            let fewer = numbers.iter().copied().filter(|n| n != dropped);
            let error = error(&keeping(&function, fewer), &function, &inputs);
            assert!(
                error > within,
                "seed {seed}: without {dropped} of {numbers:?} it is {error:e}"
            );
        }
        compared += 1;
        members += numbers.len();
        candidates += kept.candidates;
        if compared == wanted {
            break;
        }
    }
    println!("{compared} functions; {members} of {candidates} equations are kept");
    assert_eq!(compared, wanted);
    assert!(members < candidates);
}

const TWO: &str = "func @f(%x: f32[4], %u: f32[4], %v: f32[4]) -> (y: f32[], z: f32[]) {
    %0: f32[] = dot_general %x, %u {contract=[[0],[0]]}
    %1: f32[] = dot_general %x, %v {contract=[[0],[0]]}
    return %0, %1
}";

/// The first product loses its digits to cancellation, the second does not.
fn cancelling() -> Vec<Literal> {
    let x = f32s(&[1.001, 1.002, 1.003, 1.004]);
    vec![x, f32s(&[1.0, -1.0, 1.0, -1.0]), f32s(&[1.0, 1.0, 1.0, 1.0])]
}

#[test]
fn the_equation_that_contributes_is_kept() {
    let kept = found(&function(TWO), &cancelling(), 1e-2).unwrap();
    let numbers: Vec<usize> = kept.equations.iter().map(|e| e.number).collect();
    assert_eq!((numbers.as_slice(), kept.candidates), (&[0][..], 2), "{kept:?}");
    assert!(kept.without > 0.1 && kept.with <= 1e-2 && kept.given < 1e-4, "{kept:?}");
    assert!(kept.equations[0].location.to_string().starts_with("test.ir:2:"));
}

/// Weights in bf16 are given: their rounding is no part of the error, and the numbers are those of
/// the function in f32.
#[test]
fn parameters_in_halves_are_given() {
    let text = TWO.replace("%u: f32[4], %v", "param %u: f32[4], param %v");
    let function = function(&text);
    let policy = Precision::bf16().param_dtype(DType::BF16).unwrap();
    let mut inputs = cancelling();
    // 1/3 is no number of bf16.
    inputs[2] = f32s(&[1.0 / 3.0; 4]);
    let mut run = |function: &Function, inputs: &[Literal]| interpret::run(function, inputs);
    let kept = keep(&function, &Binding::new(), &policy, &inputs, 1e-2, &mut run).unwrap();
    let numbers: Vec<usize> = kept.equations.iter().map(|e| e.number).collect();
    assert_eq!(numbers, [0], "{kept:?}");
    assert!(kept.without > 0.1 && kept.with <= 1e-2 && kept.given < 1e-4, "{kept:?}");
    let other = policy.only_function("g").unwrap();
    let error = keep(&function, &Binding::new(), &other, &inputs, 1e-2, &mut run).unwrap_err();
    assert!(error.to_string().contains("the policy is not for @f"), "{error}");
}

#[test]
fn nothing_is_kept_if_nothing_is_needed() {
    assert!(found(&function(TWO), &cancelling(), 1e6).unwrap().equations.is_empty());
}

#[test]
fn an_error_out_of_reach_says_that_of_f32() {
    let error = found(&function(TWO), &cancelling(), 1e-12).unwrap_err().to_string();
    assert!(error.contains("an error of 1e-12 is out of reach: it is "), "{error}");
    assert!(error.contains(" without the policy"), "{error}");
}

#[test]
fn numbers_that_do_not_exist_are_mistakes() {
    let policy = Precision::bf16().keep_equation("f", 2);
    let error = policy.apply(&function(TWO)).unwrap_err().to_string();
    assert!(
        error.contains("@f has no equation 2") && error.contains("2 equations count"),
        "{error}"
    );
    let program = wengert_core::graph::parse_program(TWO, "test.ir").unwrap();
    let policy = Precision::bf16().keep_equation("g", 0);
    let error = policy.apply_to_program(&program).unwrap_err().to_string();
    assert!(error.contains("no function `@g`") && error.contains("@f"), "{error}");
}
