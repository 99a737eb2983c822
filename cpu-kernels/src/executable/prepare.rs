//! From a plan to an executable: verifies, compiles kernels, resolves addresses, allocates.

use super::{Action, Executable, Place, Trip};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Buffer, Workspace};
use crate::nest::CompiledNest;
use wengert_core::nest::BufferRole;
use wengert_core::plan::{self, Address, Argument, Plan, Step, ValueId};
use wengert_core::{DType, Diagnostic, Id};

pub(super) fn prepare(plan: &Plan, mut workspace: Workspace) -> Result<Executable, Diagnostic> {
    if plan.target.name != "cpu" {
        return Err(Diagnostic::new(format!("the plan of @{} is for `{}`", plan.function, plan.target.name))
            .help("compile the function for the CPU"));
    }
    plan::verify(plan).map_err(|e| e.context(format!("the plan of @{}", plan.function)))?;
    let simd = workspace.simd();
    let nests: Vec<CompiledNest> =
        plan.nests.iter().map(|(_, nest)| CompiledNest::new(nest, simd)).collect::<Result<_, _>>()?;
    let mut preparing = Preparing { plan, calls: Vec::new(), most: 0, loops: 0 };
    let actions = preparing.steps(&plan.steps)?;
    let calls = preparing.calls;
    let scratch =
        nests.iter().map(CompiledNest::scratch_bytes).chain(calls.iter().map(CompiledCall::scratch_bytes));
    workspace.reserve(scratch.max().unwrap_or(0))?;
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
        counters: vec![0; preparing.loops],
        launches: vec![0; plan.nests.len()],
        profile: None,
        buffers: vec![Buffer::reading::<u8>(&[]); preparing.most],
    })
}

struct Preparing<'a> {
    plan: &'a Plan,
    calls: Vec<CompiledCall>,
    most: usize,
    loops: usize,
}

impl Preparing<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Action>, Diagnostic> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<Action, Diagnostic> {
        Ok(match step {
            Step::Nest { nest, arguments } => {
                let roles = self.plan.nests[*nest].parameters().map(|(_, b)| b.role != BufferRole::In);
                let arguments =
                    arguments.iter().zip(roles).map(|(a, written)| self.place(a, written)).collect();
                self.with(Action::Nest { nest: nest.index(), arguments })
            }
            Step::Call { call, arguments, .. } => {
                self.calls.push(CompiledCall::new(call)?);
                let (operands, results) = call.split(arguments);
                let operands = operands.iter().map(|a| self.place(a, false));
                let arguments = operands.chain(results.iter().map(|a| self.place(a, true))).collect();
                self.with(Action::Call { call: self.calls.len() - 1, arguments })
            }
            Step::Copy { value, from, to } => {
                Action::Copy { from: self.at(*value, from, false), to: self.at(*value, to, true) }
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
                Action::Loop { counter, trip, reverse: l.reverse, body: self.steps(&l.body)? }
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

    /// Remembers how many buffers the step has.
    fn with(&mut self, action: Action) -> Action {
        if let Action::Nest { arguments, .. } | Action::Call { arguments, .. } = &action {
            self.most = self.most.max(arguments.len());
        }
        action
    }

    fn place(&self, argument: &Argument, written: bool) -> Place {
        self.at(argument.value, &argument.at, written)
    }

    fn at(&self, value: ValueId, at: &Address, written: bool) -> Place {
        let size = |n: u64| usize::try_from(n).expect("the verifier found every address within its space");
        Place {
            space: at.space,
            offset: size(at.offset),
            strides: at.strides.iter().map(|(l, stride)| (l.index(), size(*stride))).collect(),
            bytes: size(self.plan.values[value].bytes()),
            written,
        }
    }
}
