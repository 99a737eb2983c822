//! How often each value of a plan is used.

use wengert_core::id::IdVec;
use wengert_core::nest::BufferRole;
use wengert_core::plan::{Plan, Stack, Step, Trip, ValueId};

/// For each value the number of its uses: as an operand, as an output or variable, or as a value
/// that a loop or branch passes on.
pub(super) fn uses(plan: &Plan) -> IdVec<ValueId, usize> {
    let mut uses: IdVec<ValueId, usize> = plan.values.ids().map(|_| 0).collect();
    let mut add = |value: ValueId| uses[value] += 1;
    plan.outputs.iter().for_each(|o| add(o.value));
    plan.variables.iter().for_each(|v| add(v.after));
    plan.visit(&mut |step| match step {
        Step::Nest { nest, arguments } => {
            let roles = plan.nests[*nest].parameters().map(|(_, b)| b.role);
            let read = arguments.iter().zip(roles).filter(|(_, r)| *r == BufferRole::In);
            read.for_each(|(a, _)| add(a.value));
        }
        Step::Call { call, arguments, .. } => {
            call.split(arguments).0.iter().for_each(|a| add(a.value));
        }
        Step::Start { transfer, .. } => add(transfer.operand.value),
        Step::Wait(_) => {}
        Step::Copy { value, .. } => add(*value),
        Step::Loop(l) => {
            match &l.trip {
                Trip::Constant(_) => {}
                Trip::Value { count, .. } => add(count.value),
                Trip::While { before, after, .. } => {
                    add(before.value);
                    add(*after);
                }
            }
            l.carries.iter().flat_map(|c| [c.initial, c.output]).for_each(&mut add);
            l.slices.iter().for_each(|s| add(s.whole));
            let of_stack = |s: &Stack| s.initial.into_iter().chain([s.part]);
            l.stacks.iter().flat_map(of_stack).for_each(&mut add);
        }
        Step::If { predicate: chooser, merges, .. }
        | Step::Switch { index: chooser, merges, .. } => {
            add(chooser.value);
            merges.iter().flat_map(|m| &m.ways).for_each(|way| add(*way));
        }
    });
    uses
}

#[cfg(test)]
mod tests {
    use crate::lowered::{Command, lowered};

    /// The arguments of each kernel of a function.
    fn arguments(text: &str) -> Vec<usize> {
        let lowered = lowered(text);
        let launches = lowered.resolved.kernels().into_iter().filter_map(|command| match command {
            Command::Launch(launch) => Some(launch.arguments.len()),
            _ => None,
        });
        launches.collect()
    }

    /// A gradient is not stored if only the update of its weights reads it.
    #[test]
    fn a_product_that_only_its_follower_reads_is_not_stored() {
        let head =
            "func @f(%x: f32[16,8], %y: f32[16,4], state %w: f32[8,4]) -> (state w: f32[8,4]";
        let body = "{
            %0: f32[8,4] = dot_general %x, %y {contract=[[0],[0]]}
            %1: f32[8,4] = mul %0, %0
            %2: f32[8,4] = sub %w, %1
            return %2";
        // x, y, the old w and the new one.
        assert_eq!(arguments(&format!("{head}) {body} }}")), [4]);
        // The gradient is an output too.
        assert_eq!(arguments(&format!("{head}, g: f32[8,4]) {body}, %0 }}")), [5]);
    }
}
