//! The plan written down.

use super::moves::{Move, Moves};
use super::nests::Nests;
use super::slots::{Arena, Slots};
use crate::kernels::{BufferId, Kernels, Work};
use wengert_core::id::IdVec;
use wengert_core::plan::{Argument, Constant, Input, Output, Plan, Step, Value, ValueId, Variable};
use wengert_core::{Binding, Target, TensorType};

pub(super) struct Emitter<'a> {
    pub kernels: &'a Kernels,
    pub order: &'a [usize],
    pub slots: &'a Slots,
    pub arena: &'a Arena,
    pub nests: Nests,
}

impl Emitter<'_> {
    pub fn plan(self, target: &Target, binding: &Binding, moves: &Moves) -> Plan {
        let (kernels, homes) = (self.kernels, &self.slots.homes);
        let values = Values::new(kernels, self.order);
        let steps = moves.first.iter().map(|m| self.copy(&values, m));
        let steps = steps.chain(self.order.iter().map(|k| self.step(&values, *k)));
        let steps = steps.chain(moves.last.iter().map(|m| self.copy(&values, m))).collect();
        Plan {
            function: kernels.function.clone(),
            binding: binding.clone(),
            target: target.clone(),
            inputs: homes
                .inputs
                .iter()
                .map(|n| {
                    let (input, buffer) = &kernels.inputs[*n];
                    Input { name: input.name.clone(), role: input.role, value: values.of(*buffer) }
                })
                .collect(),
            outputs: homes
                .outputs
                .iter()
                .map(|n| {
                    let (output, ty, buffer) = &kernels.outputs[*n];
                    Output { name: output.name.clone(), shape: extents(ty), value: values.of(*buffer) }
                })
                .collect(),
            variables: homes
                .variables
                .iter()
                .map(|v| Variable {
                    name: v.name.clone(),
                    dtype: v.ty.dtype,
                    shape: extents(&v.ty),
                    before: v.before.map(|b| values.of(b)),
                    after: values.of(v.after),
                })
                .collect(),
            constants: kernels
                .constants
                .iter()
                .map(|(buffer, literal)| Constant { value: values.of(*buffer), literal: literal.clone() })
                .collect(),
            values: values.table,
            nests: self.nests.distinct,
            steps,
            arena: self.arena.bytes,
            lower_bound: self.arena.lower_bound,
        }
    }

    fn step(&self, values: &Values, k: usize) -> Step {
        let kernel = &self.kernels.kernels[k];
        let argument =
            |b: &BufferId| Argument { value: values.of(*b), at: self.slots.address(self.arena, *b) };
        let arguments = kernel.reads.iter().chain(&kernel.writes).map(argument).collect();
        match &kernel.work {
            Work::Nest(_) => {
                let nest = self.nests.of_kernel[k].expect("every nest kernel has its nest in the table");
                Step::Nest { nest, arguments }
            }
            Work::Call(call) => {
                let workspace = self.slots.workspace(self.arena, k);
                Step::Call { call: call.clone(), arguments, workspace }
            }
        }
    }

    fn copy(&self, values: &Values, step: &Move) -> Step {
        let temporary = || self.slots.temporary(self.arena, step.buffer);
        Step::Copy {
            value: values.of(step.buffer),
            from: if step.from_temporary { temporary() } else { self.slots.address(self.arena, step.buffer) },
            to: step.to.map_or_else(temporary, |space| wengert_core::plan::Address::new(space, 0)),
        }
    }
}

/// Values of the plan, numbered: sources first, then in the order in which they are made.
struct Values {
    table: IdVec<ValueId, Value>,
    of_buffer: IdVec<BufferId, Option<ValueId>>,
}

impl Values {
    fn new(kernels: &Kernels, order: &[usize]) -> Values {
        let mut values =
            Values { table: IdVec::new(), of_buffer: kernels.buffers.ids().map(|_| None).collect() };
        let sources = kernels.inputs.iter().map(|(_, b)| *b).chain(kernels.constants.iter().map(|(b, _)| *b));
        let made = order.iter().flat_map(|k| kernels.kernels[*k].writes.iter().copied());
        for buffer in sources.chain(made) {
            let named = &kernels.buffers[buffer];
            let value = Value { name: named.name.clone(), dtype: named.ty.dtype, shape: extents(&named.ty) };
            values.of_buffer[buffer] = Some(values.table.push(value));
        }
        values
    }

    fn of(&self, buffer: BufferId) -> ValueId {
        self.of_buffer[buffer].expect("kernels were verified: every buffer that is used is defined")
    }
}

fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("kernels were verified: types are bound")
}
