//! Training by a recipe: shuffled batches, evaluation, checkpoints, a log.
//!
//! **Reproducible.** The computation of step n depends only on the program, the recipe, the data
//! and n. The order of examples follows from the recipe's seed and the epoch; the key of random
//! numbers follows from its seed and the step ([`batches`], [`Recipe::key_for`]). A run that is
//! killed and resumed any number of times ends with the same bits as an uninterrupted one, and so
//! does its [`log`].
//!
//! **Safe.** A [`checkpoint`] has a checksum and is written beside its predecessor, which
//! replaces it if it is damaged. A checkpoint that holds NaN is never written. A NaN or infinite
//! loss, or a NaN metric, ends the run and keeps the last checkpoint. A folder admits one trainer
//! at a time ([`lock`]). [`Options::stop`] ends a run after its current step, with a checkpoint.
//!
//! **Checked.** Data and the names of weights are checked against the recipe and the program
//! before anything is computed ([`check_data`]).
//!
//! A run's folder holds the last two checkpoints (all variables, and the progress of the run),
//! `log.jsonl`, `lock`, and at the end `weights.safetensors`: the variables of functions other
//! than `init` and the training step, which are the weights of the trained model. If there is no
//! such function, it holds all variables.

pub mod batches;
pub mod check_data;
pub mod checkpoint;
mod folder;
mod functions;
pub mod lock;
pub mod log;
mod weights;

use crate::data::Arrays;
use crate::recipe::{Cadence, Length, Recipe};
use crate::session::Session;
use crate::weight_names::NameDifferences;
use batches::{Examples, Schedule};
use check_data::DataChecks;
use folder::{begin, diverged};
use functions::{Evaluation, Function};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Result, diagnostic};

/// Name of the file with the trained model within a run's folder.
pub const WEIGHTS: &str = "weights.safetensors";

/// Options of a run that the recipe does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// How long to train, instead of the recipe's length. Counted from the first step, also when
    /// resuming.
    pub length: Option<Length>,
    /// Folder for checkpoints, log and weights; created if absent. Without a folder, nothing is
    /// written.
    pub folder: Option<&'a Path>,
    /// Resume from the folder's newest undamaged checkpoint; an error if there is none. Without
    /// this, a folder that has a checkpoint is an error, so that no run is overwritten by
    /// mistake.
    pub resume: bool,
    /// Initial values of variables, set after `init` has run. Their names must be variables of
    /// the program, and must include each variable of the model (inputs of functions other than
    /// `init` and the step).
    pub weights: Option<&'a Arrays>,
    /// Weights that are no variables are ignored, and missing variables keep their values from
    /// `init`.
    pub partial: bool,
    /// Where the weights come from, for messages.
    pub weights_file: Option<&'a Path>,
    /// Where the data come from, for messages.
    pub data_file: Option<&'a Path>,
    /// Checks of the data to skip.
    pub allow: Allow,
    /// When this is set, the run ends after its current step, writes a checkpoint and returns
    /// [`Stopped`](TrainError::Stopped).
    pub stop: Option<&'a AtomicBool>,
}

/// Suspicious data that are accepted for training.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allow {
    /// NaN and infinities.
    pub non_finite: bool,
    /// Indices and labels without a row or class.
    pub out_of_range: bool,
}

/// Advice against a diverging loss.
const ADVICE: &str = "try a smaller learning rate, or clip the gradient";

/// An event of a run, reported to its observer.
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
    Step {
        /// Its number, from 1.
        step: u64,
        /// Its epoch, from 0.
        epoch: u64,
        /// Its loss, before the update.
        loss: f64,
    },
    /// An epoch is done.
    Epoch {
        /// Its number, from 0.
        epoch: u64,
        /// Mean of the losses of its steps, weighted by examples.
        loss: f64,
    },
    /// The model was evaluated.
    Evaluation {
        /// After this step.
        step: u64,
        /// In this epoch, from 0.
        epoch: u64,
        /// Names and values in the recipe's order.
        metrics: &'a [(String, f64)],
    },
    /// The names of the weights differ from the program's, which was [allowed](Options::partial).
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

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Steps in all.
    pub steps: u64,
    /// Steps done before this run resumed.
    pub resumed_at: u64,
    /// The last evaluation.
    pub metrics: Vec<(String, f64)>,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Debug)]
pub enum TrainError {
    /// The loss, a metric or a variable is not finite. The last good checkpoint is kept.
    Diverged(Diagnostic),
    /// [Stopped](Options::stop) on request; it can be resumed.
    Stopped(Diagnostic),
    /// Anything else.
    Failed(Diagnostic),
}

impl TrainError {
    /// The message for the user.
    pub fn diagnostic(&self) -> &Diagnostic {
        match self {
            TrainError::Diverged(diagnostic)
            | TrainError::Stopped(diagnostic)
            | TrainError::Failed(diagnostic) => diagnostic,
        }
    }
}

impl From<Diagnostic> for TrainError {
    fn from(diagnostic: Diagnostic) -> Self {
        TrainError::Failed(diagnostic)
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic().fmt(f)
    }
}

impl std::error::Error for TrainError {}

/// Trains `program` by `recipe` on `data`, with the variables of `session`, which the run replaces.
pub fn train(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &Arrays,
    options: Options<'_>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Report, TrainError> {
    recipe.verify_for(program)?;
    let checks =
        DataChecks::new(program.get(&recipe.step.function)?, options.data_file, options.allow);
    let examples = Examples::new(&recipe.step.inputs, data, &checks)?;
    let mut schedule = Schedule::new(examples.count(), recipe.batches)?;
    let per_epoch = schedule.steps_per_epoch();
    let total = match options.length.unwrap_or(recipe.length) {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => epochs
            .checked_mul(per_epoch)
            .ok_or_else(|| diagnostic!("{epochs} epochs are more steps than can be counted"))?,
    };
    let mut evaluation = recipe
        .evaluate
        .as_ref()
        .map(|e| Evaluation::new(e, program, recipe, data, options))
        .transpose()?;
    let mut step = Function::new(program, &recipe.step.function);
    let (mut progress, mut output) = begin(session, program, recipe, data, options, observe)?;
    let resumed_at = progress.step;
    if progress.step > total {
        return Err(diagnostic!("the run has {} steps, more than {total}", progress.step)
            .help("ask for at least as many steps or epochs as there are")
            .into());
    }
    observe(Event::Start { step: progress.step, total, steps_per_epoch: per_epoch });
    let mut metrics = Vec::new();
    while progress.step < total {
        if options.stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            let mut message = format!("stopped after step {} of {total}", progress.step);
            if let Some(output) = &mut output {
                output.checkpoint(session, &progress, observe)?;
                let newest =
                    output.newest().map(|path| path.display().to_string()).unwrap_or_default();
                message = format!("{message} with checkpoint `{newest}`");
            }
            return Err(TrainError::Stopped(Diagnostic::new(message)));
        }
        let epoch = schedule.epoch_of(progress.step);
        let ends_epoch = schedule.ends_epoch(progress.step);
        let rows = schedule.rows(progress.step);
        let outputs =
            step.run(session, examples.batch(rows), &recipe.key_for(progress.step + 1))?;
        let loss = outputs.scalar(&recipe.step.loss)?;
        progress.step += 1;
        if !loss.is_finite() {
            let advice = match examples.non_finite(rows) {
                Some(fault) => format!("the data are at fault: {fault}"),
                None if progress.step == 1 => {
                    "no update was made yet: look at the initial values and the scale of the data"
                        .into()
                }
                None => ADVICE.into(),
            };
            let what = format!("the loss is {loss} at step {}", progress.step);
            return Err(diverged(what, advice, output.as_ref()));
        }
        progress.epoch_loss += loss * rows.len() as f64;
        progress.epoch_examples += rows.len() as u64;
        if let Some(output) = &mut output {
            output.log.step(progress.step, epoch, loss)?;
        }
        observe(Event::Step { step: progress.step, epoch, loss });
        if ends_epoch {
            observe(Event::Epoch {
                epoch,
                loss: progress.epoch_loss / progress.epoch_examples as f64,
            });
            (progress.epoch_loss, progress.epoch_examples) = (0.0, 0);
        }
        let due = |cadence: Cadence| match cadence {
            _ if progress.step == total => true,
            Cadence::Never => false,
            Cadence::Steps(every) => progress.step.is_multiple_of(every),
            Cadence::Epochs(every) => ends_epoch && (epoch + 1).is_multiple_of(every),
        };
        if let Some(evaluation) = evaluation.as_mut().filter(|e| due(e.recipe.every)) {
            metrics = evaluation.run(session, progress.step, output.as_ref())?;
            // Logged before the checkpoint is written, so that a run resumed from it has the
            // line.
            if let Some(output) = &mut output {
                output.log.evaluation(progress.step, epoch, &metrics)?;
            }
            observe(Event::Evaluation { step: progress.step, epoch, metrics: &metrics });
        }
        if let Some(output) = output.as_mut().filter(|_| due(recipe.checkpoint)) {
            output.checkpoint(session, &progress, observe)?;
        }
    }
    if let (Some(evaluation), true) = (&mut evaluation, resumed_at == total) {
        // No step was left; the metrics are still reported.
        metrics = evaluation.run(session, total, output.as_ref())?;
    }
    if let Some(output) = output {
        output.weights(session, program, recipe)?;
    }
    Ok(Report { steps: total, resumed_at, metrics })
}
