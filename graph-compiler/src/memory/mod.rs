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
mod regions;
pub mod rematerialize;
mod slots;
mod substitution;

use crate::kernels::cost::{Cost, Rates};
use crate::kernels::{Kernels, Work};
use crate::pipeline::within;
use crate::schedule::{self, Costs};
use assign::problem::Problem;
use budget::{Found, Ladder, Run};
use homes::Homes;
use moves::Moves;
pub use naive::naive_peak;
use nests::{Nests, Table};
use regions::Regions;
use slots::{Arena, Slots};
use wengert_core::plan::{Account, Bytes, NestId, Plan, account};
use wengert_core::{Binding, Diagnostic, LocationId, Result, Target};

/// A plan with the origins of its steps and its predicted cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// For each step, in the order of the text, the locations of its kernel's equations; none for
    /// copies.
    pub sources: Vec<Vec<LocationId>>,
    /// Predicted cost of a run, repetitions included.
    pub all: Prediction,
    /// The part of it that repeated kernels cost.
    pub repetitions: Prediction,
}

/// Predicted cost of a set of kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Number of kernels.
    pub kernels: usize,
    /// Their arithmetic and traffic.
    pub cost: Cost,
    /// Seconds, at the target's [`Rates`].
    pub seconds: f64,
}

impl Prediction {
    /// The cost of the kernels that `chosen` accepts.
    fn of(kernels: &Kernels, chosen: impl Fn(usize) -> bool, rates: &Rates) -> Self {
        let some = kernels
            .kernels
            .iter()
            .enumerate()
            .filter(|(k, _)| chosen(*k))
            .map(|(_, kernel)| kernel);
        Prediction {
            kernels: some.clone().count(),
            cost: some.clone().map(|kernel| kernels.cost(kernel)).sum(),
            // An empty sum of floats is −0.
            seconds: some
                .map(|kernel| kernels.seconds(kernel, rates))
                .fold(0.0, |sum, seconds| sum + seconds),
        }
    }
}

/// Plans a function's kernels: their order, homes, slots and offsets.
///
/// `binding` holds the extents of the function's dimensions; the plan records it. With a
/// `budget`, the total memory that the plan names is at most that many bytes; kernels are
/// repeated where that requires it. Errors: the kernels are inconsistent, they need more memory
/// than addresses can name, or no plan within the budget was found.
pub fn plan_kernels(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    budget: Option<u64>,
) -> Result<Planned> {
    let planned = planner(kernels, target, binding, |part| Ok(vec![within_budget(part, budget)?]))?;
    Ok(planned.into_iter().next().expect("one was planned"))
}

fn within_budget(part: &mut Part<'_, '_>, budget: Option<u64>) -> Result<Planned> {
    let kernels = part.kernels;
    let given = part.given()?;
    let planned = part.emit(&given);
    let Some(budget) = budget else { return Ok(planned) };
    let account = Account::sizes(&planned.plan);
    if account.total() <= budget {
        return Ok(planned);
    }
    let outside = account.total() - account.arena;
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
        Some(Found::Fits(laid)) => return Ok(part.emit(&laid)),
        Some(Found::Least(laid)) if laid.arena.bytes < given.arena.bytes => Some(laid),
        _ => None,
    };
    let (name, limit, total) = (&kernels.function, Bytes(budget), Bytes(account.total()));
    let does_not_fit = format!("@{name} does not fit into {limit}: it takes {total} as it is");
    let listed = listed_outside(&account);
    Err(match least {
        Some(laid) => {
            let least = outside + laid.arena.bytes;
            let more = 100.0 * part.emit(&laid).repetitions.seconds / planned.all.seconds;
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
pub fn frontier(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    points: u64,
) -> Result<Vec<Planned>> {
    planner(kernels, target, binding, |part| {
        let given = part.given()?;
        let given_bytes = given.arena.bytes;
        let laid = Ladder::new(part)?.frontier(part, points)?;
        let smaller = laid.iter().filter(|laid| laid.arena.bytes < given_bytes);
        let mut plans: Vec<Planned> = smaller.map(|laid| part.emit(laid)).collect();
        plans.push(part.emit(&given));
        Ok(plans)
    })
}

/// The buffers of a function's arena as an assignment problem, and their names.
///
/// Errors: as [`plan_kernels`].
pub fn problem(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
) -> Result<(Problem, Vec<String>)> {
    within("verify kernels", || kernels.verify())?;
    let mut table = Table::default();
    let nests = Nests::new(kernels, &mut table);
    let slots = Part::new(kernels, target, binding, nests)?.given()?.slots;
    let (problem, numbers) = slots.problem(target.alignment)?;
    Ok((problem, numbers.into_iter().map(|slot| slots.name(kernels, slot)).collect()))
}

/// Calls `f` with a function to plan, and completes the plans that it returns.
fn planner(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    f: impl FnOnce(&mut Part<'_, '_>) -> Result<Vec<Planned>>,
) -> Result<Vec<Planned>> {
    within("verify kernels", || kernels.verify())?;
    let mut table = Table::default();
    let nests = within("nests", || Nests::new(kernels, &mut table));
    let mut plans = f(&mut Part::new(kernels, target, binding, nests)?)?;
    let joined = kernels.kernels.iter().any(|k| matches!(k.work, Work::Joined(_)));
    for Planned { plan, .. } in &mut plans {
        plan.nests = table.distinct.clone();
        if joined || plan.steps.iter().any(|step| !step.blocks().is_empty()) {
            // The max load of the slots counts a construct's regions as one slot of their
            // greatest arena, and a joined product and nest as one step. The bound of a plan
            // counts each of their steps.
            plan.lower_bound = within("account", || account(plan)).peak.bytes;
        }
    }
    Ok(plans)
}

/// A function or region to be planned.
struct Part<'k, 't> {
    kernels: &'k Kernels,
    target: &'k Target,
    binding: &'k Binding,
    nests: Nests<'t>,
    /// The planned regions of each kernel.
    regions: Vec<Regions>,
    /// The workspace of each kernel.
    workspaces: Vec<u64>,
    /// The order of the kernels' first executions.
    order: Vec<usize>,
}

/// A run with its layout decided.
struct Laid<'k> {
    run: Run<'k>,
    /// The nest of each kernel.
    nests: Vec<Option<NestId>>,
    moves: Moves,
    slots: Slots,
    arena: Arena,
}

impl<'k, 't> Part<'k, 't> {
    fn new(
        kernels: &'k Kernels,
        target: &'k Target,
        binding: &'k Binding,
        mut nests: Nests<'t>,
    ) -> Result<Self> {
        let regions = Regions::plan(kernels, target, binding, &mut nests)?;
        let workspace = |k| slots::workspace(kernels, k, target, &regions);
        let workspaces: Vec<u64> = (0..kernels.kernels.len()).map(workspace).collect();
        let order = within("schedule", || order(kernels, target, &workspaces, &mut nests));
        Ok(Part { kernels, target, binding, nests, regions, workspaces, order })
    }

    /// The layout without repetitions.
    fn given(&mut self) -> Result<Laid<'k>> {
        self.lay(Run::given(self.kernels, self.order.clone()))
    }

    /// Decides the layout of a run.
    fn lay<'r>(&mut self, run: Run<'r>) -> Result<Laid<'r>> {
        let (kernels, order) = (&*run.kernels, &run.order[..]);
        let mut nests = self.nests.of_run(&run);
        let workspaces: Vec<u64> = run.workspaces(&self.workspaces);
        let homes = within("homes", || Homes::fixed(kernels).donate(kernels, order, &mut nests));
        let moves = within("moves", || moves::moves(kernels, &homes));
        let slots =
            within("slots", || Slots::new(kernels, order, &workspaces, homes, &moves, &mut nests));
        let arena = within("offsets", || slots.solve(self.target.alignment))?;
        let nests = nests.of_kernel;
        Ok(Laid { run, nests, moves, slots, arena })
    }

    /// Emits the plan, without its nests: they are in the table.
    fn emit(&self, laid: &Laid<'_>) -> Planned {
        within("emit", || emit::emit(self, laid))
    }
}

/// The order in which the kernels run, each once.
fn order(
    kernels: &Kernels,
    target: &Target,
    workspaces: &[u64],
    nests: &mut Nests<'_>,
) -> Vec<usize> {
    let mut bytes = Homes::fixed(kernels).arena_bytes(kernels);
    let aligned = |bytes: u64| bytes.checked_next_multiple_of(target.alignment).unwrap_or(bytes);
    bytes.iter_mut().for_each(|(_, b)| *b = aligned(*b));
    let workspace: Vec<u64> = workspaces.iter().map(|bytes| aligned(*bytes)).collect();
    let kernel_numbers = 0..kernels.kernels.len();
    let in_place: Vec<_> =
        kernel_numbers.map(|k| slots::in_place(kernels, k, &bytes, nests)).collect();
    schedule::order(kernels, &Costs { bytes: &bytes, workspace: &workspace, in_place: &in_place })
}

#[cfg(test)]
mod tests;
