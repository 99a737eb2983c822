//! From a verified plan to an executable: compiles kernels, resolves addresses, allocates.

use super::{Action, Executable, Place, Trip};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Span, Workspace};
use crate::nest::CompiledNest;
use wengert_core::nest::{self, BufferRole};
use wengert_core::plan::{self, Address, Argument, NestId, Plan, Step, ValueId, Work};
use wengert_core::{DType, Diagnostic, Id, Verified};

pub(super) fn prepare(
    plan: &Verified<Plan>,
    mut workspace: Workspace,
) -> Result<Executable, Diagnostic> {
    if plan.target.name != "cpu" {
        return Err(Diagnostic::new(format!(
            "the plan of @{} is for `{}`",
            plan.function, plan.target.name
        ))
        .help("compile the function for the CPU"));
    }
    let simd = workspace.simd();
    let nests = plan.nests.ids().map(|id| CompiledNest::of_plan(plan, id, simd));
    let nests: Vec<CompiledNest> = nests.collect::<Result<_, _>>()?;
    let mut preparing = Preparing {
        plan,
        nests: &nests,
        calls: Vec::new(),
        work: Work::of(plan),
        work_of_calls: Vec::new(),
        most: 0,
        loops: 0,
        scratch: 0,
    };
    let actions = preparing.steps(&plan.steps)?;
    let Preparing { calls, work, work_of_calls, most, loops, scratch, .. } = preparing;
    let alone = nests
        .iter()
        .map(CompiledNest::scratch_bytes)
        .chain(calls.iter().map(CompiledCall::scratch_bytes));
    workspace.reserve(alone.max().unwrap_or(0).max(scratch))?;
    let mut constants = Vec::new();
    for constant in &plan.constants {
        let bytes = constant.literal.to_bytes();
        let mut memory = AlignedBytes::new(bytes.len())?;
        memory.copy_from_slice(&bytes);
        constants.push(memory);
    }
    let arena = usize::try_from(plan.arena).ok().map_or_else(
        || Err(Diagnostic::new(format!("an arena of {} bytes is larger than memory", plan.arena))),
        AlignedBytes::new,
    )?;
    Ok(Executable {
        plan: plan.clone(),
        nests,
        calls,
        actions,
        arena,
        constants,
        workspace,
        counters: vec![0; loops],
        launches: vec![0; plan.nests.len()],
        profile: None,
        least: work.least(plan, &plan.steps),
        work,
        work_of_calls,
        limit: u64::MAX,
        spans: vec![Span::EMPTY; most],
    })
}

struct Preparing<'a> {
    plan: &'a Plan,
    nests: &'a [CompiledNest],
    calls: Vec<CompiledCall>,
    work: Work,
    work_of_calls: Vec<u64>,
    most: usize,
    loops: usize,
    /// Bytes of scratch memory of calls with following nests.
    scratch: usize,
}

impl Preparing<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Action>, Diagnostic> {
        let mut actions = Vec::with_capacity(steps.len());
        let mut rest = steps;
        while let [step, behind @ ..] = rest {
            rest = behind;
            let action = self.step(step)?;
            actions.push(match behind {
                [Step::Nest { nest, arguments }, after @ ..] => {
                    match self.follow(action, *nest, arguments) {
                        Ok(followed) => {
                            rest = after;
                            followed
                        }
                        Err(alone) => alone,
                    }
                }
                _ => action,
            });
        }
        Ok(actions)
    }

    /// Pairs a call with the nest after it, if the nest can run on each part of the call's result
    /// as soon as that part is final. The nest must read each element of the result in its own
    /// row only, read nothing else that the call writes, and write nothing that the call reads.
    /// Otherwise returns the call alone.
    ///
    /// The planner arranges for such pairs; the plan is correct either way.
    fn follow(
        &mut self,
        call: Action,
        nest: NestId,
        of_nest: &[Argument],
    ) -> Result<Action, Action> {
        let Action::Call { call: number, arguments } = call else { return Err(call) };
        let alone = |arguments| Err(Action::Call { call: number, arguments });
        let Some((result, operands)) = arguments.split_last() else { return alone(arguments) };
        let nest_of = &self.plan.nests[nest];
        let roles = nest_of.parameters().map(|(_, b)| b.role != BufferRole::In);
        let places: Vec<Place> =
            of_nest.iter().zip(roles).map(|(a, written)| self.place(a, written)).collect();
        let reads =
            || (0..places.len()).filter(|n| !places[*n].written && places[*n].meets(result));
        let mut made = reads();
        let follows = match (made.next(), made.next()) {
            (Some(n), None) => {
                places[n].is_same(result) && nest::follows(nest_of, nest::BufferId::new(n))
            }
            _ => false,
        };
        let writes = || places.iter().filter(|p| p.written);
        let apart = writes().all(|w| {
            !operands.iter().any(|o| o.meets(w)) && (!w.meets(result) || w.is_same(result))
        });
        if !self.calls[number].may_be_followed() || !follows || !apart {
            return alone(arguments);
        }
        let bytes = self.nests[nest.index()].scratch_bytes();
        self.scratch = self.scratch.max(self.calls[number].scratch_followed(bytes));
        let arguments = arguments.into_iter().chain(places).collect();
        Ok(self.with(Action::Followed { call: number, nest: nest.index(), arguments }))
    }

    fn step(&mut self, step: &Step) -> Result<Action, Diagnostic> {
        Ok(match step {
            Step::Nest { nest, arguments } => {
                let roles =
                    self.plan.nests[*nest].parameters().map(|(_, b)| b.role != BufferRole::In);
                let arguments = arguments
                    .iter()
                    .zip(roles)
                    .map(|(a, written)| self.place(a, written))
                    .collect();
                self.with(Action::Nest { nest: nest.index(), arguments })
            }
            Step::Call { call, arguments, .. } => {
                self.calls.push(CompiledCall::new(call)?);
                self.work_of_calls.push(Work::call(call));
                let (operands, results) = call.split(arguments);
                let operands = operands.iter().map(|a| self.place(a, false));
                let arguments =
                    operands.chain(results.iter().map(|a| self.place(a, true))).collect();
                self.with(Action::Call { call: self.calls.len() - 1, arguments })
            }
            Step::Copy { value, from, to } => {
                let (from, to) = (self.at(*value, from, false), self.at(*value, to, true));
                Action::Copy { from, to, work: Work::copy(&self.plan.values[*value]) }
            }
            Step::Loop(l) => {
                let counter = l.id.index();
                self.loops = self.loops.max(counter + 1);
                let trip = match &l.trip {
                    plan::Trip::Constant(count) => Trip::Constant(*count),
                    plan::Trip::Value { count, limit } => Trip::Value {
                        count: self.place(count, false),
                        wide: self.plan.values[count.value].dtype == DType::I64,
                        limit: *limit,
                    },
                    plan::Trip::While { before, limit, .. } => {
                        Trip::While { condition: self.place(before, false), limit: *limit }
                    }
                };
                let least = self.work.least(self.plan, &l.body);
                Action::Loop {
                    counter,
                    least,
                    trip,
                    reverse: l.reverse,
                    body: self.steps(&l.body)?,
                }
            }
            Step::If { predicate, then, otherwise, .. } => Action::If {
                predicate: self.place(predicate, false),
                then: self.steps(then)?,
                otherwise: self.steps(otherwise)?,
            },
            Step::Switch { index, arms, .. } => Action::Switch {
                index: self.place(index, false),
                arms: arms.iter().map(|arm| self.steps(arm)).collect::<Result<_, _>>()?,
            },
        })
    }

    /// Updates the largest number of buffers of a step.
    fn with(&mut self, action: Action) -> Action {
        if let Action::Nest { arguments, .. }
        | Action::Call { arguments, .. }
        | Action::Followed { arguments, .. } = &action
        {
            self.most = self.most.max(arguments.len());
        }
        action
    }

    fn place(&self, argument: &Argument, written: bool) -> Place {
        self.at(argument.value, &argument.at, written)
    }

    fn at(&self, value: ValueId, at: &Address, written: bool) -> Place {
        let size =
            |n: u64| usize::try_from(n).expect("the verifier found every address within its space");
        Place {
            space: at.space,
            offset: size(at.offset),
            strides: at.strides.iter().map(|(l, stride)| (l.index(), size(*stride))).collect(),
            bytes: size(self.plan.values[value].bytes()),
            written,
        }
    }
}

impl Place {
    /// True if both are the same bytes.
    fn is_same(&self, other: &Place) -> bool {
        (self.space, self.offset, self.bytes) == (other.space, other.offset, other.bytes)
            && self.strides == other.strides
    }

    /// True if the two may share bytes.
    fn meets(&self, other: &Place) -> bool {
        let some = self.space == other.space && self.bytes > 0 && other.bytes > 0;
        let end = |place: &Place| place.offset.saturating_add(place.bytes);
        let within = self.offset < end(other) && other.offset < end(self);
        // With different strides it may be anywhere.
        some && (within || self.strides != other.strides)
    }
}
