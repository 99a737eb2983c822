//! A plan lowered for GPUs: one PTX module, and the plan's steps as launches on resolved
//! addresses.
//!
//! Nothing here needs a GPU. A machine ([`Machine`]: the driver, or the emulator) launches
//! kernels, runs a library's products, copies bytes and reads scalars. Loops and branches are
//! followed on the host ([`run`]), by code that all machines share.
//!
//! **Kernels are stored once.** The plan already shares nests that are equal up to names. Kernels
//! of calls, and stages that several calls have in common, are deduplicated by their code. A
//! kernel also depends on which of its buffers alias (in place) and on their alignment, which
//! differs only inside loops.
//!
//! **Followers.** A product of this crate and the nest that follows it are the same kernels. After a
//! library's product the nest has a kernel of its own.
//!
//! **Labels.** Every place carries the label of the value stored there. A value that a loop or
//! branch passes on without a step of its own keeps its label. A machine that records writes (the
//! emulator) uses the labels to check each read of each kernel.

mod addends;
mod labels;
mod prepare;
mod run;
mod uses;

pub use run::{Bound, Machine, StepError, run};

use crate::architecture::Architecture;
use crate::stage::Access;
use wengert_core::call::{Addends, Call};
use wengert_core::plan::{Plan, Space};
use wengert_core::{Diagnostic, Result, Verified};

/// Runs of more actions are not captured: each action would be a graph node in the driver's
/// memory.
const MAX_CAPTURED: u64 = 1 << 16;

/// A plan, lowered for a machine.
#[derive(Debug)]
pub struct Lowered {
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
    /// The plan's steps, in order.
    pub actions: Vec<Action>,
    /// Number of loops of the plan.
    pub(crate) loops: usize,
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

/// The implementation of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The machine's library, which leaves these addends of a GEMM.
    Library(Addends),
    /// Kernels of this crate, for this reason.
    Kernels(String),
}

/// Asks the machine whether its library does a call. Calls with equal questions are asked once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Question {
    /// The call.
    pub call: Call,
    /// The operand that shares the result's memory.
    pub in_place: Option<usize>,
    /// Every address is a multiple of this many bytes.
    pub alignment: u64,
    /// Bytes of workspace that it may use.
    pub workspace: u64,
}

/// Answers a question.
pub type Choose<'a> = dyn FnMut(&Question) -> Result<Choice> + 'a;

/// The answer of a machine without a library.
pub fn no_library(_: &Question) -> Result<Choice> {
    Ok(Choice::Kernels("there is no library".into()))
}

/// A resolved step of the plan. A step that contains steps has the number of its beginning.
#[derive(Debug)]
pub struct Action {
    /// Number of the plan's step.
    pub step: usize,
    /// Operations of the step, without those of nested actions ([`wengert_core::plan::work`]).
    pub work: u64,
    /// The action.
    pub kind: ActionKind,
}

/// Kind of an action.
#[derive(Debug)]
pub enum ActionKind {
    /// Launches a kernel.
    Launch(Launch),
    /// Runs a call on the library.
    Library {
        /// Its number in [`Lowered::library`].
        call: usize,
        /// Operands, then the result.
        arguments: Vec<Place>,
        /// Workspace that it may use.
        workspace: Option<Place>,
    },
    /// Copies bytes.
    Copy {
        /// Source.
        from: Place,
        /// Destination.
        to: Place,
    },
    /// Repeats actions.
    Loop {
        /// Number of its counter.
        counter: usize,
        /// Number of iterations.
        trip: Trip,
        /// Whether it counts down.
        reverse: bool,
        /// One iteration.
        body: Vec<Action>,
    },
    /// Runs one of several branches.
    Branch {
        /// A bool (true: the first branch) or an i32 (clamped).
        selector: Place,
        /// Whether the selector is a bool.
        is_bool: bool,
        /// The branches.
        ways: Vec<Vec<Action>>,
    },
}

/// A launch of a kernel on memory.
#[derive(Debug)]
pub struct Launch {
    /// Its number in [`Lowered::kernels`].
    pub kernel: usize,
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// One for each parameter.
    pub arguments: Vec<Place>,
}

/// Number of iterations of a loop.
#[derive(Debug)]
pub enum Trip {
    /// A constant.
    Constant(u64),
    /// An i32 (or, if `wide`, i64) that is read from memory when the loop begins, clamped to
    /// `0..=limit`.
    Value {
        /// Its place in memory.
        count: Place,
        /// Whether it is an i64.
        wide: bool,
        /// Maximum.
        limit: u64,
    },
    /// Runs while a bool in memory is true, at most `limit` times.
    While {
        /// Its place in memory.
        condition: Place,
        /// Maximum.
        limit: u64,
    },
}

/// The memory of a step's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The memory space.
    pub space: Space,
    /// Bytes from the beginning of the space.
    pub offset: u64,
    /// For each loop whose counter moves the place: its number, and bytes for each count.
    pub strides: Vec<(usize, u64)>,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it is read or written.
    pub access: Access,
    /// Label of the value in it. None for values from before the plan began, and for workspace.
    pub label: Option<u32>,
}

impl Lowered {
    /// Lowers a verified plan; `choose` decides how each call is done.
    ///
    /// Errors: the plan is for another target; it breaks an invariant; a nest or call has no
    /// kernel on this architecture.
    pub fn new(
        plan: &Verified<Plan>,
        architecture: Architecture,
        choose: &mut Choose<'_>,
    ) -> Result<Lowered> {
        prepare::prepare(plan, architecture, choose)
    }

    /// Whether a run is a fixed sequence of actions, whatever the data, of at most
    /// `MAX_CAPTURED` actions. Such a run can be captured once and replayed.
    pub fn is_straight(&self) -> bool {
        /// Number of launches, calls and copies. None if it depends on data.
        fn length(actions: &[Action]) -> Option<u64> {
            actions.iter().try_fold(0u64, |sum, action| {
                let more = match &action.kind {
                    ActionKind::Loop { trip: Trip::Constant(n), body, .. } => {
                        length(body)?.saturating_mul(*n)
                    }
                    ActionKind::Loop { .. } | ActionKind::Branch { .. } => return None,
                    _ => 1,
                };
                Some(sum.saturating_add(more))
            })
        }
        length(&self.actions).is_some_and(|n| n <= MAX_CAPTURED)
    }

    /// The text of a step of the plan, for messages.
    pub fn step_text(&self, number: usize) -> String {
        self.plan.step_text(number).unwrap_or_else(|| format!("step {number}"))
    }

    /// Adds the step in which an error happened to it.
    fn locate(&self, step: usize, error: Diagnostic) -> StepError {
        let context =
            format!("plan @{}, step {step} `{}`", self.plan.function, self.step_text(step));
        StepError { step, error: error.context(context) }
    }
}
