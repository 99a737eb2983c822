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
//! before anything is computed ([`check_data`]). Data that are not in memory are checked batch by
//! batch.
//!
//! **Large data.** Data are a [`Source`]: arrays in memory, or files that are larger than memory.
//! Threads read and transform batches ahead of their steps ([`loader`](crate::data::loader)); a
//! record has the time that its step waited for them.
//!
//! **On several ranks.** Processes may share each batch ([`Options::world`]). The recipe says into
//! how many microbatches a batch is divided, which decides the bits; the number of ranks does not.
//! They may store variables in parts ([`Options::sharding`]), and share products
//! ([`Options::tensor`]). Each writes its parts of a checkpoint then.
//!
//! **Monitored.** A run may have several evaluation sets, end early, and keep the checkpoints with
//! the best metric ([`Monitoring`](crate::recipe::Monitoring)).
//!
//! A run's folder holds the last two checkpoints (all variables, and the progress of the run) or
//! as many as the recipe says, `log.jsonl`, `lock`, and at the end `weights.safetensors`: the
//! variables of functions other than `init` and the training step, which are the weights of the
//! trained model. If there is no such function, it holds all variables.

pub mod batches;
mod board;
pub mod check_data;
pub mod checkpoint;
pub mod curves;
mod evaluate;
pub mod event;
mod find_rate;
mod folder;
mod functions;
pub mod lock;
pub mod log;
mod metrics;
mod ranks;
mod run;
mod save;
mod shards;
mod start;
mod watch;
mod weights;

use crate::data::Arrays;
use crate::data::source::Source;
use crate::recipe::{Length, Recipe};
use crate::session::Session;
use run::{Run, needs_loss_scale};
use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Result};
use wengert_transport::Communicator;

pub use board::TensorBoard;
pub use evaluate::{Evaluated, evaluate, evaluate_set};
pub use event::{Event, Flow, StepRecord};
pub use find_rate::{RateCurve, RateSearch, RateTrial, SKIPPED, find_rate};
pub use metrics::Confusion;
pub use watch::Watch;
pub use wengert_compiler::ranks::{Sharding, Split, TensorParallel};

/// Name of the file with the trained model within a run's folder.
pub const WEIGHTS: &str = "weights.safetensors";

/// Options of a run that the recipe does not have.
#[derive(Clone, Copy, Default)]
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
    /// Number of threads that read and transform data which are not in memory. The default is half
    /// of the processors, at most 8. Batches do not depend on it.
    pub data_threads: Option<usize>,
    /// Write event files for TensorBoard into the folder, beside the log.
    pub tensorboard: Option<TensorBoard>,
    /// Data of evaluation sets that do not take the arrays of the run's data.
    pub sets: &'a [SetData<'a>],
    /// When this is set, the run ends after its current step, writes a checkpoint and returns
    /// [`Stopped`](TrainError::Stopped).
    pub stop: Option<&'a AtomicBool>,
    /// The ranks that share each batch, as seen by one of them; its session joins them. All ranks
    /// call [`train`] with the same program, recipe, data and options. Rank 0 has the folder, and
    /// alone calls `observe`. Other ranks write to the folder if they store variables in parts.
    pub world: Option<&'a Communicator>,
    /// What the ranks store in parts. It changes no bits. At the end the session of a rank has its
    /// parts, and the weights are whole.
    pub sharding: Sharding,
    /// Groups of T neighbouring ranks have the same part of each batch, and share its products.
    /// T decides the bits; [`TensorParallel`] has the rules. At the end the session of a rank has
    /// its parts, and the weights are whole.
    pub tensor: Option<&'a TensorParallel>,
    /// Rank 0 collects variables that are stored in parts, and writes whole checkpoints. Otherwise
    /// each rank writes [its parts](crate::data::parts), to a folder that all ranks have to see.
    pub whole_checkpoints: bool,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.world.map_or(1, Communicator::size);
        let mut shown = f.debug_struct("Options");
        shown.field("length", &self.length).field("folder", &self.folder);
        shown.field("resume", &self.resume).field("ranks", &ranks);
        shown.field("sharding", &self.sharding).field("tensor", &self.tensor);
        shown.finish_non_exhaustive()
    }
}

/// The data of an evaluation set.
#[derive(Clone, Copy)]
pub struct SetData<'a> {
    /// The name of the [set](crate::recipe::EvaluationSet).
    pub set: &'a str,
    /// Its data.
    pub data: &'a dyn Source,
    /// Where they come from, for messages.
    pub file: Option<&'a Path>,
}

impl fmt::Debug for SetData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SetData");
        shown.field("set", &self.set).field("file", &self.file).finish_non_exhaustive()
    }
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
    /// Whether an observer [stopped](Flow::Stop) the run before its last step, or early stopping
    /// did.
    pub stopped: bool,
    /// Steps done before this run resumed.
    pub resumed_at: u64,
    /// The last evaluations. A metric of a set with a name is called `SET/METRIC`.
    pub metrics: Vec<(String, f64)>,
    /// Steps and watched numbers of the best checkpoints, the best first.
    pub best: Vec<(u64, f64)>,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Debug)]
pub enum TrainError {
    /// The loss, a metric or a variable is not finite. The last good checkpoint is kept.
    Diverged(Diagnostic),
    /// [Stopped](Options::stop) on request; it can be resumed.
    Stopped(Diagnostic),
    /// Another rank failed, and reports it as well.
    Elsewhere(Diagnostic),
    /// Anything else.
    Failed(Diagnostic),
}

impl TrainError {
    /// The message for the user.
    pub fn diagnostic(&self) -> &Diagnostic {
        match self {
            TrainError::Diverged(diagnostic)
            | TrainError::Stopped(diagnostic)
            | TrainError::Elsewhere(diagnostic)
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
/// Data are [`Arrays`], or another [`Source`], whose rows are read ahead of the steps that take
/// them.
/// The functions run under the recipe's [precision](Recipe::precision).
/// Every event is reported to `observe`; a closure may return a [`Flow`], or nothing.
pub fn train<R: Into<Flow>>(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
    observe: &mut dyn FnMut(Event<'_>) -> R,
) -> Result<Report, TrainError> {
    let stop = Cell::new(false);
    let mut observe = |event: Event<'_>| {
        let is_first = options.world.is_none_or(|world| world.rank() == 0);
        if is_first && observe(event).into() == Flow::Stop {
            stop.set(true);
        }
    };
    recipe.verify_for(program)?;
    needs_loss_scale(program, recipe)?;
    let program = &*recipe.apply_precision(program)?;
    let result = thread::scope(|scope| {
        Run::begin(scope, session, program, recipe, data, options, &stop, &mut observe)?.go()
    });
    // A rank that ends while others go on looks like a failure to them.
    if let (Some(world), Ok(_) | Err(TrainError::Diverged(_) | TrainError::Stopped(_))) =
        (options.world, &result)
    {
        // The run has its result already.
        let _ = world.barrier();
    }
    result
}
