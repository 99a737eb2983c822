//! `graphrun compile`: a function for a target and given extents, as a plan in a file.

use crate::cli::{Budget, CompileArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, check_bound};
use wengert::core::Verified;
use wengert::core::plan::{Account, Bytes, Plan};
use wengert::pipeline::{self, Options};
use wengert::{atomic, diagnostic, format, target};

/// Writes the plan.
pub fn run(args: &CompileArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let function = source.function()?;
    let mut target = args.functions.of(target(&args.target)?);
    if args.batch_invariant {
        target = target.with_batch_invariance();
    }
    if args.out.extension().is_none_or(|e| e != "plan") {
        return Err(diagnostic!("`{}` is no name for a plan", args.out.display())
            .help("names of plans end in .plan")
            .into());
    }
    atomic::can_write(&args.out)?;
    let binding = source.binding(&args.function.binds)?;
    if let Some((name, _)) = binding.iter().find(|(name, _)| !function.variables().contains(*name))
    {
        return Err(diagnostic!("`@{}` has no dimension variable `{name}`", function.name).into());
    }
    check_bound(function, &binding)?;
    let program = &source.file()?.program;
    let mut budgets = args.memory_budgets.clone();
    // The unlimited budget comes first.
    budgets.sort_by_key(|budget| std::cmp::Reverse(budget.0.unwrap_or(u64::MAX)));
    if budgets.is_empty() {
        budgets.push(Budget(None));
    }
    let mut plans: Vec<Verified<Plan>> = Vec::new();
    let name = format_args!("@{}", function.name);
    let compiling = tracing::debug_span!("compile", %name).entered();
    for Budget(memory_budget) in budgets {
        let options = Options { memory_budget, ..Options::default() };
        let plan = pipeline::compile(program, &function.name, &binding, &target, &options)?;
        // The plan of a greater budget may already fit this one.
        if plans
            .last()
            .is_none_or(|last| Account::sizes(last).total() > Account::sizes(&plan).total())
        {
            plans.push(plan);
        }
    }
    drop(compiling);
    format::plan::write_all(&args.out, &plans)?;
    let with = if binding.is_empty() { String::new() } else { format!(" with {binding}") };
    for plan in &plans {
        let budgeted = if args.memory_budgets.is_empty() {
            String::new()
        } else {
            format!(", {} in all", Bytes(Account::sizes(plan).total()))
        };
        console.line(format_args!(
            "@{} compiled for {}{with}: {} steps, {} nests, arena of {} bytes{budgeted}; written \
             to {}",
            function.name,
            target.name,
            plan.steps.len(),
            plan.nests.len(),
            plan.arena,
            args.out.display()
        ))?;
    }
    Ok(Status::Good)
}
