//! `graphrun memory`: the static memory planner on a table of buffers or on those of a function,
//! and the cost of less memory (`frontier`).

use super::frontier;
use crate::cli::MemoryArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, check_bound};
use serde_json::json;
use std::path::Path;
use wengert::memory::{
    Found, Minimized, Problem, Solution, Table, max_load, minimize, picture, within,
};
use wengert::pipeline::{Bound, Options};
use wengert::{Diagnostic, atomic, target};

/// Solves the problem, and writes the solution.
pub fn run(args: &MemoryArgs, console: &mut Console<'_>) -> Outcome {
    if args.frontier {
        return frontier::run(args, console);
    }
    for path in args.out.iter().chain(&args.svg) {
        atomic::can_write(path)?;
    }
    let table = match Path::new(&args.problem).extension().is_some_and(|e| e == "csv" || e == "gz")
    {
        true => {
            no_function(args)?;
            Table::read_within(&args.problem, args.values.reading.limit())?
        }
        false => of_function(args, console)?,
    };
    let problem = table.problem();
    let found = solve(problem, args);
    if let (Some(path), Some(solution)) = (&args.out, &found.solution) {
        table.write(path, solution)?;
    }
    if let (Some(path), Some(solution)) = (&args.svg, &found.solution) {
        let text = picture(problem, solution, &table.names());
        atomic::write_bytes(path, text.as_bytes())?;
    }
    if args.json {
        console.line(format_args!("{}", found.json(problem, args)))?;
    } else {
        found.print(problem, args, console)?;
    }
    Ok(if found.solution.is_some() { Status::Good } else { Status::Failed })
}

/// The buffers of a function's arena.
fn of_function(args: &MemoryArgs, console: &Console<'_>) -> Outcome<Table> {
    let source = Source::read_with(&args.problem, &args.model, &args.binds, console)?
        .in_precision(&args.precision)?;
    let (binding, target) = (source.binding(&args.binds)?, target(&args.target)?);
    let function = source.function()?;
    check_bound(function, &binding)?;
    let bound = Bound::new(function, &binding)?;
    let (problem, names) = bound.buffers(&target, &Options::default())?;
    Ok(Table::new(problem, &names))
}

/// An error if options for functions are used with a table, which is not compiled.
fn no_function(args: &MemoryArgs) -> Outcome<()> {
    let is_plain = args.binds.is_empty() && args.model.given().is_none();
    if is_plain && args.target == "cpu" && args.precision.precision.is_none() {
        return Ok(());
    }
    let path = Path::new(&args.problem).display();
    let text = format!("`{path}` is a table of buffers: nothing is bound in it, or compiled");
    Err(Diagnostic::new(text)
        .help("--bind, --target, --precision and what a model leaves open go with a program")
        .into())
}

/// Result of the planner.
struct Result {
    /// A solution, within the capacity if one is found.
    solution: Option<Solution>,
    /// A lower bound of all solutions.
    bound: u64,
    /// The lowest solution found, if it exceeds the capacity.
    best: Option<u64>,
}

fn solve(problem: &Problem, args: &MemoryArgs) -> Result {
    let Some(capacity) = args.capacity else {
        let Minimized { solution, bound } = minimize(problem, args.effort);
        return Result { solution: Some(solution), bound, best: None };
    };
    let bound = max_load(problem);
    let quick = minimize(problem, 0);
    if quick.solution.height <= capacity {
        return Result { solution: Some(quick.solution), bound, best: None };
    }
    let best = Some(quick.solution.height);
    match within(problem, capacity, &mut args.effort.clone()) {
        Found::Solution(solution) => Result { solution: Some(solution), bound, best: None },
        Found::Nothing => {
            Result { solution: None, bound: bound.max(capacity.saturating_add(1)), best }
        }
        Found::Unknown => Result { solution: None, bound, best },
    }
}

impl Result {
    fn print(
        &self,
        problem: &Problem,
        args: &MemoryArgs,
        console: &mut Console<'_>,
    ) -> Outcome<()> {
        let (count, load) = (problem.buffers.len(), max_load(problem));
        console.line(format_args!("{count} buffers, at most {load} bytes live at a moment"))?;
        let Some(solution) = &self.solution else {
            let capacity = args.capacity.unwrap_or(0);
            return if self.bound > capacity {
                console.line(format_args!(
                    "they do not fit into {capacity} bytes: {} are needed at least",
                    self.bound
                ))
            } else {
                let states = args.effort;
                console.line(format_args!(
                    "no way to fit them into {capacity} bytes was found at {states} states"
                ))?;
                let best = self.best.unwrap_or(0);
                console.line(format_args!(
                    "help: raise --effort, or the capacity: {best} bytes are enough"
                ))
            };
        };
        let ratio = solution.height as f64 / self.bound.max(1) as f64;
        let least = if solution.height == self.bound {
            "the least possible".to_owned()
        } else {
            format!("{ratio:.4} of the bound of {} bytes", self.bound)
        };
        console.line(format_args!("they fit into {} bytes, {least}", solution.height))
    }

    fn json(&self, problem: &Problem, args: &MemoryArgs) -> serde_json::Value {
        json!({
            "buffers": problem.buffers.len(),
            "max_load": max_load(problem),
            "capacity": args.capacity,
            "height": self.solution.as_ref().map(|s| s.height),
            "bound": self.bound,
            "best": self.best,
        })
    }
}
