//! `graphrun dump`: a program at a stage of compilation, as text.

use crate::cli::{DumpArgs, Stage};
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, bindings};
use wengert::core::graph::PrintOptions;
use wengert::core::graph::print::print_function;
use wengert::{Binding, Diagnostic};

/// Prints the functions.
pub fn run(args: &DumpArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.function.file, console)?;
    let binding = bindings(&args.function.binds)?;
    let functions = source.functions()?;
    if let Some((name, _)) =
        binding.iter().find(|(n, _)| !functions.iter().any(|f| f.variables().contains(*n)))
    {
        return Err(Diagnostic::new(format!("there is no dimension variable `{name}`")).into());
    }
    for (i, function) in functions.into_iter().enumerate() {
        if i > 0 {
            console.line("")?;
        }
        match args.stage {
            Stage::Graph => {
                // With --bind, variables that are bound become numbers; all or none of a function's.
                let options = PrintOptions { locations: args.locs };
                let bound = match of(&binding, function.variables().iter().map(|v| &**v)) {
                    Some(binding) => &function.bind(&binding)?,
                    None => function,
                };
                console.text(print_function(bound, &options))?;
            }
        }
    }
    if args.recipe {
        match &source.file.recipe {
            Some(recipe) => console.text(format_args!("\n{recipe}"))?,
            None => {
                return Err(Diagnostic::new(format!("`{}` has no recipe", source.path.display())).into());
            }
        }
    }
    Ok(Status::Good)
}

/// The part of a binding that concerns some variables; nothing if none is bound.
fn of<'a>(binding: &Binding, variables: impl Iterator<Item = &'a str>) -> Option<Binding> {
    let bound = variables.filter_map(|v| Some((v, binding.get(v)?)));
    let part = bound.fold(Binding::new(), |part, (name, value)| part.with(name, value));
    (!part.is_empty()).then_some(part)
}
