//! A run's event file for TensorBoard, beside its log.
//!
//! | tag | value |
//! |---|---|
//! | `loss`, `grad_norm`, `learning_rate`, `loss_scale`, `skipped` | those of the step |
//! | `metrics/NAME` | another output of the step that is a single number |
//! | `examples_per_second` | of the step |
//! | `epoch_loss` | the mean of an epoch |
//! | `evaluation/NAME`, `evaluation/SET/NAME` | a metric of an evaluation; a matrix is a text |
//! | `parameters/KEY PATH` | the distribution of a variable of the model |
//! | `gradients/KEY PATH` | that of its gradient, if the step [reports] it |
//!
//! There are also the recipe as a text, and the training step as a graph. The scalars are the
//! numbers of the [log](super::log), rounded to f32.
//!
//! [reports]: crate::optim::report_gradients

use super::event::Event;
use crate::optim::GRADIENT;
use crate::outputs::Outputs;
use crate::recipe::{Cadence, Recipe, qualified};
use crate::tensorboard::EventFile;
use std::path::Path;
use wengert_core::graph::Program;
use wengert_core::{Literal, Result};

/// Event files for TensorBoard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorBoard {
    /// When the distributions of parameters and gradients are added. Each time costs a copy of all
    /// parameters.
    pub histograms: Cadence,
}

impl Default for TensorBoard {
    /// Distributions after every epoch.
    fn default() -> Self {
        TensorBoard { histograms: Cadence::Epochs(1) }
    }
}

/// Code in Markdown: indented lines.
fn code(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// The event file of a run.
#[derive(Debug)]
pub(super) struct Board {
    events: EventFile,
}

impl Board {
    /// A new file in a run's folder; `after` is the number of steps done before.
    pub fn open(folder: &Path, program: &Program, recipe: &Recipe, after: u64) -> Result<Board> {
        let mut events = EventFile::create(folder, after + 1)?;
        if after == 0 {
            events.text(0, "recipe", &code(&recipe.to_string()))?;
            events.graph(program.get(&recipe.step.function)?)?;
        }
        events.flush()?;
        Ok(Board { events })
    }

    /// Adds the numbers of an event.
    pub fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Step(record) => {
                let mut values = vec![("loss".to_owned(), record.loss)];
                let named = |(name, value): &(String, f64)| (format!("metrics/{name}"), *value);
                values.extend(record.metrics.iter().map(named));
                let known = [
                    ("grad_norm", record.grad_norm),
                    ("learning_rate", record.learning_rate),
                    ("loss_scale", record.loss_scale),
                    ("skipped", record.loss_scale.map(|_| f64::from(u8::from(record.skipped)))),
                    ("examples_per_second", Some(record.examples_per_second())),
                ];
                values.extend(known.into_iter().filter_map(|(name, v)| Some((name.into(), v?))));
                self.events.scalars(record.step, values)
            }
            Event::Epoch { loss, last, .. } => {
                self.events.scalar(last.step, "epoch_loss", *loss)?;
                self.events.flush()
            }
            Event::Evaluation { step, set, metrics, matrices, .. } => {
                let tag = |name: &str| format!("evaluation/{}", qualified(*set, name));
                let named = |(name, value): &(String, f64)| (tag(name), *value);
                self.events.scalars(*step, metrics.iter().map(named))?;
                for (name, matrix) in *matrices {
                    self.events.text(*step, &tag(name), &code(&matrix.to_string()))?;
                }
                self.events.flush()
            }
            Event::Checkpoint { .. } => self.events.flush(),
            _ => Ok(()),
        }
    }

    /// Adds the distribution of a variable of the model after a step.
    pub fn parameter(&mut self, step: u64, path: &str, value: &Literal) -> Result<()> {
        self.events.histogram(step, &format!("parameters/{path}"), value)
    }

    /// Adds the distributions of the gradients among the outputs of a step.
    pub fn gradients(&mut self, step: u64, outputs: &Outputs) -> Result<()> {
        for (name, value) in outputs.iter()? {
            if let Some(path) = name.strip_prefix(GRADIENT) {
                self.events.histogram(step, &format!("gradients/{path}"), value)?;
            }
        }
        Ok(())
    }
}
