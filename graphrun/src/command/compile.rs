//! `graphrun compile`: a function for a target and given extents, as a plan in a file.

use crate::cli::CompileArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, bindings, target};
use wengert::pipeline::{self, Options};
use wengert::{Diagnostic, format};

/// Writes the plan.
pub fn run(args: &CompileArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read(&args.function.file, console)?;
    let function = source.function()?;
    let target = target(&args.target)?;
    if args.out.extension().is_none_or(|e| e != "plan") {
        return Err(Diagnostic::new(format!("`{}` is no name for a plan", args.out.display()))
            .help("names of plans end in .plan")
            .into());
    }
    let binding = bindings(&args.function.binds)?;
    if let Some((name, _)) = binding.iter().find(|(name, _)| !function.variables().contains(*name)) {
        return Err(
            Diagnostic::new(format!("`@{}` has no dimension variable `{name}`", function.name)).into()
        );
    }
    let program = &source.file()?.program;
    let plan = pipeline::compile(program, &function.name, &binding, &target, &Options::default())?;
    format::plan::write(&args.out, &plan)?;
    let with = if binding.is_empty() { String::new() } else { format!(" with {binding}") };
    console.line(format_args!(
        "@{} compiled for {}{with}: {} steps, {} nests, arena of {} bytes; written to {}",
        function.name,
        target.name,
        plan.steps.len(),
        plan.nests.len(),
        plan.arena,
        args.out.display()
    ))?;
    Ok(Status::Good)
}
