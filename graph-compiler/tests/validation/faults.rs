//! The comparison finds mistakes: functions that differ slightly must be told apart, and bounds
//! must not be looser than necessary.

use wengert_compiler::certificate::worst_case;
use wengert_core::graph::{Function, parse_program};
use wengert_core::target::Approximations;
use wengert_core::{Literal, interpret};

fn function(text: &str) -> Function {
    parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}")).functions()[0].clone()
}

/// The value of the only element, and the bound of its error.
fn one(text: &str, inputs: &[Literal]) -> Option<(f64, f64)> {
    let bounds = worst_case(&function(text), inputs, Approximations::None).unwrap();
    let error = bounds.error(0).ok()?;
    Some((bounds.outputs[0].cells[0].real().value, error))
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

/// The value of a function of the sum of two numbers.
fn of_sum(equations: &str, x: [f32; 2]) -> Option<(f64, f64)> {
    let text = format!(
        "func @f(%x: f32[2]) -> (f32[]) {{
            %0: f32[] = reduce_sum %x {{axes=[0]}}
            {equations}
            return %y
        }}"
    );
    one(&text, &[f32s(&x)])
}

#[test]
fn an_error_that_decides_gives_the_union() {
    let floor = "%y: f32[] = floor %0";
    assert_eq!(of_sum(floor, [2.0, 1.0]), Some((3.0, 1.0)), "3 may be just below 3");
    assert_eq!(of_sum(floor, [2.25, 1.0]), Some((3.0, 0.0)));
    let choice = |than: &str| {
        format!(
            "%1: f32[] = constant {{value=f32[] {than}}}
             %2: bool[] = lt %0, %1
             %3: f32[] = constant {{value=f32[] 10.0}}
             %4: f32[] = constant {{value=f32[] 12.5}}
             %y: f32[] = select %2, %3, %4"
        )
    };
    assert_eq!(of_sum(&choice("3.0"), [2.0, 1.0]), Some((12.5, 2.5)));
    assert_eq!(of_sum(&choice("3.5"), [2.0, 1.0]), Some((10.0, 0.0)));
    let count = "%1: i32[] = convert_element_type %0 {dtype=i32}
                 %2: i32[] = add %1, %1
                 %y: f32[] = convert_element_type %2 {dtype=f32}";
    let (value, error) = of_sum(count, [2.0, 1.0]).unwrap();
    assert!(value == 6.0 && (2.0..2.001).contains(&error), "{value} {error}");
}

#[test]
fn where_nothing_bounds_an_error_there_is_no_bound() {
    assert!(of_sum("%y: f32[] = reciprocal %0", [1.0, -1.0]).is_none());
    assert!(of_sum("%y: f32[] = log %0", [1.0, -1.0]).is_none());
    assert!(of_sum("%y: f32[] = exp %0", [80.0, 9.0]).is_none());
    assert!(of_sum("%y: f32[] = tan %0", [1.570_796_4, 0.0]).is_none());
    let index = "%1: i32[] = convert_element_type %0 {dtype=i32}
                 %2: i32[1] = reshape %1 {shape=[1]}
                 %3: f32[1] = take_along_axis %x, %2 {axis=0}
                 %y: f32[] = reshape %3 {shape=[]}";
    assert!(of_sum(index, [2.0, -1.0]).is_none());
    assert_eq!(of_sum(index, [2.5, -1.0]), Some((-1.0, 0.0)));
}

#[test]
fn the_place_where_a_bound_is_lost_is_known() {
    let text = "func @f(%x: f32[2]) -> (f32[], f32[]) {
        %0: f32[] = reduce_sum %x {axes=[0]}
        %1: f32[] = log %0
        %2: f32[] = exp %1
        return %2, %0
    }";
    let function = function(text);
    let bounds = worst_case(&function, &[f32s(&[1.0, -1.0])], Approximations::None).unwrap();
    let place = bounds.error(0).unwrap_err().unwrap();
    assert_eq!(place.op, "log");
    assert!(function.locations.origin(place.location).to_string().starts_with("test.ir:3:"));
    assert!(bounds.error(1).is_ok());
}
