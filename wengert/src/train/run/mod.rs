//! The loop of a run.
//!
//! [`Run::begin`] checks the recipe and the data, and starts the run or resumes it. [`Run::go`]
//! repeats three methods until the last step: [`Run::step`] computes a step and checks its numbers,
//! [`Run::after`] does what is due after it, histograms and evaluations, and [`Run::checkpoint`]
//! writes a checkpoint if one is due. [`Run::end`] writes the weights.
//!
//! Ranks call these methods together. Each of them may exchange variables that the ranks store in
//! parts, so the ranks learn before it whether one of them has failed or has been stopped.

mod after;
mod step;

use super::batches::{Examples, Feed, Schedule};
use super::board::Board;
use super::check_data::DataChecks;
use super::checkpoint::Progress;
use super::evaluate::Evaluation;
use super::event::Recorded;
use super::folder::{Begun, Output, begin};
use super::functions::Function;
use super::metrics::Measured;
use super::ranks::{Next, Ranks};
use super::save::Saving;
use super::shards::Stored;
use super::{Event, Options, Report, TrainError, start, weights};
use crate::data::source::Source;
use crate::optim::scales_loss;
use crate::recipe::{Length, Recipe};
use crate::session::Session;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use step::{InEpoch, Stepped};
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
    /// The folder that all ranks see, if they write checkpoints in parts.
    common: Option<&'a Path>,
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
        // Data and divisions that do not fit leave no folder behind.
        let first = examples.batch(&mut schedule, 0)?;
        step.binding(&first.inputs)?;
        let mut stored = None;
        let shards = options.sharding != Sharding::Replicated && ranks.count() > 1;
        if shards || ranks.tensor() > 1 {
            let model = weights::of_model(program, recipe);
            stored = Some(Stored::choose(ranks, options, &step, &first.inputs, &model)?);
        }
        // Rank 0 has the folder. An error there is one everywhere.
        let begun = begin(session, program, recipe, data, options, observe);
        let Begun { mut progress, mut output, from } = ranks.all_or_none(begun)?;
        let in_parts = !options.whole_checkpoints;
        let in_parts = in_parts && stored.as_ref().is_some_and(Stored::is_divided);
        let owned = output.as_ref().map(|output| output.folder);
        let common = match in_parts {
            true => start::common_folder(ranks, options, owned)?,
            false => None,
        };
        start::variables(session, ranks, stored.as_ref(), &mut progress, from, common)?;
        if let Some(stored) = &stored {
            step.store(stored);
            evaluations.iter_mut().for_each(|evaluation| evaluation.store(stored));
        }
        let stored = stored.unwrap_or_else(|| Stored::replicated(ranks));
        let evaluations = evaluations.into_iter().map(|evaluation| Evaluated {
            evaluation,
            measured: Measured::default(),
            after: None,
        });
        let resumed_at = progress.step;
        if options.folder.is_some() && !options.resume {
            let saving = Saving { ranks, stored: &stored, common };
            let written = saving.checkpoint(session, &mut output, &progress, observe);
            ranks.all_or_none(written)?;
        }
        if let (Some(_), Some(output)) = (options.tensorboard, &mut output) {
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
            common,
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
