//! `graphrun nan`: the first equation that makes a non-finite value.

use crate::cli::NanArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::draw_case;
use crate::source::Source;
use serde_json::{Value, json};
use wengert::isolate::nan::{Finding, Made, first_non_finite};

/// Runs the function in the interpreter. Inputs without a value are random, and unbound dimension
/// variables are small.
pub fn run(args: &NanArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of_case(&args.case, console)?;
    let function = source.function()?;
    let drawn = draw_case(&source, &args.case)?;
    let found = first_non_finite(&drawn.function, &drawn.inputs)
        .map_err(|error| source.shown(error, console))?;
    if args.json {
        console.line(to_json(&function.name, found.as_ref()))?;
    } else {
        console.line(text(&function.name, found.as_ref()))?;
    }
    Ok(if found.is_some() { Status::Failed } else { Status::Good })
}

fn text(name: &str, found: Option<&Finding>) -> String {
    match found {
        None => format!("@{name}: no equation makes a NaN or an infinity"),
        Some(Finding::Input { name: input, index, value }) => {
            format!("@{name}: {} of the input `{input}` is {value}", place(index))
        }
        Some(Finding::Equation(made)) => {
            let Made { origin, frames, result, ty, index, value, elements, operands } = made;
            let results =
                if *result > 0 { format!("result {result}") } else { "the result".into() };
            let mut lines = vec![
                format!("@{name}: {origin} makes {value}"),
                format!(
                    "  {} of {results}, {ty}, in which {elements} of {} elements are not finite",
                    place(index),
                    ty.elements().unwrap_or_default()
                ),
            ];
            lines.extend(frames.iter().rev().map(|frame| format!("  in {frame}")));
            let operands = operands.iter().enumerate();
            lines.extend(operands.map(|(n, operand)| format!("  operand {n}: {operand}")));
            lines.join("\n")
        }
    }
}

fn place(index: &[usize]) -> String {
    if index.is_empty() { "the element".into() } else { format!("element {index:?}") }
}

fn to_json(name: &str, found: Option<&Finding>) -> Value {
    let finding = match found {
        None => Value::Null,
        Some(Finding::Input { name, index, value }) => {
            json!({ "input": name, "index": index, "value": value.to_string() })
        }
        Some(Finding::Equation(made)) => {
            let frames: Vec<Value> = made
                .frames
                .iter()
                .map(|frame| {
                    json!({
                        "op": frame.op, "source": frame.line, "region": frame.region,
                        "step": frame.step,
                    })
                })
                .collect();
            let operands: Vec<String> = made.operands.iter().map(ToString::to_string).collect();
            json!({
                "op": made.origin.op, "source": made.origin.location.to_string(),
                "derived": made.origin.description, "frames": frames, "result": made.result,
                "type": made.ty.to_string(), "index": made.index,
                "value": made.value.to_string(), "elements": made.elements,
                "operands": operands,
            })
        }
    };
    json!({ "function": name, "finding": finding })
}
