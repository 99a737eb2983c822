//! `graphrun inspect`: what is in a file. Functions with their signatures and sizes, and variables
//! as a tree of modules with shapes, parameters, bytes and operations.

mod interface;
mod sizes;
mod tree;

use crate::cli::InspectArgs;
use crate::console::{Console, Outcome, Status};
use crate::module_tree::Variable;
use crate::source::{Contents, Source};
use crate::table::{Table, counted, grouped};
use interface::{
    all_variables, binding_json, interface, interface_json, is_variable, open_dimensions,
    variables_of,
};
use serde_json::{Map, Value, json};
use sizes::Sizes;
use std::path::Path;
use tree::{modules_json, totals, tree, variables_json};
use wengert::core::plan::account::{AccountText, Bytes};
use wengert::core::plan::{Plan, account};
use wengert::data::safetensors::SafetensorsFile;
use wengert::signature::Signature;
use wengert::{Binding, GraphFile, Weights, diagnostic};

/// The most functions whose operations are columns of the tree.
const COLUMNS: usize = 4;

/// Prints the contents of the file.
pub fn run(args: &InspectArgs, console: &mut Console<'_>) -> Outcome {
    let path = Path::new(&args.file);
    let contents = if path.extension().is_some_and(|e| e == "safetensors") {
        if !args.binds.is_empty() {
            return Err(diagnostic!("`{}` has no dimension variables", path.display())
                .help("--bind goes with a .graph or .ir file")
                .into());
        }
        of_tensors(path)?
    } else {
        let source = Source::read_with(&args.file, &args.model, &args.binds, console)?;
        match &source.contents {
            Contents::Program(file) => of_program(&source, file, &args.binds)?,
            Contents::Plan(_) if !args.binds.is_empty() => {
                return Err(diagnostic!(
                    "`{}` is compiled: its dimensions are numbers",
                    source.path.display()
                )
                .help("--bind goes with a .graph or .ir file")
                .into());
            }
            Contents::Plan(plans) => of_plans(&source.path, plans),
        }
    };
    match args.json {
        true => console.line(contents.json)?,
        false => console.text(contents.text)?,
    }
    Ok(Status::Good)
}

/// The contents of a file in both forms.
struct Shown {
    text: String,
    json: Value,
}
fn of_tensors(path: &Path) -> Outcome<Shown> {
    let file = SafetensorsFile::open(path)?;
    let mut names: Vec<&str> = file.names().collect();
    // `layers.2` comes before `layers.10`.
    names.sort_by_key(|name| {
        name.split('.')
            .map(|part| (part.parse::<u64>().map_or(u64::MAX, |n| n), part))
            .collect::<Vec<_>>()
    });
    let variables = names
        .into_iter()
        .map(|name| Ok(Variable::new(name, &file.ty(name)?)))
        .collect::<Outcome<Vec<_>>>()?;
    let (total, elements, bytes) = totals(&variables);
    let total = total.replace("variable", "tensor");
    Ok(Shown {
        text: format!("{}: {total}\n{}", path.display(), tree(&variables, &[])),
        json: json!({
            "variables": variables_json(&variables),
            "modules": modules_json(&variables, &[]),
            "parameters": elements,
            "bytes": bytes,
        }),
    })
}

fn of_plans(path: &Path, plans: &[impl std::ops::Deref<Target = Plan>]) -> Shown {
    let first: &Plan = &plans[0];
    let signature = Signature::of_plan(first);
    let variables = variables_of(&signature);
    let (total, elements, bytes) = totals(&variables);
    let binding = match first.binding.is_empty() {
        true => String::new(),
        false => format!(" with {}", first.binding),
    };
    let mut text = format!(
        "{}: {} of @{}{binding} for {}, {total}\n\n{}\n{}",
        path.display(),
        counted(plans.len(), "plan"),
        first.function,
        first.target.name,
        interface(&signature),
        tree(&variables, &[]),
    );
    let mut listed = Vec::new();
    for plan in plans {
        let memory = account(plan);
        let mut steps = 0usize;
        plan.visit(&mut |_| steps += 1);
        text += &format!("\n{}, {}", counted(steps, "step"), AccountText(plan, &memory));
        listed.push(json!({ "steps": steps, "memory": memory.total() }));
    }
    let json = json!({
        "functions": [interface_json(&signature)],
        "target": first.target.name.to_string(),
        "binding": binding_json(&first.binding),
        "plans": listed,
        "variables": variables_json(&variables),
        "modules": modules_json(&variables, &[]),
        "parameters": elements,
        "bytes": bytes,
    });
    Shown { text, json }
}

fn of_program(source: &Source, file: &GraphFile, binds: &[String]) -> Outcome<Shown> {
    let binding = source.binding(binds)?;
    let functions = source.functions(&binding)?;
    let sizes: Vec<Sizes> =
        functions.iter().map(|function| Sizes::of(function, &binding)).collect();
    let variables = all_variables(&functions, &binding);
    let (total, elements, bytes) = totals(&variables);

    let recipe = if file.recipe.is_some() { ", a recipe" } else { "" };
    let weights = match &file.weights {
        Weights::None => String::new(),
        Weights::Inline(arrays) => format!(", weights ({})", counted(arrays.len(), "tensor")),
        Weights::File(name) => format!(", weights in `{name}`"),
    };
    let path = source.path.display();
    let count = counted(functions.len(), "function");
    let mut text = format!("{path}: {count}, {total}{recipe}{weights}\n");
    let open = open_dimensions(&functions);
    for (name, users) in &open {
        let users: Vec<String> = users.iter().map(|user| format!("@{user}")).collect();
        text += &format!("dimension variable {name}: in {}\n", users.join(", "));
    }

    let mut table = Table::new(1, ["function", "equations", "kernels", "operations", "memory"]);
    let mut assumed = Binding::new();
    let mut notes = String::new();
    for (function, size) in functions.iter().zip(&sizes) {
        size.assumed.iter().for_each(|(name, value)| {
            // Every value is 1, so the names cannot conflict.
            let _ = assumed.insert(name, value);
        });
        let measured = match &size.compiled {
            Ok(compiled) => [
                grouped(compiled.kernels as u64),
                grouped(compiled.operations()),
                Bytes(compiled.memory).to_string(),
            ],
            Err(error) => {
                notes += &format!("@{} cannot be measured: {error}\n", function.name);
                ["?", "?", "?"].map(String::from)
            }
        };
        let name = [format!("@{}", function.name), grouped(size.equations as u64)];
        table.row(name.into_iter().chain(measured));
    }
    text += &format!("\n{table}");
    if !assumed.is_empty() {
        let names: Vec<String> = assumed.iter().map(|(name, n)| format!("{name}={n}")).collect();
        text += &format!(
            "sizes are for {}; choose others by `--bind {}=NUMBER`\n",
            names.join(", "),
            assumed.iter().next().map_or("", |(name, _)| name)
        );
    }
    text += &notes;
    text += "\n";
    for function in &functions {
        text += &format!("{}\n", interface(&Signature::of_function(function)));
    }

    let with_modules = functions.iter().zip(&sizes).filter_map(|(function, size)| {
        let takes = function.inputs.iter().any(is_variable);
        let compiled = size.compiled.as_ref().ok().filter(|_| takes)?;
        Some((function.name.clone(), &compiled.by_module))
    });
    let columns: Vec<_> = with_modules.collect();
    let marked: Vec<_> =
        columns.iter().map(|(name, counts)| (format!("@{name}"), *counts)).collect();
    match columns.len() {
        ..=COLUMNS => text += &tree(&variables, &marked),
        _ => {
            text += &tree(&variables, &[]);
            text += &format!("operations of modules: `graphrun inspect {path}@FUNC`\n");
        }
    }

    let functions_json: Vec<Value> = functions
        .iter()
        .zip(&sizes)
        .map(|(function, size)| {
            let mut object = interface_json(&Signature::of_function(function));
            object["equations"] = json!(size.equations);
            match &size.compiled {
                Ok(compiled) => {
                    object["kernels"] = json!(compiled.kernels);
                    object["operations"] = json!(compiled.operations());
                    object["memory"] = json!(compiled.memory);
                }
                Err(error) => object["error"] = json!(error.message),
            }
            object
        })
        .collect();
    let dimensions: Map<String, Value> =
        open.iter().map(|(name, users)| (name.clone(), json!(users))).collect();
    let chosen = binding.iter().fold(assumed, |all, (name, n)| all.with(name, n));
    let json = json!({
        "functions": functions_json,
        "dimensions": dimensions,
        "binding": binding_json(&chosen),
        "variables": variables_json(&variables),
        "modules": modules_json(&variables, &columns),
        "parameters": elements,
        "bytes": bytes,
        "recipe": file.recipe.is_some(),
    });
    Ok(Shown { text, json })
}
