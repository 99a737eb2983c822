//! `graphrun vmap`: a function on a batch of examples.

use super::derive::write;
use crate::cli::VmapArgs;
use crate::console::{Console, Outcome};
use crate::source::Source;
use wengert::core::graph::Program;
use wengert::core::text::is_name;
use wengert::vmap::function::{Vmap, vmap as vmap_of};
use wengert::{Dim, diagnostic};

/// Writes a function on a batch of examples.
pub fn vmap(args: &VmapArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read_with(&args.file, &args.model, &[], console)?;
    let name = &source.function()?.name;
    let inputs: Vec<(&str, usize)> =
        args.inputs.iter().map(|(name, axis)| (name.as_str(), *axis)).collect();
    let size = args.size.as_deref().map(size_of).transpose()?;
    let request = Vmap { inputs: &inputs, size, out_axis: args.out_axis };
    let derived = vmap_of(&source.file()?.program, name, &request)
        .map_err(|error| source.shown(error, console))?;
    let program = Program::from_functions(vec![derived.function])?;
    write(&source, args.out.as_deref(), console, program, &derived.warnings, &[])
}

fn size_of(text: &str) -> wengert::Result<Dim> {
    match text.parse::<i64>() {
        Ok(number) => Ok(Dim::constant(number)),
        Err(_) if is_name(text) => Ok(Dim::variable(text)),
        Err(_) => Err(diagnostic!("`{text}` is no number of examples")
            .help("give a number, or the name of a dimension variable")),
    }
}
