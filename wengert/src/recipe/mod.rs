//! How a program is trained: all that `graphrun train` needs to repeat the Rust program's
//! training exactly.
//!
//! A recipe names functions of a program, maps arrays of a data file to inputs with their
//! conversions, and fixes every other choice of a run: batch size, order, the last batch, length,
//! and the cadence of checkpoints. Program, recipe and data therefore determine [`crate::train`]:
//! every run gives the same bits.
//!
//! [`metric`] has the metrics of evaluations, and [`monitoring`] further evaluation sets, early
//! stopping and the choice of checkpoints.

mod input;
pub mod metric;
pub mod monitoring;

use crate::data::{Arrays, listed};
use crate::precision::{Precision, cast_to_param};
use std::borrow::Cow;
use std::fmt;
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

pub use crate::data::loader::Blocks;
pub use crate::transform::Transform;
pub use input::InputRecipe;
pub use metric::{Aggregate, Average, ClassMeasure, Metric};
pub(crate) use monitoring::qualified;
pub use monitoring::{
    EPOCH_LOSS, EarlyStopping, EvaluationSet, FinalWeights, Goal, Kept, Monitoring, Watched,
};

/// How a program is trained.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// The function whose outputs are the initial variables by key path. Its only input, if any,
    /// is a key. Without it, training starts from the file's weights.
    pub init: Option<String>,
    /// The function of one training step: data inputs, variables as state, perhaps a key.
    pub step: StepRecipe,
    /// The function that evaluates the model on data outside the training set.
    pub evaluate: Option<EvaluateRecipe>,
    /// How batches are drawn.
    pub batches: Batches,
    /// The number of parts of each batch, M. The gradient is computed for each of them, and these
    /// are added in a fixed tree. It decides the bits; the number of ranks, which share the parts,
    /// does not ([`Options::world`](crate::train::Options::world)). 1 is the whole batch.
    pub microbatches: u64,
    /// How long to train unless the caller overrides it.
    pub length: Length,
    /// When checkpoints are written, apart from the one at the end.
    pub checkpoint: Cadence,
    /// Seed of all keys: of `init`, and of each step (see [`Recipe::key_for`]).
    pub key_seed: u64,
    /// The policy under which the functions are trained and evaluated; `None`: as they are.
    pub precision: Option<Precision>,
    /// Further evaluation sets, early stopping, and the checkpoints that are kept.
    pub monitoring: Monitoring,
}

/// The training step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepRecipe {
    /// Name of the function.
    pub function: String,
    /// Where its data inputs come from.
    pub inputs: Vec<InputRecipe>,
    /// The output to minimise. It is checked for NaN and logged after every step.
    pub loss: String,
}

/// The evaluation.
#[derive(Clone, PartialEq, Debug)]
pub struct EvaluateRecipe {
    /// Name of the function.
    pub function: String,
    /// Where its data inputs come from.
    pub inputs: Vec<InputRecipe>,
    /// Examples in a batch.
    pub batch_size: u64,
    /// The metrics reported, over all examples.
    pub metrics: Vec<Metric>,
    /// How often.
    pub every: Cadence,
}

/// How batches are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batches {
    /// Examples in a batch.
    pub size: u64,
    /// With a seed, every epoch has its own random order of all examples; without, the order is
    /// that of the data.
    pub shuffle: Option<u64>,
    /// With a seed: shuffles blocks of consecutive rows, and rows within windows of blocks, so
    /// that data on a disk are read block by block. Without blocks, any row may follow any other.
    pub blocks: Option<Blocks>,
    /// Treatment of an incomplete last batch of an epoch.
    pub last: LastBatch,
}

/// Treatment of an incomplete last batch of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastBatch {
    /// It is left out.
    Drop,
    /// It is a smaller batch (the step is compiled for that size as well).
    Smaller,
}

/// How long to train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// This many epochs over all examples.
    Epochs(u64),
    /// This many steps.
    Steps(u64),
}

/// How often something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cadence {
    /// Never. The final checkpoint and evaluation always happen.
    Never,
    /// After every so many steps.
    Steps(u64),
    /// After every so many epochs.
    Epochs(u64),
}

impl Recipe {
    /// The key for step `step` (0 is `init`'s, training steps count from 1): two words that
    /// depend only on the seed and the number, so that a resumed run draws the same numbers as an
    /// uninterrupted one.
    pub fn key_for(&self, step: u64) -> Literal {
        crate::random::key(self.key_seed, step)
    }

    /// Checks what can be checked without program and data: sizes and counts of at least 1,
    /// distinct inputs.
    pub fn verify(&self) -> Result<()> {
        positive("the batch size", self.batches.size)?;
        positive("the number of microbatches", self.microbatches)?;
        if let Some(blocks) = self.batches.blocks {
            positive("the number of rows of a block", blocks.rows)?;
            positive("the number of blocks of a window", blocks.window)?;
        }
        self.checkpoint.verify("the checkpoint cadence")?;
        distinct(&self.step.inputs)?;
        self.step.inputs.iter().try_for_each(InputRecipe::verify)?;
        if self.step.inputs.is_empty() {
            return Err(Diagnostic::new("recipe: the training step has no data input")
                .help("bind at least one input to an array: its first axis counts the examples"));
        }
        self.evaluate.as_ref().map_or(Ok(()), EvaluateRecipe::verify)?;
        self.monitoring.verify(self)
    }
}

fn positive(what: &str, value: u64) -> Result<()> {
    match value {
        0 => Err(diagnostic!("recipe: {what} must be at least 1")),
        _ => Ok(()),
    }
}

fn distinct(inputs: &[InputRecipe]) -> Result<()> {
    inputs.iter().enumerate().try_for_each(|(i, input)| {
        match inputs[..i].iter().any(|earlier| earlier.input == input.input) {
            true => Err(diagnostic!("recipe: input `{}` is bound twice", input.input)),
            false => Ok(()),
        }
    })
}

impl Cadence {
    fn verify(self, what: &str) -> Result<()> {
        match self {
            Cadence::Never => Ok(()),
            Cadence::Steps(n) | Cadence::Epochs(n) => positive(what, n),
        }
    }
}

impl EvaluateRecipe {
    fn verify(&self) -> Result<()> {
        distinct(&self.inputs)?;
        self.inputs.iter().try_for_each(InputRecipe::verify)?;
        positive("the batch size of the evaluation", self.batch_size)?;
        self.every.verify("the cadence of the evaluation")?;
        if self.inputs.is_empty() {
            return Err(Diagnostic::new("recipe: the evaluation has no data input"));
        }
        self.metrics.iter().try_for_each(Metric::verify)
    }

    fn fits(&self, program: &Program) -> Result<()> {
        let function = program.get(&self.function)?;
        inputs_are_bound(function, &self.inputs)?;
        self.metrics.iter().try_for_each(|metric| metric.fits(function))
    }
}

impl Recipe {
    /// The program under the recipe's [precision](Recipe::precision).
    ///
    /// # Errors
    /// The policy does not fit the program: see [`Precision::apply_to_program`].
    pub fn apply_precision<'a>(&self, program: &'a Program) -> Result<Cow<'a, Program>> {
        match &self.precision {
            None => Ok(Cow::Borrowed(program)),
            Some(policy) => policy
                .apply_to_program(program)
                .map(Cow::Owned)
                .map_err(|error| error.context("recipe: precision")),
        }
    }

    /// Weights for the program under the recipe's [precision](Recipe::precision), as
    /// [`cast_to_param`] gives them.
    ///
    /// # Errors
    /// A weight is beyond the largest number of its dtype.
    pub fn cast_weights<'a>(
        &self,
        program: &Program,
        weights: &'a Arrays,
    ) -> Result<Cow<'a, Arrays>> {
        match &self.precision {
            Some(policy) => cast_to_param(policy, program, weights),
            None => Ok(Cow::Borrowed(weights)),
        }
    }

    /// Checks the recipe against its program: functions, inputs and outputs exist, every data
    /// input is bound to an array, and loss and metrics are scalars.
    pub fn verify_for(&self, program: &Program) -> Result<()> {
        self.verify()?;
        self.fits(program).map_err(|error| error.context("recipe"))
    }

    fn fits(&self, program: &Program) -> Result<()> {
        if let Some(init) = &self.init {
            inputs_are_bound(program.get(init)?, &[])?;
        }
        let step = program.get(&self.step.function)?;
        inputs_are_bound(step, &self.step.inputs)?;
        is_number(step, &self.step.loss)?;
        self.evaluate.as_ref().map_or(Ok(()), |evaluate| evaluate.fits(program))?;
        self.monitoring.sets.iter().try_for_each(|set| {
            let fits = set.evaluate.fits(program);
            fits.map_err(|error| error.context(format_args!("evaluation set `{}`", set.name)))
        })
    }
}

/// Checks that the inputs with arrays are exactly those with role `Input`, keys excepted.
fn inputs_are_bound(function: &Function, inputs: &[InputRecipe]) -> Result<()> {
    let data =
        || function.inputs.iter().filter(|i| i.role == InputRole::Input).map(|i| i.name.as_str());
    let names = || listed(&data().collect::<Vec<_>>());
    if let Some(extra) = inputs.iter().find(|input| !data().any(|name| name == input.input)) {
        return Err(diagnostic!("`@{}` has no data input `{}`", function.name, extra.input)
            .help(format!("it has {}", names())));
    }
    match data().find(|name| !inputs.iter().any(|input| input.input == *name)) {
        Some(missing) => Err(diagnostic!("input `{missing}` of `@{}` has no array", function.name)),
        None => Ok(()),
    }
}

/// The number of an output.
fn output_index(function: &Function, output: &str) -> Result<usize> {
    function.output_index(output, OutputRole::Output).ok_or_else(|| {
        let names: Vec<_> = function
            .outputs
            .iter()
            .filter(|o| o.role == OutputRole::Output)
            .map(|o| &o.name)
            .collect();
        diagnostic!("`@{}` has no output `{output}`", function.name)
            .help(format!("it has {}", listed(&names)))
    })
}

fn is_number(function: &Function, output: &str) -> Result<()> {
    let ty = function.output_type(output_index(function, output)?);
    match ty.elements() {
        Some(1) => Ok(()),
        _ => Err(diagnostic!("output `{output}` of `@{}` is {ty}, not a number", function.name)),
    }
}

impl fmt::Display for Recipe {
    /// One line per fact, for `graphrun dump`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs = |f: &mut fmt::Formatter<'_>, inputs: &[InputRecipe]| {
            inputs.iter().try_for_each(|input| {
                write!(f, "  {} = {}", input.input, input.array)?;
                for transform in &input.transforms {
                    write!(f, " | {transform}")?;
                }
                writeln!(f)
            })
        };
        if let Some(init) = &self.init {
            writeln!(f, "init @{init}")?;
        }
        writeln!(f, "step @{}, loss `{}`", self.step.function, self.step.loss)?;
        inputs(f, &self.step.inputs)?;
        for (set, evaluate) in self.evaluations() {
            let EvaluateRecipe { function, batch_size, every, .. } = evaluate;
            match set {
                Some(set) => write!(f, "evaluate `{set}` by @{function}")?,
                None => write!(f, "evaluate @{function}")?,
            }
            writeln!(f, ", batches of {batch_size}, {every}")?;
            inputs(f, &evaluate.inputs)?;
            for metric in &evaluate.metrics {
                let how = match &metric.aggregate {
                    Aggregate::PerExample => "per example".into(),
                    other => other.to_string(),
                };
                writeln!(f, "  report {}: {how} of `{}`", metric.name, metric.output)?;
            }
        }
        let last = match self.batches.last {
            LastBatch::Drop => "dropped",
            LastBatch::Smaller => "smaller",
        };
        write!(f, "batches of {}, the last {last}, ", self.batches.size)?;
        if self.microbatches > 1 {
            write!(f, "in {} microbatches, ", self.microbatches)?;
        }
        match self.batches.shuffle {
            Some(seed) => write!(f, "shuffled with seed {seed}")?,
            None => write!(f, "in order")?,
        }
        match self.batches.blocks {
            Some(Blocks { rows, window }) => {
                writeln!(f, ", in blocks of {rows} rows and windows of {window} blocks")?;
            }
            None => writeln!(f)?,
        }
        match self.length {
            Length::Epochs(n) => writeln!(f, "train for {n} epochs")?,
            Length::Steps(n) => writeln!(f, "train for {n} steps")?,
        }
        writeln!(f, "checkpoint {}", self.checkpoint)?;
        writeln!(f, "key seed {}", self.key_seed)?;
        write!(f, "{}", self.monitoring)?;
        self.precision.iter().try_for_each(|policy| writeln!(f, "precision {policy}"))
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cadence::Never => f.write_str("at the end"),
            Cadence::Steps(n) => write!(f, "every {n} steps"),
            Cadence::Epochs(n) => write!(f, "every {n} epochs"),
        }
    }
}
