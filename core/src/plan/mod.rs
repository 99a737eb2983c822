//! Plans: the kernels of a function, their order, and the address of every value. An executor
//! makes no decisions.
//!
//! A plan is a list of [`Step`]s, nested in loops and branches. A step names the values it reads
//! and writes, and the [`Address`] of each in one of the [`Space`]s. Inputs, outputs, constants
//! and the session's variables live outside the plan. Temporaries live at fixed offsets in the
//! plan's **arena**. Inside a loop an address may advance by a stride each iteration.
//!
//! Value ids make a plan checkable: an address is a claim ("these bytes hold value %7 now"). The
//! verifier ([`verify()`]) replays the steps over an abstract memory and rejects any claim that
//! does not hold. It is independent of the planner.
//!
//! In place: a step may write a result over an operand by giving both the same address, where the
//! nest or call allows it (the iteration that writes an element has read it before).
//!
//! A plan with a [`Mesh`] runs on several ranks. All have the same plan; the rank is an input of
//! the run. Ranks exchange data in [collectives](crate::call::Collective) only ([`ranks`]). A
//! collective is a call, which blocks its rank, or a **transfer**: a [`Step::Start`] and a
//! [`Step::Wait`], with other steps between them.

pub mod account;
mod follower;
pub mod interpret;
mod intervals;
mod labels;
pub mod lifetimes;
pub mod parse;
pub mod print;
pub mod ranks;
pub mod record;
pub mod resolve;
mod uses;
pub mod verify;
pub mod walk;
pub mod work;

pub use account::{Account, Bytes, account};
pub use follower::follower;
pub use interpret::{Run, interpret, interpret_within, peak_bytes};
pub use lifetimes::{Lifetime, lifetimes};
pub use parse::{Part, Places, parse_plan};
pub use ranks::verify_ranks;
pub use record::{LoopPlace, Recording, Repetition, StepRecorder, Unrecordable};
pub use resolve::{Access, Place, Prepare, ResolvedPlan, Resolver, Scheduled, resolve};
pub use verify::{verify, verify_at};
pub use walk::{Counters, Memories, Region, StepRunner};
pub use work::{Allowance, Work};

use crate::call::{Call, Collective};
use crate::dim::Binding;
use crate::dtype::DType;
use crate::graph::InputRole;
use crate::id::{Id, IdVec, typed_id};
use crate::literal::Literal;
use crate::mesh::Mesh;
use crate::nest::Nest;
use crate::pitch::{PaddedRows, memory_extents};
use crate::target::Target;

typed_id! {
    /// A value: the contents of some bytes, defined once (in a loop: once per iteration).
    ValueId, "%"
}
typed_id! {
    /// A nest of a plan.
    NestId, "n"
}
typed_id! {
    /// A loop of a plan; names its counter.
    LoopId, "l"
}
typed_id! {
    /// A transfer of a plan: a start and its wait.
    TransferId, "t"
}

/// A function of a program, bound to extents and compiled for a target.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Name of the function.
    pub function: String,
    /// Values of its dimension variables.
    pub binding: Binding,
    /// The target it was compiled for. A device refuses a plan of another target.
    pub target: Target,
    /// The ranks that run it together, each the same plan; one if the mesh has no axes.
    pub mesh: Mesh,
    /// The inputs of each run, in order.
    pub inputs: Vec<Input>,
    /// The outputs of each run, in order.
    pub outputs: Vec<Output>,
    /// Variables of the session that it uses.
    pub variables: Vec<Variable>,
    /// Constants whose elements are not all equal.
    pub constants: Vec<Constant>,
    /// Every value.
    pub values: IdVec<ValueId, Value>,
    /// Kernels, each stored once.
    pub nests: IdVec<NestId, Nest>,
    /// Steps, in execution order.
    pub steps: Vec<Step>,
    /// Bytes of the arena.
    pub arena: u64,
    /// The maximum over time of the bytes of the values live in the arena, each rounded up to the
    /// target's alignment. No arena can be smaller for this order.
    pub lower_bound: u64,
}

/// A tensor of known extents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Value {
    /// Name for readers: that of an input, or of the equation's first result. Need not be unique,
    /// may be empty.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents; the layout is row-major.
    pub shape: Vec<usize>,
    /// Distance of rows in elements, if they have [padding](crate::pitch) between them.
    pub pitch: Option<usize>,
}

/// An input of each run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Input {
    /// Its name in the function.
    pub name: String,
    /// [`InputRole::Input`] or [`InputRole::Key`].
    pub role: InputRole,
    /// The value that `Space::Input(i)` holds.
    pub value: ValueId,
}

/// An output of each run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Output {
    /// Its name in the function.
    pub name: String,
    /// Extents that the caller sees, with as many elements as the value has (a reshape moves no
    /// bytes).
    pub shape: Vec<usize>,
    /// The value that `Space::Output(i)` holds at the end.
    pub value: ValueId,
}

/// A variable of the session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Variable {
    /// Key path.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// The value it holds at the beginning; none if the plan creates it.
    pub before: Option<ValueId>,
    /// The value it holds at the end; equal to `before` if it is only read.
    pub after: ValueId,
}

/// A constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// The value that `Space::Constant(i)` holds.
    pub value: ValueId,
    /// Its elements.
    pub literal: Literal,
}

/// The address of a value.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// The memory.
    pub space: Space,
    /// Bytes from the start of the memory.
    pub offset: u64,
    /// Bytes per iteration of enclosing loops, outermost first; a loop without an entry adds
    /// nothing. Only parts of slices and stacks have such an address.
    pub strides: Vec<(LoopId, u64)>,
}

/// A memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// The plan's own temporaries.
    Arena,
    /// An input.
    Input(u32),
    /// An output.
    Output(u32),
    /// A variable of the session.
    Variable(u32),
    /// A constant.
    Constant(u32),
}

/// A value and its address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Argument {
    /// The value.
    pub value: ValueId,
    /// Its address.
    pub at: Address,
}

/// A step of a plan.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Runs a nest.
    Nest {
        /// The nest.
        nest: NestId,
        /// One for each parameter, in order. Plans have no `InOut` parameters: an in-place nest
        /// has an In and an Out parameter at one address.
        arguments: Vec<Argument>,
    },
    /// Runs a call.
    Call {
        /// The call.
        call: Call,
        /// Operands, then the results.
        arguments: Vec<Argument>,
        /// Address and bytes of scratch memory for the call.
        workspace: Option<(Address, u64)>,
    },
    /// Starts a collective, and does not wait for other ranks. The wait of the transfer is a later
    /// step of the same block. Until then no step writes the bytes of the operand, and none reads
    /// or writes those of the result.
    Start {
        /// The transfer.
        transfer: Transfer,
        /// The collective. It exchanges data.
        call: Collective,
    },
    /// Waits for a transfer. Its result exists then. It names the operand and the result that its
    /// start names.
    Wait(Transfer),
    /// Copies a value's bytes.
    Copy {
        /// The value; it is at both addresses afterwards.
        value: ValueId,
        /// The source.
        from: Address,
        /// The destination.
        to: Address,
    },
    /// Repeats steps.
    Loop(Loop),
    /// Takes one of two branches.
    If {
        /// A bool scalar.
        predicate: Argument,
        /// Steps if it is true.
        then: Vec<Step>,
        /// Steps if it is false.
        otherwise: Vec<Step>,
        /// Values that both branches define.
        merges: Vec<Merge>,
    },
    /// Takes one of several branches.
    Switch {
        /// An i32 scalar, clamped to `0..arms`.
        index: Argument,
        /// The branches, at least one.
        arms: Vec<Vec<Step>>,
        /// Values that all branches define.
        merges: Vec<Merge>,
    },
}

/// A collective under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// Its number among the starts of the plan, in the order of the text.
    pub id: TransferId,
    /// The operand of the collective.
    pub operand: Argument,
    /// Its result.
    pub result: Argument,
}

/// Steps repeated for each value of a counter, `0..trip`.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// Names the counter.
    pub id: LoopId,
    /// The number of iterations.
    pub trip: Trip,
    /// Whether the counter goes from `trip − 1` down to 0, as in the transpose of a loop. Not
    /// with [`Trip::While`].
    pub reverse: bool,
    /// Values passed from iteration to iteration.
    pub carries: Vec<Carry>,
    /// Values of which each iteration reads one part: operands stacked along their first axis.
    pub slices: Vec<Slice>,
    /// Values of which each iteration writes one part.
    pub stacks: Vec<Stack>,
    /// The steps of one iteration.
    pub body: Vec<Step>,
}

/// The number of iterations of a loop.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Trip {
    /// A constant.
    Constant(u64),
    /// An i32 or i64 scalar, read when the loop begins and clamped to `0..=limit`.
    Value {
        /// The number of iterations.
        count: Argument,
        /// Upper bound of the number of iterations.
        limit: u64,
    },
    /// Runs while a bool scalar is true, tested before each iteration, at most `limit` times.
    /// `before` is its value before the first iteration, and `after` its value at the end of the
    /// body, at the same address.
    While {
        /// The value tested before the first iteration.
        before: Argument,
        /// The value tested before every other iteration.
        after: ValueId,
        /// Upper bound of the number of iterations.
        limit: u64,
    },
}

/// A value passed from iteration to iteration, in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Carry {
    /// Value at `at` when the loop begins.
    pub initial: ValueId,
    /// Value at `at` when an iteration begins.
    pub input: ValueId,
    /// Value at `at` when an iteration ends.
    pub output: ValueId,
    /// Value at `at` when the loop has ended.
    pub result: ValueId,
    /// The address, without a stride of this loop.
    pub at: Address,
}

/// A value of which each iteration reads one part along its first axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The whole; it has at least as many parts as the trip's limit.
    pub whole: ValueId,
    /// The part that an iteration reads: the part whose number is the counter.
    pub part: ValueId,
    /// Where the whole begins, without a stride of this loop. The part begins counter · (bytes of
    /// the part) after it.
    pub at: Address,
}

/// A value of which each iteration writes one part along its first axis, the part whose number is
/// the counter.
///
/// A slice and a stack of a loop may have the same address. Each iteration then replaces the part
/// that it has read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stack {
    /// The value at `at` when the loop begins. Parts that no iteration writes keep its contents,
    /// and its type is the whole's. `None` needs a constant trip equal to the number of parts.
    pub initial: Option<ValueId>,
    /// The part that an iteration writes.
    pub part: ValueId,
    /// The value at `at` when the loop has ended.
    pub whole: ValueId,
    /// Where the whole begins, without a stride of this loop. The part begins counter · (bytes of
    /// the part) after it.
    pub at: Address,
}

/// A value defined by each of several branches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Merge {
    /// Its value in each branch.
    pub ways: Vec<ValueId>,
    /// The value after the branches join.
    pub result: ValueId,
    /// Its address at the end of every branch.
    pub at: Address,
}

impl Value {
    /// Number of elements; saturates.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, e| n.saturating_mul(*e as u64))
    }

    /// Bytes of its memory, padding included; saturates.
    pub fn bytes(&self) -> u64 {
        let extents = memory_extents(&self.shape, self.pitch);
        extents.fold(self.dtype.size() as u64, |n, e| n.saturating_mul(e as u64))
    }

    /// Its rows, if they have padding between them.
    pub fn padded_rows(&self) -> Option<PaddedRows> {
        PaddedRows::of(&self.shape, self.pitch)
    }
}

impl Plan {
    /// The text of step `number`, without nested steps. Steps are numbered in the order of the
    /// text, nested steps after the step that contains them. `None` if there is no such step.
    pub fn step_text(&self, number: usize) -> Option<String> {
        verify::find(&self.steps, number).map(|step| print::StepText(self, step).to_string())
    }

    /// Visits every step, in the order of the text: nested steps after the step that contains
    /// them.
    pub fn visit<'p>(&'p self, visitor: &mut impl FnMut(&'p Step)) {
        fn block<'p>(steps: &'p [Step], visitor: &mut impl FnMut(&'p Step)) {
            for step in steps {
                visitor(step);
                step.blocks().into_iter().for_each(|steps| block(steps, visitor));
            }
        }
        block(&self.steps, visitor);
    }

    /// Bytes of a memory; `None` if there is no such memory. Saturates.
    pub fn space_bytes(&self, space: Space) -> Option<u64> {
        let value = |v: ValueId| self.values.get(v).map(Value::bytes);
        match space {
            Space::Arena => Some(self.arena),
            Space::Input(n) => self.inputs.get(n as usize).and_then(|i| value(i.value)),
            Space::Output(n) => self.outputs.get(n as usize).and_then(|o| value(o.value)),
            Space::Variable(n) => self.variables.get(n as usize).and_then(|v| value(v.after)),
            Space::Constant(n) => self.constants.get(n as usize).and_then(|c| value(c.value)),
        }
    }
}

impl Step {
    /// The collective that the step runs or starts, if it exchanges data.
    pub fn exchange(&self) -> Option<&Collective> {
        let collective = match self {
            Step::Call { call, .. } => call.collective()?,
            Step::Start { call, .. } => call,
            _ => return None,
        };
        collective.kind.exchanges().then_some(collective)
    }

    /// The blocks of steps nested in it: the body of a loop, the branches of an `If` or `Switch`.
    pub fn blocks(&self) -> Vec<&[Step]> {
        match self {
            Step::Nest { .. }
            | Step::Call { .. }
            | Step::Start { .. }
            | Step::Wait(_)
            | Step::Copy { .. } => vec![],
            Step::Loop(l) => vec![&l.body],
            Step::If { then, otherwise, .. } => vec![then, otherwise],
            Step::Switch { arms, .. } => arms.iter().map(Vec::as_slice).collect(),
        }
    }
}

impl Trip {
    /// The maximum number of iterations.
    pub const fn limit(&self) -> u64 {
        match self {
            Trip::Constant(n) => *n,
            Trip::Value { limit, .. } | Trip::While { limit, .. } => *limit,
        }
    }
}

impl Address {
    /// An address without strides.
    pub fn new(space: Space, offset: u64) -> Self {
        Address { space, offset, strides: vec![] }
    }

    /// The address of its first byte for the given loop counters.
    pub fn byte(&self, counters: &[u64]) -> u64 {
        self.strides.iter().fold(self.offset, |at, (id, stride)| at + counters[id.index()] * stride)
    }
}
