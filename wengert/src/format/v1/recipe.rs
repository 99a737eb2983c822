//! Recipes to and from version 1.

use super as v1;
use crate::recipe::{
    Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric, Monitoring, Recipe,
    StepRecipe, Transform,
};
use wengert_core::{DType, Diagnostic, Result, Scalar};

/// Converts a recipe to a record. Its blocks and some transforms have a [section](super::data) of
/// their own.
pub fn to_record(recipe: &Recipe) -> v1::Recipe {
    v1::Recipe {
        init: recipe.init.clone(),
        step: recipe.step.function.clone(),
        step_inputs: recipe.step.inputs.iter().map(input_to).collect(),
        loss: recipe.step.loss.clone(),
        evaluate: recipe.evaluate.as_ref().map(evaluate_to),
        batch_size: recipe.batches.size,
        shuffle: recipe.batches.shuffle,
        smaller_last_batch: recipe.batches.last == LastBatch::Smaller,
        length: match recipe.length {
            Length::Epochs(n) => v1::Period::Epochs(n),
            Length::Steps(n) => v1::Period::Steps(n),
        },
        checkpoint: cadence_to(recipe.checkpoint),
        key_seed: recipe.key_seed,
    }
}

/// Converts a record to a recipe. Names of dtypes and aggregates must be known, and the recipe
/// must pass [`Recipe::verify`]. Blocks and some transforms, the policy of precision, and what the
/// run watches have sections of their own.
pub fn from_record(record: v1::Recipe) -> Result<Recipe> {
    let recipe = Recipe {
        init: record.init,
        step: StepRecipe {
            function: record.step,
            inputs: inputs_from(record.step_inputs)?,
            loss: record.loss,
        },
        evaluate: record.evaluate.map(evaluate_from).transpose()?,
        batches: Batches {
            size: record.batch_size,
            shuffle: record.shuffle,
            blocks: None,
            last: if record.smaller_last_batch { LastBatch::Smaller } else { LastBatch::Drop },
        },
        length: match record.length {
            v1::Period::Epochs(n) => Length::Epochs(n),
            v1::Period::Steps(n) => Length::Steps(n),
        },
        checkpoint: cadence_from(record.checkpoint),
        key_seed: record.key_seed,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    recipe.verify()?;
    Ok(recipe)
}

pub(super) fn evaluate_to(evaluate: &EvaluateRecipe) -> v1::Evaluate {
    v1::Evaluate {
        function: evaluate.function.clone(),
        inputs: evaluate.inputs.iter().map(input_to).collect(),
        batch_size: evaluate.batch_size,
        metrics: evaluate.metrics.iter().map(metric_to).collect(),
        every: cadence_to(evaluate.every),
    }
}

pub(super) fn evaluate_from(record: v1::Evaluate) -> Result<EvaluateRecipe> {
    Ok(EvaluateRecipe {
        function: record.function,
        inputs: inputs_from(record.inputs)?,
        batch_size: record.batch_size,
        metrics: record.metrics.into_iter().map(metric_from).collect::<Result<_>>()?,
        every: cadence_from(record.every),
    })
}

fn inputs_from(inputs: Vec<v1::RecipeInput>) -> Result<Vec<InputRecipe>> {
    inputs.into_iter().map(input_from).collect()
}

fn input_to(input: &InputRecipe) -> v1::RecipeInput {
    // Another section has the whole list of an input with a transform that is unknown here.
    let plain = input.transforms.iter().filter(|_| super::data::is_plain(input));
    let transforms = plain.filter_map(|transform| match transform {
        Transform::Convert(dtype) => Some(v1::Transform::Convert(dtype.name().into())),
        Transform::Scale(by) => {
            Some(v1::Transform::Scale { dtype: by.dtype().name().into(), bits: by.bits() })
        }
        Transform::Offset(by) => {
            Some(v1::Transform::Offset { dtype: by.dtype().name().into(), bits: by.bits() })
        }
        _ => None,
    });
    v1::RecipeInput {
        input: input.input.clone(),
        array: input.array.clone(),
        transforms: transforms.collect(),
    }
}

fn input_from(record: v1::RecipeInput) -> Result<InputRecipe> {
    let scalar = |dtype: String, bits| -> Result<Scalar> {
        Ok(Scalar::from_bits(dtype.parse::<DType>()?, bits))
    };
    let transforms = record.transforms.into_iter().map(|transform| {
        Ok(match transform {
            v1::Transform::Convert(dtype) => Transform::Convert(dtype.parse()?),
            v1::Transform::Scale { dtype, bits } => Transform::Scale(scalar(dtype, bits)?),
            v1::Transform::Offset { dtype, bits } => Transform::Offset(scalar(dtype, bits)?),
        })
    });
    Ok(InputRecipe {
        input: record.input,
        array: record.array,
        transforms: transforms.collect::<Result<_>>()?,
    })
}

fn metric_to(metric: &Metric) -> v1::Metric {
    v1::Metric {
        name: metric.name.clone(),
        output: metric.output.clone(),
        aggregate: metric.aggregate.to_string(),
    }
}

fn metric_from(record: v1::Metric) -> Result<Metric> {
    let aggregate = record.aggregate.parse();
    let aggregate = aggregate.map_err(|error: Diagnostic| {
        error.context(format_args!("recipe: metric `{}`", record.name))
    })?;
    Ok(Metric { name: record.name, output: record.output, aggregate })
}

fn cadence_to(cadence: Cadence) -> Option<v1::Period> {
    match cadence {
        Cadence::Never => None,
        Cadence::Steps(n) => Some(v1::Period::Steps(n)),
        Cadence::Epochs(n) => Some(v1::Period::Epochs(n)),
    }
}

fn cadence_from(record: Option<v1::Period>) -> Cadence {
    match record {
        None => Cadence::Never,
        Some(v1::Period::Steps(n)) => Cadence::Steps(n),
        Some(v1::Period::Epochs(n)) => Cadence::Epochs(n),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::format::codec;

    /// A recipe that uses every field and variant that can occur together.
    pub(crate) fn sample() -> Recipe {
        Recipe {
            init: Some("init".into()),
            step: StepRecipe {
                function: "train_step".into(),
                inputs: vec![
                    InputRecipe::new("x", "x_train")
                        .then(Transform::Convert(DType::F32))
                        .then(Transform::Scale(Scalar::of(0.0625f32)))
                        .then(Transform::Offset(Scalar::of(-0.5f32))),
                    InputRecipe::new("y", "y_train"),
                ],
                loss: "loss".into(),
            },
            evaluate: Some(EvaluateRecipe {
                function: "evaluate".into(),
                inputs: vec![InputRecipe::new("x", "x_test")],
                batch_size: 360,
                metrics: ["mean", "per_example", "sum", "elements:w", "auc:y", "f1.macro:3:y"]
                    .map(|name| Metric {
                        name: name.into(),
                        output: "correct".into(),
                        aggregate: name.parse().unwrap(),
                    })
                    .to_vec(),
                every: Cadence::Epochs(2),
            }),
            batches: Batches { size: 64, shuffle: Some(7), blocks: None, last: LastBatch::Smaller },
            length: Length::Epochs(20),
            checkpoint: Cadence::Steps(100),
            key_seed: 9,
            microbatches: 1,
            precision: None,
            monitoring: Monitoring::default(),
        }
    }

    #[test]
    fn round_trip() {
        let mut other = sample();
        other.evaluate = None;
        other.init = None;
        other.batches = Batches { size: 1, shuffle: None, blocks: None, last: LastBatch::Drop };
        other.length = Length::Steps(5);
        other.checkpoint = Cadence::Never;
        for recipe in [sample(), other] {
            let bytes = codec::encode("recipe", &to_record(&recipe)).unwrap();
            assert_eq!(from_record(codec::decode("recipe", &bytes).unwrap()).unwrap(), recipe);
        }
    }

    #[test]
    fn unknown_names_and_zero_sizes_are_refused() {
        let mut record = to_record(&sample());
        record.evaluate.as_mut().unwrap().metrics[0].aggregate = "median".into();
        assert!(from_record(record).unwrap_err().message.contains("median"));
        let mut record = to_record(&sample());
        record.step_inputs[0].transforms[0] = v1::Transform::Convert("f33".into());
        assert!(from_record(record).unwrap_err().message.contains("f33"));
        let mut record = to_record(&sample());
        record.batch_size = 0;
        assert!(from_record(record).unwrap_err().message.contains("batch size"));
    }
}
