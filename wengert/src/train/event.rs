//! What a run reports: events, and the record of a step.
//!
//! The trainer reports every event to its observers: first to the [`log`](super::log), if the run
//! has a folder, then to the caller's closure. All of them see the same records.
//!
//! **Outputs of the step.** A record has every output of the step function that is a single
//! number. The recipe names the loss. Four outputs are known by name: [`GRAD_NORM`], the global
//! norm of the gradient, [`LEARNING_RATE`], and with [loss scaling](crate::optim::LossScale)
//! [`LOSS_SCALE`] and [`SKIPPED`]. All others are metrics of the batch.

use super::metrics::Confusion;
use crate::optim::{GRAD_NORM, LEARNING_RATE, LOSS_SCALE, SKIPPED};
use crate::outputs::Outputs;
use crate::recipe::{StepRecipe, Watched};
use crate::weight_names::NameDifferences;
use serde_json::{Map, Number, Value};
use std::path::Path;
use std::time::Duration;
use wengert_core::Result;
use wengert_core::graph::{Function, OutputRole};

/// The record of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepRecord {
    /// Its number, from 1.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Its loss, before the update.
    pub loss: f64,
    /// Names and values of the other outputs that are single numbers, in the function's order.
    pub metrics: Vec<(String, f64)>,
    /// The output [`GRAD_NORM`].
    pub grad_norm: Option<f64>,
    /// The output [`LEARNING_RATE`].
    pub learning_rate: Option<f64>,
    /// The output [`LOSS_SCALE`].
    pub loss_scale: Option<f64>,
    /// Whether the output [`SKIPPED`] is not 0: the gradient was not finite, and no variable was
    /// updated.
    pub skipped: bool,
    /// Number of examples in its batch.
    pub examples: u64,
    /// Time from the choice of the batch until the loss is known, without compilation.
    pub time: Duration,
    /// The part of it during which the step waited for its batch.
    pub waited: Duration,
}

impl StepRecord {
    /// Examples per second; 0 if no time has passed.
    pub fn examples_per_second(&self) -> f64 {
        rate(self.examples, self.time)
    }

    /// Names and values in the order of the log. Floats have the shortest digits that read back
    /// exactly; times are rounded, to 10⁻⁶ s and to 0.1 examples per second.
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("step", Value::from(self.step)),
            ("epoch", Value::from(self.epoch)),
            ("loss", number(self.loss)),
        ];
        if !self.metrics.is_empty() {
            fields.push(("metrics", Value::Object(metrics(&self.metrics))));
        }
        fields.extend(self.grad_norm.map(|norm| ("grad_norm", number(norm))));
        fields.extend(self.learning_rate.map(|rate| ("learning_rate", number(rate))));
        fields.extend(self.loss_scale.map(|scale| ("loss_scale", number(scale))));
        if self.skipped {
            fields.push(("skipped", Value::from(true)));
        }
        let per_second = (self.examples_per_second() * 10.0).round() / 10.0;
        fields.push(("examples_per_second", number(per_second)));
        fields.push(("seconds", number(self.time.as_micros() as f64 / 1e6)));
        fields.push(("waited_seconds", number(self.waited.as_micros() as f64 / 1e6)));
        fields
    }
}

/// Examples per second; 0 if no time has passed.
pub fn rate(examples: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { examples as f64 / seconds } else { 0.0 }
}

/// Names and values as JSON.
pub(super) fn metrics(metrics: &[(String, f64)]) -> Map<String, Value> {
    metrics.iter().map(|(name, value)| (name.clone(), number(*value))).collect()
}

/// Names and values of an evaluation as JSON; matrices are lists of rows.
pub(super) fn evaluation(
    values: &[(String, f64)],
    matrices: &[(String, Confusion)],
) -> Map<String, Value> {
    let rows = |matrix: &Confusion| matrix.rows().map(Value::from).collect::<Vec<Value>>();
    let matrices = matrices.iter().map(|(name, m)| (name.clone(), Value::Array(rows(m))));
    metrics(values).into_iter().chain(matrices).collect()
}

/// The shortest digits that read back exactly. JSON has no NaN and no infinity, so they are
/// strings.
pub(super) fn number(value: f64) -> Value {
    // A loss that is an f32 is written with the digits of the f32.
    let short = value as f32;
    let text = if f64::from(short) == value { format!("{short:?}") } else { format!("{value:?}") };
    match Number::from_f64(value) {
        Some(_) => {
            serde_json::from_str(&text).expect("the digits of a finite float are a JSON number")
        }
        None => Value::String(text),
    }
}

/// The outputs of a step function that a record has.
pub(super) struct Recorded<'a> {
    loss: &'a str,
    grad_norm: bool,
    learning_rate: bool,
    loss_scale: bool,
    skipped: bool,
    metrics: Vec<&'a str>,
}

impl<'a> Recorded<'a> {
    /// The outputs of the function that are single numbers.
    pub(super) fn of(function: &'a Function, recipe: &'a StepRecipe) -> Recorded<'a> {
        let outputs = function.outputs.iter().enumerate();
        let numbers = outputs.filter(|(i, output)| {
            output.role == OutputRole::Output && function.output_type(*i).elements() == Some(1)
        });
        let mut names: Vec<&str> = numbers.map(|(_, output)| output.name.as_str()).collect();
        let loss = recipe.loss.as_str();
        let mut take = |wanted: &str| {
            let found = names.iter().position(|name| *name == wanted);
            found.map(|at| names.remove(at)).is_some()
        };
        take(loss);
        let (grad_norm, learning_rate) = (take(GRAD_NORM), take(LEARNING_RATE));
        let (loss_scale, skipped) = (take(LOSS_SCALE), take(SKIPPED));
        Recorded { loss, grad_norm, learning_rate, loss_scale, skipped, metrics: names }
    }

    /// The loss of a run of the step.
    pub(super) fn loss(&self, outputs: &Outputs) -> Result<f64> {
        outputs.scalar(self.loss)
    }

    /// A record with the numbers of a run of the step, and zeros for the rest.
    pub(super) fn read(&self, outputs: &Outputs) -> Result<StepRecord> {
        let optional = |is_there: bool, name: &str| is_there.then(|| outputs.scalar(name));
        let metric = |name: &&str| Ok(((*name).to_owned(), outputs.scalar(name)?));
        Ok(StepRecord {
            step: 0,
            epoch: 0,
            loss: self.loss(outputs)?,
            metrics: self.metrics.iter().map(metric).collect::<Result<_>>()?,
            grad_norm: optional(self.grad_norm, GRAD_NORM).transpose()?,
            learning_rate: optional(self.learning_rate, LEARNING_RATE).transpose()?,
            loss_scale: optional(self.loss_scale, LOSS_SCALE).transpose()?,
            skipped: optional(self.skipped, SKIPPED).transpose()?.is_some_and(|s| s != 0.0),
            examples: 0,
            time: Duration::ZERO,
            waited: Duration::ZERO,
        })
    }
}

/// An event of a run, reported to its observers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event<'a> {
    /// Training begins or resumes.
    Start {
        /// Steps done before.
        step: u64,
        /// Steps in all.
        total: u64,
        /// Steps of an epoch.
        steps_per_epoch: u64,
    },
    /// A step is done.
    Step(&'a StepRecord),
    /// An epoch is done.
    Epoch {
        /// Its number, from 0.
        epoch: u64,
        /// Mean of the losses of its steps, weighted by examples.
        loss: f64,
        /// The record of its last step.
        last: &'a StepRecord,
        /// Steps of it that this process has run: fewer than all if it has resumed the epoch.
        steps: u64,
        /// Examples of these steps.
        examples: u64,
        /// Time of these steps.
        time: Duration,
    },
    /// The model was evaluated.
    Evaluation {
        /// After this step.
        step: u64,
        /// In this epoch, from 0.
        epoch: u64,
        /// On this set; `None` for [`Recipe::evaluate`](crate::recipe::Recipe::evaluate).
        set: Option<&'a str>,
        /// Names and values in the recipe's order.
        metrics: &'a [(String, f64)],
        /// Names and values of the metrics that are matrices.
        matrices: &'a [(String, Confusion)],
    },
    /// Early stopping ends the run.
    EarlyStop {
        /// After this step.
        step: u64,
        /// The watched number.
        watched: &'a Watched,
        /// Evaluations since it has improved.
        waited: u64,
        /// Its best value.
        best: f64,
        /// The step after which it had that value.
        best_step: u64,
    },
    /// The names of the weights differ from the program's, which was
    /// [allowed](super::Options::partial).
    Partial {
        /// Which names differ.
        differences: &'a NameDifferences,
    },
    /// A checkpoint is damaged, and the run resumes from an older one.
    Damaged {
        /// The damaged file.
        path: &'a Path,
        /// Its name now.
        aside: &'a Path,
        /// The damage.
        why: &'a str,
        /// The checkpoint that the run resumes from.
        from: &'a Path,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// After this step.
        step: u64,
        /// To this file.
        path: &'a Path,
    },
}

/// An observer's answer to an event. A closure without a result goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flow {
    /// Training goes on.
    #[default]
    GoOn,
    /// Training ends after its current step as after its last one: with an evaluation, a checkpoint
    /// and the weights.
    Stop,
}

impl From<()> for Flow {
    fn from((): ()) -> Flow {
        Flow::GoOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_nan_is_a_text() {
        for value in [0.1, 1e300, -0.0, 5.0] {
            assert_eq!(number(value).as_f64().unwrap().to_bits(), value.to_bits(), "{value}");
        }
        assert_eq!(number(f64::from(0.1f32)).as_f64().unwrap() as f32, 0.1f32);
        assert_eq!(number(f64::NAN), Value::String("NaN".into()));
    }
}
