//! Recipes that do not match their program.

use crate::says;
use wengert::prelude::*;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe,
};

/// A program with a training step over the inputs `x` and `y`, and a recipe for it.
fn program() -> (Program, Recipe) {
    let mut program = Program::new();
    let step = |f: &mut FunctionBuilder| {
        let (x, y) = (f.input("x", f32("B,2")), f.input("y", f32("B,1")));
        let model = f.state("model", Linear::new(2, 1));
        let (loss, gradient) = value_and_grad(&model, |m| (m.call(&x) - &y).square().mean());
        Sgd::new(0.1).step(f, &model, &gradient);
        f.output("loss", loss);
        f.output("residual", model.call(&x) - &y);
    };
    program.function("train_step", step).unwrap();
    let recipe = Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![InputRecipe::new("x", "images"), InputRecipe::new("y", "labels")],
            loss: "loss".into(),
        },
        evaluate: None,
        batches: Batches { size: 4, shuffle: None, blocks: None, last: LastBatch::Drop },
        length: Length::Epochs(1),
        checkpoint: Cadence::Never,
        key_seed: 0,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    recipe.verify_for(&program).unwrap();
    (program, recipe)
}

fn error_of(change: impl FnOnce(&mut Recipe)) -> String {
    let (program, mut recipe) = program();
    change(&mut recipe);
    recipe.verify_for(&program).unwrap_err().to_string()
}

#[test]
fn an_input_that_is_not_there() {
    says(
        error_of(|r| r.step.inputs[1].input = "labels".into()),
        "
        recipe: `@train_step` has no data input `labels`
          help: it has `x`, `y`
        ",
    );
}

#[test]
fn an_input_without_an_array() {
    says(
        error_of(|r| drop(r.step.inputs.pop())),
        "
        recipe: input `y` of `@train_step` has no array
        ",
    );
}

#[test]
fn a_loss_that_is_no_output() {
    says(
        error_of(|r| r.step.loss = "los".into()),
        "
        recipe: `@train_step` has no output `los`
          help: it has `loss`, `residual`
        ",
    );
}

#[test]
fn a_loss_that_is_no_number() {
    says(
        error_of(|r| r.step.loss = "residual".into()),
        "
        recipe: output `residual` of `@train_step` is f32[B,1], not a number
        ",
    );
}

#[test]
fn a_step_that_is_no_function() {
    says(
        error_of(|r| r.step.function = "step".into()),
        "
        recipe: there is no function `@step`
          help: the program has @train_step, @init
        ",
    );
}

#[test]
fn batches_of_nothing() {
    says(
        error_of(|r| r.batches.size = 0),
        "
        recipe: the batch size must be at least 1
        ",
    );
}

#[test]
fn a_metric_of_an_output_that_is_not_there() {
    let metric =
        Metric { name: "accuracy".into(), output: "correct".into(), aggregate: Aggregate::Mean };
    let evaluate = |r: &mut Recipe| {
        r.evaluate = Some(EvaluateRecipe {
            function: "train_step".into(),
            inputs: r.step.inputs.clone(),
            batch_size: 4,
            metrics: vec![metric],
            every: Cadence::Never,
        });
    };
    says(
        error_of(evaluate),
        "
        recipe: metric `accuracy`: `@train_step` has no output `correct`
          help: it has `loss`, `residual`
        ",
    );
}
