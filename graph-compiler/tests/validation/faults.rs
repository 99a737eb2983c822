//! The comparison finds mistakes: functions that differ slightly must be told apart, and bounds
//! must not be looser than necessary.

use wengert_compiler::certificate::bounded;
use wengert_core::graph::{Function, parse_program};
use wengert_core::{Literal, interpret};

fn function(text: &str) -> Function {
    parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}")).functions()[0].clone()
}

/// The value of the only element, and the bound of its error.
fn one(text: &str, inputs: &[Literal]) -> Option<(f64, f64)> {
    let results = bounded::run(&function(text), inputs).unwrap()?;
    let interpret::Cell::Real(x) = &results[0].cells[0] else { panic!("a float is asked for") };
    Some((x.value, x.error()))
}

fn f32s(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

#[test]
fn a_sum_is_bounded_by_its_magnitudes() {
    let text = "func @f(%x: f32[4]) -> (f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        return %0
    }";
    let u = 2f64.powi(-24);
    // Four additions, since the sum begins with zero.
    let (value, error) = one(text, &[f32s(&[1e6, -1e6, 0.5, 0.25])]).unwrap();
    assert_eq!(value, 0.75);
    let wanted = 4.0 * u * 2_000_000.75;
    assert!(error >= wanted && error <= 1.01 * wanted, "{error:e}, wanted {wanted:e}");
    // A sum in f32 in an order that loses 0.5 is within the bound.
    let lost = (1e6f32 + 0.25) + (-1e6 + 0.5);
    assert!((f64::from(lost) - value).abs() <= error);
}

#[test]
fn errors_go_on_through_functions() {
    let text = "func @f(%x: f32[2]) -> (f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        %1: f32[] = exp %0
        return %1
    }";
    let u = 2f64.powi(-24);
    let (value, error) = one(text, &[f32s(&[2.0, 1.0])]).unwrap();
    assert_eq!(value, 3f64.exp());
    // The sum has at most two roundings, one of the addition and one of the result. eˣ multiplies
    // them.
    let least = value * 2.0 * 3.0 * u;
    assert!(error > least && error < 10.0 * least, "{error:e}, at least {least:e}");
}

/// An earlier interpreter began a sum with its first element.
#[test]
fn a_sum_begins_with_zero() {
    let text = "func @f(%x: f32[2,1]) -> (f32[2]) {
        %0: f32[2] = reduce_sum %x {axes=[1]}
        return %0
    }";
    let x = Literal::from_vec(&[2, 1], vec![-0.0f32, -1.0]).unwrap();
    assert_eq!(interpret::run(&function(text), &[x]).unwrap(), [f32s(&[0.0, -1.0])]);
}

#[test]
fn what_an_error_may_decide_is_in_doubt() {
    let text = "func @f(%x: f32[2]) -> (f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        %1: f32[] = floor %0
        return %1
    }";
    assert!(one(text, &[f32s(&[2.0, 1.0])]).is_none(), "3 may be just below 3");
    assert_eq!(one(text, &[f32s(&[2.25, 1.0])]).unwrap().0, 3.0);
    let pole = "func @f(%x: f32[2]) -> (f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        %1: f32[] = reciprocal %0
        return %1
    }";
    assert!(one(pole, &[f32s(&[1.0, -1.0])]).is_none());
}
