//! Plans on the CPU: steps followed one after another, each of which uses all threads.
//!
//! Everything is decided and allocated when the executable is made: kernels are compiled, the arena and the scratch memory exist,
//! constants lie in memory, addresses are resolved to (space, offset, strides). A run only adds offsets to pointers and calls kernels;
//! products use scratch memory of their own workspace, so nothing is allocated. A nest that follows a product runs on each part of it as it is made.
//!
//! The plan is verified first ([`wengert_core::plan::verify()`]); kernels check again, at every run, that the memory they get is as long,
//! as aligned and as separate as they rely on. So a wrong plan cannot become a wild write.

mod copy;
mod prepare;
mod profile;
mod run;

pub use profile::{Profile, Spent};

use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Buffer, Span, Workspace};
use crate::nest::CompiledNest;
use crate::pool::Pool;
use crate::simd::Simd;
use std::sync::Arc;
use wengert_core::Diagnostic;
use wengert_core::plan::{Plan, Space, Work};

/// A plan, ready to run.
#[derive(Debug)]
pub struct Executable {
    plan: Plan,
    nests: Vec<CompiledNest>,
    calls: Vec<CompiledCall>,
    actions: Vec<Action>,
    arena: AlignedBytes,
    constants: Vec<AlignedBytes>,
    workspace: Workspace,
    /// The counter of each loop, by its number.
    counters: Vec<u64>,
    /// How often each nest has been run.
    launches: Vec<u64>,
    /// Where time goes, if that is asked for.
    profile: Option<Profile>,
    /// Operations of the nests, and of the calls, by their numbers here.
    work: Work,
    work_of_calls: Vec<u64>,
    /// The least that a run takes, whatever the data.
    least: u64,
    /// Most operations of a run.
    limit: u64,
    /// Room for the spans of one step; as many as the step with the most has.
    spans: Vec<Span>,
}

/// The memory of a run that is not the executable's own: one buffer for each input, output and variable of the plan, in its order. What may be
/// written is borrowed exclusively, so it is one run's alone.
#[derive(Debug)]
pub struct Memory<'a, 'b> {
    /// Inputs, read.
    pub inputs: &'a [Buffer<'b>],
    /// Outputs, written.
    pub outputs: &'a mut [Buffer<'b>],
    /// Variables; those that the plan replaces are written.
    pub variables: &'a mut [Buffer<'b>],
}

/// Where a step finds a value: a resolved address.
#[derive(Clone, Debug)]
struct Place {
    space: Space,
    offset: usize,
    /// Number of a loop, and bytes for each of its iterations.
    strides: Vec<(usize, usize)>,
    bytes: usize,
    written: bool,
}

/// A step, resolved.
#[derive(Debug)]
enum Action {
    Nest {
        nest: usize,
        arguments: Vec<Place>,
    },
    Call {
        call: usize,
        arguments: Vec<Place>,
    },
    /// A call and the nest that follows it, on each part of the call's result as it is made; the call's arguments come first.
    Followed {
        call: usize,
        nest: usize,
        arguments: Vec<Place>,
    },
    Copy {
        from: Place,
        to: Place,
        work: u64,
    },
    Loop {
        counter: usize,
        /// Operations that an iteration takes at least.
        least: u64,
        trip: Trip,
        reverse: bool,
        body: Vec<Action>,
    },
    If {
        predicate: Place,
        then: Vec<Action>,
        otherwise: Vec<Action>,
    },
    Switch {
        index: Place,
        arms: Vec<Vec<Action>>,
    },
}

/// How often a loop runs, resolved.
#[derive(Debug)]
enum Trip {
    Constant(u64),
    Value { count: Place, wide: bool, limit: u64 },
    While { condition: Place, limit: u64 },
}

impl Executable {
    /// Makes a plan ready on the threads of the process, with the vector instructions of the machine.
    ///
    /// Errors: the plan is for another target, or breaks an invariant; the machine lacks the vector instructions; there is not enough memory.
    pub fn new(plan: &Plan) -> Result<Self, Diagnostic> {
        Executable::on(plan, Pool::global()?.clone(), Simd::choose()?)
    }

    /// Makes a plan ready on given threads and vector instructions.
    ///
    /// Errors: as for [`new`](Self::new).
    pub fn on(plan: &Plan, pool: Arc<Pool>, simd: Simd) -> Result<Self, Diagnostic> {
        prepare::prepare(plan, Workspace::new(pool, simd)?)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that belong to the executable: arena, constants, scratch memory of all threads.
    pub fn bytes(&self) -> usize {
        let constants: usize = self.constants.iter().map(|c| c.len()).sum();
        self.arena.len() + constants + self.workspace.bytes()
    }

    /// Sets the most operations that a run may take ([`wengert_core::plan::work`]); there is no limit before. A plan from a file may have loops of
    /// any length.
    pub fn limit(&mut self, operations: u64) {
        self.limit = operations;
    }

    /// How often each nest of the plan has been run, in all runs so far: what a loop costs, and a branch saves, is counted, not guessed.
    pub fn launches(&self) -> &[u64] {
        &self.launches
    }

    /// How many nests of the plan run on each part of the product before them as it is made.
    pub fn followed(&self) -> usize {
        fn count(actions: &[Action]) -> usize {
            let of = |action: &Action| match action {
                Action::Followed { .. } => 1,
                Action::Nest { .. } | Action::Call { .. } | Action::Copy { .. } => 0,
                Action::Loop { body, .. } => count(body),
                Action::If { then, otherwise, .. } => count(then) + count(otherwise),
                Action::Switch { arms, .. } => arms.iter().map(|arm| count(arm)).sum(),
            };
            actions.iter().map(of).sum()
        }
        count(&self.actions)
    }

    /// Measures from now on what each kernel takes, and forgets what was measured before.
    pub fn measure(&mut self) {
        self.profile = Some(Profile::new(self.nests.len(), self.calls.len()));
    }

    /// What kernels have taken since [`measure`](Self::measure).
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Runs the plan once.
    ///
    /// Errors: a buffer of `memory` is missing, has another number of bytes than the plan says, or may not be written
    /// where the plan writes; the run takes more operations than its [limit](Self::limit); a kernel panicked. After an error of the last two kinds,
    /// variables are in an undefined state.
    pub fn run(&mut self, memory: Memory<'_, '_>) -> Result<(), Diagnostic> {
        self.check(&memory)?;
        run::run(self, &memory)
    }

    fn check(&self, memory: &Memory<'_, '_>) -> Result<(), Diagnostic> {
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
            buffer.span().check(&variable.name, bytes(variable.after), variable.dtype.size(), written)?;
        }
        Ok(())
    }
}
