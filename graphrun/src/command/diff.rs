//! `graphrun diff`: the differences of two programs or two plans.

use crate::cli::DiffArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::{Contents, Source};
use serde_json::{Value, json};
use wengert::core::graph::Program;
use wengert::diagnostic;
use wengert::isolate::diff::{Change, Item, functions, plans, programs};

/// Compares two files of one kind.
pub fn run(args: &DiffArgs, console: &mut Console<'_>) -> Outcome {
    let (from, to) = (Source::read(&args.from, console)?, Source::read(&args.to, console)?);
    let all: Vec<(String, Vec<Change>)> = match (&from.contents, &to.contents) {
        (Contents::Program(a), Contents::Program(b)) => match (from.selected(), to.selected()) {
            (None, None) => programs(&a.program, &b.program),
            _ => {
                let (a, b) = (chosen(&from, &to, &a.program)?, chosen(&to, &from, &b.program)?);
                vec![(a.name.clone(), functions(a, b))]
            }
        },
        (Contents::Plan(a), Contents::Plan(b)) => {
            let mut all = Vec::new();
            for n in 0..a.len().max(b.len()) {
                let name = format!("plan {n}");
                let changes = match (a.get(n), b.get(n)) {
                    (Some(a), Some(b)) => plans(a, b),
                    (Some(_), None) => vec![Change::Removed(item(&name))],
                    _ => vec![Change::Added(item(&name))],
                };
                all.push((name, changes));
            }
            all
        }
        _ => {
            let (from, to) = (from.path.display(), to.path.display());
            return Err(diagnostic!("`{from}` and `{to}` are a program and a plan")
                .help("compare two programs, or two plans: `graphrun compile` makes plans")
                .into());
        }
    };
    let differ = all.iter().any(|(_, changes)| !changes.is_empty());
    if args.json {
        let all: Vec<Value> = all.iter().map(|(name, changes)| to_json(name, changes)).collect();
        console.line(Value::Array(all))?;
    } else {
        let is_program = matches!(from.contents, Contents::Program(_));
        let sigil = if is_program { "@" } else { "" };
        for (name, changes) in all.iter().filter(|(_, changes)| !changes.is_empty()) {
            console.line(format_args!("{sigil}{name}"))?;
            changes.iter().try_for_each(|change| console.line(format_args!("  {change}")))?;
        }
        if !differ {
            console.line("no difference")?;
        }
    }
    Ok(if differ { Status::Failed } else { Status::Good })
}

fn item(text: &str) -> Item {
    Item { text: text.into(), origin: None }
}

/// The function that an argument names, or that of the same name as in the other file.
fn chosen<'a>(
    source: &'a Source,
    other: &Source,
    program: &'a Program,
) -> Outcome<&'a wengert::core::graph::Function> {
    match (source.selected(), other.selected()) {
        (None, Some(name)) if program.get(name).is_ok() => Ok(program.get(name)?),
        _ => source.function(),
    }
}

fn to_json(name: &str, changes: &[Change]) -> Value {
    let source = |item: &Item| item.origin.as_ref().map(|origin| origin.description.clone());
    let change = |change: &Change| match change {
        Change::Removed(item) => {
            json!({ "kind": "removed", "text": item.text, "source": source(item) })
        }
        Change::Added(item) => {
            json!({ "kind": "added", "text": item.text, "source": source(item) })
        }
        Change::Changed { from, to, how } => json!({
            "kind": "changed", "text": from.text, "source": source(from),
            "now": to.text, "now_source": source(to), "how": how,
        }),
    };
    let changes: Vec<Value> = changes.iter().map(change).collect();
    json!({ "name": name, "changes": changes })
}
