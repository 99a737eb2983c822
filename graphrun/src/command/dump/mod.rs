//! `graphrun dump`: a program at a stage of compilation, as text.

mod machine_code;

use crate::cli::{DumpArgs, Stage};
use crate::console::{Console, Outcome, Status};
use crate::source::{Contents, Source, check_bound, pair, part};
use std::borrow::Cow;
use wengert::core::graph::Function;
use wengert::core::graph::PrintOptions;
use wengert::core::graph::print::print_function;
use wengert::core::plan::account::AccountText;
use wengert::core::plan::{Plan, account};
use wengert::core::{Target, Verified};
use wengert::kernels::{
    Kernels, Work,
    cost::{Cost, Rates},
};
use wengert::pipeline::{self, Bound, Compiled, Options, compile_kernels, passes};
use wengert::{Binding, Diagnostic, diagnostic, target};

/// Prints the functions.
pub fn run(args: &DumpArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let binding = source.binding(&args.function.binds)?;
    let options = options(args)?;
    let usual = if matches!(args.stage, Stage::Ptx | Stage::Kernels) { "sm_90" } else { "cpu" };
    let target = args.functions.of(target(args.target.as_deref().unwrap_or(usual))?);
    if let Contents::Plan(plans) = &source.contents {
        match args.stage {
            _ if args.memory_budget.is_some() => {
                return Err(diagnostic!("`{}` is compiled", source.path.display())
                    .help("a budget is for the compiler: give the .graph or .ir file")
                    .into());
            }
            _ if args.functions.approximate_functions => {
                return Err(diagnostic!("`{}` is compiled", source.path.display())
                    .help(
                        "--approximate-functions is for the compiler: give the .graph or .ir file",
                    )
                    .into());
            }
            Stage::Plan => plans.iter().try_for_each(|plan| print_plan(plan, args, console))?,
            Stage::Ptx => console.text(wengert::ptx(&plans[0])?)?,
            Stage::Kernels => machine_code::print(&plans[0], args.cost, console)?,
            _ => {
                return Err(diagnostic!("`{}` is a plan", source.path.display())
                    .help(
                        "add `--stage plan`, `--stage ptx` or `--stage kernels`; for earlier \
                         stages give the .graph or .ir file it was compiled from",
                    )
                    .into());
            }
        }
        return Ok(Status::Good);
    }
    let functions = source.functions(&binding)?;
    let print = PrintOptions { locations: args.locs };
    for (i, function) in functions.into_iter().enumerate() {
        if i > 0 {
            console.line("")?;
        }
        let binding = part(&binding, function);
        if !(args.stage == Stage::Graph && binding.is_empty()) {
            check_bound(function, &binding)?;
        }
        match args.stage {
            Stage::Graph if binding.is_empty() => console.text(print_function(function, &print))?,
            Stage::Graph => console.text(print_function(&function.bind(&binding)?, &print))?,
            Stage::Opt => {
                let compiled = compile(function, &binding, &target, &options)?;
                let after = args.after.as_deref();
                let stage = compiled.stages.iter().rfind(|(pass, _)| after == Some(pass));
                console
                    .text(print_function(stage.map_or(&compiled.function, |(_, f)| f), &print))?;
            }
            Stage::Nests => {
                let kernels = compile(function, &binding, &target, &options)?.kernels;
                console.text(&kernels)?;
                if args.cost {
                    console.text(comment(&cost_table(&kernels, &Rates::of(&target))))?;
                }
            }
            Stage::Plan | Stage::Ptx | Stage::Kernels => {
                let program = &source.file()?.program;
                let plan = pipeline::compile(program, &function.name, &binding, &target, &options)?;
                match args.stage {
                    Stage::Ptx => console.text(wengert::ptx(&plan)?)?,
                    Stage::Kernels => machine_code::print(&plan, args.cost, console)?,
                    _ => print_plan(&plan, args, console)?,
                }
            }
        }
    }
    if args.recipe {
        match &source.file()?.recipe {
            Some(recipe) => console.text(format_args!("\n{recipe}"))?,
            None => {
                return Err(diagnostic!("`{}` has no recipe", source.path.display()).into());
            }
        }
    }
    Ok(Status::Good)
}

fn print_plan(plan: &Verified<Plan>, args: &DumpArgs, console: &mut Console<'_>) -> Outcome<()> {
    console.text(&**plan)?;
    if args.memory {
        console.text(comment(&AccountText(plan, &account(plan)).to_string()))?;
    }
    if args.products {
        console.text(comment(&wengert::products(plan)?))?;
    }
    Ok(())
}

fn compile(
    function: &Function,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Outcome<Compiled> {
    let bound = Bound::new(function, binding)?;
    Ok(compile_kernels(&bound.function, target, options)?)
}

/// The lines of a text as comments.
fn comment(text: &str) -> String {
    text.lines().map(|line| format!("// {line}\n")).collect()
}

/// The cost of each kernel, and its share of the total time at these rates.
fn cost_table(kernels: &Kernels, rates: &Rates) -> String {
    let mut rows: Vec<(Cow<'_, str>, Cost, f64)> = Vec::new();
    for kernel in &kernels.kernels {
        let name = match &kernel.work {
            Work::Nest(nest) => nest.name.as_str().into(),
            Work::Call(call) => call.name().into(),
            Work::Followed(followed) => {
                format!("{}, {}", followed.call.name(), followed.follower.name).into()
            }
            Work::Control(control) => control.op.name().into(),
        };
        rows.push((name, kernels.cost(kernel), kernels.seconds(kernel, rates)));
    }
    let seconds: f64 = rows.iter().map(|(_, _, seconds)| seconds).sum();
    rows.push(("total".into(), rows.iter().map(|(_, cost, _)| *cost).sum(), seconds));
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut table = format!(
        "{:<width$} {:>14} {:>12} {:>13} {:>16} {:>15}\n",
        "kernel", "operations", "bytes read", "bytes written", "operations/byte", "predicted share"
    );
    for (name, cost, time) in rows {
        let Cost { operations, read, written } = cost;
        let intensity = cost.intensity();
        let share = if seconds > 0.0 { 100.0 * time / seconds } else { 0.0 };
        table += &format!(
            "{name:<width$} {operations:>14} {read:>12} {written:>13} {intensity:>16.2} \
             {share:>14.1}%\n"
        );
    }
    table
}

/// Options of the compiler; names of passes are checked.
fn options(args: &DumpArgs) -> Outcome<Options> {
    let known = |name: &str| match passes().iter().any(|pass| pass.name == name) {
        true => Ok(()),
        false => {
            let names: Vec<&str> = passes().iter().map(|pass| pass.name).collect();
            Err(diagnostic!("there is no pass `{name}`")
                .help(format!("passes over graphs are, in this order, {}", names.join(", "))))
        }
    };
    if let Some(after) = &args.after {
        known(after)?;
    }
    let stages: [(bool, &[Stage], &str); 7] = [
        (
            args.locs,
            &[Stage::Graph, Stage::Opt],
            "`--locs` goes with `--stage graph` or `--stage opt`",
        ),
        (
            args.target.is_some(),
            &[Stage::Opt, Stage::Nests, Stage::Plan, Stage::Ptx, Stage::Kernels],
            "`--target` goes with a stage of compilation: opt, nests, plan, ptx, kernels",
        ),
        (
            args.memory_budget.is_some(),
            &[Stage::Plan, Stage::Ptx, Stage::Kernels],
            "`--memory-budget` goes with `--stage plan`, `--stage ptx` or `--stage kernels`",
        ),
        (args.memory, &[Stage::Plan], "`--memory` goes with `--stage plan`"),
        (args.products, &[Stage::Plan], "`--products` goes with `--stage plan`"),
        (
            args.cost,
            &[Stage::Nests, Stage::Kernels],
            "`--cost` goes with `--stage nests` or `--stage kernels`",
        ),
        (args.after.is_some(), &[Stage::Opt], "`--after` goes with `--stage opt`"),
    ];
    let misplaced = stages.iter().find(|(given, of, _)| *given && !of.contains(&args.stage));
    if let Some((.., message)) = misplaced {
        return Err(Diagnostic::new(*message).into());
    }
    let (keep_stages, memory_budget) = (args.after.is_some(), args.memory_budget);
    let mut options = Options { keep_stages, memory_budget, ..Options::default() };
    for text in &args.fuels {
        let (pass, amount) = pair("fuel", text)?;
        known(pass)?;
        let amount = amount.to_str().and_then(|amount| amount.parse().ok());
        let amount =
            amount.ok_or_else(|| diagnostic!("`--fuel {text}` names no number of changes"))?;
        options.fuel.insert(pass.into(), amount);
    }
    Ok(options)
}
