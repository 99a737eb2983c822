//! Evaluation of a model without training.

use super::functions::Evaluation;
use super::weights::variables;
use super::{Options, TrainError};
use crate::data::Arrays;
use crate::data::source::Source;
use crate::recipe::Recipe;
use crate::session::Session;
use crate::signature::is_variable;
use crate::weight_names::{NameDifferences, check_types};
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, diagnostic};

/// Result of an evaluation.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluated {
    /// Number of examples.
    pub examples: u64,
    /// Names and values of the metrics over all examples, in the recipe's order. The value of each
    /// batch counts as the metric's [`Aggregate`](crate::recipe::Aggregate) says.
    pub metrics: Vec<(String, f64)>,
}

/// Evaluates a model by the recipe's evaluation, as [`train`](super::train) does between steps, in
/// the recipe's [precision](Recipe::precision). The weights replace the variables of the session.
/// Weights that the evaluation does not take, such as the optimiser's state in a checkpoint, are
/// ignored.
///
/// Of the options, `weights`, `weights_file`, `data_file`, `data_threads` and `allow` count.
///
/// # Errors
///
/// - [`TrainError::Diverged`]: a metric is NaN.
/// - [`TrainError::Failed`]: the recipe does not fit the program or has no evaluation; a variable
///   of the evaluation has no value, or one of another type; the data lack an array, have another
///   shape, or fail a check; errors of the device.
pub fn evaluate(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
) -> Result<Evaluated, TrainError> {
    recipe.verify_for(program)?;
    let program = &*recipe.apply_precision(program)?;
    let evaluate = recipe.evaluate.as_ref().ok_or_else(|| {
        Diagnostic::new("the recipe has no evaluation")
            .help("give `Recipe::evaluate` a function and its metrics")
    })?;
    let mut evaluation = Evaluation::new(evaluate, program, recipe, data, options)?;
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
    let metrics = evaluation.run(session, None, None)?;
    Ok(Evaluated { examples: evaluation.count(), metrics })
}
