//! Compiling and running.

use crate::says;
use wengert::prelude::*;
use wengert::{Compiled, Session};

fn program() -> Program {
    let mut program = Program::new();
    let predict = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("B,2"));
        let layer = f.param("layer", Linear::new(2, 3));
        f.output("y", layer.call(&x));
    };
    program.function("predict", predict).unwrap();
    program
}

fn session() -> Session {
    Session::open(Device::Interpreter).unwrap()
}

/// `@predict` for two examples.
fn compiled(initialized: bool) -> (Session, Compiled) {
    let (program, mut session) = (program(), session());
    if initialized {
        session.initialize(&program, 0).unwrap();
    }
    let compiled = session.compile(&program, "predict", bind!(B = 2)).unwrap();
    (session, compiled)
}

fn floats(shape: &[usize]) -> Literal {
    Literal::from_vec(shape, vec![1.0f32; shape.iter().product()]).unwrap()
}

#[test]
fn a_function_that_is_not_there() {
    let error = session().compile(&program(), "predicted", bind!(B = 2)).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        there is no function `@predicted`
          --> {here}: compiled here
          help: the program has @predict, @init
        ",
    );
}

#[test]
fn a_dimension_variable_that_is_not_bound() {
    let error = session().compile(&program(), "predict", bind!()).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: dimension `B` of f32[B,2] is not bound
          --> {here}: compiled here
          help: bind it, e.g. by `bind!(B = 32)`
        ",
    );
}

#[test]
fn a_dimension_variable_that_is_not_there() {
    let error = session().compile(&program(), "predict", bind!(B = 2, T = 3)).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        `@predict` has no dimension variable `T`
          --> {here}: compiled here
          help: it has `B`
        ",
    );
}

#[test]
fn a_dimension_variable_bound_below_one() {
    let error = session().compile(&program(), "predict", bind!(B = -1)).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: dimension `B` of f32[B,2] is -1 with B=-1
          --> {here}: compiled here
          help: extents must be 0 or more
        ",
    );
}

#[test]
fn variables_without_values() {
    let (_session, mut predict) = compiled(false);
    let error = predict.run(&[("x", floats(&[2, 2]))]).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: variable `layer.weight` has no value
          --> {here}: run here
          help: run the program's `init` function, or load a weights file; \
              no variable has a value yet
        ",
    );
}

#[test]
fn an_input_that_is_not_given() {
    let (_session, mut predict) = compiled(true);
    let nothing: &[(&str, Literal)] = &[];
    let error = predict.run(nothing).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: input `x` (f32[2,2]) is not given
          --> {here}: run here
          help: each input and key of the function is given
        ",
    );
}

#[test]
fn an_input_of_another_shape() {
    let (_session, mut predict) = compiled(true);
    let error = predict.run(&[("x", floats(&[3, 2]))]).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: input `x` is f32[2,2] here, the tensor given is f32[3,2]
          --> {here}: run here
          help: give one of that shape, or compile the function for another one
        ",
    );
}

#[test]
fn an_input_of_another_dtype() {
    let (_session, mut predict) = compiled(true);
    let error = predict.run(&[("x", floats(&[2, 2]).convert(DType::F64))]).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: input `x` is f32[2,2] here, the tensor given is f64[2,2]
          --> {here}: run here
          help: give one of that dtype and shape
        ",
    );
}

#[test]
fn an_input_that_is_not_there() {
    let (_session, mut predict) = compiled(true);
    let error = predict.run(&[("x", floats(&[2, 2])), ("z", floats(&[1]))]).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: there is no input `z`
          --> {here}: run here
          help: inputs are `x`
        ",
    );
}

#[test]
fn an_input_given_twice() {
    let (_session, mut predict) = compiled(true);
    let error = predict.run(&[("x", floats(&[2, 2])), ("x", floats(&[2, 2]))]).unwrap_err();
    //~ here
    says(
        error.to_string(),
        "
        @predict: input `x` is given twice
          --> {here}: run here
          help: give each input once
        ",
    );
}

#[test]
fn a_variable_of_another_type() {
    let (mut session, mut predict) = compiled(true);
    session.set_variable("layer.bias", &floats(&[4])).unwrap();
    let error = predict.run(&[("x", floats(&[2, 2]))]).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        @predict: variable `layer.bias` is f32[3] here, the tensor given is f32[4]
          --> {here}: run here
          help: give the variable a value of that type
        ",
    );
}

#[test]
fn a_variable_that_is_not_there() {
    let (session, _) = compiled(true);
    let error = session.variable("layer.wieght").unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        variable `layer.wieght` has no value
          --> {here}: asked for here
          help: run the program's `init` function, or load a weights file; variables with a value \
              are `layer.bias`, `layer.weight`
        ",
    );
}

#[test]
fn an_output_that_is_not_there() {
    let (_session, mut predict) = compiled(true);
    let outputs = predict.run(&[("x", floats(&[2, 2]))]).unwrap();
    let error = outputs.get("logits").unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        there is no output `logits`
          --> {here}: asked for here
          help: outputs are `y`
        ",
    );
}

#[test]
fn an_output_that_is_no_number() {
    let (_session, mut predict) = compiled(true);
    let outputs = predict.run(&[("x", floats(&[2, 2]))]).unwrap();
    let error = outputs.scalar("y").unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        output `y` is f32[2,3], not a single number
          --> {here}: asked for here
          help: take the whole array with `get`
        ",
    );
}

#[test]
fn a_program_without_variables() {
    let mut program = Program::new();
    let double = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("3"));
        f.output("y", &x + &x);
    };
    program.function("double", double).unwrap();
    let error = session().initialize(&program, 0).unwrap_err(); //~ here
    says(
        error.to_string(),
        "
        the program has no variables, so there is nothing to initialize
          --> {here}: initialized here
          help: variables are declared by `param` and `state` of a `wengert::Program`, \
              or made by an `@init`
        ",
    );
}
