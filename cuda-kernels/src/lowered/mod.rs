//! A plan lowered for GPUs: one PTX module, and the plan's steps as launches on resolved
//! addresses.
//!
//! Nothing here needs a GPU. A run ([`LoweredPlan::run`]) needs a
//! [`StepRunner`] of [`Command`]s: the driver, or the emulator.
//! Loops and branches are followed on the host, by the walk that all devices share
//! ([`wengert_core::plan::walk`]), or recorded for a device that executes them itself
//! ([`wengert_core::plan::record`]).
//!
//! **Kernels are stored once.** The plan already shares nests that are equal up to names. Kernels
//! of calls, and stages that several calls have in common, are deduplicated by their code. A
//! kernel also depends on which of its buffers alias (in place) and on their alignment, which
//! differs only inside loops.
//!
//! **Shared launches.** Kernels that do not depend on each other are launched together if they are
//! small or have one code, on targets with [`wengert_core::Target::shares_launches`] (`share`).
//!
//! **Collectives** are exchanges of bytes between ranks, and kernels that combine what arrives
//! (`collective`). Nothing here depends on the rank, so the module and the commands are the same on
//! all ranks.
//!
//! **Followers.** A product of this crate and the nest that follows it are the same kernels. After
//! a library's product the nest has a kernel of its own. The choice between the two is in
//! `choice`.

mod addends;
mod choice;
mod collective;
mod exchange;
mod pair;
mod prepare;
mod products;
mod share;
mod uses;

pub(crate) use addends::addends;
pub use choice::{Choice, Choose, Following, NoLibrary, Question};
pub use exchange::{Block, Blocks, Exchange, Pattern};
pub use products::{ProductChoice, ProductTable};

use crate::architecture::Architecture;
use wengert_core::plan::{Place, Plan, Recording, ResolvedPlan, StepRunner, Unrecordable};
use wengert_core::{Diagnostic, Result, Verified};

/// Longer runs are not captured: each command and copy would be a graph node in the driver's
/// memory.
const MAX_CAPTURED: u64 = 1 << 16;

/// A plan, lowered for a GPU.
#[derive(Debug)]
pub struct LoweredPlan {
    /// The plan; verified.
    pub plan: Verified<Plan>,
    /// The architecture that its kernels are for.
    pub architecture: Architecture,
    /// PTX text of the module of all its kernels. It begins with lines `// dynamic_shared KERNEL
    /// BYTES`, one for each kernel that needs dynamic shared memory.
    pub ptx: String,
    /// Its kernels, in the order of the module.
    pub kernels: Vec<KernelFacts>,
    /// Calls that a library does, in the order of the questions.
    pub library: Vec<Question>,
    /// Calls that kernels of this crate do, with the reason.
    pub own: Vec<(Question, String)>,
    /// The choice for each product, in the order of the steps.
    pub products: Vec<ProductChoice>,
    /// Bytes of the arguments of kernels that are not part of calls: nests, and addends that a
    /// library leaves. A step inside a loop counts once.
    pub nest_bytes: u64,
    /// Number of exchanges between ranks.
    pub exchanges: usize,
    /// The plan's steps, in order.
    pub resolved: ResolvedPlan<Command>,
}

/// Facts about a kernel, without its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelFacts {
    /// Its name in the module.
    pub name: String,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Bytes of dynamic shared memory: the maximum over its launches.
    pub dynamic_shared: u32,
    /// The nest `@name` or the call that it belongs to.
    pub origin: String,
}

/// A nest or a call, or a part of one, for a device.
#[derive(Debug)]
pub enum Command {
    /// Launches a kernel.
    Launch(Launch),
    /// Runs a call on the library.
    Library {
        /// Its number in [`LoweredPlan::library`].
        call: usize,
        /// Operands, then the result.
        arguments: Vec<Place>,
        /// Workspace that it may use.
        workspace: Option<Place>,
    },
    /// Starts an exchange between ranks.
    Start(Exchange),
    /// Lets later commands wait for an exchange that was started.
    Wait(Exchange),
    /// Writes the position of this rank in its group, an i32.
    Position {
        /// Axes of the mesh, which say what its group is.
        over: Vec<String>,
        /// Where it is written.
        result: Place,
    },
}

impl Command {
    /// The memory that it accesses.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (arguments, others): (&[Place], [Option<&Place>; 2]) = match self {
            Command::Launch(launch) => (&launch.arguments, [None; 2]),
            Command::Library { arguments, workspace, .. } => {
                (arguments, [workspace.as_ref(), None])
            }
            Command::Start(exchange) | Command::Wait(exchange) => {
                (&[], [Some(&exchange.source), Some(&exchange.target)])
            }
            Command::Position { result, .. } => (&[], [Some(result), None]),
        };
        arguments.iter().chain(others.into_iter().flatten())
    }

    /// Axes of the mesh, if it needs to know this rank's place in a group.
    pub fn group(&self) -> Option<&[String]> {
        match self {
            Command::Launch(_) | Command::Library { .. } => None,
            Command::Start(exchange) | Command::Wait(exchange) => Some(&exchange.over),
            Command::Position { over, .. } => Some(over),
        }
    }
}

/// A launch of a kernel on memory.
#[derive(Debug)]
pub struct Launch {
    /// Its number in [`LoweredPlan::kernels`].
    pub kernel: usize,
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// One for each parameter, or for each address of a parameter that is an array.
    pub arguments: Vec<Place>,
}

/// An error of a run, and the step of the plan in which it happened.
#[derive(Clone, PartialEq, Debug)]
pub struct StepError {
    /// Number of the step; beyond all steps if it happened in none.
    pub step: usize,
    /// The error; it includes the text of the step.
    pub error: Diagnostic,
}

impl LoweredPlan {
    /// Lowers a verified plan; `choose` decides how each call is done.
    ///
    /// Errors: the plan is for another target; it breaks an invariant; a nest or call has no
    /// kernel on this architecture.
    pub fn new(
        plan: &Verified<Plan>,
        architecture: Architecture,
        choose: &mut dyn Choose,
    ) -> Result<LoweredPlan> {
        prepare::prepare(plan, architecture, choose)
    }

    /// Whether a run is a fixed sequence of commands and copies, whatever the data, of at most
    /// `MAX_CAPTURED`. Such a run can be captured once and replayed, if it has no exchanges.
    pub fn is_straight(&self) -> bool {
        self.resolved.straight_length().is_some_and(|n| n <= MAX_CAPTURED)
    }

    /// How a device that executes loops and branches itself records a run.
    ///
    /// Error: why it cannot.
    pub fn recording(&self) -> Result<Recording, Unrecordable> {
        self.resolved.recording(MAX_CAPTURED, &|command, visit| command.places().for_each(visit))
    }

    /// Runs the plan once, with at most `limit` operations ([`wengert_core::plan::work`]).
    ///
    /// Errors: those of the device, with their step; the run exceeds the limit.
    pub fn run(
        &self,
        runner: &mut impl StepRunner<Kernel = Command, Error = StepError>,
        limit: u64,
    ) -> Result<(), StepError> {
        self.resolved.run(&mut self.resolved.counters(), runner, limit)
    }

    /// The text of a step of the plan, for messages.
    pub fn step_text(&self, number: usize) -> String {
        self.plan.step_text(number).unwrap_or_else(|| format!("step {number}"))
    }

    /// Adds the step in which an error happened to it.
    pub fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        let Some(step) = step else { return StepError { step: usize::MAX, error } };
        let context =
            format!("plan @{}, step {step} `{}`", self.plan.function, self.step_text(step));
        StepError { step, error: error.context(context) }
    }
}

/// The first function of a program, lowered for `sm_90` without a library.
#[cfg(test)]
fn lowered(text: &str) -> LoweredPlan {
    let program = wengert_core::graph::parse_program(text, "f.ir").expect("a program");
    let target = crate::target::target("sm_90");
    let plan = wengert_compiler::pipeline::compile(
        &program,
        &program.functions()[0].name,
        &wengert_core::Binding::new(),
        &target,
        &Default::default(),
    );
    let architecture = Architecture::from_name("sm_90").expect("a row");
    let plan = plan.expect("it compiles");
    LoweredPlan::new(&plan, architecture, &mut NoLibrary).expect("it has kernels")
}
