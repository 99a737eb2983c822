//! The bytes of the arena that a step reads and writes.

use super::intervals::Span;
use super::{Address, Plan, Space, Step, Transfer, Trip, ValueId};
use crate::nest::BufferRole;

/// Placeholder for workspace among values.
pub(super) const SCRATCH: ValueId = ValueId(u32::MAX);

/// Bytes of the arena, and the value that they hold.
pub(super) type Needed = (Span, ValueId);

/// The bytes of a value, if it has any and lies in the arena. `None` for an address with strides:
/// it is a part of a whole, which is needed as a unit.
pub(super) fn span(plan: &Plan, value: ValueId, at: &Address) -> Option<Needed> {
    let bytes = plan.values[value].bytes();
    let counts = bytes > 0 && at.space == Space::Arena && at.strides.is_empty();
    counts.then(|| (Span { memory: 0, start: at.offset, end: at.offset + bytes }, value))
}

/// The reads and the writes of a step without nested steps; workspace counts as a write.
pub(super) fn uses(plan: &Plan, step: &Step) -> (Vec<Needed>, Vec<Needed>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    match step {
        Step::Nest { nest, arguments } => {
            for (argument, (_, buffer)) in arguments.iter().zip(plan.nests[*nest].parameters()) {
                let list = if buffer.role == BufferRole::In { &mut reads } else { &mut writes };
                list.extend(span(plan, argument.value, &argument.at));
            }
        }
        Step::Call { call, arguments, workspace } => {
            let (operands, results) = call.split(arguments);
            reads.extend(operands.iter().filter_map(|a| span(plan, a.value, &a.at)));
            writes.extend(results.iter().filter_map(|a| span(plan, a.value, &a.at)));
            let scratch = workspace.as_ref().filter(|w| w.1 > 0);
            writes.extend(scratch.map(|(at, bytes)| {
                let end = at.offset.saturating_add(*bytes);
                (Span { memory: 0, start: at.offset, end }, SCRATCH)
            }));
        }
        Step::Start { transfer: Transfer { operand, result, .. }, .. } => {
            reads.extend(span(plan, operand.value, &operand.at));
            writes.extend(span(plan, result.value, &result.at));
        }
        // The bytes of both are in use until here.
        Step::Wait(Transfer { operand, result, .. }) => {
            reads.extend([operand, result].into_iter().filter_map(|a| span(plan, a.value, &a.at)));
        }
        Step::Copy { value, from, to } => {
            reads.extend(span(plan, *value, from));
            writes.extend(span(plan, *value, to));
        }
        Step::Loop(l) => {
            match &l.trip {
                Trip::Constant(_) => {}
                Trip::Value { count: tested, .. } | Trip::While { before: tested, .. } => {
                    reads.extend(span(plan, tested.value, &tested.at));
                }
            }
            for c in &l.carries {
                reads.extend(span(plan, c.initial, &c.at));
                writes.extend(span(plan, c.result, &c.at));
            }
            reads.extend(l.slices.iter().filter_map(|s| span(plan, s.whole, &s.at)));
            for s in &l.stacks {
                reads.extend(s.initial.and_then(|v| span(plan, v, &s.at)));
                writes.extend(span(plan, s.whole, &s.at));
            }
        }
        Step::If { predicate: tested, merges, .. } | Step::Switch { index: tested, merges, .. } => {
            reads.extend(span(plan, tested.value, &tested.at));
            writes.extend(merges.iter().filter_map(|m| span(plan, m.result, &m.at)));
        }
    }
    (reads, writes)
}
