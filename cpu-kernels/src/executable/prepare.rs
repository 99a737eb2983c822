//! From a verified plan to an executable: compiles kernels, pairs calls with nests that follow
//! them, allocates.

use super::{CpuExecutable, Kernel};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Span, Workspace};
use crate::nest::CompiledNest;
use wengert_core::plan::{self, Memories, Plan, Prepare, Resolver, Step, resolve};
use wengert_core::{Diagnostic, Id, Verified};

pub(super) fn prepare(
    plan: &Verified<Plan>,
    mut workspace: Workspace,
) -> Result<CpuExecutable, Diagnostic> {
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
    let mut preparing = Preparing { plan, nests: &nests, calls: Vec::new(), most: 0, scratch: 0 };
    let resolved = resolve(plan, &mut preparing)?;
    let Preparing { calls, most, scratch, .. } = preparing;
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
                    None => Kernel::Call { call, arguments },
                }
            }
            _ => unreachable!("the walk executes all other steps"),
        };
        self.most = self.most.max(kernel.arguments().len());
        let count = 1 + usize::from(matches!(kernel, Kernel::Followed { .. }));
        kernels.push(kernel);
        Ok(count)
    }
}
