//! Where the values of a plan may be, by the addresses that its steps state.

use std::collections::BTreeMap;
use wengert_core::Id;
use wengert_core::plan::{Address, Plan, Space, Step, ValueId};

/// All addresses that a plan states for values.
///
/// Values that a loop or branch joins count as one, since they may have the same contents: a carry
/// and its result, a part and its whole. So the set of places of a value is too large rather than
/// too small.
pub struct Places {
    /// A representative of the values that are joined with each.
    joined: Vec<usize>,
    /// The addresses of joined values.
    at: BTreeMap<usize, Vec<(Address, u64)>>,
}

impl Places {
    pub fn of(plan: &Plan) -> Self {
        let joined = (0..plan.values.len()).collect();
        let mut places = Places { joined, at: BTreeMap::new() };
        plan.visit(&mut |step| match step {
            Step::Loop(l) => {
                for carry in &l.carries {
                    places.join(&[carry.initial, carry.input, carry.output, carry.result]);
                }
                l.slices.iter().for_each(|slice| places.join(&[slice.whole, slice.part]));
                for stack in &l.stacks {
                    places.join(&[stack.part, stack.whole]);
                    stack.initial.iter().for_each(|first| places.join(&[*first, stack.whole]));
                }
            }
            Step::If { merges, .. } | Step::Switch { merges, .. } => {
                for merge in merges {
                    places.join(&[&merge.ways[..], &[merge.result]].concat());
                }
            }
            Step::Nest { .. }
            | Step::Call { .. }
            | Step::Start { .. }
            | Step::Wait(_)
            | Step::Copy { .. } => {}
        });
        let mut add = |value: ValueId, at: &Address| {
            let bytes = plan.values[value].bytes();
            places.at.entry(places.joined[value.index()]).or_default().push((at.clone(), bytes));
        };
        plan.visit(&mut |step| match step {
            Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
                arguments.iter().for_each(|a| add(a.value, &a.at));
            }
            Step::Start { transfer, .. } | Step::Wait(transfer) => {
                [&transfer.operand, &transfer.result].into_iter().for_each(|a| add(a.value, &a.at));
            }
            Step::Copy { value, from, to } => [from, to].into_iter().for_each(|at| add(*value, at)),
            Step::Loop(l) => {
                l.carries.iter().for_each(|carry| add(carry.result, &carry.at));
                l.slices.iter().for_each(|slice| add(slice.whole, &slice.at));
                l.stacks.iter().for_each(|stack| add(stack.whole, &stack.at));
            }
            Step::If { merges, .. } | Step::Switch { merges, .. } => {
                merges.iter().for_each(|merge| add(merge.result, &merge.at));
            }
        });
        let number = |i: usize| i as u32;
        for (i, input) in plan.inputs.iter().enumerate() {
            add(input.value, &Address::new(Space::Input(number(i)), 0));
        }
        for (i, output) in plan.outputs.iter().enumerate() {
            add(output.value, &Address::new(Space::Output(number(i)), 0));
        }
        for (i, constant) in plan.constants.iter().enumerate() {
            add(constant.value, &Address::new(Space::Constant(number(i)), 0));
        }
        for (i, variable) in plan.variables.iter().enumerate() {
            for value in variable.before.into_iter().chain([variable.after]) {
                add(value, &Address::new(Space::Variable(number(i)), 0));
            }
        }
        places
    }

    fn join(&mut self, values: &[ValueId]) {
        let to = self.joined[values[0].index()];
        for value in values {
            let from = self.joined[value.index()];
            self.joined.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
        }
    }

    /// Whether some step puts the value, or a part of it, into bytes that begin here.
    pub fn may_hold(&self, plan: &Plan, value: ValueId, at: &Address) -> bool {
        let bytes = plan.values[value].bytes();
        let mut known = self.at.get(&self.joined[value.index()]).into_iter().flatten();
        known.any(|(other, size)| {
            let apart = at.offset + bytes <= other.offset || other.offset + size <= at.offset;
            other.space == at.space && (!other.strides.is_empty() || !apart)
        })
    }

    /// Whether something besides the step that makes a value names it: a step, or a result of the
    /// plan.
    pub fn is_read(&self, plan: &Plan, value: ValueId) -> bool {
        let mut named = 0;
        plan.visit(&mut |step| {
            let in_step = match step {
                Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
                    arguments.iter().any(|a| a.value == value)
                }
                Step::Start { transfer, .. } => {
                    transfer.operand.value == value || transfer.result.value == value
                }
                // It names what its start names.
                Step::Wait(_) => false,
                Step::Copy { value: copied, .. } => *copied == value,
                Step::Loop(l) => {
                    l.carries.iter().any(|c| c.initial == value || c.output == value)
                        || l.slices.iter().any(|s| s.whole == value)
                        || l.stacks.iter().any(|s| s.part == value || s.initial == Some(value))
                }
                Step::If { merges, .. } | Step::Switch { merges, .. } => {
                    merges.iter().any(|merge| merge.ways.contains(&value))
                }
            };
            named += usize::from(in_step);
        });
        named > 1
            || plan.outputs.iter().any(|output| output.value == value)
            || plan.variables.iter().any(|variable| variable.after == value)
    }
}
