//! `graphrun train`: training by the recipe in a file.

use super::data::opened;
use super::find_rate::Search;
use super::monitoring::{Sets, apply};
use super::ranks::{self, Joined};
use crate::cli::TrainArgs;
use crate::console::{Console, Failure, Outcome, Status};
use crate::interrupt::{Interrupt, resume_command};
use crate::live::TrainingView;
use crate::policy::with_precision;
use crate::source::{Source, device};
use serde_json::{Map, Value, json};
use wengert::recipe::{Cadence, LastBatch, Length};
use wengert::train::event::rate;
use wengert::train::{
    Confusion, Event, Options, Sharding, StepRecord, TensorBoard, TrainError, WEIGHTS, train,
};
use wengert::{Diagnostic, Recipe, Session, data, diagnostic};

/// Trains, and prints a line for each evaluation.
pub fn run(args: &TrainArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    if args.rates.rate_range.is_some() && !args.rates.find_rate {
        return Err(diagnostic!("`--rate-range` is an option of the learning-rate finder")
            .help("add `--find-rate` and leave out `--out`")
            .into());
    }
    if args.rates.find_rate && args.ranks.ranks.is_some_and(|ranks| ranks > 1) {
        return Err(diagnostic!("the learning-rate finder runs on one rank")
            .help("leave out `--ranks`; `--microbatches` may stay")
            .into());
    }
    if args.rates.find_rate && args.ranks.tensor.is_some() {
        return Err(diagnostic!("the learning-rate finder runs on one rank")
            .help("leave out `--tensor` and `--tensor-axis`")
            .into());
    }
    let tensor = args.ranks.tensor()?;
    let (world, share) = match ranks::join(&args.ranks)? {
        Joined::Alone => (None, None),
        Joined::Rank(world, share) => (Some(world), share),
        Joined::Launcher(count) => return ranks::launch(count, console),
    };
    let (device, mut choices) = device(&args.device)?;
    choices.threads = choices.threads.or(share);
    let mut recipe = with_precision(recipe_of(&source, "trained")?, &args.precision)?;
    let sets = Sets::open(&args.monitoring.sets, &args.data, &mut recipe, console)?;
    let sets = sets.data();
    apply(&args.monitoring, &mut recipe);
    recipe.batches.size = args.batch_size.unwrap_or(recipe.batches.size);
    if args.drop_last {
        recipe.batches.last = LastBatch::Drop;
    }
    recipe.microbatches = args.ranks.microbatches.unwrap_or(recipe.microbatches);
    recipe.batches.blocks = args.shuffle_blocks.or(recipe.batches.blocks);
    let limit = args.data.reading.limit();
    let examples = opened(&args.data.data, &args.data.opening(), console)?.source;
    let mut weights = source.weights()?;
    if let Some(path) = &args.params {
        weights.extend(data::read_all_within(path, limit)?);
    }
    let length = args.steps.map(Length::Steps).or(args.epochs.map(Length::Epochs));
    // From here on training may have results to save.
    let interrupt = Interrupt::listen()?;
    let options = Options {
        length,
        folder: args.out.as_deref(),
        resume: args.resume,
        weights: (!weights.is_empty()).then_some(&weights),
        partial: args.partial,
        weights_file: Some(args.params.as_deref().unwrap_or(&source.path)),
        data_file: Some(&args.data.data),
        allow: args.data.allow(),
        sets: &sets,
        data_threads: args.data.data_threads.map(usize::from),
        tensorboard: args.tensorboard.then(|| match args.histograms {
            Some(steps) => TensorBoard { histograms: Cadence::Steps(steps) },
            None => TensorBoard::default(),
        }),
        stop: Some(interrupt.flag()),
        world: world.as_ref(),
        sharding: Sharding::ALL[usize::from(args.ranks.zero)],
        tensor: tensor.as_ref(),
        whole_checkpoints: args.ranks.whole_checkpoints,
    };
    if args.ranks.zero > 0 && world.as_ref().is_none_or(|world| world.size() == 1) {
        console.note("--zero has no effect on one rank, which stores all variables");
    }
    let mut session = Session::open_with(device, &choices)?;
    let Some(out) = &args.out else {
        // The finder alone goes without a folder.
        let (program, data) = (&source.file()?.program, &*examples);
        let (steps, range, is_json) = (args.steps, args.rates.rate_range, args.json);
        let search = Search { program, recipe: &recipe, data, options, steps, range, is_json };
        return search.run(&mut session, &interrupt, console);
    };
    let mut view = TrainingView::new(&console.live);
    // The observer cannot fail; the first output error is kept and returned when training ends.
    let mut broken: Outcome<()> = Ok(());
    let report =
        train(&mut session, &source.file()?.program, &recipe, &*examples, options, &mut |event| {
            view.observe(&event);
            if let Some(warning) = warning(&event) {
                console.warn(&warning);
            }
            if broken.is_ok() {
                let line = if args.json {
                    Some(event_json(&event).to_string())
                } else {
                    event_line(&event)
                };
                if let Some(line) = line {
                    broken = console.line(line);
                }
            }
        });
    view.end();
    if world.as_ref().is_some_and(|world| world.rank() > 0) {
        return ranks::ended(report);
    }
    let report = match report {
        Ok(report) => report,
        Err(TrainError::Diverged(diagnostic)) => {
            return Err(Failure::new(Status::Failed, diagnostic));
        }
        Err(TrainError::Failed(_) | TrainError::Elsewhere(_)) if ranks::is_told(world.as_ref()) => {
            return Err(Failure { status: Status::Device, diagnostic: None });
        }
        Err(TrainError::Failed(diagnostic) | TrainError::Elsewhere(diagnostic)) => {
            return Err(diagnostic.into());
        }
        Err(TrainError::Stopped(diagnostic)) => {
            let (signal, status) = interrupt.signal().unwrap_or(("a signal", Status::Interrupted));
            let command = resume_command();
            console.note(format_args!("{signal}: {}; go on with: {command}", diagnostic.message));
            return Ok(status);
        }
    };
    broken?;
    let weights = out.join(WEIGHTS);
    if args.json {
        console.line(json!({
            "event": "done",
            "steps": report.steps,
            "resumed_at": report.resumed_at,
            "metrics": metrics_json(&report.metrics),
            "weights": weights.display().to_string(),
        }))?;
    } else {
        let metrics = metrics_text(&report.metrics);
        let metrics = if metrics.is_empty() { metrics } else { format!(": {metrics}") };
        console.line(format_args!("{} steps done{metrics}", report.steps))?;
        for (step, value) in &report.best {
            console.line(format_args!("kept as one of the best: step {step}, {value}"))?;
        }
        console.line(format_args!("weights written to {}", weights.display()))?;
    }
    Ok(Status::Good)
}

/// The recipe of a file, which cannot be `done` without one.
pub(super) fn recipe_of<'a>(source: &'a Source, done: &str) -> Outcome<&'a Recipe> {
    source.file()?.recipe.as_ref().ok_or_else(|| {
        diagnostic!("`{}` has no recipe, so it cannot be {done}", source.path.display())
            .help(match source.path.extension() {
                Some(extension) if extension == "onnx" => {
                    "import the model for training: graphrun import MODEL.onnx -o MODEL.graph \
                     --train --loss LOSS"
                }
                _ => {
                    "save the program with a recipe, in a .graph file; `graphrun import --train` \
                     gives a model one"
                }
            })
            .into()
    })
}

fn event_line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Start { step, total, .. } if *step > 0 => {
            Some(format!("going on at step {step} of {total}"))
        }
        Event::Epoch { epoch, loss, last, steps, examples, time } => {
            let mut parts = vec![format!("epoch {}: loss {loss:.6}", epoch + 1)];
            parts.extend(quantities(last));
            parts.push(format!("{:.0} examples/s", rate(*examples, *time)));
            let milliseconds = 1e3 * time.as_secs_f64() / (*steps).max(1) as f64;
            parts.push(format!("{milliseconds:.3} ms/step"));
            Some(parts.join(", "))
        }
        Event::Evaluation { step, set, metrics, matrices, .. } => {
            let set = set.map_or(String::new(), |set| format!("{set}: "));
            let mut text = format!("step {step}: {set}{}", metrics_text(metrics));
            for (name, matrix) in *matrices {
                text = format!("{text}\n{name}, by label and prediction:\n{matrix}");
            }
            Some(text.trim_end().to_owned())
        }
        Event::EarlyStop { step, watched, waited, best, best_step } => Some(format!(
            "stopped early after step {step}: in {waited} evaluation{} `{}` has not improved on \
             {best:.4}, its value after step {best_step}",
            if *waited == 1 { "" } else { "s" },
            watched.metric
        )),
        _ => None,
    }
}

/// The numbers of a step other than loss and times.
fn quantities(record: &StepRecord) -> Vec<String> {
    let mut parts = Vec::new();
    if !record.metrics.is_empty() {
        parts.push(metrics_text(&record.metrics));
    }
    parts.extend(record.grad_norm.map(|norm| format!("gradient norm {norm:.4}")));
    parts.extend(record.learning_rate.map(|rate| format!("learning rate {rate:.3e}")));
    parts.extend(record.loss_scale.map(|scale| format!("loss scale {scale}")));
    if record.skipped {
        parts.push("skipped".into());
    }
    parts
}

/// The message for the error stream, if any.
pub(super) fn warning(event: &Event<'_>) -> Option<Diagnostic> {
    match event {
        Event::Partial { differences } => {
            Some(diagnostic!("the weights do not fit the program: {differences}"))
        }
        Event::Damaged { path, aside, why, from } => Some(
            diagnostic!(
                "`{}` is damaged: {why}; going on from `{}`",
                path.display(),
                from.display()
            )
            .help(format!("the damaged file is `{}` now", aside.display())),
        ),
        _ => None,
    }
}

fn event_json(event: &Event<'_>) -> Value {
    match event {
        Event::Start { step, total, steps_per_epoch } => {
            json!({
                "event": "start",
                "step": step,
                "total": total,
                "steps_per_epoch": steps_per_epoch,
            })
        }
        Event::Step(record) => {
            let fields = record.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
            [("event".to_owned(), json!("step"))].into_iter().chain(fields).collect()
        }
        Event::Epoch { epoch, loss, steps, examples, time, .. } => json!({
            "event": "epoch",
            "epoch": epoch,
            "loss": loss,
            "steps": steps,
            "examples_per_second": rate(*examples, *time),
            "seconds": time.as_secs_f64(),
        }),
        Event::Evaluation { step, epoch, set, metrics, matrices } => {
            let mut value = json!({
                "event": "evaluation",
                "step": step,
                "epoch": epoch,
                "metrics": evaluation_json(metrics, matrices),
            });
            if let Some(set) = set {
                value["set"] = json!(set);
            }
            value
        }
        Event::EarlyStop { step, watched, waited, best, best_step } => json!({
            "event": "early_stop",
            "step": step,
            "watched": watched.metric,
            "waited": waited,
            "best": best,
            "best_step": best_step,
        }),
        Event::Partial { differences } => {
            let unknown: Vec<&String> = differences.unknown.iter().map(|(name, _)| name).collect();
            json!({ "event": "partial", "unknown": unknown, "missing": differences.missing })
        }
        Event::Damaged { path, aside, why, from } => json!({
            "event": "damaged",
            "path": path.display().to_string(),
            "aside": aside.display().to_string(),
            "why": why,
            "from": from.display().to_string(),
        }),
        Event::Checkpoint { step, path } => {
            json!({ "event": "checkpoint", "step": step, "path": path.display().to_string() })
        }
    }
}

fn metrics_text(metrics: &[(String, f64)]) -> String {
    metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
}

/// The values of an evaluation; matrices are lists of rows.
pub(super) fn evaluation_json(
    metrics: &[(String, f64)],
    matrices: &[(String, Confusion)],
) -> Map<String, Value> {
    let rows = |matrix: &Confusion| matrix.rows().map(Value::from).collect::<Vec<Value>>();
    let matrices = matrices.iter().map(|(name, matrix)| (name.clone(), rows(matrix).into()));
    metrics_json(metrics).into_iter().chain(matrices).collect()
}

fn metrics_json(metrics: &[(String, f64)]) -> Map<String, Value> {
    metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}
