//! Plans on the CPU: steps run one after another, each on all threads. Some independent products
//! that are next to each other run together instead, each on some of the threads.
//!
//! Everything is decided and allocated when the executable is made: kernels are compiled, the
//! arena and the scratch memory exist, constants are in memory, and addresses are resolved
//! ([`wengert_core::plan::resolve()`]). The steps are walked by [`wengert_core::plan::walk`], which
//! all devices share. A run only adds offsets to pointers and calls kernels. Products use
//! scratch memory of their own workspace, so a run allocates nothing, except for collectives. A
//! nest that follows a product runs on each part of the product as soon as that part is final.
//!
//! Transfers between ranks advance between kernels, and where the plan waits
//! ([`crate::transfers`]).
//!
//! The plan is [verified](Verified). At every run, kernels check the
//! length, the alignment and the separation of their memory again. So a wrong plan cannot cause a
//! wild write.

mod copy;
mod prepare;
mod profile;
mod run;

pub use profile::{Profile, Spent};

use crate::call::{CompiledCall, CompiledCollective};
use crate::memory::{AlignedBytes, Buffer, Span, Workspace};
use crate::nest::CompiledNest;
use crate::pool::Pool;
use crate::ranks::World;
use crate::simd::Simd;
use std::ops::Range;
use std::sync::Arc;
use wengert_core::plan::{Counters, Memories, Place, Plan, ResolvedPlan};
use wengert_core::{Diagnostic, Verified};

/// A plan, ready to run.
#[derive(Debug)]
pub struct CpuExecutable {
    plan: Verified<Plan>,
    nests: Vec<CompiledNest>,
    calls: Vec<CompiledCall>,
    /// The collectives that the plan starts, by the numbers of their transfers.
    collectives: Vec<CompiledCollective>,
    resolved: ResolvedPlan<Kernel>,
    counters: Counters,
    /// The memories of the run: those below, and those of the caller.
    memories: Memories<Span>,
    arena: AlignedBytes,
    constants: Vec<AlignedBytes>,
    workspace: Workspace,
    /// Number of runs of each nest.
    launches: Vec<u64>,
    /// Time of each kernel, if it is measured.
    profile: Option<Profile>,
    /// Most operations of a run.
    limit: u64,
    /// Room for the spans of one step, as many as the largest step has.
    spans: Vec<Span>,
}

/// The memory of a run that the executable does not own: one buffer for each input, output and
/// variable of the plan, in its order. Written memory is borrowed exclusively, so no other run
/// uses it.
#[derive(Debug)]
pub struct RunMemory<'a, 'b> {
    /// Inputs, read.
    pub inputs: &'a [Buffer<'b>],
    /// Outputs, written.
    pub outputs: &'a mut [Buffer<'b>],
    /// Variables; those that the plan replaces are written.
    pub variables: &'a mut [Buffer<'b>],
}

/// A nest, a call or a transfer, by its number.
#[derive(Debug)]
enum Kernel {
    Nest {
        nest: usize,
        arguments: Vec<Place>,
    },
    Call {
        call: usize,
        arguments: Vec<Place>,
    },
    /// A call and the nest that follows it on each part of the call's result; the call's
    /// arguments come first.
    Followed {
        call: usize,
        nest: usize,
        arguments: Vec<Place>,
    },
    /// Starts a transfer.
    Start {
        transfer: usize,
        arguments: Vec<Place>,
    },
    /// Waits for a transfer.
    Wait {
        transfer: usize,
        arguments: Vec<Place>,
    },
    /// Calls that run together; the arguments of all of them.
    Together {
        calls: Range<usize>,
        arguments: Vec<Place>,
    },
}

impl Kernel {
    fn arguments(&self) -> &[Place] {
        let (Kernel::Nest { arguments, .. }
        | Kernel::Call { arguments, .. }
        | Kernel::Start { arguments, .. }
        | Kernel::Wait { arguments, .. }
        | Kernel::Together { arguments, .. }
        | Kernel::Followed { arguments, .. }) = self;
        arguments
    }
}

impl CpuExecutable {
    /// Prepares a plan on the process' threads, with the vector instructions of the machine.
    ///
    /// Errors: the plan is for another target, breaks an invariant, or runs on several ranks; the
    /// machine lacks the vector instructions; there is not enough memory.
    pub fn new(plan: &Verified<Plan>) -> Result<Self, Diagnostic> {
        CpuExecutable::on(plan, Pool::global()?.clone(), Simd::choose()?)
    }

    /// Prepares a plan on given threads and vector instructions.
    ///
    /// Errors: as for [`new`](Self::new).
    pub fn on(plan: &Verified<Plan>, pool: Arc<Pool>, simd: Simd) -> Result<Self, Diagnostic> {
        prepare::prepare(plan, Workspace::new(pool, simd)?, None)
    }

    /// Prepares a plan on given threads and vector instructions, to run among the ranks of a
    /// world. All ranks prepare the same plans in the same order, and run them in the same order.
    /// A plan without a mesh runs on this rank alone.
    ///
    /// Errors: as for [`new`](Self::new); the mesh of the plan has another number of ranks; the
    /// ranks prepare different plans; the transport fails.
    pub fn among(
        plan: &Verified<Plan>,
        pool: Arc<Pool>,
        simd: Simd,
        world: &World,
    ) -> Result<Self, Diagnostic> {
        prepare::prepare(plan, Workspace::new(pool, simd)?, Some(world))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that the executable owns: arena, constants, scratch memory of all threads.
    pub fn bytes(&self) -> usize {
        let constants: usize = self.constants.iter().map(|c| c.len()).sum();
        self.arena.len() + constants + self.workspace.bytes()
    }

    /// Limits the operations of a run ([`wengert_core::plan::work`]); initially there is no
    /// limit. A plan from a file may have loops of any length.
    pub fn limit(&mut self, operations: u64) {
        self.limit = operations;
    }

    /// Number of times each nest of the plan has run, in all runs so far. It measures the cost of
    /// loops and the savings of branches.
    pub fn launches(&self) -> &[u64] {
        &self.launches
    }

    /// Number of nests of the plan that run on each part of the product before them.
    pub fn followed(&self) -> usize {
        let kernels = self.resolved.kernels().into_iter();
        kernels.filter(|kernel| matches!(kernel, Kernel::Followed { .. })).count()
    }

    /// Number of calls of the plan that run together with others.
    pub fn together(&self) -> usize {
        let calls = |kernel: &Kernel| match kernel {
            Kernel::Together { calls, .. } => calls.len(),
            _ => 0,
        };
        self.resolved.kernels().into_iter().map(calls).sum()
    }

    /// Starts to measure the time of each kernel; earlier measurements are discarded.
    pub fn measure(&mut self) {
        self.profile = Some(Profile::new(self.nests.len(), self.calls.len()));
    }

    /// The time of kernels since [`measure`](Self::measure).
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Runs the plan once.
    ///
    /// Errors: a buffer of `memory` is missing, has another number of bytes than the plan says,
    /// or may not be written where the plan writes; the run takes more operations than its
    /// [limit](Self::limit); a kernel panicked. After an error of the last two kinds, variables
    /// are in an undefined state.
    pub fn run(&mut self, memory: RunMemory<'_, '_>) -> Result<(), Diagnostic> {
        self.check(&memory)?;
        run::run(self, &memory)
    }

    fn check(&self, memory: &RunMemory<'_, '_>) -> Result<(), Diagnostic> {
        let plan = &self.plan;
        let count = |what: &str, wanted: usize, given: usize| match wanted == given {
            true => Ok(()),
            false => Err(Diagnostic::new(format!("{wanted} {what}s wanted, {given} given"))),
        };
        count("input", plan.inputs.len(), memory.inputs.len())?;
        count("output", plan.outputs.len(), memory.outputs.len())?;
        count("variable", plan.variables.len(), memory.variables.len())?;
        let bytes = |value| plan.values[value].bytes() as usize;
        let align = |value| plan.values[value].dtype.size();
        for (input, buffer) in plan.inputs.iter().zip(memory.inputs) {
            buffer.span().check(&input.name, bytes(input.value), align(input.value), false)?;
        }
        for (output, buffer) in plan.outputs.iter().zip(&*memory.outputs) {
            buffer.span().check(&output.name, bytes(output.value), align(output.value), true)?;
        }
        for (variable, buffer) in plan.variables.iter().zip(&*memory.variables) {
            let written = variable.before != Some(variable.after);
            buffer.span().check(
                &variable.name,
                bytes(variable.after),
                variable.dtype.size(),
                written,
            )?;
        }
        Ok(())
    }
}
