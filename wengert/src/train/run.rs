//! The loop of a run.
//!
//! [`Run::begin`] checks the recipe and the data, and starts the run or resumes it. [`Run::go`]
//! repeats three methods until the last step: [`Run::step`] computes a step and checks its numbers,
//! [`Run::after`] does what is due after it, histograms and evaluations, and [`Run::checkpoint`]
//! writes a checkpoint if one is due. [`Run::end`] writes the weights.
//!
//! Ranks call these methods together. Each of them may exchange variables that the ranks store in
//! parts, so the ranks learn before it whether one of them has failed or has been stopped.

use super::batches::{Examples, Feed, Schedule};
use super::board::Board;
use super::check_data::DataChecks;
use super::checkpoint::Progress;
use super::evaluate::Evaluation;
use super::event::Recorded;
use super::folder::{Output, begin, diverged};
use super::functions::Function;
use super::metrics::Measured;
use super::ranks::{Next, Ranks};
use super::shards::Stored;
use super::{ADVICE, Event, Options, Report, StepRecord, TrainError, weights};
use crate::data::source::Source;
use crate::optim::{LEAST_LOSS_SCALE, scales_loss};
use crate::outputs::Outputs;
use crate::recipe::{Cadence, EPOCH_LOSS, Length, Recipe, qualified};
use crate::session::Session;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::{Duration, Instant};
use wengert_compiler::ranks::Sharding;
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
    ranks: Ranks<'a>,
    stored: Stored<'a>,
    examples: Arc<Examples<'a>>,
    schedule: Schedule,
    feed: Feed<'a>,
    step: Function<'a>,
    recorded: Recorded<'a>,
    evaluations: Vec<Evaluated<'a>>,
    output: Option<Output<'a>>,
    progress: Progress,
    /// Steps in all.
    total: u64,
    resumed_at: u64,
    /// The step of the newest checkpoint, if the run has a folder.
    checkpointed: Option<u64>,
    /// Whether the ranks have agreed that the run ends after the current step.
    ends: bool,
    in_epoch: InEpoch,
}

/// An evaluation and its last result.
struct Evaluated<'a> {
    evaluation: Evaluation<'a>,
    measured: Measured,
    /// The step after which it was.
    after: Option<u64>,
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
    /// The mean loss of the epoch, if the step is its last.
    epoch_loss: Option<f64>,
}

impl<'a> Run<'a> {
    /// Checks everything that can be checked before the first step, and starts or resumes the run.
    /// The program is under the recipe's precision. Threads of `scope` read data.
    #[expect(clippy::too_many_arguments, reason = "those of `train`, and what it makes")]
    pub(super) fn begin<'scope>(
        scope: &'scope Scope<'scope, '_>,
        session: &'a mut Session,
        program: &'a Program,
        recipe: &'a Recipe,
        data: &'a dyn Source,
        options: Options<'a>,
        stop: &'a Cell<bool>,
        observe: &'a mut (dyn FnMut(Event<'_>) + 'a),
    ) -> Result<Self, TrainError>
    where
        'a: 'scope,
    {
        if options.tensorboard.is_some() && options.folder.is_none() {
            return Err(diagnostic!("event files for TensorBoard need a folder")
                .help("set `Options::folder`, where the run's log and checkpoints are, too")
                .into());
        }
        let ranks = Ranks::join(session, recipe, &options)?;
        let function = program.get(&recipe.step.function)?;
        let checks = DataChecks::new(function, options.data_file, options.allow);
        let examples = Examples::new(&recipe.step.inputs, data, checks, recipe.key_seed)?;
        let examples = Arc::new(examples.among(ranks));
        let mut schedule = Schedule::of(&examples, recipe.batches)?;
        schedule.check_parts(ranks.microbatches())?;
        let per_epoch = schedule.steps_per_epoch();
        let total = match options.length.unwrap_or(recipe.length) {
            Length::Steps(steps) => steps,
            Length::Epochs(epochs) => epochs
                .checked_mul(per_epoch)
                .ok_or_else(|| diagnostic!("{epochs} epochs are more steps than can be counted"))?,
        };
        let mut evaluations = Evaluation::all(program, recipe, data, options)?;
        let mut step = Function::among(program, &recipe.step.function, ranks);
        let recorded = Recorded::of(function, &recipe.step);
        // Data that do not fit leave no folder behind.
        let first = examples.batch(&mut schedule, 0)?;
        step.binding(&first.inputs)?;
        // Only rank 0 has a folder. An error there is one everywhere.
        let own = match ranks.is_first() {
            true => options,
            false => Options { folder: None, tensorboard: None, ..options },
        };
        let begun = begin(session, program, recipe, data, own, observe);
        let (mut progress, mut output) = ranks.all_or_none(begun)?;
        let alike = ranks.begin_alike(session, &mut progress);
        ranks.all_or_none(alike.map_err(TrainError::from))?;
        let mut stored = Stored::default();
        if options.sharding != Sharding::Replicated && ranks.count() > 1 {
            let model = weights::of_model(program, recipe);
            stored = Stored::choose(ranks, options.sharding, &step.of_rank(&first.inputs)?, &model);
            let divided = stored.divide(session);
            ranks.all_or_none(divided.map_err(TrainError::from))?;
            step.store(&stored);
            evaluations.iter_mut().for_each(|evaluation| evaluation.store(&stored));
        }
        let evaluations = evaluations.into_iter().map(|evaluation| Evaluated {
            evaluation,
            measured: Measured::default(),
            after: None,
        });
        let resumed_at = progress.step;
        if let (Some(_), Some(output)) = (own.tensorboard, &mut output) {
            output.board = Some(Board::open(output.folder, program, recipe, resumed_at)?);
        }
        if progress.step > total {
            return Err(diagnostic!("the run has {} steps, more than {total}", progress.step)
                .help("ask for at least as many steps or epochs as there are")
                .into());
        }
        let start = Event::Start { step: progress.step, total, steps_per_epoch: per_epoch };
        report(start, &mut output, observe)?;
        let steps = progress.step..total;
        let feed = Feed::start(scope, &examples, &schedule, steps, options.data_threads)?;
        Ok(Run {
            session,
            program,
            recipe,
            options,
            stop,
            observe,
            ranks,
            stored,
            examples,
            schedule,
            feed,
            step,
            recorded,
            evaluations: evaluations.collect(),
            output,
            progress,
            total,
            resumed_at,
            checkpointed: options.folder.map(|_| resumed_at),
            ends: false,
            in_epoch: InEpoch::default(),
        })
    }

    /// Trains until the last step, or until an observer or early stopping ends the run.
    pub(super) fn go(mut self) -> Result<Report, TrainError> {
        while self.progress.step < self.total && !self.stops_early() {
            match self.ranks.next(self.wants())? {
                Next::Step => {}
                Next::Stop => {
                    self.stop.set(true);
                    break;
                }
                Next::Interrupt => return Err(self.interrupted()),
            }
            let stepped = self.step();
            let stepped = self.ranks.all_or_none(stepped)?;
            self.ends = self.ranks.next(self.wants())? == Next::Stop;
            let is_due = self.after(&stepped);
            if self.ranks.all_or_none(is_due)? {
                let written = self.checkpoint();
                self.ranks.all_or_none(written)?;
            }
        }
        let measured = self.last_evaluations();
        self.ranks.all_or_none(measured)?;
        // The last step has written a checkpoint, unless the run was stopped after it.
        let written = self.checkpoint();
        self.ranks.all_or_none(written)?;
        let ranks = self.ranks;
        let ended = self.end();
        ranks.all_or_none(ended)
    }

    /// What this rank does next, as far as it knows.
    fn wants(&self) -> Next {
        let interrupted = self.options.stop.is_some_and(|stop| stop.load(Ordering::SeqCst));
        match (self.stop.get(), interrupted) {
            (true, _) => Next::Stop,
            (false, true) => Next::Interrupt,
            (false, false) => Next::Step,
        }
    }

    fn stops_early(&self) -> bool {
        self.progress.watch.is_over(&self.recipe.monitoring)
    }

    /// The end of a run that is stopped from outside: a checkpoint.
    fn interrupted(&mut self) -> TrainError {
        let mut message = format!("stopped after step {} of {}", self.progress.step, self.total);
        if let Err(error) = self.checkpoint() {
            return error;
        }
        if let Some(output) = &self.output {
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
        let (epoch, ends_epoch) =
            (self.schedule.epoch_of(before), self.schedule.ends_epoch(before));
        let began = Instant::now();
        let next = self.feed.next()?;
        let (batch, waited) = next.expect("there is a batch for each step");
        let outputs = {
            let _span = tracing::debug_span!("step", number = before + 1).entered();
            let key = self.recipe.key_for(before + 1);
            self.step.run(self.session, batch.inputs.clone(), &key)?
        };
        let loss = self.recorded.loss(&outputs)?;
        let time = began.elapsed().saturating_sub(self.step.compiling());
        let number = before + 1;
        self.progress.step = number;
        if !loss.is_finite() {
            let advice = match batch.non_finite(&self.examples) {
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
        let examples = batch.rows.len() as u64;
        let record = StepRecord { step: number, epoch, examples, time, waited, ..read };
        if record.skipped && record.loss_scale.is_none_or(|scale| scale <= LEAST_LOSS_SCALE) {
            let what =
                format!("the gradient is not finite at step {number}, with the least loss scale");
            return Err(diverged(what, ADVICE.into(), self.output.as_ref()));
        }
        self.progress.epoch_loss += loss * examples as f64;
        self.progress.epoch_examples += record.examples;
        report(Event::Step(&record), &mut self.output, self.observe)?;
        self.in_epoch.steps += 1;
        self.in_epoch.examples += record.examples;
        self.in_epoch.time += time;
        let epoch_loss =
            ends_epoch.then(|| self.progress.epoch_loss / self.progress.epoch_examples as f64);
        if let Some(loss) = epoch_loss {
            let InEpoch { steps, examples, time } = std::mem::take(&mut self.in_epoch);
            let event = Event::Epoch { epoch, loss, last: &record, steps, examples, time };
            report(event, &mut self.output, self.observe)?;
            (self.progress.epoch_loss, self.progress.epoch_examples) = (0.0, 0);
        }
        Ok(Stepped { record, outputs, epoch_loss })
    }

    /// Whether something is due after a step by its cadence.
    fn is_on_cadence(&self, cadence: Cadence, stepped: &Stepped) -> bool {
        match cadence {
            Cadence::Never => false,
            Cadence::Steps(every) => self.progress.step.is_multiple_of(every),
            Cadence::Epochs(every) => {
                stepped.epoch_loss.is_some() && (stepped.record.epoch + 1).is_multiple_of(every)
            }
        }
    }

    /// Whether something is due after a step. Everything is due after the last one. What the
    /// observer of rank 0 wants counts for all ranks once they have agreed on it.
    fn is_due(&self, cadence: Cadence, stepped: &Stepped) -> bool {
        let ends = self.ends || (self.ranks.count() == 1 && self.stop.get());
        let is_last = self.progress.step == self.total || ends || self.stops_early();
        is_last || self.is_on_cadence(cadence, stepped)
    }

    /// Does what is due after a step. Returns whether a checkpoint is.
    fn after(&mut self, stepped: &Stepped) -> Result<bool, TrainError> {
        let histograms = self.options.tensorboard.map(|board| board.histograms);
        if histograms.is_some_and(|cadence| self.is_due(cadence, stepped)) {
            let variables = self.stored.whole(self.session)?;
            if let Some(board) = self.output.as_mut().and_then(|output| output.board.as_mut())
                && let Some(variables) = variables
            {
                let (step, outputs) = (self.progress.step, &stepped.outputs);
                board.distributions(step, &variables, outputs, self.program, self.recipe)?;
            }
        }
        let is_best = self.evaluate_due(stepped)?;
        Ok(is_best || self.is_due(self.recipe.checkpoint, stepped))
    }

    /// Writes a checkpoint to the run's folder, unless one of this step exists.
    fn checkpoint(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step;
        if self.checkpointed.is_none_or(|newest| newest == step) {
            return Ok(());
        }
        if let (Some(variables), Some(output)) =
            (self.stored.whole(self.session)?, &mut self.output)
        {
            output.checkpoint(&variables, &self.progress, self.observe)?;
        }
        self.checkpointed = Some(step);
        Ok(())
    }

    /// Runs the evaluations that are due after a step, and takes the watched number. If early
    /// stopping ends the run by it, all evaluations are due. Returns whether the step is among the
    /// best.
    fn evaluate_due(&mut self, stepped: &Stepped) -> Result<bool, TrainError> {
        let (step, epoch) = (self.progress.step, stepped.record.epoch);
        let recipe = self.recipe;
        let watched = recipe.monitoring.watched.as_ref().map(|watched| watched.metric.as_str());
        let mut value = stepped.epoch_loss.filter(|_| watched == Some(EPOCH_LOSS));
        let mut is_best = false;
        let take = |progress: &mut Progress, value: &mut Option<f64>| {
            let value = value.take();
            value.is_some_and(|value| progress.watch.observe(step, value, &recipe.monitoring))
        };
        // The first round may end the run, and the second one does what is due then.
        for _ in 0..2 {
            for n in 0..self.evaluations.len() {
                let cadence = self.evaluations[n].evaluation.recipe.every;
                if self.evaluations[n].after == Some(step) || !self.is_due(cadence, stepped) {
                    continue;
                }
                self.evaluate(n)?;
                let on_cadence = self.is_on_cadence(cadence, stepped);
                let Evaluated { evaluation: Evaluation { set, .. }, measured, .. } =
                    &self.evaluations[n];
                let Measured { metrics, matrices } = measured;
                if on_cadence {
                    let is_watched = |name: &str| watched == Some(&*qualified(*set, name));
                    let found = metrics.iter().find(|(name, _)| is_watched(name));
                    value = value.or(found.map(|(_, value)| *value));
                }
                // Logged before the checkpoint is written, so that a run resumed from it has the
                // line.
                let event = Event::Evaluation { step, epoch, set: *set, metrics, matrices };
                report(event, &mut self.output, self.observe)?;
            }
            is_best |= take(&mut self.progress, &mut value);
        }
        Ok(is_best)
    }

    /// Runs an evaluation after the current step.
    fn evaluate(&mut self, number: usize) -> Result<(), TrainError> {
        let step = self.progress.step;
        let evaluated = &mut self.evaluations[number];
        let output = self.output.as_ref();
        evaluated.measured = evaluated.evaluation.run(self.session, Some(step), output)?;
        evaluated.after = Some(step);
        Ok(())
    }

    /// The evaluations after the last step.
    fn last_evaluations(&mut self) -> Result<(), TrainError> {
        for number in 0..self.evaluations.len() {
            if self.evaluations[number].after != Some(self.progress.step) {
                // No step was left, or the run was stopped after the evaluations of its last step;
                // the metrics are still reported.
                self.evaluate(number)?;
            }
        }
        Ok(())
    }

    /// Writes the results.
    fn end(mut self) -> Result<Report, TrainError> {
        let watch = &self.progress.watch;
        if self.stops_early()
            && self.progress.step < self.total
            && let Some(watched) = &self.recipe.monitoring.watched
            && let Some((best_step, best)) = watch.improved
        {
            let (step, waited) = (self.progress.step, watch.waited);
            let event = Event::EarlyStop { step, watched, waited, best, best_step };
            report(event, &mut self.output, self.observe)?;
        }
        let variables = match self.options.folder {
            Some(_) => self.stored.whole(self.session)?,
            None => None,
        };
        if let (Some(output), Some(variables)) = (self.output, variables) {
            output.weights(variables, self.program, self.recipe, &self.progress)?;
        }
        let mut metrics = Vec::new();
        for Evaluated { evaluation, measured, .. } in self.evaluations {
            let of_set = measured.metrics.into_iter();
            metrics.extend(of_set.map(|(name, v)| (qualified(evaluation.set, &name), v)));
        }
        Ok(Report {
            steps: self.progress.step,
            stopped: self.progress.step < self.total,
            resumed_at: self.resumed_at,
            metrics,
            best: self.progress.watch.best,
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
