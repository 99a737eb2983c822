//! Verifier of plans: proof that every step finds the values it names at the addresses it reads.
//!
//! It shares no code with the planner and trusts nothing in a plan, since plans come from files.
//! The time is O(n log n) for n steps and arguments, times the depth of nesting.
//!
//! Structure (module `structure`), which makes a plan meaningful:
//!
//! - **P1** Names are present and unique: nests, inputs, variables, outputs. The target is valid
//!   ([`crate::Target::verify`]).
//! - **P2** Sizes are limited: at most [`MAX_RANK`] dimensions; the bytes of every value and of
//!   the arena are below 2^63.
//! - **P3** References resolve: values, nests, memories, enclosing loops. Loops are numbered in
//!   the order of the text. Steps nest at most [`MAX_DEPTH`] deep. Branches have their arms, and
//!   merges a value for each.
//! - **P4** Every value is defined in one place: it is an input, a constant, a variable's old
//!   value, a result of a step, an input, part or result of a loop, or the result of a merge.
//!   Only recomputation defines it again: the same nest or call on the same values.
//! - **P5** Types agree in dtype and bytes, everywhere. A parameter for a value of 8-bit floats is
//!   u8.
//! - **P6** Nests and calls are valid by themselves; nests have no InOut parameters; the target
//!   claims the calls.
//! - **P7** Addresses are inside their memory and aligned: to the target's alignment, or, if they
//!   have strides, to the dtype.
//! - **P8** An address with strides is inside the current part of a slice or stack, and its value
//!   is not empty.
//! - **P9** Inputs, constants and variables that are only read are never written; workspace lies
//!   in the arena.
//! - **P16** A [pitch](crate::pitch) is greater than the last of at least two extents. A padded
//!   value is a result of a nest or a call. Its parameters have its pitch and its last extent, a
//!   call reads nothing between its rows, and inputs, outputs, constants, variables, loops and
//!   branches hold only dense values.
//! - **P17** The [mesh](crate::Mesh) is valid. Collectives name its axes and have a part for each
//!   rank. A plan on a mesh is for a target that claims collectives.
//!
//! Replay (module `replay`) over an abstract memory that maps bytes to values:
//!
//! - **P10** Reads are justified: the bytes hold exactly the value that the step names.
//! - **P11** Results overlap no other argument of their step, except exactly an operand's bytes
//!   where [`crate::nest::may_alias`] or [`crate::call::Contract::in_place`] allows it. Workspace
//!   overlaps no argument of its step.
//! - **P12** Loops: a carry holds its initial value before the loop and its output at the end of
//!   the body. A slice's whole survives the body. Each iteration writes its part of a stack, and
//!   nothing else touches the whole. The body is replayed once, from a state valid in every
//!   iteration: everything that the body may write is forgotten first.
//! - **P13** Branches: each branch leaves the merged value at the address of the merge. All else
//!   that any branch may write is forgotten.
//! - **P14** At the end every output and variable holds its value.
//! - **P18** A start is of a collective that exchanges data, on a target that overlaps collectives.
//!   Its wait is a later step of the same block and names the same operand and result. Between the
//!   two no step writes the bytes of the operand, and none reads or writes those of the result.
//!   Transfers are numbered in the order of their starts.
//! - **P15** The arena ends at the last address in it (rounded up to the alignment), and the
//!   lower bound is the greatest load ([`super::account()`]).

mod replay;
mod structure;
mod transfers;

use super::parse::{Part, Places};
use super::print::StepText;
use super::{Plan, Step, account};
use crate::diagnostic::{Diagnostic, Result};
use crate::nest;
use std::fmt::Display;

pub use crate::nest::verify::MAX_RANK;
pub use crate::text::cursor::MAX_DEPTH;

/// Checks all invariants. The error names the step.
pub fn verify(plan: &Plan) -> Result<()> {
    verify_at(plan, &Places::default())
}

/// Checks all invariants. The error also has the position in the text that the plan was read
/// from.
pub fn verify_at(plan: &Plan, places: &Places) -> Result<()> {
    let shown = |f: Failure| f.diagnostic(plan, places);
    structure::check(plan, places).map_err(shown)?;
    let reach = replay::check(plan).map_err(shown)?;
    arena(plan, reach).map_err(shown)
}

/// P15.
fn arena(plan: &Plan, reach: u64) -> std::result::Result<(), Failure> {
    let fail = |what: String| Err(failure(Part::Arena, 15, what));
    let wanted = reach.next_multiple_of(plan.target.alignment);
    if plan.arena != wanted {
        return fail(format!("the arena has {} bytes, its addresses need {wanted}", plan.arena));
    }
    let load = account(plan).peak.bytes;
    if plan.lower_bound != load {
        return fail(format!(
            "the lower bound is given as {}, the greatest load is {load}",
            plan.lower_bound
        ));
    }
    Ok(())
}

/// A violated invariant: the error and the part of the plan at fault.
struct Failure {
    part: Part,
    diagnostic: Diagnostic,
}

/// An error of invariant `number` about `part`.
fn failure(part: Part, number: u32, message: impl Display) -> Failure {
    Failure { part, diagnostic: Diagnostic::new(format!("{message} (P{number})")) }
}

impl Failure {
    fn help(mut self, help: impl Into<String>) -> Failure {
        self.diagnostic = self.diagnostic.help(help);
        self
    }

    fn diagnostic(self, plan: &Plan, places: &Places) -> Diagnostic {
        // A malformed plan may have names and steps of any length.
        let short = |text: String| {
            if text.chars().count() <= 120 {
                text
            } else {
                text.chars().take(120).chain(['…']).collect()
            }
        };
        let within = |n: usize| {
            let text = find(&plan.steps, n).map(|s| short(StepText(plan, s).to_string()));
            format!(", step {n}{}", text.map_or(String::new(), |t| format!(", `{t}`")))
        };
        let what = match self.part {
            Part::Plan | Part::Arena | Part::Target => String::new(),
            Part::Value(id) => format!(", value {id}"),
            Part::Input(n) => format!(", input {n}"),
            Part::Variable(n) => format!(", variable {n}"),
            Part::Output(n) => format!(", output {n}"),
            Part::Constant(n) => format!(", constant {n}"),
            Part::Nest(id) => format!(", nest {id}"),
            Part::Step(n) => within(n),
            Part::Carry(n, k) => format!("{}, carry {k}", within(n)),
            Part::Slice(n, k) => format!("{}, slice {k}", within(n)),
            Part::Stack(n, k) => format!("{}, stack {k}", within(n)),
            Part::Merge(n, k) => format!("{}, merge {k}", within(n)),
        };
        let context = short(format!("plan @{}", plan.function)) + &what;
        self.diagnostic.context(context).at(places.get(self.part), "")
    }
}

/// Step number `n` in the order of the text.
pub(super) fn find(steps: &[Step], n: usize) -> Option<&Step> {
    // Iterative, since the depth itself may be invalid.
    let mut stack: Vec<&Step> = steps.iter().rev().collect();
    let mut number = 0;
    while let Some(step) = stack.pop() {
        if number == n {
            return Some(step);
        }
        number += 1;
        step.blocks().into_iter().rev().for_each(|block| stack.extend(block.iter().rev()));
    }
    None
}

/// Verifies a nest of a plan, with its positions in the text.
fn verify_nest(
    plan: &Plan,
    places: &Places,
    id: super::NestId,
) -> std::result::Result<(), Failure> {
    nest::verify_at(&plan.nests[id], &places.nest(id))
        .map_err(|diagnostic| Failure { part: Part::Nest(id), diagnostic })
}
