//! `graphrun ops`: the ops, and the attributes and operands of one.

use crate::cli::OpsArgs;
use crate::console::{Console, Outcome, Status};
use serde_json::{Value, json};
use wengert::core::Op;
use wengert::core::op::{COMPOSITES, Composite, Entry};
use wengert::diagnostic;

/// Lists all ops, or explains one.
pub fn run(args: &OpsArgs, console: &mut Console<'_>) -> Outcome {
    let ops = Op::catalogue().into_iter().map(Shown::of_op);
    let mut shown: Vec<Shown> = ops.chain(COMPOSITES.iter().map(Shown::of_composite)).collect();
    if let Some(name) = &args.name {
        let names = shown.iter().map(|op| op.name);
        let near = names.filter(|n| n.contains(name.as_str()) || name.contains(n));
        let near: Vec<&str> = near.collect();
        if !near.contains(&name.as_str()) {
            let error = diagnostic!("there is no op `{name}`");
            return Err(match near.is_empty() {
                true => error.help("`graphrun ops` lists all"),
                false => error.help(format!("there is {}", near.join(", "))),
            }
            .into());
        }
        shown.retain(|op| op.name == name);
    }
    if args.json {
        console.line(Value::Array(shown.into_iter().map(|op| op.json).collect()))?;
    } else if args.name.is_some() {
        shown.iter().flat_map(|op| &op.lines).try_for_each(|line| console.line(line))?;
    } else {
        let width = shown.iter().map(|op| op.name.len()).max().unwrap_or(0);
        for Shown { name, derivative, formula, .. } in &shown {
            console.line(format_args!("{name:<width$}  {derivative:<16}  {formula}"))?;
        }
    }
    Ok(Status::Good)
}

/// An op, or a composite of ops.
struct Shown {
    name: &'static str,
    /// Kind of the derivative.
    derivative: &'static str,
    /// Its formula, for the list of all.
    formula: String,
    /// The explanation.
    lines: Vec<String>,
    json: Value,
}

impl Shown {
    fn of_op(Entry { name, doc, derivative, form, attributes }: Entry) -> Shown {
        // The documentation as one paragraph, without the marks of links.
        let words: Vec<&str> = doc.split_whitespace().collect();
        let doc = words.join(" ").replace("[`", "`").replace("`]", "`");
        // Its first sentence is the formula.
        let first = doc.split_once(". ").map_or(doc.trim_end_matches('.'), |(first, _)| first);
        let mut lines = vec![format!("{name}: {doc}"), format!("derivative: {derivative}")];
        if !attributes.is_empty() {
            lines.push(format!("attributes: {}", attributes.join(", ")));
        }
        lines.push(format!("in text: %result = {form}"));
        let json = json!({
            "name": name,
            "doc": doc,
            "derivative": derivative,
            "attributes": attributes,
            "form": form,
        });
        Shown { name, derivative, formula: first.into(), lines, json }
    }

    fn of_composite(composite: &Composite) -> Shown {
        let Composite { name, doc, .. } = *composite;
        let (derivative, ops) = ("composite", composite.ops());
        let method = format!("Tensor::{}", composite.method);
        let made_of: Vec<&str> = ops.iter().copied().collect();
        let lines = vec![
            format!("{name}: {doc}"),
            format!("derivative: {derivative}"),
            format!("no op: in Rust the method {method} of a key"),
            format!("made of: {}", made_of.join(", ")),
        ];
        let json = json!({
            "name": name,
            "doc": doc,
            "derivative": derivative,
            "method": method,
            "made_of": made_of,
        });
        Shown { name, derivative, formula: format!("{method}: {doc}"), lines, json }
    }
}
