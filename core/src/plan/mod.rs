//! Plans: which kernel runs when on which bytes. Everything is decided; an executor only follows.
//!
//! A plan is a list of [`Step`]s, nested where there are loops and branches. A step names the values it reads and writes and
//! where each lies: an [`Address`] in one of the [`Space`]s. Inputs, outputs, constants and the session's variables live outside the plan;
//! temporaries live in the plan's **arena**, at fixed offsets. Inside a loop an address may advance by a stride each
//! iteration.
//!
//! Value ids are what makes a plan checkable: an address is a claim ("these bytes hold value %7 now"), and the verifier
//! ([`verify()`]) replays the steps over an abstract memory and refutes any claim that does not hold. It knows nothing of the planner.
//!
//! In place: a step may write a result over an operand by giving both the same address, where the nest or call allows it
//! (each element is read before it is written, by the same iteration).

pub mod account;
pub mod interpret;
mod intervals;
pub mod parse;
pub mod print;
pub mod verify;
pub mod work;

pub use account::{Account, Bytes, account};
pub use interpret::{Run, interpret, interpret_within, peak_bytes};
pub use parse::{Part, Places, parse_plan};
pub use verify::{verify, verify_at};
pub use work::{Allowance, Work};

use crate::call::Call;
use crate::dim::Binding;
use crate::dtype::DType;
use crate::graph::{InputRole, OutputRole};
use crate::id::{Id, IdVec, typed_id};
use crate::literal::Literal;
use crate::nest::Nest;
use crate::target::Target;

typed_id! {
    /// A value: the contents of some bytes, defined once (in a loop: once an iteration).
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

/// A function of a program, bound to extents and compiled for a target.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Name of the function.
    pub function: String,
    /// Values of its dimension variables.
    pub binding: Binding,
    /// What it was compiled for; a device refuses a plan of another target.
    pub target: Target,
    /// What is given at each run, in order.
    pub inputs: Vec<Input>,
    /// What comes out of each run, in order.
    pub outputs: Vec<Output>,
    /// The session's variables that it uses.
    pub variables: Vec<Variable>,
    /// Constants with elements that differ.
    pub constants: Vec<Constant>,
    /// Every value.
    pub values: IdVec<ValueId, Value>,
    /// Kernels, each stored once.
    pub nests: IdVec<NestId, Nest>,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// Bytes of the arena.
    pub arena: u64,
    /// The greatest sum of the bytes, each rounded up to the target's alignment, of values that live at one time in the arena: no
    /// arena can be smaller for this order.
    pub lower_bound: u64,
}

/// A tensor of known extents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Value {
    /// Name for people: of an input, or that of the equation's first result; need not be unique, may be empty.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents; dense row-major.
    pub shape: Vec<usize>,
}

/// What is given at each run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Input {
    /// Its name in the function.
    pub name: String,
    /// [`InputRole::Input`] or [`InputRole::Key`].
    pub role: InputRole,
    /// The value that `Space::Input(i)` holds.
    pub value: ValueId,
}

/// What comes out of each run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Output {
    /// Its name in the function.
    pub name: String,
    /// Extents that the caller sees: of as many elements as the value has (a reshape moves no byte).
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
    /// The value it holds at the beginning; nothing if the plan creates it.
    pub before: Option<ValueId>,
    /// The value it holds at the end: the same if it is only read.
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

/// Where a value lies.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// In which memory.
    pub space: Space,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Bytes for each count of enclosing loops, outermost first; loops without an entry add nothing. Only parts of slices and
    /// stacks lie at such an address.
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

/// A value and where it lies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Argument {
    /// Which value.
    pub value: ValueId,
    /// Where.
    pub at: Address,
}

/// Something that happens.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Runs a nest.
    Nest {
        /// Which.
        nest: NestId,
        /// One for each parameter, in order. Plans have no `InOut` parameters: in place is In and Out at one address.
        arguments: Vec<Argument>,
    },
    /// Runs a call.
    Call {
        /// Which.
        call: Call,
        /// Operands, then the results.
        arguments: Vec<Argument>,
        /// Bytes that the call may use while it runs, and where.
        workspace: Option<(Address, u64)>,
    },
    /// Copies a value's bytes.
    Copy {
        /// Which value; it lies at both addresses afterwards.
        value: ValueId,
        /// Where it is.
        from: Address,
        /// Where it shall be too.
        to: Address,
    },
    /// Repeats steps.
    Loop(Loop),
    /// Takes one of two ways.
    If {
        /// A bool scalar.
        predicate: Argument,
        /// Steps if it is true.
        then: Vec<Step>,
        /// Steps if it is false.
        otherwise: Vec<Step>,
        /// Values that both ways define.
        merges: Vec<Merge>,
    },
    /// Takes one of several ways.
    Switch {
        /// An i32 scalar, clamped to `0..arms`.
        index: Argument,
        /// At least one.
        arms: Vec<Vec<Step>>,
        /// Values that all ways define.
        merges: Vec<Merge>,
    },
}

/// Steps repeated for each value of a counter, `0..trip`.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// Names the counter.
    pub id: LoopId,
    /// How often.
    pub trip: Trip,
    /// The counter goes from `trip − 1` down to 0; not with [`Trip::While`]. (The transpose of a loop.)
    pub reverse: bool,
    /// Values that go from iteration to iteration.
    pub carries: Vec<Carry>,
    /// Values of which each iteration sees one part: operands stacked along their first axis.
    pub slices: Vec<Slice>,
    /// Values that iterations write part by part.
    pub stacks: Vec<Stack>,
    /// One iteration.
    pub body: Vec<Step>,
}

/// How often a loop runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Trip {
    /// Known.
    Constant(u64),
    /// An i32 or i64 scalar, read when the loop begins and clamped to `0..=limit`.
    Value {
        /// The number of iterations.
        count: Argument,
        /// At most so many.
        limit: u64,
    },
    /// While a bool scalar is true, tested before each iteration, at most `limit` times. `before` is its value before the first iteration, and
    /// `after` the one at the end of the body, at the same address.
    While {
        /// Tested before the first iteration.
        before: Argument,
        /// Tested before every other.
        after: ValueId,
        /// At most so many.
        limit: u64,
    },
}

/// A value handed from iteration to iteration, in place.
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
    /// Where; without a stride of this loop.
    pub at: Address,
}

/// A value of which each iteration sees one part along its first axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The whole; it has at least as many parts as the greatest trip.
    pub whole: ValueId,
    /// What an iteration sees: the part with the number of the counter.
    pub part: ValueId,
    /// Where the whole begins, without a stride of this loop; the part lies counter · (bytes of the part) further.
    pub at: Address,
}

/// A value that is written part by part along its first axis, each iteration the part with the number of the counter.
///
/// A slice and a stack of a loop may have the same place: each iteration then replaces the part that it has seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stack {
    /// The value at `at` when the loop begins, which keeps the parts that no iteration writes; its type is the whole's.
    /// None needs a constant trip of exactly the number of parts.
    pub initial: Option<ValueId>,
    /// What an iteration makes.
    pub part: ValueId,
    /// The value at `at` when the loop has ended.
    pub whole: ValueId,
    /// Where the whole begins, without a stride of this loop; the part lies counter · (bytes of the part) further.
    pub at: Address,
}

/// A value defined on each of several ways.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Merge {
    /// For each way its value.
    pub ways: Vec<ValueId>,
    /// The value afterwards.
    pub result: ValueId,
    /// Where it lies at the end of every way.
    pub at: Address,
}

impl Value {
    /// Number of elements; saturates.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, e| n.saturating_mul(*e as u64))
    }

    /// Bytes; saturates.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.size() as u64)
    }
}

impl Plan {
    /// The text of step `number`, without what is nested in it. Steps are counted in the order of the text, those inside a step after
    /// it; nothing if there are not so many.
    pub fn step_text(&self, number: usize) -> Option<String> {
        verify::find(&self.steps, number).map(|step| print::StepText(self, step).to_string())
    }

    /// Bytes of a memory; nothing if there is no such memory. Saturates.
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
    /// The steps nested in it: the body of a loop, the ways of a branch.
    pub fn blocks(&self) -> Vec<&[Step]> {
        match self {
            Step::Nest { .. } | Step::Call { .. } | Step::Copy { .. } => vec![],
            Step::Loop(l) => vec![&l.body],
            Step::If { then, otherwise, .. } => vec![then, otherwise],
            Step::Switch { arms, .. } => arms.iter().map(Vec::as_slice).collect(),
        }
    }
}

impl Trip {
    /// The greatest number of iterations.
    pub const fn limit(&self) -> u64 {
        match self {
            Trip::Constant(n) => *n,
            Trip::Value { limit, .. } | Trip::While { limit, .. } => *limit,
        }
    }
}

impl Address {
    /// A fixed place.
    pub fn new(space: Space, offset: u64) -> Self {
        Address { space, offset, strides: vec![] }
    }

    /// Its first byte, given the counter of each loop.
    pub fn byte(&self, counters: &[u64]) -> u64 {
        self.strides.iter().fold(self.offset, |at, (id, stride)| at + counters[id.index()] * stride)
    }
}

impl Output {
    /// The role in the function's signature.
    pub const ROLE: OutputRole = OutputRole::Output;
}
