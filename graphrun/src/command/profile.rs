//! `graphrun profile`: predicted times of kernels.

use crate::cli::ProfileArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use crate::table::Table;
use serde_json::{Value, json};
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{HEADER, Options, Predicted, Row, architecture, card, predict};
use wengert::{diagnostic, pipeline, target};

/// Compiles the function for the card, and predicts its plan.
pub fn run(args: &ProfileArgs, console: &mut Console<'_>) -> Outcome {
    let card = card(&args.machine)?;
    if args.device != "emulator" {
        return Err(diagnostic!("`{}` cannot run a sample of the kernels of a GPU", args.device)
            .help("leave out --device; `graphrun run --profile N` times kernels of the CPU")
            .into());
    }
    let tools = Tools::find()?;
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let (program, function) = (&source.file()?.program, source.function()?);
    let binding = source.binding(&args.function.binds)?;
    source.functions(&binding)?;
    let target = args.functions.of(target(&architecture(card)?.name())?);
    let options = pipeline::Options::default();
    let plan = pipeline::compile(program, &function.name, &binding, &target, &options)?;
    let options = Options { blocks: args.blocks, library: !args.no_library, waves: true };
    let predicted = predict(&plan, card, options, &tools)?;
    match args.json {
        true => console.line(to_json(&predicted))?,
        false => console.line(text(&predicted).trim_end())?,
    }
    let assumed: Vec<String> = card.assumptions().into_iter().map(|(name, _)| name).collect();
    if !args.json && !assumed.is_empty() {
        console.note(format_args!("figures without a published source: {}", assumed.join("; ")));
    }
    Ok(Status::Good)
}

fn text(predicted: &Predicted) -> String {
    let mut table = Table::new(2, HEADER);
    for row in &predicted.rows {
        table.row(row.cells(predicted.seconds()));
    }
    let mut text = table.to_string();
    let (copies, bytes) = predicted.copies;
    if copies > 0 {
        text += &format!("{copies} copies, {:.2} MB\n", bytes as f64 / 1e6);
    }
    for why in &predicted.unknown {
        text += &format!("not predicted: {why}\n");
    }
    let launches = predicted.rows.iter().map(|row| row.times).sum::<u64>() + copies;
    text += &format!(
        "{launches} launches, {:.4} ms predicted on {}\n",
        1e3 * predicted.seconds(),
        predicted.card.product
    );
    text
}

fn to_json(predicted: &Predicted) -> Value {
    let assumed = predicted.card.assumptions();
    let assumed = assumed.into_iter().map(|(name, figure)| {
        json!({ "figure": name, "value": figure.value, "reason": figure.source.text() })
    });
    json!({
        "machine": predicted.card.name,
        "seconds": predicted.seconds(),
        "kernels": predicted.rows.iter().map(row_json).collect::<Vec<_>>(),
        "copies": predicted.copies.0,
        "copied_bytes": predicted.copies.1,
        "not_predicted": predicted.unknown,
        "assumed": assumed.collect::<Vec<_>>(),
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "kernel": row.kernel,
        "origin": row.origin,
        "times": row.times,
        "blocks": row.blocks,
        "threads": row.threads,
        "registers": row.registers,
        "shared": row.shared,
        "spills": [row.spills.0, row.spills.1],
        "occupancy": row.occupancy.map(|found| found.percent()),
        "memory": row.memory,
        "read": row.device_memory.0,
        "written": row.device_memory.1,
        "sectors_per_request": row.sectors,
        "instructions": row.instructions,
        "seconds": row.seconds,
        "limiter": row.limiter.name(),
        "misfit": row.misfit,
    })
}
