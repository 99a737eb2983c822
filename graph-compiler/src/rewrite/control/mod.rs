//! Control flow made smaller.
//!
//! `trim` looks at one construct at a time. It takes out what is not used or never changes, so that neither memory nor work is spent on it at each
//! step, and puts a region in the place of its construct where it is known to run exactly once:
//!
//! - results that nobody uses: of branches; stacks; carries that only carry themselves along;
//! - results of branches, and stacks, that are one value;
//! - operands that no region uses, and those that are handed in twice;
//! - a carry that each step hands on as it was is a capture;
//! - a branch whose selector is a constant, and a scan of one step;
//! - captured numbers, repetitions and positions, which a region can make itself.
//!
//! `lay_out` transposes once what each step of a loop would transpose, on machines where that is a cost.
//!
//! `unstack` makes again in a loop what is cheap to make of what it reads, instead of reading it from a stack that an earlier loop leaves.
//!
//! `hoist` moves what each step of a loop computes alike in front of it. Ways of branches keep what they compute, since they may not be taken.

mod hoist;
mod inline;
mod lay_out;
mod trim;
mod unstack;

pub(crate) use hoist::hoist;
pub(crate) use lay_out::lay_out;
pub(crate) use trim::{trim, trim_but};
pub(crate) use unstack::unstack;

use wengert_core::graph::{Body, Equation, Function, ValueId};
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
    (function.renumber(), fuel - left)
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
