//! Substitution: rewrites the steps of a region over the memories and values of the enclosing
//! plan.
//!
//! [`Places`] maps each memory, value and loop of the region; [`Substitution`] rewrites the
//! steps.

use std::collections::BTreeMap;
use wengert_core::id::IdVec;
use wengert_core::plan::{
    Address, Argument, Carry, Loop, LoopId, Merge, Plan, Slice, Space, Stack, Step, Trip, ValueId,
};

/// The places in the enclosing plan of a region's memories, loops and values.
pub(super) struct Places {
    pub inputs: Vec<Address>,
    pub outputs: Vec<Address>,
    pub variables: Vec<Address>,
    pub arena: Address,
    /// Positions among the constants of the enclosing plan.
    pub constants: Vec<u32>,
    /// The number added to the numbers of loops.
    pub loops: u32,
    pub values: IdVec<ValueId, ValueId>,
}

impl Places {
    /// The place of a value of `bytes` bytes.
    fn address(&self, at: &Address, bytes: u64) -> Address {
        if bytes == 0 {
            return nowhere();
        }
        let base = match at.space {
            Space::Arena => self.arena.clone(),
            Space::Input(n) => self.inputs[n as usize].clone(),
            Space::Output(n) => self.outputs[n as usize].clone(),
            Space::Variable(n) => self.variables[n as usize].clone(),
            Space::Constant(n) => Address::new(Space::Constant(self.constants[n as usize]), 0),
        };
        let own = at.strides.iter().map(|(l, bytes)| (self.shifted(*l), *bytes));
        Address {
            space: base.space,
            offset: base.offset + at.offset,
            strides: base.strides.iter().copied().chain(own).collect(),
        }
    }

    fn shifted(&self, id: LoopId) -> LoopId {
        LoopId(id.0 + self.loops)
    }
}

/// The address of values without bytes.
pub(super) fn nowhere() -> Address {
    Address::new(Space::Arena, 0)
}

/// Duplicate slice parts of a region's loops, each mapped to the part that replaces it. `outer`
/// maps values of the region to values of the enclosing plan.
pub(super) fn merged(
    plan: &Plan,
    places: &Places,
    outer: &IdVec<ValueId, Option<ValueId>>,
) -> BTreeMap<ValueId, ValueId> {
    let mut merging = Merging { plan, places, outer, first: BTreeMap::new() };
    merging.steps(&plan.steps);
    merging.first
}

/// Slices of a region's loops that become one slice in the enclosing plan.
///
/// Two values of a region may be one value of the enclosing plan: an operand that is passed
/// twice. A loop of the region that slices both would then slice one value twice, which violates
/// P4. So the part of the first slice replaces the others.
struct Merging<'a> {
    plan: &'a Plan,
    places: &'a Places,
    /// Maps values of the region to values of the enclosing plan.
    outer: &'a IdVec<ValueId, Option<ValueId>>,
    /// Maps each removed part to its replacement.
    first: BTreeMap<ValueId, ValueId>,
}

impl Merging<'_> {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Loop(l) = step {
                self.slices(&l.slices);
            }
            step.blocks().into_iter().for_each(|block| self.steps(block));
        }
    }

    fn slices(&mut self, slices: &[Slice]) {
        // In the enclosing plan a whole is a value of that plan, or a new one for a value of the
        // region.
        let mut seen: Vec<((Option<ValueId>, ValueId), Address, ValueId)> = Vec::new();
        for slice in slices {
            let whole = self.first.get(&slice.whole).copied().unwrap_or(slice.whole);
            let identity = match self.outer[whole] {
                Some(outer) => (Some(outer), outer),
                None => (None, whole),
            };
            let at = self.places.address(&slice.at, self.plan.values[slice.whole].bytes());
            match seen.iter().find(|(i, a, _)| *i == identity && *a == at) {
                Some((_, _, part)) => drop(self.first.insert(slice.part, *part)),
                None => seen.push((identity, at, slice.part)),
            }
        }
    }
}

/// A region's steps over the memory of the enclosing plan.
pub(super) struct Substitution<'a> {
    pub inner: &'a Plan,
    pub places: &'a Places,
}

impl Substitution<'_> {
    fn value(&self, value: ValueId) -> ValueId {
        self.places.values[value]
    }

    /// The place of a value.
    fn at(&self, value: ValueId, at: &Address) -> Address {
        self.places.address(at, self.inner.values[value].bytes())
    }

    fn argument(&self, argument: &Argument) -> Argument {
        Argument { value: self.value(argument.value), at: self.at(argument.value, &argument.at) }
    }

    fn arguments(&self, arguments: &[Argument]) -> Vec<Argument> {
        arguments.iter().map(|a| self.argument(a)).collect()
    }

    fn merges(&self, merges: &[Merge]) -> Vec<Merge> {
        let merge = |m: &Merge| Merge {
            ways: m.ways.iter().map(|v| self.value(*v)).collect(),
            result: self.value(m.result),
            at: self.at(m.result, &m.at),
        };
        merges.iter().map(merge).collect()
    }

    /// Rewrites steps over the enclosing plan.
    pub fn steps(&self, steps: &[Step]) -> Vec<Step> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn step(&self, step: &Step) -> Step {
        match step {
            Step::Nest { nest, arguments } => {
                Step::Nest { nest: *nest, arguments: self.arguments(arguments) }
            }
            Step::Call { call, arguments, workspace } => Step::Call {
                call: call.clone(),
                arguments: self.arguments(arguments),
                workspace: workspace
                    .as_ref()
                    .map(|(at, bytes)| (self.places.address(at, *bytes), *bytes)),
            },
            Step::Start { .. } | Step::Wait(_) => {
                unreachable!("overlap: collectives of regions are calls")
            }
            Step::Copy { value, from, to } => Step::Copy {
                value: self.value(*value),
                from: self.at(*value, from),
                to: self.at(*value, to),
            },
            Step::Loop(l) => Step::Loop(self.looping(l)),
            Step::If { predicate, then, otherwise, merges } => Step::If {
                predicate: self.argument(predicate),
                then: self.steps(then),
                otherwise: self.steps(otherwise),
                merges: self.merges(merges),
            },
            Step::Switch { index, arms, merges } => Step::Switch {
                index: self.argument(index),
                arms: arms.iter().map(|arm| self.steps(arm)).collect(),
                merges: self.merges(merges),
            },
        }
    }

    fn looping(&self, l: &Loop) -> Loop {
        let carry = |c: &Carry| Carry {
            initial: self.value(c.initial),
            input: self.value(c.input),
            output: self.value(c.output),
            result: self.value(c.result),
            at: self.at(c.result, &c.at),
        };
        let slice = |s: &Slice| Slice {
            whole: self.value(s.whole),
            part: self.value(s.part),
            at: self.at(s.whole, &s.at),
        };
        let mut slices: Vec<Slice> = Vec::with_capacity(l.slices.len());
        for slice in l.slices.iter().map(slice) {
            // Merged slices have one part.
            if slices.iter().all(|s| s.part != slice.part) {
                slices.push(slice);
            }
        }
        let stack = |s: &Stack| Stack {
            initial: s.initial.map(|v| self.value(v)),
            part: self.value(s.part),
            whole: self.value(s.whole),
            at: self.at(s.whole, &s.at),
        };
        Loop {
            id: self.places.shifted(l.id),
            trip: match &l.trip {
                Trip::Constant(n) => Trip::Constant(*n),
                Trip::Value { count, limit } => {
                    Trip::Value { count: self.argument(count), limit: *limit }
                }
                Trip::While { before, after, limit } => Trip::While {
                    before: self.argument(before),
                    after: self.value(*after),
                    limit: *limit,
                },
            },
            reverse: l.reverse,
            carries: l.carries.iter().map(carry).collect(),
            slices,
            stacks: l.stacks.iter().map(stack).collect(),
            body: self.steps(&l.body),
        }
    }
}
