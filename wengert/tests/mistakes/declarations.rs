//! Inputs, parameters, state and outputs of a function.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn an_input_declared_twice() {
    says(
        building(|f| {
            f.input("x", f32("3")); //~ first
            f.input("x", f32("4")); //~ here
        }),
        "
        @f: input `x`: declared twice
          --> {here}: declared here
          --> {first}: declared first here
          help: give it another name
        ",
    );
}

#[test]
fn a_name_that_is_none() {
    says(
        building(|f| {
            f.input("2nd input", f32("3")); //~ here
        }),
        "
        @f: input `2nd input`: not a name
          --> {here}: declared here
          help: use letters, digits, `_` and `.`, not starting with a digit
        ",
    );
}

#[test]
fn a_shape_that_is_none() {
    says(
        building(|f| {
            f.input("x", f32("B,")); //~ here
        }),
        "
        @f: input `x`: `B,` is no shape: expected a dimension, found `]`
          --> {here}: declared here
          help: write extents and dimension variables, such as `B,64` or `2*B+1`
        ",
    );
}

#[test]
fn a_variable_of_a_shape_that_is_none() {
    says(
        building(|f| {
            let w = f.param("w", Tensor::variable(f32("3,"), Initializer::Zeros)); //~ here
            f.output("y", &w * 2.0);
        }),
        "
        @f: `3,` is no shape: expected a dimension, found `]`
          --> {here}: declared here
          help: write extents and dimension variables, such as `B,64` or `2*B+1`
        ",
    );
}

#[test]
fn a_negative_extent() {
    says(
        building(|f| {
            f.input("x", f32([2, -3])); //~ here
        }),
        "
        @f: input `x`: axis 1 of f32[2,-3] has extent -3, which is negative
          --> {here}: declared here
          help: an extent is 0 or more
        ",
    );
}

#[test]
fn a_dimension_variable_named_like_a_dtype() {
    says(
        building(|f| {
            f.input("x", f32(["f32"])); //~ here
        }),
        "
        @f: input `x`: `f32` is no name for a dimension variable
          --> {here}: declared here
          help: use letters, digits and `_`; names of dtypes, `true`, `false`, \
              `inf` and `nan` are taken
        ",
    );
}

#[test]
fn an_input_larger_than_any_memory() {
    says(
        building(|f| {
            f.input("x", f32([1i64 << 40, 1 << 40])); //~ here
        }),
        "
        @f: input `x`: f32[1099511627776,1099511627776] is larger than any memory
          --> {here}: declared here
          help: a value has at most 281474976710656 bytes
        ",
    );
}

#[test]
fn two_models_of_one_name() {
    says(
        building(|f| {
            f.param("model", Linear::new(2, 3)); //~ first
            f.state("model", Linear::new(2, 3)); //~ here
        }),
        "
        @f: input `model.weight`: declared twice
          --> {here}: declared here
          --> {first}: declared first here
          help: give it another name
        ",
    );
}

#[test]
fn an_output_given_twice() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("y", &x); //~ first
            f.output("y", &x + 1.0); //~ here
        }),
        "
        @f: output `y` is given twice
          --> {here}: given again here
          --> {first}: given first here
          help: give it another name
        ",
    );
}

#[test]
fn an_output_whose_name_is_none() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            f.output("the loss", &x); //~ here
        }),
        "
        @f: output `the loss`: not a name
          --> {here}: given here
          help: use letters, digits, `_` and `.`, not starting with a digit
        ",
    );
}

#[test]
fn an_update_of_another_shape() {
    says(
        building(|f| {
            let w = f.state("w", Tensor::variable(f32("3").unwrap(), Initializer::Zeros)); //~ w
            f.update("w", &w.sum()); //~ here
        }),
        "
        @f: state `w` has type f32[3], its update has type f32[]
          --> {here}: updated here
          --> {w}: declared here
          help: an update keeps dtype and shape
        ",
    );
}

#[test]
fn an_update_of_a_parameter() {
    says(
        building(|f| {
            let w = f.param("w", Tensor::variable(f32("3").unwrap(), Initializer::Zeros)); //~ w
            f.update("w", &(w + 1.0)); //~ here
        }),
        "
        @f: state `w`: the param of that name is only read
          --> {here}: updated here
          --> {w}: declared here
          help: declare it by `state` of the function
        ",
    );
}

#[test]
fn a_layer_that_belongs_to_no_function() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,2"));
            let layer = Linear::new(2, 3); //~ layer
            f.output("y", layer.call(&x)); //~ here
        }),
        "
        @f: a variable of type f32[2,3] is used before it belongs to a function
          --> {layer}: the variable is made here
          --> {here}: dot_general
          help: pass the model to `param` or `state` of the function first, and use what they return
        ",
    );
}

#[test]
fn a_variable_as_an_output() {
    says(
        building(|f| {
            let layer = Linear::new(2, 3); //~ layer
            f.output("y", &layer.weight); //~ here
        }),
        "
        @f: output `y`: a variable of type f32[2,3] is used before it belongs to a function
          --> {layer}: the variable is made here
          --> {here}: given here
          help: pass the model to `param` or `state` of the function first, and use what they return
        ",
    );
}

#[test]
fn a_parameter_made_of_a_computed_tensor() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let w = f.param("w", &x * 2.0); //~ here
            f.output("y", w);
        }),
        "
        @f: variable `w` is declared from a computed tensor
          --> {here}: declared here
          help: declare it from `Tensor::variable` or a constant, and update it \
              with what was computed
        ",
    );
}
