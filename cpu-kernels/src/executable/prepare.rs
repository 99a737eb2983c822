//! From a verified plan to an executable: compiles kernels, resolves addresses, allocates.

use super::{Action, Executable, Place, Trip};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Span, Workspace};
use crate::nest::CompiledNest;
use wengert_core::nest::BufferRole;
use wengert_core::plan::{self, Address, Argument, Plan, Step, ValueId, Work};
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
            let mut action = self.step(step)?;
            if let [next, after @ ..] = behind
                && plan::follower(self.plan, step, next).is_some()
            {
                rest = after;
                let follower = self.step(next)?;
                action = self.followed(action, follower);
            }
            actions.push(action);
        }
        Ok(actions)
    }

    /// A product and its follower as one action.
    fn followed(&mut self, product: Action, follower: Action) -> Action {
        let (Action::Call { call, mut arguments }, Action::Nest { nest, arguments: of_nest }) =
            (product, follower)
        else {
            unreachable!("a nest follows a product")
        };
        let bytes = self.nests[nest].scratch_bytes();
        self.scratch = self.scratch.max(self.calls[call].scratch_followed(bytes));
        arguments.extend(of_nest);
        self.with(Action::Followed { call, nest, arguments })
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
