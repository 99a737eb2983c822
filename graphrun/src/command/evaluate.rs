//! `graphrun evaluate`: the metrics of a model on a data set, by the recipe in a file.

use super::data::opened;
use super::monitoring::Sets;
use super::train::{evaluation_json, recipe_of};
use crate::cli::EvaluateArgs;
use crate::console::{Console, Failure, Outcome, Status};
use crate::policy::with_precision;
use crate::source::{Source, device};
use crate::table::{Table, grouped};
use serde_json::json;
use wengert::recipe::Monitoring;
use wengert::train::{Evaluated, Options, TrainError, evaluate_set};
use wengert::{Diagnostic, Session, data};

/// Evaluates, and prints the metrics.
pub fn run(args: &EvaluateArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    let (device, choices) = device(&args.device)?;
    let mut recipe = with_precision(recipe_of(&source, "evaluated")?, &args.precision)?;
    // Nothing is watched where nothing is trained.
    let sets = std::mem::take(&mut recipe.monitoring.sets);
    recipe.monitoring = Monitoring { sets, ..Monitoring::default() };
    let sets = Sets::open(&args.sets, &args.data, &mut recipe, console)?;
    let sets = sets.data();
    if recipe.evaluations().next().is_none() {
        let message = format!("the recipe of `{}` has no evaluation", source.path.display());
        return Err(Diagnostic::new(message)
            .help("`graphrun run` runs a function on a batch; an evaluation is `Recipe::evaluate`")
            .into());
    }
    if let Some(name) = source.selected() {
        let of_sets = recipe.monitoring.sets.iter_mut().map(|set| &mut set.evaluate);
        for evaluate in recipe.evaluate.iter_mut().chain(of_sets) {
            evaluate.function = name.to_owned();
        }
    }
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
        sets: &sets,
        data_threads: args.data.data_threads.map(usize::from),
        ..Options::default()
    };
    let mut session = Session::open_with(device, &choices)?;
    let program = &source.file()?.program;
    let chosen: Vec<Option<&str>> = match args.set.as_deref() {
        Some("-") => vec![None],
        Some(name) => vec![Some(name)],
        None => recipe.evaluations().map(|(set, _)| set).collect(),
    };
    for set in chosen {
        let found = evaluate_set(&mut session, program, &recipe, set, &*examples, options);
        let found = found.map_err(|error| match error {
            TrainError::Diverged(diagnostic) => Failure::new(Status::Failed, diagnostic),
            TrainError::Failed(diagnostic)
            | TrainError::Stopped(diagnostic)
            | TrainError::Elsewhere(diagnostic) => diagnostic.into(),
        })?;
        let of = set.map_or(recipe.evaluate.as_ref(), |name| recipe.set(name));
        let function = of.map_or("", |evaluate| &evaluate.function);
        print(set, function, &found, args.json, console)?;
    }
    Ok(Status::Good)
}

/// Prints the metrics of a set.
fn print(
    set: Option<&str>,
    function: &str,
    found: &Evaluated,
    is_json: bool,
    console: &mut Console<'_>,
) -> Outcome<()> {
    if is_json {
        let mut value = json!({
            "function": function,
            "examples": found.examples,
            "metrics": evaluation_json(&found.metrics, &found.matrices),
        });
        if let Some(set) = set {
            value["set"] = json!(set);
        }
        return console.line(value);
    }
    let s = if found.examples == 1 { "" } else { "s" };
    let of = set.map_or(String::new(), |set| format!(" of set `{set}`"));
    console.line(format_args!("@{function} on {} example{s}{of}", grouped(found.examples)))?;
    let mut table = Table::new(1, ["metric", "value"]);
    for (name, value) in &found.metrics {
        table.row([name.clone(), format!("{value:.6}")]);
    }
    console.text(table)?;
    for (name, matrix) in &found.matrices {
        console.line(format_args!("{name}, by label (rows) and prediction:"))?;
        console.text(matrix)?;
    }
    Ok(())
}
