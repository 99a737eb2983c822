//! Recipes to and from version 1.

use super as v1;
use crate::format::container::damaged;
use crate::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric, Recipe,
    StepRecipe, Transform,
};
use wengert_core::{DType, Result, Scalar};

/// Converts a recipe to a record. Its blocks and some transforms have a [section](super::data) of
/// their own.
pub fn to_record(recipe: &Recipe) -> v1::Recipe {
    v1::Recipe {
        init: recipe.init.clone(),
        step: recipe.step.function.clone(),
        step_inputs: recipe.step.inputs.iter().map(input_to).collect(),
        loss: recipe.step.loss.clone(),
        evaluate: recipe.evaluate.as_ref().map(|evaluate| v1::Evaluate {
            function: evaluate.function.clone(),
            inputs: evaluate.inputs.iter().map(input_to).collect(),
            batch_size: evaluate.batch_size,
            metrics: evaluate.metrics.iter().map(metric_to).collect(),
            every: cadence_to(evaluate.every),
        }),
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
/// must pass [`Recipe::verify`]. Blocks and some transforms, and the policy of precision, have
/// sections of their own.
pub fn from_record(record: v1::Recipe) -> Result<Recipe> {
    let inputs = |inputs: Vec<v1::RecipeInput>| {
        inputs.into_iter().map(input_from).collect::<Result<Vec<_>>>()
    };
    let recipe = Recipe {
        init: record.init,
        step: StepRecipe {
            function: record.step,
            inputs: inputs(record.step_inputs)?,
            loss: record.loss,
        },
        evaluate: record
            .evaluate
            .map(|evaluate| -> Result<EvaluateRecipe> {
                Ok(EvaluateRecipe {
                    function: evaluate.function,
                    inputs: inputs(evaluate.inputs)?,
                    batch_size: evaluate.batch_size,
                    metrics: evaluate
                        .metrics
                        .into_iter()
                        .map(metric_from)
                        .collect::<Result<_>>()?,
                    every: cadence_from(evaluate.every),
                })
            })
            .transpose()?,
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
        precision: None,
    };
    recipe.verify()?;
    Ok(recipe)
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

const AGGREGATES: [(Aggregate, &str); 3] =
    [(Aggregate::Mean, "mean"), (Aggregate::PerExample, "per_example"), (Aggregate::Sum, "sum")];

fn metric_to(metric: &Metric) -> v1::Metric {
    let name = AGGREGATES
        .iter()
        .find(|(a, _)| *a == metric.aggregate)
        .expect("the table has every aggregate")
        .1;
    v1::Metric { name: metric.name.clone(), output: metric.output.clone(), aggregate: name.into() }
}

fn metric_from(record: v1::Metric) -> Result<Metric> {
    let aggregate = AGGREGATES
        .iter()
        .find(|(_, name)| *name == record.aggregate)
        .ok_or_else(|| damaged(format!("recipe: unknown aggregate `{}`", record.aggregate)))?
        .0;
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
                metrics: AGGREGATES
                    .map(|(aggregate, name)| Metric {
                        name: name.into(),
                        output: "correct".into(),
                        aggregate,
                    })
                    .to_vec(),
                every: Cadence::Epochs(2),
            }),
            batches: Batches { size: 64, shuffle: Some(7), blocks: None, last: LastBatch::Smaller },
            length: Length::Epochs(20),
            checkpoint: Cadence::Steps(100),
            key_seed: 9,
            precision: None,
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
