//! Functions of a program, and tensors that belong to another function or closure.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn two_functions_of_one_name() {
    let mut program = Program::new();
    let double = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("3"));
        f.output("y", &x + &x);
    };
    program.function("double", double).unwrap();
    let error = program.function("double", double).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        function `@double` is defined twice
          --> {here}: the function is built here
          help: give it another name
        ",
    );
}

#[test]
fn a_function_whose_name_is_none() {
    let mut program = Program::new();
    let error = program.function("2x", |_| {}).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @2x: G1: `2x` is no name for a function
          --> {here}: the function is built here
        ",
    );
}

#[test]
fn a_variable_of_another_shape_than_in_an_earlier_function() {
    let mut program = Program::new();
    let train = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("B,2"));
        let layer = f.state("layer", Linear::new(2, 3)); //~ first
        f.output("y", layer.call(&x));
    };
    program.function("train", train).unwrap();
    let predict = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("B,2"));
        let layer = f.param("layer", Linear::new(2, 4)); //~ here
        f.output("y", layer.call(&x));
    };
    says(
        program.function("predict", predict).unwrap_err().to_string(),
        "
        @predict: variable `layer.weight` has type f32[2,4], in an earlier function f32[2,3]
          --> {here}: declared here
          --> {first}: declared first here
          help: variables of one key path are one variable: give one of them another name
        ",
    );
}

#[test]
fn a_variable_that_begins_otherwise_than_in_an_earlier_function() {
    let mut program = Program::new();
    let of = |begin: Initializer| Tensor::variable(f32("3").unwrap(), begin);
    let first = |f: &mut FunctionBuilder| {
        let w = f.param("w", of(Initializer::Zeros)); //~ first
        f.output("y", w);
    };
    program.function("first", first).unwrap();
    let second = |f: &mut FunctionBuilder| {
        let w = f.param("w", of(Initializer::Ones)); //~ here
        f.output("y", w);
    };
    says(
        program.function("second", second).unwrap_err().to_string(),
        "
        @second: variable `w` begins as Ones, in an earlier function as Zeros
          --> {here}: declared here
          --> {first}: declared first here
          help: variables of one key path are one variable, with one beginning
        ",
    );
}

#[test]
fn a_tensor_of_another_function() {
    let mut program = Program::new();
    let mut kept = None;
    let first = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("3")); //~ other
        f.output("y", &x);
        kept = Some(x);
    };
    program.function("first", first).unwrap();
    let kept = kept.unwrap();
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", &x + &kept); //~ here
        }),
        "
        @f: add: a tensor belongs to another function
          --> {here}: add
          --> {x}: an operand, f32[3], is made here
          --> {other}: an operand, f32[3], is made here
          help: declare it as an input of this function, or compute it here
        ",
    );
}

#[test]
fn an_output_of_another_function() {
    let mut program = Program::new();
    let mut kept = None;
    let first = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("3")); //~ other
        kept = Some(x);
    };
    program.function("first", first).unwrap();
    let kept = kept.unwrap();
    says(
        building(|f| f.output("y", &kept)), //~ here
        "
        @f: output `y`: a tensor belongs to another function
          --> {other}: it is made here
          --> {here}: given here
          help: declare it as an input of this function, or compute it here
        ",
    );
}

#[test]
fn a_tensor_that_leaves_its_closure() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let mut kept = None;
            let y = control::map(&x, |part| {
                kept = Some(part * 2.0); //~ kept
                part + 1.0
            });
            let kept = kept.unwrap();
            f.output("y", y + &kept); //~ here
        }),
        "
        @f: output `y`: a tensor is used outside of the closure that made it
          --> {kept}: it is made here
          --> {here}: given here
          help: return it from the closure, and use what the operator around the closure gives
        ",
    );
}

#[test]
fn an_operation_outside_of_any_function() {
    let x = Tensor::constant(1.0f32);
    let y = &x + &x; //~ here
    says(
        y.error().unwrap().to_string(),
        "
        add: there is no function to put it in
          --> {here}: add
          help: operate on tensors inside `Program::function`
        ",
    );
}

#[test]
fn the_value_of_a_symbolic_tensor() {
    let mut error = None;
    let build = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("")); //~ x
        error = x.item().err();
        f.output("y", x);
    };
    Program::new().function("f", build).unwrap();
    says(
        error.unwrap().to_string(),
        "
        a tensor of type f32[] has no value while the graph is being built
          --> {x}: it is made here
          help: compile and run the function, or begin with `Tracked::new` to compute at once
        ",
    );
}

#[test]
fn a_tensor_of_a_model_that_is_not_there() {
    let error = Linear::new(2, 3).tensor("wieght").unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        there is no differentiable tensor `wieght`
          --> {here}: asked for here
          help: it has `weight`, `bias`
        ",
    );
}
