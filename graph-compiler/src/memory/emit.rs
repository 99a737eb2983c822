//! Emits the plan.

use super::moves::Move;
use super::part::{Laid, Part, Regions};
use super::planned::{Planned, Prediction};
use super::run::End;
use crate::kernels::cost::Rates;
use crate::kernels::{BufferId, Kernel, Kernels, Work};
use crate::pass::within;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use wengert_core::call::{Call, Collective};
use wengert_core::id::{Id, IdVec};
use wengert_core::plan::{
    Address, Argument, Constant, Input, Output, Plan, Step, Transfer, TransferId, Value, ValueId,
    Variable,
};
use wengert_core::{Literal, LocationId, TensorType};

/// The layout of a function or region.
pub(super) struct Decided<'a> {
    pub laid: &'a Laid<'a>,
    pub kernels: &'a Kernels,
    /// For each kernel of the function the plans of its regions.
    regions: &'a [Regions],
}

impl Decided<'_> {
    /// The plans of the regions of a kernel.
    pub fn regions(&self, k: usize) -> &Regions {
        &self.regions[self.laid.run.from[k]]
    }

    /// The address and bytes of a kernel's workspace.
    pub fn workspace(&self, k: usize) -> Option<(Address, u64)> {
        self.laid.slots.workspace(&self.laid.arena, k)
    }
}

/// Emits the plan, without its nests: they are in the table.
pub(super) fn emit(part: &Part<'_, '_>, laid: &Laid<'_>) -> Planned<Plan> {
    within("emit", || emitted(part, laid))
}

fn emitted(part: &Part<'_, '_>, laid: &Laid<'_>) -> Planned<Plan> {
    let kernels = &*laid.run.kernels;
    let decided = Decided { laid, kernels, regions: &part.regions };
    let (homes, moves, run) = (&laid.slots.homes, &laid.moves, &laid.run);
    let mut writer = Writer::new(&decided);
    let mut steps = Vec::new();
    moves.first.iter().for_each(|m| steps.push(writer.copy(m)));
    run.order.iter().for_each(|k| writer.kernel(*k, &mut steps));
    moves.last.iter().for_each(|m| steps.push(writer.copy(m)));
    let plan = Plan {
        function: kernels.function.clone(),
        binding: part.binding.clone(),
        target: part.target.clone(),
        mesh: kernels.mesh.clone(),
        inputs: homes
            .inputs
            .iter()
            .map(|n| {
                let (input, buffer) = &kernels.inputs[*n];
                Input { name: input.name.clone(), role: input.role, value: writer.value(*buffer) }
            })
            .collect(),
        outputs: homes
            .outputs
            .iter()
            .map(|n| {
                let (output, ty, buffer) = &kernels.outputs[*n];
                Output {
                    name: output.name.clone(),
                    shape: extents(ty),
                    value: writer.value(*buffer),
                }
            })
            .collect(),
        variables: homes
            .variables
            .iter()
            .map(|v| Variable {
                name: v.name.clone(),
                dtype: v.ty.dtype,
                shape: extents(&v.ty),
                before: v.before.map(|b| writer.value(b)),
                after: writer.value(v.after),
            })
            .collect(),
        constants: writer.constants,
        values: writer.values,
        nests: IdVec::new(),
        steps,
        arena: laid.arena.bytes,
        lower_bound: laid.arena.lower_bound,
    };
    let rates = Rates::of(part.target);
    Planned {
        plan,
        sources: writer.sources,
        all: Prediction::of(kernels, |k| !run.is_wait(k), &rates),
        repetitions: Prediction::of(kernels, |k| run.repeats[k], &rates),
    }
}

/// A plan under construction.
pub(super) struct Writer<'a> {
    pub decided: &'a Decided<'a>,
    /// Values: sources first, then in the order in which they are computed.
    pub values: IdVec<ValueId, Value>,
    of_buffer: IdVec<BufferId, Option<ValueId>>,
    pub constants: Vec<Constant>,
    /// Positions of the constants by the hash of the literal. Looked up, never iterated.
    literals: FxHashMap<u64, Vec<usize>>,
    /// Number of loops so far.
    pub loops: u32,
    /// The locations of each step so far, nested steps included.
    pub sources: Vec<Vec<LocationId>>,
}

impl<'a> Writer<'a> {
    fn new(decided: &'a Decided<'a>) -> Self {
        let kernels = decided.kernels;
        let mut writer = Writer {
            decided,
            values: IdVec::new(),
            of_buffer: kernels.buffers.ids().map(|_| None).collect(),
            constants: Vec::new(),
            literals: FxHashMap::default(),
            loops: 0,
            sources: Vec::new(),
        };
        kernels.inputs.iter().for_each(|(_, buffer)| writer.define(*buffer));
        for (buffer, literal) in &kernels.constants {
            writer.define(*buffer);
            let constant = Constant { value: writer.value(*buffer), literal: literal.clone() };
            writer.add(constant);
        }
        writer
    }

    fn add(&mut self, constant: Constant) -> usize {
        let position = self.constants.len();
        self.literals.entry(hash(&constant.literal)).or_default().push(position);
        self.constants.push(constant);
        position
    }

    /// The position of a literal's constant. Adds the constant if there is none.
    pub fn constant(&mut self, literal: &Literal, value: &Value) -> usize {
        let alike = self.literals.get(&hash(literal)).into_iter().flatten();
        let known = alike.copied().find(|n| self.constants[*n].literal == *literal);
        known.unwrap_or_else(|| {
            let value = self.values.push(value.clone());
            self.add(Constant { value, literal: literal.clone() })
        })
    }

    fn define(&mut self, buffer: BufferId) {
        let origin = self.decided.laid.run.origin[buffer];
        if origin != buffer {
            // Recomputed: the same value.
            self.of_buffer[buffer] = self.of_buffer[origin];
            return;
        }
        let named = &self.decided.kernels.buffers[buffer];
        let value = Value {
            name: named.name.clone(),
            dtype: named.ty.dtype,
            shape: extents(&named.ty),
            pitch: named.pitch,
        };
        self.of_buffer[buffer] = Some(self.values.push(value));
    }

    /// The value that a buffer holds.
    pub fn value(&self, buffer: BufferId) -> ValueId {
        self.of_buffer[buffer].expect("kernels were verified: every buffer that is used is defined")
    }

    /// The address of a buffer.
    pub fn address(&self, buffer: BufferId) -> Address {
        self.decided.laid.slots.address(&self.decided.laid.arena, buffer)
    }

    /// The value and address of a buffer.
    pub fn argument(&self, buffer: BufferId) -> Argument {
        Argument { value: self.value(buffer), at: self.address(buffer) }
    }

    /// Records the locations of the next step.
    pub fn source(&mut self, locations: &[LocationId]) {
        self.sources.push(locations.to_vec());
    }

    fn kernel(&mut self, k: usize, steps: &mut Vec<Step>) {
        let decided = self.decided;
        let kernel = &decided.kernels.kernels[k];
        kernel.writes.iter().for_each(|buffer| self.define(*buffer));
        let list = |reads: &[BufferId], writes: &[BufferId]| -> Vec<Argument> {
            reads.iter().chain(writes).map(|b| self.argument(*b)).collect()
        };
        let arguments = || list(&kernel.reads, &kernel.writes);
        let end = decided.laid.run.end(k);
        if let (Work::Call(Call::Collective(call)), Some(end)) = (&kernel.work, end) {
            let step = self.transfer(kernel, call, end);
            self.source(&kernel.locations);
            steps.push(step);
            return;
        }
        let step = match &kernel.work {
            Work::Nest(_) => {
                let nest =
                    decided.laid.nests[k].expect("every nest kernel has its nest in the table");
                Step::Nest { nest, arguments: arguments() }
            }
            Work::Call(call) => {
                let workspace = decided.workspace(k);
                Step::Call { call: call.clone(), arguments: arguments(), workspace }
            }
            Work::Followed(followed) => {
                let parts = followed.split(kernel);
                let workspace = decided.workspace(k);
                let arguments = list(parts.operands, parts.result);
                let nest = decided.laid.nests[k].expect("every follower is in the table");
                let follower = Step::Nest { nest, arguments: list(&parts.reads, parts.writes) };
                steps.push(Step::Call { call: followed.call.clone(), arguments, workspace });
                self.source(&kernel.locations);
                follower
            }
            Work::Control(control) => return self.control(k, control, steps),
        };
        self.source(&kernel.locations);
        steps.push(step);
    }

    /// A start or a wait. Its kernel names the operand, then the result.
    fn transfer(&self, kernel: &Kernel, call: &Collective, end: End) -> Step {
        let mut arguments = kernel.reads.iter().chain(&kernel.writes).map(|b| self.argument(*b));
        let mut next = || arguments.next().expect("an exchange has an operand and a result");
        let (operand, result) = (next(), next());
        let (End::Start(number) | End::Wait(number)) = end;
        let transfer = Transfer { id: TransferId::new(number), operand, result };
        match end {
            End::Start(_) => Step::Start { transfer, call: call.clone() },
            End::Wait(_) => Step::Wait(transfer),
        }
    }

    fn copy(&mut self, step: &Move) -> Step {
        let laid = self.decided.laid;
        let temporary = || laid.slots.temporary(&laid.arena, step.buffer);
        self.source(&[]);
        Step::Copy {
            value: self.value(step.buffer),
            from: if step.from_temporary { temporary() } else { self.address(step.buffer) },
            to: step.to.map_or_else(temporary, |space| Address::new(space, 0)),
        }
    }
}

fn hash(literal: &Literal) -> u64 {
    let mut hasher = FxHasher::default();
    literal.hash(&mut hasher);
    hasher.finish()
}

fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("kernels were verified: types are bound")
}
