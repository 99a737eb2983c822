//! `graphrun evaluate`: the metrics of a model on a data set, by the recipe in a file.

use super::data::opened;
use super::train::{metrics_json, recipe_of};
use crate::cli::EvaluateArgs;
use crate::console::{Console, Failure, Outcome, Status};
use crate::policy::with_precision;
use crate::source::{Source, device};
use crate::table::{Table, grouped};
use serde_json::json;
use wengert::train::{Options, TrainError, evaluate};
use wengert::{Diagnostic, Session, data};

/// Evaluates, and prints the metrics.
pub fn run(args: &EvaluateArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    let (device, choices) = device(&args.device)?;
    let mut recipe = with_precision(recipe_of(&source, "evaluated")?, &args.precision)?;
    let Some(evaluation) = &mut recipe.evaluate else {
        let message = format!("the recipe of `{}` has no evaluation", source.path.display());
        return Err(Diagnostic::new(message)
            .help("`graphrun run` runs a function on a batch; an evaluation is `Recipe::evaluate`")
            .into());
    };
    if let Some(name) = source.selected() {
        evaluation.function = name.to_owned();
    }
    let function = evaluation.function.clone();
    let limit = args.data.reading.limit();
    let examples = opened(&args.data.data, &args.data.opening(), console)?.source;
    let mut weights = source.weights()?;
    if let Some(path) = &args.params {
        weights.extend(data::read_all_within(path, limit)?);
    }
    let options = Options {
        weights: Some(&weights),
        weights_file: Some(args.params.as_deref().unwrap_or(&source.path)),
        data_file: Some(&args.data.data),
        allow: args.data.allow(),
        data_threads: args.data.data_threads.map(usize::from),
        ..Options::default()
    };
    let mut session = Session::open_with(device, &choices)?;
    let program = &source.file()?.program;
    let found = evaluate(&mut session, program, &recipe, &*examples, options);
    let found = found.map_err(|error| match error {
        TrainError::Diverged(diagnostic) => Failure::new(Status::Failed, diagnostic),
        TrainError::Failed(diagnostic) | TrainError::Stopped(diagnostic) => diagnostic.into(),
    })?;
    if args.json {
        console.line(json!({
            "function": function,
            "examples": found.examples,
            "metrics": metrics_json(&found.metrics),
        }))?;
        return Ok(Status::Good);
    }
    let s = if found.examples == 1 { "" } else { "s" };
    console.line(format_args!("@{function} on {} example{s}", grouped(found.examples)))?;
    let mut table = Table::new(1, ["metric", "value"]);
    for (name, value) in &found.metrics {
        table.row([name.clone(), format!("{value:.6}")]);
    }
    console.text(table)?;
    Ok(Status::Good)
}
