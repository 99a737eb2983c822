//! `graphrun grad`, `graphrun jvp` and `graphrun vmap`: functions made of functions in files.

use crate::cli::{GradArgs, JvpArgs, VmapArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use std::path::Path;
use wengert::GraphFile;
use wengert::autodiff::function::{self, Derived, Grad, Jvp};
use wengert::core::graph::{Program, verify};
use wengert::core::text::is_name;
use wengert::vmap::function::{Vmap, vmap as vmap_of};
use wengert::{Diagnostic, Dim};

/// Writes the gradient of a function.
pub fn grad(args: &GradArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    let name = &source.function()?.name;
    let wrt: Vec<&str> = args.wrt.iter().map(String::as_str).collect();
    let request = Grad { of: args.of.as_deref(), wrt: &wrt, value: args.value, seed: args.seed };
    let derived = function::grad(&source.file()?.program, name, &request)?;
    write(derived, args.out.as_deref(), console)
}

/// Writes the forward derivative of a function.
pub fn jvp(args: &JvpArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    let name = &source.function()?.name;
    let wrt: Vec<&str> = args.wrt.iter().map(String::as_str).collect();
    let derived = function::jvp(&source.file()?.program, name, &Jvp { wrt: &wrt })?;
    write(derived, args.out.as_deref(), console)
}

/// Writes a function on a batch of examples.
pub fn vmap(args: &VmapArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.file, console)?;
    let name = &source.function()?.name;
    let inputs: Vec<(&str, usize)> = args.inputs.iter().map(|(name, axis)| (name.as_str(), *axis)).collect();
    let size = args.size.as_deref().map(size_of).transpose()?;
    let request = Vmap { inputs: &inputs, size, out_axis: args.out_axis };
    write(vmap_of(&source.file()?.program, name, &request)?, args.out.as_deref(), console)
}

fn size_of(text: &str) -> wengert::Result<Dim> {
    match text.parse::<i64>() {
        Ok(number) => Ok(Dim::constant(number)),
        Err(_) if is_name(text) => Ok(Dim::variable(text)),
        Err(_) => Err(Diagnostic::new(format!("`{text}` is no number of examples"))
            .help("give a number, or the name of a dimension variable")),
    }
}

fn write(derived: Derived, out: Option<&Path>, console: &mut Console<'_>) -> Outcome {
    for warning in &derived.warnings {
        console.warn(warning);
    }
    verify(&derived.function).expect("what is made of a function is valid");
    match out {
        None => console.text(&derived.function)?,
        Some(path) => {
            let name = derived.function.name.clone();
            GraphFile::new(Program::from_functions(vec![derived.function])?).write(path)?;
            console.line(format_args!("@{name} written to {}", path.display()))?;
        }
    }
    Ok(Status::Good)
}
