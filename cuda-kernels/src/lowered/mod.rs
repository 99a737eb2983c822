//! A plan made ready for GPUs: one PTX module, and the plan's steps as launches on resolved addresses.
//!
//! Nothing here needs a GPU. What a machine ([`Machine`]: the driver, or the emulator) must do is launch a kernel, run a library's product, copy
//! bytes, and read a scalar; loops and branches are followed here ([`run`]), on the host, by code that all machines share.
//!
//! **Kernels are stored once.** Nests that are equal but for names are one nest of the plan already; kernels of calls, and the stages that
//! calls have in common, are compared by their code. A kernel also depends on which of its buffers are the same memory (in place) and on how
//! they are aligned, which differs only inside loops.
//!
//! **Labels.** Every place carries the label of the value that lies there: equal labels for what a loop or branch hands on without a step of its
//! own. A machine that remembers what was written where (the emulator) can so check each read of each kernel.

mod epilogue;
mod labels;
mod prepare;
mod run;

pub use run::{Bound, Machine, StepError, run};

use crate::architecture::Architecture;
use crate::stage::Access;
use wengert_core::call::{Call, Epilogue};
use wengert_core::plan::{Plan, Space};
use wengert_core::{Diagnostic, Result};

/// A longer line is not captured: each of its actions would be a node, in the driver's memory.
const MAX_CAPTURED: u64 = 1 << 16;

/// A plan, ready for a machine.
#[derive(Debug)]
pub struct Lowered {
    /// The plan; verified.
    pub plan: Plan,
    /// What its kernels are for.
    pub architecture: Architecture,
    /// The module of all its kernels, as text. It begins with lines `// dynamic_shared KERNEL BYTES` for kernels that want such memory at
    /// their launch.
    pub ptx: String,
    /// Its kernels, in the order of the module.
    pub kernels: Vec<KernelFacts>,
    /// Calls that a library does, in the order in which they were asked for.
    pub library: Vec<Question>,
    /// Calls that kernels of ours do, with the reason.
    pub own: Vec<(Question, String)>,
    /// What happens, in order.
    pub actions: Vec<Action>,
    /// Loops of the plan.
    pub(crate) loops: usize,
}

/// What is known of a kernel without its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelFacts {
    /// Its name in the module.
    pub name: String,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Bytes of shared memory beyond these, of the launch that wants most.
    pub dynamic_shared: u32,
    /// The nest `@name` or call that it belongs to.
    pub origin: String,
}

/// Who does a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The machine's library, but for these steps of a GEMM's epilogue.
    Library(Epilogue),
    /// Kernels of our own, for this reason.
    Kernels(String),
}

/// A call of which the machine is asked whether its library does it: once for all calls that are equal in this.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Question {
    /// Which.
    pub call: Call,
    /// The operand that shares the result's memory.
    pub in_place: Option<usize>,
    /// What all addresses are multiples of.
    pub alignment: u64,
    /// Bytes that it may use meanwhile.
    pub workspace: u64,
}

/// Answers a question.
pub type Choose<'a> = dyn FnMut(&Question) -> Result<Choice> + 'a;

/// The answer of a machine without a library.
pub fn no_library(_: &Question) -> Result<Choice> {
    Ok(Choice::Kernels("there is no library".into()))
}

/// A step of the plan, resolved; with its number in the plan, steps in steps counted where they begin.
#[derive(Debug)]
pub struct Action {
    /// Number of the plan's step.
    pub step: usize,
    /// Operations that it takes, without those of the actions in it ([`wengert_core::plan::work`]).
    pub work: u64,
    /// What is done.
    pub kind: ActionKind,
}

/// What an action does.
#[derive(Debug)]
pub enum ActionKind {
    /// Launches a kernel.
    Launch(Launch),
    /// Has a library do a call.
    Library {
        /// Its number in [`Lowered::library`].
        call: usize,
        /// Operands, then the result.
        arguments: Vec<Place>,
        /// Memory that it may use meanwhile.
        workspace: Option<Place>,
    },
    /// Copies bytes.
    Copy {
        /// From here.
        from: Place,
        /// To here.
        to: Place,
    },
    /// Repeats actions.
    Loop {
        /// Number of its counter.
        counter: usize,
        /// How often.
        trip: Trip,
        /// Whether it counts down.
        reverse: bool,
        /// One iteration.
        body: Vec<Action>,
    },
    /// Takes one of several ways.
    Branch {
        /// A bool (true: the first way) or an i32 (clamped).
        selector: Place,
        /// Whether the selector is a bool.
        is_bool: bool,
        /// The ways.
        ways: Vec<Vec<Action>>,
    },
}

/// A kernel on memory.
#[derive(Debug)]
pub struct Launch {
    /// Its number in [`Lowered::kernels`].
    pub kernel: usize,
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Bytes of shared memory beyond what it declares.
    pub dynamic_shared: u32,
    /// One for each parameter.
    pub arguments: Vec<Place>,
}

/// How often a loop runs.
#[derive(Debug)]
pub enum Trip {
    /// So often.
    Constant(u64),
    /// As an i32 (or, if `wide`, i64) in memory says when the loop begins, clamped to `0..=limit`.
    Value {
        /// Where it stands.
        count: Place,
        /// Whether it is an i64.
        wide: bool,
        /// At most so often.
        limit: u64,
    },
    /// While a bool in memory is true, at most `limit` times.
    While {
        /// Where it stands.
        condition: Place,
        /// At most so often.
        limit: u64,
    },
}

/// Where a step finds a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// In which memory.
    pub space: Space,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Number of a loop, and bytes for each count of it.
    pub strides: Vec<(usize, u64)>,
    /// Bytes.
    pub bytes: u64,
    /// What is done there.
    pub access: Access,
    /// What lies there; nothing for what was there before the plan began, and for workspace.
    pub label: Option<u32>,
}

impl Lowered {
    /// Lowers a verified plan; `choose` says who does a call.
    ///
    /// Errors: the plan is for another target; it breaks an invariant; a nest or call has no kernel on this architecture.
    pub fn new(plan: &Plan, architecture: Architecture, choose: &mut Choose<'_>) -> Result<Lowered> {
        prepare::prepare(plan, architecture, choose)
    }

    /// Whether a run is one straight line, whatever the data, and not too long: such a run can be captured once and replayed.
    pub fn is_straight(&self) -> bool {
        /// Launches, calls and copies; nothing if they depend on data.
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

    /// The step in which an error happened, added to it.
    fn locate(&self, step: usize, error: Diagnostic) -> StepError {
        let context = format!("plan @{}, step {step} `{}`", self.plan.function, self.step_text(step));
        StepError { step, error: error.context(context) }
    }
}
