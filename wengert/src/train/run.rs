//! The loop of a run.
//!
//! [`Run::begin`] checks the recipe and the data, and starts the run or resumes it. [`Run::go`]
//! repeats two rooms until the last step: [`Run::step`] computes a step and checks its numbers, and
//! [`Run::after`] does what is due after it: histograms, evaluations, checkpoints. [`Run::end`]
//! writes the weights.

use super::batches::{Examples, Schedule};
use super::board::Board;
use super::check_data::DataChecks;
use super::event::Recorded;
use super::folder::{Output, begin, diverged};
use super::functions::{Evaluation, Function};
use super::checkpoint::Progress;
use super::{ADVICE, Event, Options, Report, StepRecord, TrainError};
use crate::data::Arrays;
use crate::optim::{LEAST_LOSS_SCALE, scales_loss};
use crate::outputs::Outputs;
use crate::recipe::{Cadence, Length, Recipe};
use crate::session::Session;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wengert_core::graph::Program;
use wengert_core::{DType, Diagnostic, Result, diagnostic};

/// A run between two steps.
pub(super) struct Run<'a> {
    session: &'a mut Session,
    program: &'a Program,
    recipe: &'a Recipe,
    options: Options<'a>,
    /// Set when an observer ends the run.
    stop: &'a Cell<bool>,
    observe: &'a mut (dyn FnMut(Event<'_>) + 'a),
    examples: Examples,
    schedule: Schedule,
    step: Function<'a>,
    recorded: Recorded<'a>,
    evaluation: Option<Evaluation<'a>>,
    output: Option<Output<'a>>,
    progress: Progress,
    /// Steps in all.
    total: u64,
    resumed_at: u64,
    in_epoch: InEpoch,
    /// The last evaluation.
    metrics: Vec<(String, f64)>,
    /// The step after which it was.
    evaluated: Option<u64>,
}

/// Steps of the current epoch in this process.
#[derive(Default)]
struct InEpoch {
    steps: u64,
    examples: u64,
    time: Duration,
}

/// A step that is done.
struct Stepped {
    record: StepRecord,
    outputs: Outputs,
    ends_epoch: bool,
}

impl<'a> Run<'a> {
    /// Checks everything that can be checked before the first step, and starts or resumes the run.
    /// The program is under the recipe's precision.
    pub(super) fn begin(
        session: &'a mut Session,
        program: &'a Program,
        recipe: &'a Recipe,
        data: &Arrays,
        options: Options<'a>,
        stop: &'a Cell<bool>,
        observe: &'a mut (dyn FnMut(Event<'_>) + 'a),
    ) -> Result<Self, TrainError> {
        if options.tensorboard.is_some() && options.folder.is_none() {
            return Err(diagnostic!("event files for TensorBoard need a folder")
                .help("set `Options::folder`, where the run's log and checkpoints are, too")
                .into());
        }
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
        let evaluation = recipe
            .evaluate
            .as_ref()
            .map(|e| Evaluation::new(e, program, recipe, data, options))
            .transpose()?;
        let step = Function::new(program, &recipe.step.function);
        let recorded = Recorded::of(function, &recipe.step);
        // Data that do not fit leave no folder behind.
        step.binding(&examples.batch(schedule.rows(0)))?;
        let (progress, mut output) = begin(session, program, recipe, data, options, observe)?;
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
        Ok(Run {
            session,
            program,
            recipe,
            options,
            stop,
            observe,
            examples,
            schedule,
            step,
            recorded,
            evaluation,
            output,
            progress,
            total,
            resumed_at,
            in_epoch: InEpoch::default(),
            metrics: Vec::new(),
            evaluated: None,
        })
    }

    /// Trains until the last step, or until an observer ends the run.
    pub(super) fn go(mut self) -> Result<Report, TrainError> {
        while self.progress.step < self.total && !self.stop.get() {
            if self.options.stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
                return Err(self.interrupted());
            }
            let stepped = self.step()?;
            self.after(&stepped)?;
        }
        self.end()
    }

    /// The end of a run that is stopped from outside: a checkpoint.
    fn interrupted(&mut self) -> TrainError {
        let mut message = format!("stopped after step {} of {}", self.progress.step, self.total);
        if let Some(output) = &mut self.output {
            if let Err(error) = output.checkpoint(self.session, &self.progress, self.observe) {
                return error;
            }
            let newest = output.newest().map(|path| path.display().to_string()).unwrap_or_default();
            message = format!("{message} with checkpoint `{newest}`");
        }
        TrainError::Stopped(Diagnostic::new(message))
    }

    /// Computes a step, and reports it and the epoch that it ends.
    ///
    /// Errors: its loss is not finite, or its gradient with the least loss scale.
    fn step(&mut self) -> Result<Stepped, TrainError> {
        let before = self.progress.step;
        let (epoch, ends_epoch) = (self.schedule.epoch_of(before), self.schedule.ends_epoch(before));
        let began = Instant::now();
        let rows = self.schedule.rows(before);
        let outputs = {
            let _span = tracing::debug_span!("step", number = before + 1).entered();
            let key = self.recipe.key_for(before + 1);
            self.step.run(self.session, self.examples.batch(rows), &key)?
        };
        let loss = self.recorded.loss(&outputs)?;
        let time = began.elapsed().saturating_sub(self.step.compiling());
        let number = before + 1;
        self.progress.step = number;
        if !loss.is_finite() {
            let advice = match self.examples.non_finite(rows) {
                Some(fault) => format!("the data are at fault: {fault}"),
                None if number == 1 => {
                    "no update was made yet: look at the initial values and the scale of the data"
                        .into()
                }
                None => ADVICE.into(),
            };
            let what = format!("the loss is {loss} at step {number}");
            return Err(diverged(what, advice, self.output.as_ref()));
        }
        let read = self.recorded.read(&outputs)?;
        let record = StepRecord { step: number, epoch, examples: rows.len() as u64, time, ..read };
        if record.skipped && record.loss_scale.is_none_or(|scale| scale <= LEAST_LOSS_SCALE) {
            let what =
                format!("the gradient is not finite at step {number}, with the least loss scale");
            return Err(diverged(what, ADVICE.into(), self.output.as_ref()));
        }
        self.progress.epoch_loss += loss * rows.len() as f64;
        self.progress.epoch_examples += record.examples;
        report(Event::Step(&record), &mut self.output, self.observe)?;
        self.in_epoch.steps += 1;
        self.in_epoch.examples += record.examples;
        self.in_epoch.time += time;
        if ends_epoch {
            let loss = self.progress.epoch_loss / self.progress.epoch_examples as f64;
            let InEpoch { steps, examples, time } = std::mem::take(&mut self.in_epoch);
            let event = Event::Epoch { epoch, loss, last: &record, steps, examples, time };
            report(event, &mut self.output, self.observe)?;
            (self.progress.epoch_loss, self.progress.epoch_examples) = (0.0, 0);
        }
        Ok(Stepped { record, outputs, ends_epoch })
    }

    /// Whether something with a cadence is due after a step. Everything is due after the last one.
    fn is_due(&self, cadence: Cadence, stepped: &Stepped) -> bool {
        let step = self.progress.step;
        match cadence {
            _ if step == self.total || self.stop.get() => true,
            Cadence::Never => false,
            Cadence::Steps(every) => step.is_multiple_of(every),
            Cadence::Epochs(every) => {
                stepped.ends_epoch && (stepped.record.epoch + 1).is_multiple_of(every)
            }
        }
    }

    /// Does what is due after a step.
    fn after(&mut self, stepped: &Stepped) -> Result<(), TrainError> {
        let (step, epoch) = (self.progress.step, stepped.record.epoch);
        let histograms = self.output.as_ref().and_then(|output| output.board.as_ref());
        let histograms = histograms.map(|board| board.histograms);
        if histograms.is_some_and(|cadence| self.is_due(cadence, stepped))
            && let Some(board) = self.output.as_mut().and_then(|output| output.board.as_mut())
        {
            let outputs = &stepped.outputs;
            board.distributions(step, self.session, outputs, self.program, self.recipe)?;
        }
        let cadence = self.evaluation.as_ref().map(|evaluation| evaluation.recipe.every);
        if cadence.is_some_and(|cadence| self.is_due(cadence, stepped)) {
            self.evaluate()?;
            // Logged before the checkpoint is written, so that a run resumed from it has the
            // line.
            let event = Event::Evaluation { step, epoch, metrics: &self.metrics };
            report(event, &mut self.output, self.observe)?;
        }
        if self.is_due(self.recipe.checkpoint, stepped)
            && let Some(output) = &mut self.output
        {
            output.checkpoint(self.session, &self.progress, self.observe)?;
        }
        Ok(())
    }

    /// Evaluates the model, if the recipe does.
    fn evaluate(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step;
        if let Some(evaluation) = &mut self.evaluation {
            self.metrics = evaluation.run(self.session, Some(step), self.output.as_ref())?;
            self.evaluated = Some(step);
        }
        Ok(())
    }

    /// Writes the results.
    fn end(mut self) -> Result<Report, TrainError> {
        if self.evaluated != Some(self.progress.step) {
            // No step was left, or the run was stopped after the evaluations of its last step; the
            // metrics are still reported.
            self.evaluate()?;
        }
        if let Some(mut output) = self.output {
            // The last step has written a checkpoint, unless the run was stopped after it.
            output.checkpoint(self.session, &self.progress, self.observe)?;
            output.weights(self.session, self.program, self.recipe)?;
        }
        Ok(Report {
            steps: self.progress.step,
            stopped: self.progress.step < self.total,
            resumed_at: self.resumed_at,
            metrics: self.metrics,
        })
    }
}

/// An error if the recipe trains in f16 and its step does not scale its loss.
pub(super) fn needs_loss_scale(program: &Program, recipe: &Recipe) -> Result<()> {
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
