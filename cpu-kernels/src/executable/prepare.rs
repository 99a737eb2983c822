//! From a verified plan to an executable: compiles kernels, pairs calls with nests that follow
//! them, allocates.

use super::{CpuExecutable, Kernel};
use crate::call::{CompiledCall, CompiledCollective};
use crate::memory::{AlignedBytes, Span, Workspace};
use crate::nest::CompiledNest;
use crate::ranks::World;
use wengert_core::plan::{self, Memories, Place, Plan, Prepare, Resolver, Step, resolve};
use wengert_core::{Diagnostic, Id, Verified};

/// Most calls that run together.
const TOGETHER: usize = 8;

pub(super) fn prepare(
    plan: &Verified<Plan>,
    mut workspace: Workspace,
    world: Option<&World>,
) -> Result<CpuExecutable, Diagnostic> {
    if plan.target.name != "cpu" {
        return Err(Diagnostic::new(format!(
            "the plan of @{} is for `{}`",
            plan.function, plan.target.name
        ))
        .help("compile the function for the CPU"));
    }
    match world {
        Some(world) if !plan.mesh.is_empty() => workspace.join(world.enter(plan)?),
        None if !plan.mesh.is_empty() => {
            let (function, mesh) = (&plan.function, &plan.mesh);
            return Err(Diagnostic::new(format!(
                "the plan of @{function} runs on the {} ranks of {mesh}, and this rank is alone",
                mesh.ranks()
            ))
            .help("join the others, and prepare it by `CpuExecutable::among`"));
        }
        _ => {}
    }
    let simd = workspace.simd();
    let nests = plan.nests.ids().map(|id| CompiledNest::of_plan(plan, id, simd));
    let nests: Vec<CompiledNest> = nests.collect::<Result<_, _>>()?;
    let mut preparing = Preparing {
        plan,
        nests: &nests,
        calls: Vec::new(),
        collectives: Vec::new(),
        most: 0,
        scratch: 0,
    };
    let resolved = resolve(plan, &mut preparing)?;
    let Preparing { calls, collectives, most, scratch, .. } = preparing;
    let of_nests = nests.iter().map(CompiledNest::scratch_bytes).max();
    workspace.reserve(of_nests.unwrap_or(0).max(scratch))?;
    calls.iter().try_for_each(|call| call.reserve(&mut workspace))?;
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
    let of = |memory: &AlignedBytes, written| Span::new(memory.pointer(), memory.len(), written);
    let memories = Memories {
        arena: of(&arena, true),
        inputs: Vec::with_capacity(plan.inputs.len()),
        outputs: Vec::with_capacity(plan.outputs.len()),
        variables: Vec::with_capacity(plan.variables.len()),
        constants: constants.iter().map(|constant| of(constant, false)).collect(),
    };
    Ok(CpuExecutable {
        plan: plan.clone(),
        nests,
        calls,
        collectives,
        counters: resolved.counters(),
        resolved,
        memories,
        arena,
        constants,
        workspace,
        launches: vec![0; plan.nests.len()],
        profile: None,
        limit: u64::MAX,
        spans: vec![Span::EMPTY; most],
    })
}

struct Preparing<'a> {
    plan: &'a Plan,
    nests: &'a [CompiledNest],
    calls: Vec<CompiledCall>,
    collectives: Vec<CompiledCollective>,
    /// The largest number of arguments of a kernel.
    most: usize,
    /// Bytes of scratch memory of calls with following nests.
    scratch: usize,
}

impl<'p> Prepare<'p> for Preparing<'_> {
    type Kernel = Kernel;

    fn prepare(
        &mut self,
        resolver: &Resolver<'p>,
        steps: &'p [Step],
        kernels: &mut Vec<Kernel>,
    ) -> Result<usize, Diagnostic> {
        let arguments = resolver.arguments(&steps[0]);
        let kernel = match &steps[0] {
            Step::Nest { nest, .. } => Kernel::Nest { nest: nest.index(), arguments },
            Step::Call { call: of_plan, .. } => {
                self.calls.push(CompiledCall::new(of_plan)?);
                let call = self.calls.len() - 1;
                let follower = steps.get(1).and_then(|next| match next {
                    Step::Nest { nest, .. } => {
                        plan::follower(self.plan, &steps[0], next)?;
                        Some((nest.index(), resolver.arguments(next)))
                    }
                    _ => None,
                });
                match follower {
                    Some((nest, of_nest)) => {
                        let bytes = self.nests[nest].scratch_bytes();
                        self.scratch = self.scratch.max(self.calls[call].scratch_followed(bytes));
                        let arguments = arguments.into_iter().chain(of_nest).collect();
                        Kernel::Followed { call, nest, arguments }
                    }
                    None => self.together(resolver, steps, arguments)?,
                }
            }
            Step::Start { transfer, call } => {
                // They are numbered in the order of their starts (P18).
                self.collectives.push(CompiledCollective::new(call)?);
                Kernel::Start { transfer: transfer.id.index(), arguments }
            }
            Step::Wait(transfer) => Kernel::Wait { transfer: transfer.id.index(), arguments },
            _ => unreachable!("the walk executes all other steps"),
        };
        self.most = self.most.max(kernel.arguments().len());
        let count = match &kernel {
            Kernel::Followed { .. } => 2,
            Kernel::Together { calls, .. } => calls.len(),
            _ => 1,
        };
        kernels.push(kernel);
        Ok(count)
    }
}

impl Preparing<'_> {
    /// The last call, which is that of the first step, with the calls of the steps after it that it
    /// may run together with.
    fn together(
        &mut self,
        resolver: &Resolver<'_>,
        steps: &[Step],
        mut arguments: Vec<Place>,
    ) -> Result<Kernel, Diagnostic> {
        let first = self.calls.len() - 1;
        for number in 1..steps.len().min(TOGETHER) {
            let step = &steps[number];
            let Step::Call { call: next, .. } = step else { break };
            let followed =
                steps.get(number + 1).and_then(|after| plan::follower(self.plan, step, after));
            let own = resolver.arguments(step);
            if followed.is_some() || !are_independent(&arguments, &own) {
                break;
            }
            let next = CompiledCall::new(next)?;
            if !self.calls[first].is_like(&next) {
                break;
            }
            self.calls.push(next);
            arguments.extend(own);
        }
        let calls = first..self.calls.len();
        Ok(match calls.len() {
            1 => Kernel::Call { call: first, arguments },
            _ => Kernel::Together { calls, arguments },
        })
    }
}

/// True if no place of one list is written and meets one of the other.
fn are_independent(some: &[Place], others: &[Place]) -> bool {
    some.iter().all(|a| {
        others.iter().all(|b| {
            let end = |place: &Place| place.offset.saturating_add(place.bytes);
            // With different strides they may be anywhere.
            let apart = a.space != b.space
                || (a.strides == b.strides && (end(a) <= b.offset || end(b) <= a.offset));
            apart || !(a.is_written() || b.is_written())
        })
    })
}
