//! The functions and the recipe of training.

use super::model::Model;
use super::{EVALUATE, STEP, Tuning};
use crate::operators::value_aux_and_grad;
use crate::optim::{GRAD_NORM, Rate, global_norm};
use crate::program::{INIT, drawn};
use crate::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe, Transform,
};
use std::collections::BTreeMap;
use wengert_compiler::rewrite::tidy;
use wengert_core::build::{FunctionBuilder, inline};
use wengert_core::graph::{Body, Function, InputRole};
use wengert_core::{Initializer, Result, Tensor};

/// The inputs of the model in another function.
struct Taken {
    /// In the order of the model's inputs.
    inputs: Vec<(String, Tensor)>,
    /// Those that are trained.
    trained: BTreeMap<String, Tensor>,
    labels: Tensor,
    body: Body,
}

impl Taken {
    fn of(
        f: &mut FunctionBuilder,
        tuning: &Tuning,
        model: &Model<'_>,
        is_trained: impl Fn(&str) -> bool,
    ) -> Taken {
        let function = model.function;
        let body = f.scope().adopt(&model.body(), &function.locations);
        let (mut inputs, mut trained, mut labels) = (vec![], BTreeMap::new(), None);
        for (n, input) in function.inputs.iter().enumerate() {
            let (name, ty) = (&input.name, function.input_type(n).clone());
            // Labels come after the data, before the variables.
            if input.role != InputRole::Input && labels.is_none() {
                labels = Some(f.input(&tuning.labels, model.labels.clone()));
            }
            let tensor = match input.role {
                InputRole::Input => f.input(name, ty),
                InputRole::Key => f.key(name),
                InputRole::Param | InputRole::State => {
                    let variable = Tensor::variable(ty, Initializer::Zeros);
                    match is_trained(name) {
                        true => {
                            let state = f.state(name, variable);
                            trained.insert(name.clone(), state.clone());
                            state
                        }
                        false if input.role == InputRole::State => f.state(name, variable),
                        false => f.param(name, variable),
                    }
                }
            };
            inputs.push((name.clone(), tensor));
        }
        let labels = labels.unwrap_or_else(|| f.input(&tuning.labels, model.labels.clone()));
        Taken { inputs, trained, labels, body }
    }

    /// The predictions and the variables that are replaced, with these values of the trained ones.
    fn results(&self, trained: &BTreeMap<String, Tensor>) -> Vec<Tensor> {
        let of = |(name, tensor): &(String, Tensor)| trained.get(name).unwrap_or(tensor).clone();
        let operands: Vec<Tensor> = self.inputs.iter().map(of).collect();
        match inline(&self.body, &operands) {
            Ok(results) => results,
            Err(error) => vec![Tensor::poisoned(error); self.body.outputs.len()],
        }
    }
}

/// The training step, and the function that makes the optimiser's state, if there is any.
pub(super) fn step(
    tuning: &Tuning,
    model: &Model<'_>,
    trained: &[&str],
) -> Result<(Function, Option<Function>)> {
    let mut builder = FunctionBuilder::new(STEP);
    builder.run(|f| {
        let taken = Taken::of(f, tuning, model, |name| trained.contains(&name));
        let (loss, next, gradient) = value_aux_and_grad(&taken.trained, |trained| {
            let mut results = taken.results(trained);
            let next = results.split_off(1);
            (tuning.loss.call(&results[0], &taken.labels), next)
        });
        for (path, value) in model.replaced().zip(&next) {
            f.update(path, value);
        }
        let rate = Rate::from(tuning.learning_rate);
        let rate = if tuning.settable_rate { rate.settable() } else { rate };
        tuning.optimizer.step(f, rate, &taken.trained, &gradient);
        f.output("loss", &loss);
        f.output(GRAD_NORM, global_norm(&gradient));
    });
    let variables = builder.variables().to_vec();
    let step = tidy(builder.finish()?);
    let of_model = |path: &str| model.variables().any(|(name, _)| name == path);
    let own: Vec<_> = variables.into_iter().filter(|(path, _)| !of_model(path)).collect();
    if own.is_empty() {
        return Ok((step, None));
    }
    let init = FunctionBuilder::build(INIT, |f| {
        for (path, variable) in &own {
            let initializer = variable.initializer().map(|variable| &variable.initializer);
            let initializer = initializer.unwrap_or(&Initializer::Zeros);
            f.create(path, &drawn(variable.ty(), initializer, None));
        }
    })?;
    Ok((step, Some(tidy(init))))
}

/// The function that evaluates.
pub(super) fn evaluate(tuning: &Tuning, model: &Model<'_>) -> Result<Function> {
    let function = FunctionBuilder::build(EVALUATE, |f| {
        let taken = Taken::of(f, tuning, model, |_| false);
        let predictions = &taken.results(&taken.trained)[0];
        f.output("loss", tuning.loss.call(predictions, &taken.labels));
        if tuning.loss.is_of_classes() {
            let found = predictions.argmax(-1).convert(taken.labels.dtype());
            let right = found.eq(&taken.labels).convert(predictions.dtype().wide());
            f.output("accuracy", right.mean());
        }
    })?;
    Ok(tidy(function))
}

/// The recipe.
pub(super) fn recipe(tuning: &Tuning, model: &Model<'_>, has_init: bool) -> Recipe {
    let of = |name: &str, dtype| {
        let array = tuning.arrays.get(name).map_or(name, String::as_str);
        InputRecipe::new(name, array).then(Transform::Convert(dtype))
    };
    let mut inputs: Vec<InputRecipe> = model.data().map(|(name, ty)| of(name, ty.dtype)).collect();
    inputs.push(of(&tuning.labels, model.labels.dtype));
    let metric =
        |name: &str| Metric { name: name.into(), output: name.into(), aggregate: Aggregate::Mean };
    let mut metrics = vec![metric("loss")];
    if tuning.loss.is_of_classes() {
        metrics.push(metric("accuracy"));
    }
    Recipe {
        init: has_init.then(|| INIT.into()),
        step: StepRecipe { function: STEP.into(), inputs: inputs.clone(), loss: "loss".into() },
        evaluate: Some(EvaluateRecipe {
            function: EVALUATE.into(),
            inputs,
            batch_size: tuning.batch,
            metrics,
            every: Cadence::Never,
        }),
        batches: Batches {
            size: tuning.batch,
            shuffle: Some(tuning.seed),
            blocks: None,
            last: LastBatch::Smaller,
        },
        length: Length::Epochs(tuning.epochs),
        checkpoint: Cadence::Epochs(1),
        key_seed: tuning.seed,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}
