//! Control flow made smaller.
//!
//! These passes look at constructs, which have several results and regions. Rewrite rules look at equations of one result.
//!
//! - `unused`, a part of `dce`, removes results that have no reader, carries that only carry themselves along, and operands that
//!   no region reads.
//! - `merge`, a part of `cse`, makes one value of an operand that is passed twice, and of a result that is given twice.
//! - `trim` makes captured numbers, repetitions and positions inside; makes a capture of a carry that never changes; and puts a
//!   region in the place of its construct where that is known to run exactly once: a branch whose selector is a constant, and a
//!   scan of one step.
//! - `hoist` moves what each step of a loop computes alike in front of it. Ways of branches keep what they compute, since they
//!   may not be taken.
//! - `lay_out` transposes once what each step of a loop would transpose, on machines where that is a cost.
//! - `unstack` makes again in a loop what is cheap to make of what it reads, instead of reading it from a stack that an earlier
//!   loop leaves.

mod hoist;
mod inline;
mod lay_out;
pub(super) mod merge;
mod trim;
mod unstack;
pub(super) mod unused;

pub(crate) use hoist::hoist;
pub(crate) use lay_out::lay_out;
pub(crate) use trim::{trim, trim_but};
pub(crate) use unstack::unstack;

use wengert_core::graph::{Body, Equation, Function, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Control;

/// What the operands of a construct are: `regions[r].inputs[i]` stands for `operands[first + i]`.
#[derive(Clone, Copy)]
struct Parts {
    /// Operands that no region takes: a selector, a count.
    first: usize,
    /// Then, how many are handed from step to step.
    carries: usize,
    /// How many of the last are captures; to a branch, all are.
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
            Control::While(w) => Parts { first: 0, carries: operands - w.captures, captures: w.captures },
        })
    }

    /// Writes the numbers back, if the op has them. (The carries of a while are what is left.)
    fn set(self, equation: &mut Equation) {
        match &mut equation.op {
            wengert_core::Op::Scan(scan) => (scan.carries, scan.captures) = (self.carries, self.captures),
            wengert_core::Op::While(op) => op.captures = self.captures,
            _ => {}
        }
    }
}

/// Changes a function's body, with as much fuel as is left, if there is anything to look into (most functions have no control flow); and how much was spent.
fn with_regions(
    mut function: Function,
    fuel: u64,
    change: impl FnOnce(&mut Body, &mut u64),
) -> (Function, u64) {
    if function.body.equations.iter().all(|equation| equation.regions.is_empty()) {
        return (function, 0);
    }
    let mut left = fuel;
    change(&mut function.body, &mut left);
    // What nothing has changed is numbered.
    let function = if left == fuel { function } else { function.renumber() };
    (function, fuel - left)
}

/// Which values a body needs for these outputs.
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

/// The first region that gives results: the condition of a while gives none.
fn first_giving(construct: &Equation) -> usize {
    match construct.op.control() {
        Some(Control::Branch) => 0,
        _ => construct.regions.len() - 1,
    }
}

/// Takes away the items from position `first` on that are gone.
fn without<T>(list: &mut Vec<T>, first: usize, gone: &[bool]) {
    let mut position = 0;
    list.retain(|_| {
        let there = position < first || gone.get(position - first) != Some(&true);
        position += 1;
        there
    });
}

/// For each input of the regions, which all take the same, whether one uses it.
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

/// Puts other values in the places of some, wherever they are used.
fn replace_uses(region: &mut Body, current: &IdVec<ValueId, ValueId>) {
    let operands = region.equations.iter_mut().flat_map(|e| &mut e.operands);
    // What has no place in the list is newer than it.
    let uses = operands.chain(&mut region.outputs);
    uses.for_each(|v| *v = current.get(*v).copied().unwrap_or(*v));
}
