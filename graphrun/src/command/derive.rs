//! Derivatives of functions in files: `graphrun grad`, `jvp`, `jacobian`, `hessian`, `hvp`,
//! `jet`, `linearize`, `transpose`.

use crate::cli::{GradArgs, HessianArgs, JacobianArgs, JetArgs, WrtArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use std::path::Path;
use wengert::autodiff::function::{self, Derived, Grad, Halves, Hessian, Jacobian, Jet, Jvp};
use wengert::core::graph::{Program, verify};
use wengert::{Diagnostic, GraphFile, Result};

/// Writes the gradient of a function.
pub fn grad(args: &GradArgs, console: &mut Console<'_>) -> Outcome {
    let (of, value, seed) = (args.of.as_deref(), args.value, args.seed);
    if args.split {
        return halves(&args.what, console, |program, name, wrt| {
            function::split(program, name, &Grad { of, wrt, ..Grad::default() })
        });
    }
    one(&args.what, console, |program, name, wrt| {
        function::grad(program, name, &Grad { of, wrt, value, seed })
    })
}

/// Writes the forward derivative of a function.
pub fn jvp(args: &WrtArgs, console: &mut Console<'_>) -> Outcome {
    one(args, console, |program, name, wrt| function::jvp(program, name, &Jvp { wrt }))
}

/// Writes a function and its linear program.
pub fn linearize(args: &WrtArgs, console: &mut Console<'_>) -> Outcome {
    halves(args, console, |program, name, wrt| function::linearize(program, name, &Jvp { wrt }))
}

/// Writes the Jacobian of a function.
pub fn jacobian(args: &JacobianArgs, console: &mut Console<'_>) -> Outcome {
    let (of, value, forward) = (args.of.as_deref(), args.value, args.forward);
    one(&args.what, console, |program, name, wrt| {
        function::jacobian(program, name, &Jacobian { of, wrt, value, forward })
    })
}

/// Writes the Hessian of a function.
pub fn hessian(args: &HessianArgs, console: &mut Console<'_>) -> Outcome {
    let (of, value) = (args.of.as_deref(), args.value);
    one(&args.what, console, |program, name, wrt| {
        function::hessian(program, name, &Hessian { of, wrt, value })
    })
}

/// Writes the product of a function's Hessian with a tangent.
pub fn hvp(args: &HessianArgs, console: &mut Console<'_>) -> Outcome {
    let (of, value) = (args.of.as_deref(), args.value);
    one(&args.what, console, |program, name, wrt| {
        function::hvp(program, name, &Hessian { of, wrt, value })
    })
}

/// Writes the derivatives of a function along a curve.
pub fn jet(args: &JetArgs, console: &mut Console<'_>) -> Outcome {
    let order = usize::from(args.order);
    one(&args.what, console, |program, name, wrt| function::jet(program, name, &Jet { wrt, order }))
}

/// Writes the transpose of a linear function.
pub fn transpose(args: &WrtArgs, console: &mut Console<'_>) -> Outcome {
    one(args, console, function::transpose)
}

/// Writes the one function that a transform returns.
fn one(
    args: &WrtArgs,
    console: &mut Console<'_>,
    derive: impl FnOnce(&Program, &str, &[&str]) -> Result<Derived>,
) -> Outcome {
    let (source, derived) = derived(args, console, derive)?;
    let program = Program::from_functions(vec![derived.function])?;
    write(&source, args.out.as_deref(), console, program, &derived.warnings, &[])
}

/// Writes the two functions that a transform returns, and lists the residuals that the first
/// passes to the second.
fn halves(
    args: &WrtArgs,
    console: &mut Console<'_>,
    derive: impl FnOnce(&Program, &str, &[&str]) -> Result<Halves>,
) -> Outcome {
    let (source, halves) = derived(args, console, derive)?;
    let residuals = halves.residuals.to_string();
    let title = format!("residuals that @{} reads:", halves.derivative.name);
    let lines: Vec<String> =
        std::iter::once(title).chain(residuals.lines().map(String::from)).collect();
    let program = Program::from_functions(vec![halves.forward, halves.derivative])?;
    write(&source, args.out.as_deref(), console, program, &halves.warnings, &lines)
}

fn derived<T>(
    args: &WrtArgs,
    console: &Console<'_>,
    derive: impl FnOnce(&Program, &str, &[&str]) -> Result<T>,
) -> Outcome<(Source, T)> {
    let source = Source::read_with(&args.file, &args.model, &[], console)?;
    let name = source.function()?.name.clone();
    let wrt: Vec<&str> = args.wrt.iter().map(String::as_str).collect();
    let derived = derive(&source.file()?.program, &name, &wrt)
        .map_err(|error| source.shown(error, console))?;
    Ok((source, derived))
}

/// Prints the derived functions, or writes them to a file; then prints notes about them.
pub(super) fn write(
    source: &Source,
    out: Option<&Path>,
    console: &mut Console<'_>,
    program: Program,
    warnings: &[Diagnostic],
    notes: &[String],
) -> Outcome {
    for warning in warnings {
        console.warn(&source.shown(warning.clone(), console));
    }
    let names: Vec<String> = program.functions().iter().map(|f| format!("@{}", f.name)).collect();
    program
        .functions()
        .iter()
        .for_each(|f| verify(f).expect("what is derived of functions is valid"));
    match out {
        None => {
            for (i, function) in program.functions().iter().enumerate() {
                console.text(if i > 0 { "\n" } else { "" })?;
                console.text(function)?;
            }
            // The output is a program, so notes are comments.
            console.text(if notes.is_empty() { "" } else { "\n" })?;
            notes.iter().try_for_each(|note| console.line(format_args!("// {note}")))?;
        }
        Some(path) => {
            GraphFile::new(program).write(path)?;
            console.line(format_args!("{} written to {}", names.join(" and "), path.display()))?;
            notes.iter().try_for_each(|note| console.line(note))?;
        }
    }
    Ok(Status::Good)
}
