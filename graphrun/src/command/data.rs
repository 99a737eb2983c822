//! `graphrun data inspect`: the arrays of a data set.

use crate::cli::{DataCommand, DataCommandArgs, DataInspectArgs};
use crate::console::{Console, Outcome, Status};
use crate::table::{Table, counted, grouped};
use serde_json::{Map, Value, json};
use std::path::Path;
use wengert::Scalar;
use wengert::data::source::{Opened, Opening, open};
use wengert::data::summary::{Summary, summarize};

/// Classes of an array that are printed.
const SHOWN: usize = 20;

/// Runs a command about data.
pub fn run(args: &DataCommandArgs, console: &mut Console<'_>) -> Outcome {
    match &args.command {
        DataCommand::Inspect(args) => inspect(args, console),
    }
}

/// Opens data, and warns of what is left out.
pub(super) fn opened(path: &Path, opening: &Opening, console: &mut Console<'_>) -> Outcome<Opened> {
    let opened = open(path, opening)?;
    for skipped in &opened.skipped {
        console.warn(skipped);
    }
    Ok(opened)
}

fn inspect(args: &DataInspectArgs, console: &mut Console<'_>) -> Outcome {
    let opened = opened(&args.data, &args.source.opening(&args.reading), console)?;
    let source = &*opened.source;
    let names: Vec<String> = source.arrays().into_keys().collect();
    let mut found = Vec::new();
    for name in names {
        let summary = summarize(source, &name)?;
        found.push((name, summary));
    }
    if args.json {
        let arrays: Map<String, Value> =
            found.iter().map(|(name, summary)| (name.clone(), as_json(summary))).collect();
        console.line(json!({
            "data": args.data.display().to_string(),
            "arrays": arrays,
            "skipped": opened.skipped.iter().map(|s| s.message.clone()).collect::<Vec<_>>(),
        }))?;
        return Ok(Status::Good);
    }
    console.line(format_args!("{}: {}", args.data.display(), counted(found.len(), "array")))?;
    let mut table =
        Table::new(2, ["array", "type", "least", "greatest", "mean", "NaN", "infinite"]);
    let text = |number: Option<Scalar>| number.map_or("-".into(), |n| n.to_string());
    for (name, summary) in &found {
        table.row([
            name.clone(),
            summary.ty.to_string(),
            text(summary.least),
            text(summary.greatest),
            summary.mean.map_or("-".into(), |mean| format!("{mean:.6}")),
            grouped(summary.nan),
            grouped(summary.infinite),
        ]);
    }
    console.text(table)?;
    for (name, summary) in &found {
        if let Some(classes) = summary.classes.as_ref().filter(|classes| !classes.is_empty()) {
            let mut parts: Vec<String> = classes
                .iter()
                .take(SHOWN)
                .map(|(class, count)| format!("{class} ({})", grouped(*count)))
                .collect();
            if classes.len() > SHOWN {
                parts.push(format!("… {} more", classes.len() - SHOWN));
            }
            console.line(format_args!("classes of {name}: {}", parts.join(", ")))?;
        }
    }
    for (name, summary) in &found {
        for (row, elements) in &summary.samples {
            let mut elements: Vec<String> = elements.iter().map(Scalar::to_string).collect();
            if summary.ty.width() > elements.len() {
                elements.push("…".into());
            }
            console.line(format_args!("{name}[{row}]: {}", elements.join(" ")))?;
        }
    }
    Ok(Status::Good)
}

fn as_json(summary: &Summary) -> Value {
    let number = |scalar: Scalar| match scalar.dtype().is_real() {
        true => float(scalar.to_f64()),
        false => scalar.to_string().parse().unwrap_or(Value::Null),
    };
    let classes = summary.classes.as_ref().map(|classes| {
        classes
            .iter()
            .map(|(class, count)| (class.to_string(), json!(count)))
            .collect::<Map<_, _>>()
    });
    let samples: Vec<Value> = (summary.samples.iter())
        .map(|(row, elements)| {
            let elements: Vec<Value> = elements.iter().map(|e| number(*e)).collect();
            json!({ "row": row, "elements": elements })
        })
        .collect();
    json!({
        "dtype": summary.ty.dtype.to_string(),
        "shape": summary.ty.shape,
        "least": summary.least.map(number),
        "greatest": summary.greatest.map(number),
        "mean": summary.mean,
        "nan": summary.nan,
        "infinite": summary.infinite,
        "classes": classes,
        "samples": samples,
    })
}

/// JSON has no NaN and no infinity, so they are strings.
fn float(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => number.into(),
        None => value.to_string().into(),
    }
}
