//! `graphrun merge`: weights with their trained updates of low rank.

use crate::cli::MergeArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use crate::table::counted;
use std::collections::BTreeSet;
use std::path::Path;
use wengert::core::graph::{Function, InputRole};
use wengert::data::{self, Format};
use wengert::lora::{self, is_of_adapter};
use wengert::{Weights, diagnostic};

/// Writes the model without updates, or its weights.
pub fn run(args: &MergeArgs, console: &mut Console<'_>) -> Outcome {
    let out = args.out.display();
    let is_graph = args.out.extension().is_some_and(|extension| extension == "graph");
    if !is_graph && !Format::of(&args.out).is_ok_and(Format::holds_several) {
        return Err(diagnostic!("`{out}` is no name for merged weights")
            .help("names end in .safetensors or .npz, or in .graph for the model with its weights")
            .into());
    }
    let source = Source::read(&args.file, console)?;
    for (what, path) in [("model", &source.path), ("weights", &args.params)] {
        if is_same(path, &args.out) {
            return Err(diagnostic!("`{out}` has the {what} to merge")
                .help("give the output another name")
                .into());
        }
    }
    let functions = functions(&source)?;
    let mut weights = source.weights()?;
    // The updates in the file are those before training.
    weights.retain(|path, _| !is_of_adapter(path));
    weights.extend(data::read_all_within(&args.params, args.reading.limit())?);
    let merged = lora::merged(&functions, &weights).map_err(|error| {
        let (weights, model) = (args.params.display(), source.path.display());
        error.context(format_args!("cannot merge `{weights}` for `{model}`"))
    })?;
    let Weights::Inline(arrays) = &merged.weights else { unreachable!("they are merged") };
    match is_graph {
        true => merged.write(&args.out)?,
        false => data::write_all(&args.out, arrays.iter().map(|(k, v)| (k.as_str(), v)))?,
    }
    let adapters: BTreeSet<&str> = functions.iter().copied().flat_map(adapters).collect();
    let names: Vec<String> = functions.iter().map(|f| format!("@{}", f.name)).collect();
    console.line(format_args!(
        "{} merged, {} of {} written to {out}",
        counted(adapters.len() / 2, "update"),
        counted(arrays.len(), "parameter"),
        names.join(", ")
    ))?;
    Ok(Status::Good)
}

/// The selected function, or those with adapters that no recipe names.
fn functions(source: &Source) -> Outcome<Vec<&Function>> {
    if source.selected().is_some() {
        return Ok(vec![source.function()?]);
    }
    let mut found = source.beside_recipe()?;
    found.retain(|function| adapters(function).next().is_some());
    match found.is_empty() {
        true => Err(diagnostic!("`{}` has no function with adapters", source.path.display())
            .help("take the file that `graphrun import --train --lora` wrote")
            .into()),
        false => Ok(found),
    }
}

/// The parameters of a function's adapters.
fn adapters(function: &Function) -> impl Iterator<Item = &str> {
    let inputs = function.inputs.iter().filter(|input| input.role == InputRole::Param);
    inputs.map(|input| input.name.as_str()).filter(|name| is_of_adapter(name))
}

/// Whether two paths are one file that is there.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
