//! Memory: from kernels to a plan.
//!
//! What a plan decides beyond the order of the kernels ([`crate::schedule`]) is where every buffer lies:
//!
//! 1. **Homes** (`homes`). Inputs, constants and variables lie where they are. A result that is an output or the new value of a state variable
//!    is written there at once, if the old value is no longer needed; what cannot be, and what has several destinations, is
//!    copied at the end.
//! 2. **In place** (`slots`). A result takes the bytes of an operand that dies in its kernel, where nest or call allows it. Buffers
//!    that follow one another in the same bytes are one *slot*.
//! 3. **Offsets** ([`greedy`]). Slots are buffers of the static memory problem ([`problem`]), with the max load ([`bound`]) as its lower
//!    bound.
//!
//! Whatever is decided here is checked by [`wengert_core::plan::verify()`], which shares no code with it.

pub mod bound;
mod emit;
pub mod greedy;
mod homes;
mod moves;
mod nests;
pub mod problem;
mod slots;

use crate::kernels::Kernels;
use crate::schedule;
use homes::Homes;
use nests::Nests;
use slots::Slots;
use wengert_core::plan::Plan;
use wengert_core::{Binding, Result, Target};

/// A plan, and what its steps were made from.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// For each step its kernel's position in [`Kernels::kernels`]; nothing for copies.
    pub kernel_of: Vec<Option<usize>>,
}

/// Decides everything that is left to decide.
///
/// `binding` is what the function's dimensions were bound to: the plan records it. An error means that the kernels do not fit
/// together, or that they need more memory than addresses can name.
pub fn plan_kernels(kernels: &Kernels, target: &Target, binding: &Binding) -> Result<Planned> {
    kernels.verify()?;
    let mut nests = Nests::new(kernels);
    let homes = Homes::fixed(kernels);
    let order = schedule::order(kernels, &homes.arena_bytes(kernels));
    let homes = homes.donate(kernels, &order, &mut nests);
    let moves = moves::moves(kernels, &homes);
    let slots = Slots::new(kernels, &order, target, homes, &moves, &mut nests);
    let arena = slots.solve(target.alignment)?;
    let kernel_of = moves.first.iter().map(|_| None).chain(order.iter().map(|k| Some(*k)));
    let kernel_of = kernel_of.chain(moves.last.iter().map(|_| None)).collect();
    let plan = emit::Emitter { kernels, order: &order, slots: &slots, arena: &arena, nests }
        .plan(target, binding, &moves);
    Ok(Planned { plan, kernel_of })
}

#[cfg(test)]
mod tests;
