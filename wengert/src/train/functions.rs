//! The functions that training runs, compiled for each batch size that occurs.

use super::batches::{Examples, Schedule, for_each_batch};
use super::check_data::DataChecks;
use super::folder::{Output, diverged};
use super::{Options, TrainError};
use crate::data::source::Source;
use crate::data::spec;
use crate::outputs::Outputs;
use crate::recipe::{Aggregate, Batches, EvaluateRecipe, LastBatch, Recipe};
use crate::session::{Compiled, Session};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wengert_core::graph::{InputRole, Program};
use wengert_core::{Binding, Diagnostic, Literal, Location, Result};

/// A function that is compiled once for every number of examples that occurs.
pub(super) struct Function<'a> {
    program: &'a Program,
    name: &'a str,
    compiled: BTreeMap<Option<usize>, Compiled>,
    compiling: Duration,
}

impl<'a> Function<'a> {
    pub(super) fn new(program: &'a Program, name: &'a str) -> Self {
        Function { program, name, compiled: BTreeMap::new(), compiling: Duration::ZERO }
    }

    /// The time of the last run that was spent on compilation.
    pub(super) fn compiling(&self) -> Duration {
        self.compiling
    }

    /// The extents of a batch.
    ///
    /// Errors: a tensor does not have the type of its input.
    pub(super) fn binding(&self, inputs: &[(&str, Literal)]) -> Result<Binding> {
        let function = self.program.get(self.name)?;
        let mut binding = Binding::new();
        for (name, literal) in inputs {
            if let Some(index) = function.input_index(name) {
                spec::bind(name, function.input_type(index), literal, &mut binding)
                    .map_err(|error| error.context(format_args!("@{}", self.name)))?;
            }
        }
        Ok(binding)
    }

    /// Runs the function on a batch; every key input is `key`.
    pub(super) fn run<'b>(
        &mut self,
        session: &mut Session,
        mut inputs: Vec<(&'b str, Literal)>,
        key: &Literal,
    ) -> Result<Outputs>
    where
        'a: 'b,
    {
        // Locations are unknown here: the line that compiles and runs is the trainer's, not the
        // user's.
        let _trainer = Location::Unknown.attributed();
        let function = self.program.get(self.name)?;
        let examples = inputs.first().and_then(|(_, literal)| literal.shape().first()).copied();
        self.compiling = Duration::ZERO;
        if !self.compiled.contains_key(&examples) {
            let began = Instant::now();
            let binding = self.binding(&inputs)?;
            let compiled = session.compile(self.program, self.name, &binding)?;
            compiled.expect_repeats();
            self.compiled.insert(examples, compiled);
            self.compiling = began.elapsed();
        }
        let compiled = self.compiled.get_mut(&examples).expect("it was just put there");
        for input in function.inputs.iter().filter(|input| input.role == InputRole::Key) {
            inputs.push((input.name.as_str(), key.clone()));
        }
        compiled.run(&inputs)
    }
}

/// The evaluation of a recipe, ready to run.
pub(super) struct Evaluation<'a> {
    pub(super) recipe: &'a EvaluateRecipe,
    function: Function<'a>,
    examples: Arc<Examples<'a>>,
    schedule: Schedule,
    threads: Option<usize>,
    key: Literal,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        evaluate: &'a EvaluateRecipe,
        program: &'a Program,
        recipe: &Recipe,
        data: &'a dyn Source,
        options: Options<'a>,
    ) -> Result<Self> {
        let checks =
            DataChecks::new(program.get(&evaluate.function)?, options.data_file, options.allow);
        let examples = Arc::new(Examples::new(&evaluate.inputs, data, checks, recipe.key_seed)?);
        let batches = Batches {
            size: evaluate.batch_size,
            shuffle: None,
            blocks: None,
            last: LastBatch::Smaller,
        };
        let schedule = Schedule::of(&examples, batches)?;
        let function = Function::new(program, &evaluate.function);
        let (threads, key) = (options.data_threads, recipe.key_for(0));
        Ok(Evaluation { recipe: evaluate, function, examples, schedule, threads, key })
    }

    /// Number of examples.
    pub(super) fn count(&self) -> u64 {
        self.examples.count() as u64
    }

    /// The metrics over all examples; `after` is the step of a run that has just been done.
    ///
    /// Errors: a metric is NaN; those of the device.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        after: Option<u64>,
        output: Option<&Output<'_>>,
    ) -> Result<Vec<(String, f64)>, TrainError> {
        let _span = tracing::debug_span!("evaluation", name = self.recipe.function).entered();
        let mut sums = vec![0.0; self.recipe.metrics.len()];
        let mut non_finite = None;
        for_each_batch(&self.examples, &self.schedule, self.threads, |batch| {
            let weight = batch.rows.len() as f64;
            non_finite = non_finite.take().or_else(|| batch.non_finite(&self.examples));
            let outputs = self.function.run(session, batch.inputs, &self.key)?;
            for (sum, metric) in sums.iter_mut().zip(&self.recipe.metrics) {
                let weight = if metric.aggregate == Aggregate::Mean { weight } else { 1.0 };
                *sum += weight * outputs.scalar(&metric.output)?;
            }
            Ok::<(), Diagnostic>(())
        })?;
        let count = self.examples.count() as f64;
        let values = sums.into_iter().zip(&self.recipe.metrics).map(|(sum, metric)| {
            match metric.aggregate {
                Aggregate::Sum => (metric.name.clone(), sum),
                Aggregate::Mean | Aggregate::PerExample => (metric.name.clone(), sum / count),
            }
        });
        let values: Vec<(String, f64)> = values.collect();
        if let Some((name, value)) = values.iter().find(|(_, value)| value.is_nan()) {
            let advice = match non_finite {
                Some(fault) => format!("the data are at fault: {fault}"),
                None => "look at what the evaluation divides by, or takes the logarithm of".into(),
            };
            let after = after.map_or(String::new(), |step| format!(" after step {step}"));
            return Err(diverged(format!("metric `{name}` is {value}{after}"), advice, output));
        }
        Ok(values)
    }
}
