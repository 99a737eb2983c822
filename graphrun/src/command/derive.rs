//! `graphrun grad` and `graphrun jvp`: derivatives of functions in files.

use crate::cli::{GradArgs, JvpArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use std::path::Path;
use wengert::GraphFile;
use wengert::autodiff::function::{self, Derived, Grad, Jvp};
use wengert::core::graph::{Program, verify};

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

fn write(derived: Derived, out: Option<&Path>, console: &mut Console<'_>) -> Outcome {
    for warning in &derived.warnings {
        console.warn(warning);
    }
    verify(&derived.function).expect("differentiation makes valid functions");
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
