//! Evaluations: between the steps of a run, and of a model without training.

use super::batches::{Examples, Schedule, for_each_batch};
use super::check_data::DataChecks;
use super::folder::{Output, diverged};
use super::functions::Function;
use super::metrics::{Accumulator, Batch, Confusion, Measured};
use super::shards::Stored;
use super::weights::variables;
use super::{Options, TrainError};
use crate::data::source::Source;
use crate::data::{Arrays, listed};
use crate::recipe::{Batches, EvaluateRecipe, LastBatch, Recipe};
use crate::session::Session;
use crate::signature::is_variable;
use crate::weight_names::{NameDifferences, check_types};
use std::sync::Arc;
use wengert_core::graph::Program;
use wengert_core::nearest::nearest;
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// An evaluation of a recipe, ready to run.
pub(super) struct Evaluation<'a> {
    /// The name of its set.
    pub(super) set: Option<&'a str>,
    pub(super) recipe: &'a EvaluateRecipe,
    function: Function<'a>,
    examples: Arc<Examples<'a>>,
    schedule: Schedule,
    threads: Option<usize>,
    key: Literal,
}

impl<'a> Evaluation<'a> {
    /// Errors: those of the data of the set.
    pub(super) fn new(
        set: Option<&'a str>,
        evaluate: &'a EvaluateRecipe,
        program: &'a Program,
        recipe: &Recipe,
        data: &'a dyn Source,
        options: Options<'a>,
    ) -> Result<Self> {
        let own = options.sets.iter().find(|own| set == Some(own.set));
        let (data, file) = match own {
            Some(own) => (own.data, own.file),
            None => (data, options.data_file),
        };
        let checks = DataChecks::new(program.get(&evaluate.function)?, file, options.allow);
        let examples = Examples::new(&evaluate.inputs, data, checks, recipe.key_seed);
        let examples = Arc::new(examples.map_err(|error| in_set(set, error))?);
        let batches = Batches {
            size: evaluate.batch_size,
            shuffle: None,
            blocks: None,
            last: LastBatch::Smaller,
        };
        let schedule = Schedule::of(&examples, batches)?;
        let function = Function::new(program, &evaluate.function);
        let (threads, key) = (options.data_threads, recipe.key_for(0));
        Ok(Evaluation { set, recipe: evaluate, function, examples, schedule, threads, key })
    }

    /// All evaluations of a recipe.
    ///
    /// Errors: data for a set that the recipe does not have; those of [`Evaluation::new`].
    pub(super) fn all(
        program: &'a Program,
        recipe: &'a Recipe,
        data: &'a dyn Source,
        options: Options<'a>,
    ) -> Result<Vec<Self>> {
        check_sets(recipe, options)?;
        let evaluations = recipe.evaluations();
        evaluations
            .map(|(set, e)| Evaluation::new(set, e, program, recipe, data, options))
            .collect()
    }

    /// From now on, variables are stored so.
    pub(super) fn store(&mut self, stored: &Stored<'a>) {
        self.function.store(stored);
    }

    /// Number of examples.
    pub(super) fn count(&self) -> u64 {
        self.examples.count() as u64
    }

    /// The metrics over all examples; `after` is the step of a run that has just been done.
    ///
    /// Errors: a metric is NaN, or not defined; those of the device.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        after: Option<u64>,
        output: Option<&Output<'_>>,
    ) -> Result<Measured, TrainError> {
        let _span = tracing::debug_span!("evaluation", name = self.recipe.function).entered();
        let mut kept: Vec<_> = self.recipe.metrics.iter().map(Accumulator::new).collect();
        let seconds: Vec<&str> =
            self.recipe.metrics.iter().filter_map(|metric| metric.aggregate.second()).collect();
        let (mut first, mut non_finite) = (0, None);
        for_each_batch(&self.examples, &self.schedule, self.threads, |batch| {
            let count = batch.rows.len();
            non_finite = non_finite.take().or_else(|| batch.non_finite(&self.examples));
            let inputs: Vec<(&str, Literal)> =
                batch.inputs.iter().filter(|(name, _)| seconds.contains(name)).cloned().collect();
            let outputs = self.function.run(session, batch.inputs, &self.key)?;
            let batch = Batch { outputs: &outputs, inputs: &inputs, first, count };
            for metric in &mut kept {
                metric.add(&batch).map_err(|error| in_set(self.set, error))?;
            }
            first += count;
            Ok::<(), Diagnostic>(())
        })?;
        let mut measured = Measured::default();
        for metric in kept {
            metric.finish(&mut measured).map_err(|error| in_set(self.set, error))?;
        }
        if let Some((name, value)) = measured.metrics.iter().find(|(_, value)| value.is_nan()) {
            let advice = match non_finite {
                Some(fault) => format!("the data are at fault: {fault}"),
                None => "look at what the evaluation divides by, or takes the logarithm of".into(),
            };
            let set = self.set.map_or(String::new(), |set| format!(" of set `{set}`"));
            let after = after.map_or(String::new(), |step| format!(" after step {step}"));
            return Err(diverged(
                format!("metric `{name}`{set} is {value}{after}"),
                advice,
                output,
            ));
        }
        Ok(measured)
    }
}

/// An error of an evaluation, with the name of its set.
fn in_set(set: Option<&str>, error: Diagnostic) -> Diagnostic {
    match set {
        Some(set) => error.context(format_args!("evaluation set `{set}`")),
        None => error,
    }
}

/// An error if the options have data for a set that the recipe does not have.
fn check_sets(recipe: &Recipe, options: Options<'_>) -> Result<()> {
    let unknown = options.sets.iter().find(|own| recipe.set(own.set).is_none());
    unknown.map_or(Ok(()), |own| Err(no_set(recipe, own.set)))
}

/// The error of a set that the recipe does not have.
fn no_set(recipe: &Recipe, name: &str) -> Diagnostic {
    let names: Vec<&str> = recipe.monitoring.sets.iter().map(|set| set.name.as_str()).collect();
    let help = match nearest(name, names.iter().copied()) {
        _ if names.is_empty() => "it has no set with a name".into(),
        Some(near) => format!("did you mean `{near}`? it has {}", listed(&names)),
        None => format!("it has {}", listed(&names)),
    };
    diagnostic!("the recipe has no evaluation set `{name}`").help(help)
}

/// Result of an evaluation.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluated {
    /// Number of examples.
    pub examples: u64,
    /// Names and values of the metrics over all examples, in the recipe's order. The value of each
    /// batch counts as the metric's [`Aggregate`](crate::recipe::Aggregate) says.
    pub metrics: Vec<(String, f64)>,
    /// Names and values of the metrics that are matrices.
    pub matrices: Vec<(String, Confusion)>,
}

/// Evaluates a model by [`Recipe::evaluate`], as [`evaluate_set`] without a set.
///
/// # Errors
///
/// Those of [`evaluate_set`].
pub fn evaluate(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
) -> Result<Evaluated, TrainError> {
    evaluate_set(session, program, recipe, None, data, options)
}

/// Evaluates a model by an evaluation of the recipe, as [`train`](super::train()) does between
/// steps, in the recipe's [precision](Recipe::precision). The weights replace the variables of the
/// session. Weights that the evaluation does not take, such as the optimiser's state in a
/// checkpoint, are ignored.
///
/// `set` is the name of one of the recipe's [further sets](crate::recipe::Monitoring::sets). Of the
/// options, `weights`, `weights_file`, `data_file`, `data_threads`, `sets` and `allow` count.
///
/// # Errors
///
/// - [`TrainError::Diverged`]: a metric is NaN.
/// - [`TrainError::Failed`]: the recipe does not fit the program or has no such evaluation; a
///   variable of the evaluation has no value, or one of another type; the data lack an array, have
///   another shape, or fail a check; errors of the device.
pub fn evaluate_set(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    set: Option<&str>,
    data: &dyn Source,
    options: Options<'_>,
) -> Result<Evaluated, TrainError> {
    recipe.verify_for(program)?;
    let program = &*recipe.apply_precision(program)?;
    check_sets(recipe, options)?;
    let evaluate = match set {
        Some(name) => recipe.set(name).ok_or_else(|| no_set(recipe, name))?,
        None => recipe.evaluate.as_ref().ok_or_else(|| {
            Diagnostic::new("the recipe has no evaluation")
                .help("give `Recipe::evaluate` a function and its metrics")
        })?,
    };
    let mut evaluation = Evaluation::new(set, evaluate, program, recipe, data, options)?;
    let function = program.get(&evaluate.function)?;
    let taken = || {
        let inputs = function.inputs.iter().filter(|input| is_variable(input.role));
        inputs.map(|input| input.name.as_str())
    };
    let source = match options.weights_file {
        Some(path) => format!("`{}`", path.display()),
        None => "the file".into(),
    };
    let none = Arrays::new();
    let weights = &*recipe.cast_weights(program, options.weights.unwrap_or(&none))?;
    let remedy = "give the weights of this program, such as `weights.safetensors` of a run";
    let mut values = Arrays::new();
    for name in taken() {
        if let Some(value) = weights.get(name) {
            values.insert(name.to_owned(), value.clone());
        }
    }
    session.set_variables(&none)?;
    let variables = variables(program, session);
    if weights.is_empty() && taken().next().is_some() {
        return Err(diagnostic!("the variables of `@{}` have no values", function.name)
            .help("give a file with `--params`")
            .into());
    }
    check_types(&values, &variables, &source).map_err(|error| error.help(remedy))?;
    let differences = NameDifferences::between(weights, &variables, taken());
    if !differences.missing.is_empty()
        && let Some(error) = differences.error(&source)
    {
        return Err(error.help(remedy).into());
    }
    session.set_variables(&values)?;
    let Measured { metrics, matrices } = evaluation.run(session, None, None)?;
    Ok(Evaluated { examples: evaluation.count(), metrics, matrices })
}
