//! Which values are realised.

use crate::lower::Memory;
use crate::view::{View, Work};
use wengert_core::graph::ValueId;
use wengert_core::id::IdVec;
use wengert_core::op::Compute;

/// For each value the realised value whose elements it is, if it is in memory.
pub(crate) fn realise(view: &View<'_>, fuse: bool) -> Memory {
    let required = required(view);
    let mut memory: Memory = view.body.values.ids().map(|_| None).collect();
    for input in &view.body.inputs {
        memory[*input] = Some(*input);
    }
    for (n, equation) in view.body.equations.iter().enumerate() {
        for result in &equation.results {
            if let Some(base) = view.alias(*result).and_then(|operand| memory[operand]) {
                memory[*result] = Some(base);
                continue;
            }
            let realised = match &view.work[n] {
                Work::Literal(_) => true,
                Work::Compute(Compute::Element { .. }) => !fuse || required[*result],
                Work::Compute(_) => true,
            };
            if realised {
                memory[*result] = Some(*result);
            }
        }
    }
    memory
}

/// The values that must be in memory: outputs, operands of calls, and what is accessed at indices from data. If a reshape must be, what
/// it reshapes must be.
fn required(view: &View<'_>) -> IdVec<ValueId, bool> {
    let mut required: IdVec<ValueId, bool> = view.body.values.ids().map(|_| false).collect();
    view.body.outputs.iter().for_each(|v| required[*v] = true);
    for (n, equation) in view.body.equations.iter().enumerate().rev() {
        match &view.work[n] {
            Work::Compute(Compute::Call(_)) => equation.operands.iter().for_each(|v| required[*v] = true),
            Work::Compute(Compute::Element { indirect, .. }) => {
                indirect.iter().for_each(|k| required[equation.operands[*k]] = true);
            }
            _ => {}
        }
        for result in &equation.results {
            if required[*result]
                && let Some(operand) = view.alias(*result)
            {
                required[operand] = true;
            }
        }
    }
    required
}
