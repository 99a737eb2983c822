//! Memory: from kernels to a plan.
//!
//! What a plan decides beyond the order of the kernels ([`crate::schedule`]) is where every buffer lies:
//!
//! 1. **Homes** (`homes`). Inputs, constants and variables lie where they are. A result that is an output or the new value of a state variable
//!    is written there at once, if the old value is no longer needed; what cannot be, and what has several destinations, is
//!    copied at the end.
//! 2. **In place** (`slots`). A result takes the bytes of an operand that dies in its kernel, where nest or call allows it. Buffers
//!    that follow one another in the same bytes are one *slot*.
//! 3. **Offsets** ([`assign`]). Slots are buffers of the static memory problem.
//!
//! **Regions** (`regions`) of loops and branches are planned first, each like a function of its own with an arena of its own. The arena of a
//! construct's regions is one slot of the function around it, which lives while the construct runs; and what is memory around the arena to a region are
//! places in the function. So the same code puts carries in place, however deep loops nest, and a plan is as large as the program, however often loops run.
//!
//! Whether a schedule that repeats kernels would fit in less is [`recompute`]'s question. No plan is made by it yet.
//!
//! Whatever is decided here is checked by [`wengert_core::plan::verify()`], which shares no code with it.

pub mod assign;
mod emit;
mod homes;
mod moves;
mod nests;
pub mod recompute;
mod regions;
mod slots;

use crate::kernels::{Kernels, Work};
use crate::pipeline::within;
use crate::schedule::{self, Costs};
use homes::Homes;
use nests::{Nests, Table};
use regions::Regions;
use slots::Slots;
use wengert_core::plan::{Plan, account};
use wengert_core::{Binding, LocationId, Result, Target};

/// A plan, and what its steps were made from.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// For each step, in the order of the text, the locations of its kernel's equations; none for copies.
    pub sources: Vec<Vec<LocationId>>,
}

/// Decides everything that is left to decide.
///
/// `binding` is what the function's dimensions were bound to: the plan records it. An error means that the kernels do not fit
/// together, or that they need more memory than addresses can name.
pub fn plan_kernels(kernels: &Kernels, target: &Target, binding: &Binding) -> Result<Planned> {
    within("verify kernels", || kernels.verify())?;
    let mut table = Table::default();
    let nests = within("nests", || Nests::new(kernels, &mut table));
    let mut planned = part(kernels, target, binding, nests)?;
    let plan = &mut planned.plan;
    plan.nests = table.distinct;
    let joined = kernels.kernels.iter().any(|k| matches!(k.work, Work::Joined(_)));
    if joined || plan.steps.iter().any(|step| !step.blocks().is_empty()) {
        // The max load of the slots takes what regions need as one, at its greatest, and a product and its nest; the bound of a plan looks at
        // each of their steps.
        plan.lower_bound = within("account", || account(plan)).peak.bytes;
    }
    Ok(planned)
}

/// Plans a function or a region. The plan has no nests: they are in the table.
fn part(kernels: &Kernels, target: &Target, binding: &Binding, mut nests: Nests<'_>) -> Result<Planned> {
    let regions = Regions::plan(kernels, target, binding, &mut nests)?;
    let homes = Homes::fixed(kernels);
    let order = within("schedule", || order(kernels, target, &homes, &regions, &mut nests));
    let homes = within("homes", || homes.donate(kernels, &order, &mut nests));
    let moves = within("moves", || moves::moves(kernels, &homes));
    let slots = within("slots", || Slots::new(kernels, &order, target, homes, &moves, &mut nests, &regions));
    let arena = within("offsets", || slots.solve(target.alignment))?;
    let decided = emit::Decided {
        kernels,
        order: &order,
        slots: &slots,
        arena: &arena,
        nests: &nests.of_kernel,
        regions: &regions,
        moves: &moves,
    };
    Ok(within("emit", || emit::emit(&decided, target, binding)))
}

/// The order in which kernels run.
fn order(
    kernels: &Kernels,
    target: &Target,
    homes: &Homes,
    regions: &[Regions],
    nests: &mut Nests<'_>,
) -> Vec<usize> {
    let count = kernels.kernels.len();
    let mut bytes = homes.arena_bytes(kernels);
    let aligned = |bytes: u64| bytes.checked_next_multiple_of(target.alignment).unwrap_or(bytes);
    bytes.iter_mut().for_each(|(_, b)| *b = aligned(*b));
    let workspace: Vec<u64> =
        (0..count).map(|k| aligned(slots::workspace(kernels, k, target, regions))).collect();
    let in_place: Vec<_> = (0..count).map(|k| slots::in_place(kernels, k, &bytes, nests)).collect();
    schedule::order(kernels, &Costs { bytes: &bytes, workspace: &workspace, in_place: &in_place })
}

#[cfg(test)]
mod tests;
