//! Training by a recipe: shuffled batches, evaluation, checkpoints, a log.
//!
//! **Reproducible.** The computation of step n depends only on the program, the recipe, the data
//! and n. The order of examples follows from the recipe's seed and the epoch; the key of random
//! numbers follows from its seed and the step ([`batches`], [`Recipe::key_for`]). A run that is
//! killed and resumed any number of times ends with the same bits as an uninterrupted one, and so
//! does its [`log`], except for the times in it.
//!
//! **Safe.** A [`checkpoint`] has a checksum and is written beside its predecessor, which
//! replaces it if it is damaged. A checkpoint that holds NaN is never written. A NaN or infinite
//! loss, or a NaN metric, ends the run and keeps the last checkpoint, as does a gradient that is
//! not finite with the least [loss scale](crate::optim::LossScale). A folder admits one trainer
//! at a time ([`lock`]). [`Options::stop`] ends a run after its current step, with a checkpoint.
//!
//! **Observed.** Each step gives a [`StepRecord`]: loss, metrics, norm of the gradient, learning
//! rate, throughput. The log, the terminal and the caller's closure are observers of the same
//! [events](event). A closure that returns [`Flow::Stop`] ends the run, as if its last step were
//! done:
//!
//! ```
//! use wengert::train::{Event, Flow};
//! // Passed to `train` as `&mut observe`.
//! let mut observe = |event: Event<'_>| match event {
//!     Event::Step(record) if record.loss < 0.01 => Flow::Stop,
//!     _ => Flow::GoOn,
//! };
//! # let _ = observe(Event::Start { step: 0, total: 1, steps_per_epoch: 1 });
//! ```
//!
//! **Checked.** Data and the names of weights are checked against the recipe and the program
//! before anything is computed ([`check_data`]).
//!
//! A run's folder holds the last two checkpoints (all variables, and the progress of the run),
//! `log.jsonl`, `lock`, and at the end `weights.safetensors`: the variables of functions other
//! than `init` and the training step, which are the weights of the trained model. If there is no
//! such function, it holds all variables.

pub mod batches;
mod board;
pub mod check_data;
pub mod checkpoint;
pub mod curves;
mod evaluate;
pub mod event;
mod folder;
mod functions;
pub mod lock;
pub mod log;
mod weights;

use crate::data::Arrays;
use crate::optim::{LEAST_LOSS_SCALE, scales_loss};
use crate::recipe::{Cadence, Length, Recipe};
use crate::session::Session;
use batches::{Examples, Schedule};
use board::Board;
use check_data::DataChecks;
use event::Recorded;
use folder::{Output, begin, diverged};
use functions::{Evaluation, Function};
use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wengert_core::graph::Program;
use wengert_core::{DType, Diagnostic, Result, diagnostic};

pub use board::TensorBoard;
pub use evaluate::{Evaluated, evaluate};
pub use event::{Event, Flow, StepRecord};

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
    /// Write event files for TensorBoard into the folder, beside the log.
    pub tensorboard: Option<TensorBoard>,
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

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Steps done in all.
    pub steps: u64,
    /// Whether an observer [stopped](Flow::Stop) the run before its last step.
    pub stopped: bool,
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
/// The functions run under the recipe's [precision](Recipe::precision).
/// Every event is reported to `observe`; a closure may return a [`Flow`], or nothing.
pub fn train<R: Into<Flow>>(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &Arrays,
    options: Options<'_>,
    observe: &mut dyn FnMut(Event<'_>) -> R,
) -> Result<Report, TrainError> {
    let stop = Cell::new(false);
    let mut observe = |event: Event<'_>| {
        if observe(event).into() == Flow::Stop {
            stop.set(true);
        }
    };
    run(session, program, recipe, data, options, &stop, &mut observe)
}

/// An error if the recipe trains in f16 and its step does not scale its loss.
fn needs_loss_scale(program: &Program, recipe: &Recipe) -> Result<()> {
    let name = &recipe.step.function;
    let is_f16 = recipe
        .precision
        .as_ref()
        .is_some_and(|policy| policy.dtypes().compute_dtype == DType::F16 && policy.is_for(name));
    if !is_f16 || scales_loss(program.get(name)?) {
        return Ok(());
    }
    Err(diagnostic!("`{name}` does not scale its loss: in f16, gradients below 6e-8 would be 0")
        .help(
            "its gradient is computed already, so no policy can scale it: build it with \
             `optim::LossScale`, or train in bf16 (`Precision::bf16()`, `--precision bf16`)",
        ))
}

/// Reports an event to the log and to the caller's observer.
fn report(
    event: Event<'_>,
    output: &mut Option<Output<'_>>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<()> {
    if let Some(output) = output {
        output.observe(&event)?;
    }
    observe(event);
    Ok(())
}

/// Trains until the last step, or until `stop` is set.
fn run(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &Arrays,
    options: Options<'_>,
    stop: &Cell<bool>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Report, TrainError> {
    recipe.verify_for(program)?;
    needs_loss_scale(program, recipe)?;
    if options.tensorboard.is_some() && options.folder.is_none() {
        return Err(diagnostic!("event files for TensorBoard need a folder")
            .help("set `Options::folder`, where the run's log and checkpoints are, too")
            .into());
    }
    let program = &*recipe.apply_precision(program)?;
    let function = program.get(&recipe.step.function)?;
    let checks = DataChecks::new(function, options.data_file, options.allow);
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
    let recorded = Recorded::of(function, &recipe.step);
    // Data that do not fit leave no folder behind.
    step.binding(&examples.batch(schedule.rows(0)))?;
    let (mut progress, mut output) = begin(session, program, recipe, data, options, observe)?;
    let resumed_at = progress.step;
    if let (Some(choice), Some(output)) = (options.tensorboard, &mut output) {
        output.board = Some(Board::open(output.folder, program, recipe, resumed_at, choice)?);
    }
    if progress.step > total {
        return Err(diagnostic!("the run has {} steps, more than {total}", progress.step)
            .help("ask for at least as many steps or epochs as there are")
            .into());
    }
    let start = Event::Start { step: progress.step, total, steps_per_epoch: per_epoch };
    report(start, &mut output, observe)?;
    let (mut metrics, mut evaluated) = (Vec::new(), None);
    // Steps, examples and time of the current epoch in this process.
    let mut epoch_run = (0, 0, Duration::ZERO);
    while progress.step < total && !stop.get() {
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
        let began = Instant::now();
        let rows = schedule.rows(progress.step);
        let outputs = {
            let _span = tracing::debug_span!("step", number = progress.step + 1).entered();
            step.run(session, examples.batch(rows), &recipe.key_for(progress.step + 1))?
        };
        let loss = recorded.loss(&outputs)?;
        let time = began.elapsed().saturating_sub(step.compiling());
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
        let read = recorded.read(&outputs)?;
        let record =
            StepRecord { step: progress.step, epoch, examples: rows.len() as u64, time, ..read };
        if record.skipped && record.loss_scale.is_none_or(|scale| scale <= LEAST_LOSS_SCALE) {
            let what = format!(
                "the gradient is not finite at step {}, with the least loss scale",
                progress.step
            );
            return Err(diverged(what, ADVICE.into(), output.as_ref()));
        }
        progress.epoch_loss += loss * rows.len() as f64;
        progress.epoch_examples += record.examples;
        report(Event::Step(&record), &mut output, observe)?;
        epoch_run = (epoch_run.0 + 1, epoch_run.1 + record.examples, epoch_run.2 + time);
        if ends_epoch {
            let loss = progress.epoch_loss / progress.epoch_examples as f64;
            let (steps, examples, time) = std::mem::take(&mut epoch_run);
            let event = Event::Epoch { epoch, loss, last: &record, steps, examples, time };
            report(event, &mut output, observe)?;
            (progress.epoch_loss, progress.epoch_examples) = (0.0, 0);
        }
        let due = |cadence: Cadence| match cadence {
            _ if progress.step == total || stop.get() => true,
            Cadence::Never => false,
            Cadence::Steps(every) => progress.step.is_multiple_of(every),
            Cadence::Epochs(every) => ends_epoch && (epoch + 1).is_multiple_of(every),
        };
        if let Some(board) = output.as_mut().and_then(|output| output.board.as_mut())
            && due(board.histograms)
        {
            board.distributions(progress.step, session, &outputs, program, recipe)?;
        }
        if let Some(evaluation) = evaluation.as_mut().filter(|e| due(e.recipe.every)) {
            metrics = evaluation.run(session, Some(progress.step), output.as_ref())?;
            evaluated = Some(progress.step);
            // Logged before the checkpoint is written, so that a run resumed from it has the
            // line.
            let event = Event::Evaluation { step: progress.step, epoch, metrics: &metrics };
            report(event, &mut output, observe)?;
        }
        if let Some(output) = output.as_mut().filter(|_| due(recipe.checkpoint)) {
            output.checkpoint(session, &progress, observe)?;
        }
    }
    if let Some(evaluation) = evaluation.as_mut().filter(|_| evaluated != Some(progress.step)) {
        // No step was left, or the run was stopped after the evaluations of its last step; the
        // metrics are still reported.
        metrics = evaluation.run(session, Some(progress.step), output.as_ref())?;
    }
    if let Some(mut output) = output {
        // The last step has written a checkpoint, unless the run was stopped after it.
        output.checkpoint(session, &progress, observe)?;
        output.weights(session, program, recipe)?;
    }
    Ok(Report { steps: progress.step, stopped: progress.step < total, resumed_at, metrics })
}
