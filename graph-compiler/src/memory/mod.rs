//! Memory: from kernels to a plan.
//!
//! The order of the kernels comes from [`crate::schedule`]. This module decides the address of
//! every buffer:
//!
//! 1. **Homes** (`homes`). Inputs, constants and variables have fixed addresses. A result that is
//!    an output or a state variable's new value is written to its home directly, if the old value
//!    is dead by then. A result that cannot be written there, or has several homes, is copied at
//!    the end.
//! 2. **In place** (`slots`). A result takes the bytes of an operand that dies in its kernel,
//!    where the nest or call allows it. Buffers that follow one another in the same bytes form
//!    one *slot*.
//! 3. **Offsets** ([`assign`]). Slots are the buffers of the static memory problem.
//!
//! **Regions** (`regions`) of loops and branches are planned first, each like a function with its
//! own arena. The arena of a construct's regions is one slot of the enclosing function, live
//! while the construct runs. Memory outside a region's arena maps to places in the enclosing
//! function. So the same code puts carries in place at every nesting depth, and the size of a
//! plan does not depend on trip counts.
//!
//! **Overlap** (`overlap`). Between ranks, collectives are started before their results are needed,
//! if the plan does not need too much memory for that.
//!
//! **Budgets** (`budget`). If a plan exceeds the memory budget, some kernels are repeated so that
//! their results need not stay live. [`rematerialize`] selects them.
//!
//! [`wengert_core::plan::verify()`] checks the plan. It shares no code with this module.

pub mod assign;
mod budget;
mod emit;
mod homes;
mod moves;
mod naive;
mod nests;
mod overlap;
mod part;
mod passes;
mod planned;
mod regions;
pub mod rematerialize;
mod run;
mod slots;
mod substitution;

use crate::kernels::{Kernels, Work};
use crate::pass::within;
use assign::problem::Problem;
use budget::{Found, Ladder};
use emit::emit;
pub use naive::naive_peak;
use nests::{Nests, Table};
pub(crate) use overlap::SPARE;
use part::Part;
pub(crate) use part::Passes;
pub(crate) use passes::{homes, moves, offsets, plan_regions, schedule, slots};
pub use planned::{Planned, Prediction};
use wengert_core::plan::{Account, Bytes, Plan, account};
use wengert_core::{Binding, Diagnostic, Result, Target};

/// Plans a function's kernels: their order, homes, slots and offsets.
///
/// `binding` holds the extents of the function's dimensions; the plan records it. With a
/// `budget`, the total memory that the plan names is at most that many bytes; kernels are
/// repeated where that requires it. Errors: the kernels are inconsistent, they need more memory
/// than addresses can name, or no plan within the budget was found.
pub(crate) fn plan_kernels(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    budget: Option<u64>,
    passes: Passes,
) -> Result<Planned<Plan>> {
    // With a budget, no memory is spent to share launches.
    let rests = target.shares_launches && budget.is_none();
    let plan = |part: &mut Part<'_, '_>| Ok(vec![within_budget(part, budget)?]);
    let planned = planner(kernels, target, binding, passes, rests, plan)?;
    Ok(planned.into_iter().next().expect("one was planned"))
}

fn within_budget(part: &mut Part<'_, '_>, budget: Option<u64>) -> Result<Planned<Plan>> {
    let kernels = part.kernels;
    let given = part.given()?;
    let planned = emit(part, &given);
    let overlapped = |part: &mut Part<'_, '_>, limit| {
        let laid = overlap::overlapped(part, limit)?;
        Ok(laid.map_or_else(|| planned.clone(), |laid| emit(part, &laid)))
    };
    let Some(budget) = budget else {
        return overlapped(part, overlap::unbudgeted(given.arena.bytes));
    };
    let account = Account::sizes(&planned.plan);
    let outside = account.total() - account.arena;
    if account.total() <= budget {
        return overlapped(part, budget - outside);
    }
    let Some(arena) = budget.checked_sub(outside) else {
        return Err(Diagnostic::new(format!(
            "@{} does not fit into {}: {} lie outside the arena: {}",
            kernels.function,
            Bytes(budget),
            Bytes(outside),
            listed_outside(&account),
        ))
        .help("raise the budget: repeating kernels saves none of these"));
    };
    let least = match Ladder::new(part)?.fit(part, arena)? {
        Some(Found::Fits(laid)) => return Ok(emit(part, &laid)),
        Some(Found::Least(laid)) if laid.arena.bytes < given.arena.bytes => Some(laid),
        _ => None,
    };
    let (name, limit, total) = (&kernels.function, Bytes(budget), Bytes(account.total()));
    let does_not_fit = format!("@{name} does not fit into {limit}: it takes {total} as it is");
    let listed = listed_outside(&account);
    Err(match least {
        Some(laid) => {
            let least = outside + laid.arena.bytes;
            let more = 100.0 * emit(part, &laid).repetitions.seconds / planned.all.seconds;
            let time =
                if more < 0.5 { "no more time".into() } else { format!("{more:.0} % more time") };
            Diagnostic::new(format!(
                "{does_not_fit}, and no way was found to run it in less than {} ({least} bytes), \
                 which would take {time}",
                Bytes(least),
            ))
            .help(format!(
                "raise the budget, or bind smaller dimensions; repetitions save nothing of {listed}"
            ))
        }
        None => Diagnostic::new(format!(
            "{does_not_fit} ({} bytes), and repeating kernels saves nothing",
            account.total(),
        ))
        .help("raise the budget, or bind smaller dimensions"),
    })
}

/// The bytes outside the arena, by class.
fn listed_outside(account: &Account) -> String {
    let classes = [
        ("parameters", account.parameters),
        ("state", account.state),
        ("inputs", account.inputs),
        ("outputs", account.outputs),
        ("constants", account.constants),
    ];
    let taken = classes.into_iter().filter(|(_, bytes)| *bytes > 0);
    let listed: Vec<String> =
        taken.map(|(name, bytes)| format!("{name} {}", Bytes(bytes))).collect();
    listed.join(", ")
}

/// Plans from the least memory found up to the plan without repetitions, by rising memory and
/// falling cost. At most `points`, plus the plan without repetitions, which is last.
///
/// Errors: as [`plan_kernels`].
pub(crate) fn frontier(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    points: u64,
    passes: Passes,
) -> Result<Vec<Planned<Plan>>> {
    planner(kernels, target, binding, passes, false, |part| {
        let given = part.given()?;
        let given_bytes = given.arena.bytes;
        let laid = Ladder::new(part)?.frontier(part, points)?;
        let smaller = laid.iter().filter(|laid| laid.arena.bytes < given_bytes);
        let mut plans: Vec<Planned<Plan>> = smaller.map(|laid| emit(part, laid)).collect();
        plans.push(emit(part, &given));
        Ok(plans)
    })
}

/// The buffers of a function's arena as an assignment problem, and their names.
///
/// Errors: as [`plan_kernels`].
pub(crate) fn problem(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    passes: Passes,
) -> Result<(Problem, Vec<String>)> {
    let mut table = Table::default();
    let nests = Nests::new(kernels, &mut table);
    let slots = Part::new(kernels, target, binding, passes, false, nests)?.given()?.slots;
    let (problem, numbers) = slots.problem(target.alignment)?;
    Ok((problem, numbers.into_iter().map(|slot| slots.name(kernels, slot)).collect()))
}

/// Calls `f` with a function to plan, and completes the plans that it returns. `rests`: memory
/// is spent so that kernels can share launches ([`Part::rests`]).
fn planner(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    passes: Passes,
    rests: bool,
    f: impl FnOnce(&mut Part<'_, '_>) -> Result<Vec<Planned<Plan>>>,
) -> Result<Vec<Planned<Plan>>> {
    let mut table = Table::default();
    let nests = within("nests", || Nests::new(kernels, &mut table));
    let mut plans = f(&mut Part::new(kernels, target, binding, passes, rests, nests)?)?;
    let followed = kernels.kernels.iter().any(|k| matches!(k.work, Work::Followed(_)));
    for Planned { plan, .. } in &mut plans {
        plan.nests = table.distinct.clone();
        if followed || plan.steps.iter().any(|step| !step.blocks().is_empty()) {
            // The max load of the slots counts a construct's regions as one slot of their
            // greatest arena, and a product and its follower as one step. The bound of a plan
            // counts each of their steps.
            plan.lower_bound = within("account", || account(plan)).peak.bytes;
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests;
