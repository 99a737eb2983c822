//! Loops and branches: embeds the plans of regions in the enclosing plan.
//!
//! A region was planned like a function, over its own memories. Embedding is a substitution. Each
//! of its memories gets a place in the enclosing plan; for slices and stacks of a loop the place
//! advances with the loop's counter. Its values become the construct's operands or new values. A
//! region may be embedded more than once (the condition of a while), and a region's plan may
//! itself have embedded regions.

use super::emit::Writer;
use super::planned::Planned;
use super::substitution::{Places, Substitution, merged, nowhere};
use crate::kernels::control::{Control, Form, LoopForm};
use crate::kernels::{BufferId, Kernel};
use wengert_core::DType;
use wengert_core::id::IdVec;
use wengert_core::plan::{
    Address, Argument, Carry, Loop, LoopId, Merge, Plan, Slice, Space, Stack, Step, Trip, ValueId,
};

/// The memories and values that a construct passes to a region.
struct Given {
    inputs: Vec<Address>,
    outputs: Vec<Address>,
    variables: Vec<Address>,
    /// Pairs of a value of the region and the same value in the enclosing plan.
    known: Vec<(ValueId, ValueId)>,
}

impl Writer<'_> {
    /// Emits the steps of a construct.
    pub(super) fn control(&mut self, k: usize, control: &Control, steps: &mut Vec<Step>) {
        let decided = self.decided;
        let kernel = &decided.kernels.kernels[k];
        match control.form(kernel) {
            Form::Branch => steps.push(self.branch(k, kernel)),
            Form::Loop(form) => self.repeat(k, kernel, form, steps),
        }
    }

    fn bytes(&self, value: ValueId) -> u64 {
        self.values[value].bytes()
    }

    fn branch(&mut self, k: usize, kernel: &Kernel) -> Step {
        let chooses = self.argument(kernel.reads[0]);
        let at: Vec<Address> = kernel.writes.iter().map(|b| self.address(*b)).collect();
        self.source(&kernel.locations);
        let mut arms = Vec::new();
        let mut ways: Vec<Vec<ValueId>> = vec![Vec::new(); at.len()];
        for region in &self.decided.regions(k).plans {
            let taken = kernel.reads[1..].iter().map(|b| self.argument(*b));
            let (known, variables) = with(region, taken);
            let given = Given { inputs: vec![], outputs: at.clone(), variables, known };
            let (steps, values) = self.embed(k, region, given);
            for (way, output) in ways.iter_mut().zip(&region.plan.outputs) {
                way.push(values[output.value]);
            }
            arms.push(steps);
        }
        let merges = ways.into_iter().zip(&kernel.writes).zip(at);
        let merges = merges
            .map(|((ways, write), at)| Merge { ways, result: self.value(*write), at })
            .collect();
        if self.values[chooses.value].dtype == DType::Bool {
            let otherwise = arms.pop().unwrap_or_default();
            let then = arms.pop().unwrap_or_default();
            Step::If { predicate: chooses, then, otherwise, merges }
        } else {
            Step::Switch { index: chooses, arms, merges }
        }
    }

    fn repeat(&mut self, k: usize, kernel: &Kernel, form: LoopForm, steps: &mut Vec<Step>) {
        let regions = self.decided.regions(k);
        let step = regions.plans.last().expect("a loop has a step");
        let inner = &step.plan;
        let (reads, writes) = (&kernel.reads, &kernel.writes);
        // Carries and initial stacks are placed where the results lie.
        let initial = |n: usize| match n.checked_sub(form.carries) {
            None => Some(reads[form.first_carry() + n]),
            Some(stack) if form.has_initials() => Some(reads[form.first_initial() + stack]),
            Some(_) => None,
        };
        for (n, write) in writes.iter().enumerate() {
            self.bring(initial(n), *write, steps);
        }
        let places: Vec<Address> = writes.iter().map(|b| self.address(*b)).collect();
        let carried = |value: ValueId, n: usize| Argument { value, at: places[n].clone() };
        let captures: Vec<Argument> = reads[form.first_capture()..form.first_initial()]
            .iter()
            .map(|b| self.argument(*b))
            .collect();
        let tested = Address::new(Space::Arena, self.workspace(k));
        let mut before = None;
        if form.conditional {
            let first =
                (0..form.carries).map(|n| carried(self.value(reads[form.first_carry() + n]), n));
            let first: Vec<Argument> = first.chain(captures.iter().cloned()).collect();
            before = Some(self.condition(k, first, &tested, steps));
        }
        let id = LoopId(self.loops);
        self.loops += 1;
        self.source(&kernel.locations);
        let part = |at: &Address, bytes: u64| match bytes {
            0 => nowhere(),
            _ => {
                let mut at = at.clone();
                at.strides.push((id, bytes));
                at
            }
        };

        let given = (0..form.carries).map(|n| {
            let variable = &inner.variables[n];
            let before = variable.before.expect("what goes from step to step is there before");
            let value = self.values.push(inner.values[before].clone());
            carried(value, n)
        });
        let given: Vec<Argument> = given.collect();
        let inputs_of_carries: Vec<ValueId> = given.iter().map(|a| a.value).collect();
        let (mut known, variables) = with(step, given.into_iter().chain(captures.iter().cloned()));
        let mut slices: Vec<Slice> = Vec::new();
        let mut inputs = Vec::new();
        for (n, input) in inner.inputs.iter().enumerate() {
            let Argument { value: whole, at } = self.argument(reads[form.first_slice() + n]);
            inputs.push(part(&at, inner.values[input.value].bytes()));
            // Two slices of the same bytes are one slice.
            let same = slices.iter().find(|s| s.whole == whole && s.at == at).map(|s| s.part);
            let value = same.unwrap_or_else(|| {
                let part = self.values.push(inner.values[input.value].clone());
                slices.push(Slice { whole, part, at });
                part
            });
            known.push((input.value, value));
        }
        let outputs = inner.outputs.iter().zip(&places[form.carries..]);
        let outputs = outputs.map(|(o, at)| part(at, inner.values[o.value].bytes())).collect();
        let (mut body, values) = self.embed(k, step, Given { inputs, outputs, variables, known });
        let carries = (0..form.carries).map(|n| Carry {
            initial: self.value(reads[form.first_carry() + n]),
            input: inputs_of_carries[n],
            output: values[inner.variables[n].after],
            result: self.value(writes[n]),
            at: places[n].clone(),
        });
        let carries: Vec<Carry> = carries.collect();
        let stacks = (form.carries..writes.len()).map(|n| Stack {
            initial: initial(n).map(|b| self.value(b)),
            part: values[inner.outputs[n - form.carries].value],
            whole: self.value(writes[n]),
            at: places[n].clone(),
        });
        let stacks = stacks.collect();
        let trip = match before {
            Some(before) => {
                let last = carries.iter().enumerate().map(|(n, c)| carried(c.output, n));
                let last: Vec<Argument> = last.chain(captures).collect();
                let after = self.condition(k, last, &tested, &mut body);
                Trip::While {
                    before: Argument { value: before, at: tested },
                    after,
                    limit: form.limit,
                }
            }
            None if form.counted => {
                Trip::Value { count: self.argument(reads[0]), limit: form.limit }
            }
            None => Trip::Constant(form.limit),
        };
        steps.push(Step::Loop(Loop {
            id,
            trip,
            reverse: form.reverse,
            carries,
            slices,
            stacks,
            body,
        }));
    }

    /// Copies an initial value to the place of its result, unless it is there.
    fn bring(&mut self, initial: Option<BufferId>, write: BufferId, steps: &mut Vec<Step>) {
        let Some(Argument { value, at: from }) = initial.map(|b| self.argument(b)) else { return };
        let to = self.address(write);
        if from != to && self.bytes(value) > 0 {
            self.source(&[]);
            steps.push(Step::Copy { value, from, to });
        }
    }

    /// Emits the steps of a while's condition. Returns its value, which lies at `tested`.
    fn condition(
        &mut self,
        k: usize,
        given: Vec<Argument>,
        tested: &Address,
        steps: &mut Vec<Step>,
    ) -> ValueId {
        let region = &self.decided.regions(k).plans[0];
        let (known, variables) = with(region, given);
        let given = Given { inputs: vec![], outputs: vec![tested.clone()], variables, known };
        let (more, values) = self.embed(k, region, given);
        steps.extend(more);
        values[region.plan.outputs[0].value]
    }

    /// The first byte of the arena for the regions of kernel `k`.
    fn workspace(&self, k: usize) -> u64 {
        self.decided.workspace(k).map_or(0, |(at, _)| at.offset)
    }

    /// Rewrites a region's steps for this plan. Also returns its values.
    fn embed(
        &mut self,
        k: usize,
        region: &Planned<Plan>,
        given: Given,
    ) -> (Vec<Step>, IdVec<ValueId, ValueId>) {
        let plan = &region.plan;
        let mut values: IdVec<ValueId, Option<ValueId>> = plan.values.ids().map(|_| None).collect();
        given.known.into_iter().for_each(|(inner, outer)| values[inner] = Some(outer));
        let mut constants = Vec::new();
        for constant in &plan.constants {
            let n = self.constant(&constant.literal, &plan.values[constant.value]);
            values[constant.value] = Some(self.constants[n].value);
            constants.push(u32::try_from(n).expect("a function has fewer than 2^32 constants"));
        }
        let arena = Address::new(Space::Arena, self.workspace(k) + self.decided.regions(k).arena);
        let Given { inputs, outputs, variables, .. } = given;
        let none = IdVec::default();
        let mut places = Places {
            inputs,
            outputs,
            variables,
            arena,
            constants,
            loops: self.loops,
            values: none,
        };
        let first = merged(plan, &places, &values);
        for (v, value) in plan.values.iter().filter(|(v, _)| !first.contains_key(v)) {
            values[v].get_or_insert_with(|| self.values.push(value.clone()));
        }
        let of = |v| {
            values[first.get(&v).copied().unwrap_or(v)].expect("every first part has got a value")
        };
        places.values = plan.values.ids().map(of).collect();
        let substitution = Substitution { inner: plan, places: &places };
        let steps = substitution.steps(&plan.steps);
        self.loops += count_loops(&plan.steps);
        self.sources.extend(region.sources.iter().cloned());
        (steps, places.values)
    }
}

/// Pairs the old values of a region's variables, in order, with the given values; and the places
/// of these.
fn with(
    region: &Planned<Plan>,
    given: impl IntoIterator<Item = Argument>,
) -> (Vec<(ValueId, ValueId)>, Vec<Address>) {
    let variables = region.plan.variables.iter().zip(given);
    let both = variables.map(|(variable, argument)| {
        let inner = variable.before.expect("no region makes a variable");
        ((inner, argument.value), argument.at)
    });
    both.unzip()
}

fn count_loops(steps: &[Step]) -> u32 {
    let of = |step: &Step| {
        u32::from(matches!(step, Step::Loop(_)))
            + step.blocks().into_iter().map(count_loops).sum::<u32>()
    };
    steps.iter().map(of).sum()
}
