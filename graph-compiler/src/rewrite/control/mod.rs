//! Simplification of control flow.
//!
//! These passes look at constructs, which have several results and regions. Rewrite rules look at
//! equations of one result.
//!
//! - `unused`, a part of `dce`, removes results without readers, carries that only feed
//!   themselves, and operands that no region reads.
//! - `merge`, a part of `cse`, merges an operand that is passed twice, and a result that is
//!   returned twice.
//! - `trim` moves captured numbers, repetitions and positions into regions. It turns a carry that
//!   never changes into a capture. It inlines a region that is known to run exactly once: a
//!   branch whose selector is a constant, and a scan of one step.
//! - `hoist` moves loop-invariant equations in front of the loop. Equations of branch regions
//!   stay, since a region may not be taken.
//! - `lay_out` transposes once, in front of a loop, an operand that each step would transpose, on
//!   machines where a transpose has a cost.
//! - `steps` computes values of a loop's counter in front of the loop: rows and indices.
//! - `unstack` recomputes cheap values in a loop, instead of reading them from a stack of an
//!   earlier loop.

mod hoist;
mod inline;
mod lay_out;
pub(super) mod merge;
mod steps;
mod trim;
mod unstack;
pub(super) mod unused;

pub(crate) use hoist::hoist;
pub(crate) use lay_out::lay_out;
pub(crate) use steps::steps;
pub(crate) use trim::{trim, trim_but};
pub(crate) use unstack::unstack;

use super::{spend, with_fuel};
use wengert_core::graph::{Body, Equation, Function, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Control;

/// The operands of a construct: `regions[r].inputs[i]` stands for `operands[first + i]`.
#[derive(Clone, Copy)]
struct Parts {
    /// Number of operands that no region takes: a selector, a count.
    first: usize,
    /// Number of carries, which follow.
    carries: usize,
    /// Number of captures, which come last. For a branch, all operands are.
    captures: usize,
}

impl Parts {
    fn of(equation: &Equation) -> Option<Parts> {
        let operands = equation.operands.len();
        Some(match equation.op.control()? {
            Control::Branch => Parts { first: 1, carries: 0, captures: operands - 1 },
            Control::Scan(s) => {
                Parts { first: usize::from(s.counted), carries: s.carries, captures: s.captures }
            }
            Control::While(w) => {
                Parts { first: 0, carries: operands - w.captures, captures: w.captures }
            }
        })
    }

    /// Writes the numbers back, if the op has them. (The carries of a while are the remaining
    /// operands.)
    fn set(self, equation: &mut Equation) {
        match &mut equation.op {
            wengert_core::Op::Scan(scan) => {
                (scan.carries, scan.captures) = (self.carries, self.captures)
            }
            wengert_core::Op::While(op) => op.captures = self.captures,
            _ => {}
        }
    }
}

/// Changes a function's body with the given fuel, and returns the fuel spent. Bodies without
/// control flow, which most are, are skipped.
fn with_regions(
    function: Function,
    fuel: u64,
    change: impl FnOnce(&mut Body, &mut u64),
) -> (Function, u64) {
    if function.body.equations.iter().all(|equation| equation.regions.is_empty()) {
        return (function, 0);
    }
    with_fuel(function, fuel, change)
}

/// The values of a body on which these outputs depend.
fn needed(body: &Body, outputs: impl Iterator<Item = ValueId>) -> IdVec<ValueId, bool> {
    let mut needed: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    outputs.for_each(|v| needed[v] = true);
    for equation in body.equations.iter().rev() {
        if equation.results.iter().any(|v| needed[*v]) {
            equation.operands.iter().for_each(|v| needed[*v] = true);
        }
    }
    needed
}

/// The first region that returns the construct's results. The condition of a while returns none.
fn first_giving(construct: &Equation) -> usize {
    match construct.op.control() {
        Some(Control::Branch) => 0,
        _ => construct.regions.len() - 1,
    }
}

/// Removes the items from position `first` on whose `gone` flag is set.
fn without<T>(list: &mut Vec<T>, first: usize, gone: &[bool]) {
    let mut position = 0;
    list.retain(|_| {
        let there = position < first || gone.get(position - first) != Some(&true);
        position += 1;
        there
    });
}

/// For each input of the regions, which all take the same inputs, whether any region uses it.
fn used_inputs(regions: &[Region]) -> Vec<bool> {
    let mut used = vec![false; regions.first().map_or(0, |region| region.inputs.len())];
    for region in regions {
        let mut uses: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
        let operands = region.equations.iter().flat_map(|e| &e.operands);
        operands.chain(&region.outputs).for_each(|v| uses[*v] = true);
        used.iter_mut().zip(&region.inputs).for_each(|(used, input)| *used |= uses[*input]);
    }
    used
}

/// Replaces values by others, wherever they are used.
fn replace_uses(region: &mut Body, current: &IdVec<ValueId, ValueId>) {
    let operands = region.equations.iter_mut().flat_map(|e| &mut e.operands);
    // A value beyond the list is newer than it, and stays.
    let uses = operands.chain(&mut region.outputs);
    uses.for_each(|v| *v = current.get(*v).copied().unwrap_or(*v));
}
