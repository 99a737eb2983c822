//! `graphrun ops`: the ops, and the attributes and operands of one.

use crate::cli::OpsArgs;
use crate::console::{Console, Outcome, Status};
use serde_json::{Value, json};
use wengert::core::Op;
use wengert::core::op::{COMPOSITES, Composite, Entry};
use wengert::diagnostic;

/// Lists all ops, or explains one.
pub fn run(args: &OpsArgs, console: &mut Console<'_>) -> Outcome {
    let mut entries = Op::catalogue();
    let mut composites: Vec<&Composite> = COMPOSITES.iter().collect();
    if let Some(name) = &args.name {
        let names: Vec<&str> =
            entries.iter().map(|e| e.name).chain(composites.iter().map(|c| c.name)).collect();
        let near = names.iter().copied().filter(|n| n.contains(name.as_str()) || name.contains(n));
        let near: Vec<&str> = near.collect();
        if !names.contains(&name.as_str()) {
            let error = diagnostic!("there is no op `{name}`");
            return Err(match near.is_empty() {
                true => error.help("`graphrun ops` lists all"),
                false => error.help(format!("there is {}", near.join(", "))),
            }
            .into());
        }
        entries.retain(|e| e.name == name);
        composites.retain(|c| c.name == name);
    }
    if args.json {
        let list: Vec<Value> = entries
            .iter()
            .map(to_json)
            .chain(composites.iter().map(|c| composite_to_json(c)))
            .collect();
        console.line(Value::Array(list))?;
    } else if args.name.is_some() {
        entries.iter().try_for_each(|entry| explain(entry, console))?;
        composites.iter().try_for_each(|composite| explain_composite(composite, console))?;
    } else {
        let names = entries.iter().map(|e| e.name).chain(composites.iter().map(|c| c.name));
        let width = names.map(str::len).max().unwrap_or(0);
        let mut line = |name: &str, derivative: &str, formula: &str| {
            console.line(format_args!("{name:<width$}  {derivative:<16}  {formula}"))
        };
        for entry in &entries {
            line(entry.name, entry.derivative, &formula(entry))?;
        }
        for composite in composites {
            let formula = format!("{}: {}", method(composite), composite.doc);
            line(composite.name, COMPOSITE, &formula)?;
        }
    }
    Ok(Status::Good)
}

/// The documentation as one paragraph, without the marks of links.
fn doc(entry: &Entry) -> String {
    let words: Vec<&str> = entry.doc.split_whitespace().collect();
    words.join(" ").replace("[`", "`").replace("`]", "`")
}

/// The first sentence, which is the formula.
fn formula(entry: &Entry) -> String {
    let doc = doc(entry);
    doc.split_once(". ").map_or(doc.trim_end_matches('.'), |(first, _)| first).to_string()
}

fn to_json(entry: &Entry) -> Value {
    json!({
        "name": entry.name,
        "doc": doc(entry),
        "derivative": entry.derivative,
        "attributes": entry.attributes,
        "form": entry.form,
    })
}

fn explain(entry: &Entry, console: &mut Console<'_>) -> Outcome<()> {
    console.line(format_args!("{}: {}", entry.name, doc(entry)))?;
    console.line(format_args!("derivative: {}", entry.derivative))?;
    if !entry.attributes.is_empty() {
        console.line(format_args!("attributes: {}", entry.attributes.join(", ")))?;
    }
    console.line(format_args!("in text: %result = {}", entry.form))
}

/// The kind of derivative of composites of ops.
const COMPOSITE: &str = "composite";

/// The Rust method of a composite.
fn method(composite: &Composite) -> String {
    format!("Tensor::{}", composite.method)
}

fn composite_to_json(composite: &Composite) -> Value {
    json!({
        "name": composite.name,
        "doc": composite.doc,
        "derivative": COMPOSITE,
        "method": method(composite),
        "made_of": composite.ops(),
    })
}

fn explain_composite(composite: &Composite, console: &mut Console<'_>) -> Outcome<()> {
    console.line(format_args!("{}: {}", composite.name, composite.doc))?;
    console.line(format_args!("derivative: {COMPOSITE}"))?;
    console.line(format_args!("no op: in Rust the method {} of a key", method(composite)))?;
    console.line(format_args!(
        "made of: {}",
        composite.ops().into_iter().collect::<Vec<_>>().join(", ")
    ))
}
