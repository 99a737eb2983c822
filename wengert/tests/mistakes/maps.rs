//! `vmap`.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn a_map_over_a_scalar() {
    says(
        building(|f| {
            let x = f.input("x", f32("")); //~ x
            f.output("y", vmap(&x, |x| x.exp())); //~ here
        }),
        "
        @f: the tensor of type f32[] is a scalar: it has no axis to map over
          --> {x}: it is made here
          --> {here}: mapped here
          help: capture it in the closure, or give it no axis, so that all examples share it
        ",
    );
}

#[test]
fn a_map_over_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("3,4")); //~ x
            f.output("y", vmap_axes(&x, 2, 0, |x| x.exp())); //~ here
        }),
        "
        @f: the tensor of type f32[3,4] has no axis 2
          --> {x}: it is made here
          --> {here}: mapped here
          help: its axes are 0 to 1
        ",
    );
}

#[test]
fn different_numbers_of_examples() {
    says(
        building(|f| {
            let a = f.input("a", f32("3")); //~ a
            let b = f.input("b", f32("4")); //~ b
            f.output("y", vmap(&(a, b), |(a, b)| a * b)); //~ here
        }),
        "
        @f: `0` has 3 examples, `1` has 4
          --> {a}: `0` of type f32[3] is made here
          --> {b}: `1` of type f32[4], with axis 0 for the examples, here
          --> {here}: mapped here
          help: mapped axes have one extent; what all examples share has none
        ",
    );
}

#[test]
fn a_map_over_nothing() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("y", vmap_axes(&x, [None], 0, |x| x.exp())); //~ here
        }),
        "
        @f: nothing is mapped: no tensor has an axis for the examples
          --> {here}: mapped here
          help: map at least one, or call the closure without `vmap`
        ",
    );
}

#[test]
fn axes_for_another_number_of_tensors() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("y", vmap_axes(&x, [Some(0), None], 0, |x| x.exp())); //~ here
        }),
        "
        @f: 2 axes for 1 tensors
          --> {here}: mapped here
          help: give one axis, or `None`, for the f32[3]
        ",
    );
}

#[test]
fn a_result_along_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let y = vmap_axes(&x, 0, 1, |x| {
                //~ vmap
                x.exp() //~ result
            });
            f.output("y", y);
        }),
        "
        @f: the result of one example has 0 axes, so the examples cannot lie along axis 1
          --> {result}: it is made here
          --> {vmap}: mapped here
          help: axes 0 to 0 are possible
        ",
    );
}

#[test]
fn a_shared_result_that_differs() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let y = vmap_axes(&x, 0, [None], |x| {
                //~ vmap
                x.exp() //~ result
            });
            f.output("y", y);
        }),
        "
        @f: the result has no axis for the examples, but differs between them
          --> {result}: it is made here
          --> {vmap}: mapped here
          help: give it an axis; only what does not depend on a mapped tensor can do without
        ",
    );
}

#[test]
fn an_error_within_the_closure_that_is_mapped() {
    says(
        building(|f| {
            let x = f.input("x", f32("5,3"));
            let w = f.input("w", f32("4")); //~ w
            let y = vmap(&x, |x| {
                //~ vmap
                x * &w //~ here
            });
            f.output("y", y);
        }),
        "
        @f: mul: operands have types f32[3] and f32[4]
          --> {here}: mul
          --> {vmap}: an operand, f32[3], is made here
          --> {w}: an operand, f32[4], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn a_map_over_a_model_that_belongs_to_no_function() {
    says(
        building(|f| {
            let x = f.input("x", f32("2"));
            let layer = Linear::new(2, 1); //~ layer
            f.output("y", vmap(&layer.weight, |w| w * &x)); //~ here
        }),
        "
        @f: a variable of type f32[2,1] is used before it belongs to a function
          --> {layer}: the variable is made here
          --> {here}: mapped here
          help: pass the model to `param` or `state` of the function first, and use what they return
        ",
    );
}
