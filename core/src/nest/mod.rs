//! Nests: a generated kernel as loops over scalar instructions.
//!
//! A [`Nest`] has *parallel* axes and, inside them, a sequence of *phases*. The iterations of the
//! parallel axes are independent and may run in any order. One iteration of the parallel axes is
//! a **row**. The phases of a row run one after another and share its registers and its local
//! storage. Softmax is an example: one phase takes the maximum of the row, one sums the
//! exponentials, and one stores the quotients.
//!
//! A phase has inner axes of its own and a body of scalar instructions in SSA form. The body may
//! feed [`Reduction`]s over all inner axes; their results are registers of the row, visible in
//! all later phases. It may also feed [`Prefix`] scans along the last inner axis; their results
//! are registers of the body. A phase without inner axes runs its body once, and all its
//! registers are registers of the row. Values computed once a row, such as
//! `1 / sqrt(variance + epsilon)`, belong in such a phase.
//!
//! ```text
//! nest @softmax(in %x: f32[64,10], out %y: f32[64,10]) {
//!   parallel i: 64
//!   phase j: 10 {
//!     %0: f32 = load %x[i, j]
//!     %1: f32 = reduce(%0) max tree(16)
//!   }
//!   phase j: 10 {
//!     %2: f32 = load %x[i, j]
//!     %3: f32 = sub %2, %1
//!     %4: f32 = exp %3
//!     %5: f32 = reduce(%4) sum tree(16)
//!   }
//!   phase j: 10 {
//!     %6: f32 = load %x[i, j]
//!     %7: f32 = sub %6, %1
//!     %8: f32 = exp %7
//!     %9: f32 = div %8, %5
//!     store %y[i, j], %9
//!   }
//! }
//! ```
//!
//! **Numerics.** A nest determines every bit of its results except those of NaNs, unless it has
//! [approximate instructions](mod@approximate). Instructions follow [`scalar::ScalarOp`] and are
//! never contracted or reassociated. A reduction follows its [`Tree`]. A prefix goes element by
//! element. A back end chooses the schedule, never the result.
//! The NaN of an arithmetic instruction is unspecified, since machines differ; the interpreter
//! gives the canonical quiet NaN.
//!
//! **Memory.** Buffers are row-major tensors with constant extents. A parameter may have a
//! [pitch], which leaves padding between its runs along the last axis. Every access is in bounds by
//! interval analysis of its indices under its guards ([`verify()`] checks it), or it clamps. Rows
//! are independent, except that the rows of a band share [totals](Total): no two rows write the
//! same element, and no row reads an element that another writes. Within a row, phases run one
//! after another. The iterations of one phase are independent except for prefixes: no element is
//! written by two of them, and no element is read by one and written by another. Each element of an
//! `inout` buffer is therefore read before it is written.
//!
//! **Halves.** f16 and bf16 exist only in memory and in conversions. Arithmetic on them is spelt
//! as `convert` to f32, the operation, `convert` back.
//!
//! **Numbering.** Ids are dense and in the order of the text: parameters, then row storages;
//! parallel axes, then those of each phase; registers by definition. Nests with the same
//! structure are therefore equal, and printing loses nothing. A producer whose ids have holes
//! calls [`Nest::renumber`].

pub mod alias;
pub mod approximate;
pub mod bounds;
mod build;
pub mod combine;
pub mod evaluate;
mod fold;
mod follow;
pub mod index;
pub mod interpret;
pub mod merge;
pub mod parse;
pub mod print;
mod renumber;
pub mod scalar;
mod simplify;
pub mod verify;

use crate::dtype::DType;
use crate::id::{IdVec, typed_id};
use crate::pitch::{self, PaddedRows};
use crate::scalar::Scalar;
pub use alias::may_alias;
pub use build::NestBuilder;
pub use combine::CombineBuilder;
pub use follow::follows;
pub use index::{Affine, Guard, Term};
pub use interpret::interpret;
pub use parse::{Part, Places, parse_nest, parse_nests};
pub use scalar::ScalarOp;
pub use verify::{verify, verify_at};

typed_id! {
    /// An axis of a nest, parallel or inner. Names are for readers; ids are unique in a nest.
    AxisId, "a"
}
typed_id! {
    /// A register: one scalar of the body of a phase, or of the row.
    Reg, "%"
}
typed_id! {
    /// A buffer of a nest: a parameter or a row storage.
    BufferId, "b"
}

/// One kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nest {
    /// Name in dumps, unique among the nests of a plan.
    pub name: String,
    /// Parameters first, in the order of the step's arguments, then row storages.
    pub buffers: IdVec<BufferId, Buffer>,
    /// Every axis.
    pub axes: IdVec<AxisId, Axis>,
    /// Parallel axes, outermost first. Each of their iterations is a row.
    pub parallel: Vec<AxisId>,
    /// The phases of a row, in order.
    pub phases: Vec<Phase>,
    /// The dtype of every register. Registers are numbered in the order of their definition.
    pub registers: IdVec<Reg, DType>,
}

/// Memory that a nest reads or writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// Name in text, unique in the nest.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Extents; the layout is row-major.
    pub shape: Vec<usize>,
    /// Distance of rows in elements, if they have [padding](crate::pitch) between them.
    pub pitch: Option<usize>,
    /// How the nest uses it.
    pub role: BufferRole,
}

/// How a nest uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BufferRole {
    /// A parameter that is only read.
    In,
    /// A parameter that is only written, each element exactly once.
    Out,
    /// A parameter that is read and written in place.
    InOut,
    /// Storage local to a row. It exists while the phases of one row run, and starts undefined.
    Row,
}

/// A loop: `0..extent`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Axis {
    /// Name in text; unique among the axes that are visible together.
    pub name: String,
    /// Number of iterations; may be 0.
    pub extent: usize,
}

/// Loops over a body, within a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Phase {
    /// Inner axes, outermost first. Without axes the body runs once.
    pub axes: Vec<AxisId>,
    /// The body, in order.
    pub body: Vec<Instr>,
    /// Reductions over all inner axes, finished when the loops end. Their results belong to the
    /// row.
    pub reductions: Vec<Reduction>,
}

/// An instruction of a body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Instr {
    /// `%r: f32 = add %a, %b`
    Scalar {
        /// The result; its dtype is the register's.
        result: Reg,
        /// The operation.
        op: ScalarOp,
        /// Registers of the row, or of this body before this instruction.
        operands: Vec<Reg>,
    },
    /// `%r: f32 = const 1.0`
    Const {
        /// The result.
        result: Reg,
        /// Its value; the dtype is the register's.
        value: Scalar,
    },
    /// `%r: i64 = index 2*i+j`: the value of an index expression (wrapped to the register's
    /// integer dtype).
    Index {
        /// The result.
        result: Reg,
        /// Index expression.
        value: Affine,
    },
    /// `%r: bool = test {i+-1 in 0..8}`: whether all guards hold.
    Test {
        /// The result.
        result: Reg,
        /// Conditions.
        guards: Vec<Guard>,
    },
    /// `%r: f32 = load %x[i, j]`, with `clamp` and with `{guards} else %fill`.
    Load {
        /// The result; its dtype is the buffer's.
        result: Reg,
        /// The element that is read.
        access: Access,
        /// The value where a guard fails; memory is not read there. Present exactly if there are
        /// guards.
        fill: Option<Reg>,
    },
    /// `store %y[i, j], %v`, with `{guards}`: nothing is stored where a guard fails.
    ///
    /// `store %y[i, j], %v total sum tree(4)`: stores the total of the values of a [band](Total).
    Store {
        /// The element that is written.
        access: Access,
        /// A register of the buffer's dtype.
        value: Reg,
        /// Set if the total of a band is stored, in place of the values of its rows.
        total: Option<Box<Total>>,
    },
    /// `%r: f32 = prefix(%v) sum`: inclusive scans along the last inner axis of the phase, one
    /// state per element of the tuple.
    Prefix(Prefix),
}

impl Instr {
    /// The registers that it defines.
    pub fn results(&self) -> &[Reg] {
        match self {
            Instr::Scalar { result, .. }
            | Instr::Const { result, .. }
            | Instr::Index { result, .. }
            | Instr::Test { result, .. }
            | Instr::Load { result, .. } => std::slice::from_ref(result),
            Instr::Store { .. } => &[],
            Instr::Prefix(prefix) => &prefix.results,
        }
    }

    /// [`results`](Self::results), to be changed.
    pub fn results_mut(&mut self) -> &mut [Reg] {
        match self {
            Instr::Scalar { result, .. }
            | Instr::Const { result, .. }
            | Instr::Index { result, .. }
            | Instr::Test { result, .. }
            | Instr::Load { result, .. } => std::slice::from_mut(result),
            Instr::Store { .. } => &mut [],
            Instr::Prefix(prefix) => &mut prefix.results,
        }
    }

    /// Calls `f` for every register that it reads, including those in index expressions.
    pub fn visit_operands(&self, f: &mut impl FnMut(Reg)) {
        let affine = |index: &Affine, f: &mut dyn FnMut(Reg)| {
            index.visit_terms(&mut |term| {
                if let Term::Reg(reg) = term {
                    f(*reg);
                }
            });
        };
        match self {
            Instr::Scalar { operands, .. } => operands.iter().for_each(|r| f(*r)),
            Instr::Const { .. } => {}
            Instr::Index { value, .. } => affine(value, f),
            Instr::Test { guards, .. } => guards.iter().for_each(|g| affine(&g.index, f)),
            Instr::Load { access, fill, .. } => {
                access.expressions().for_each(|e| affine(e, f));
                fill.iter().for_each(|r| f(*r));
            }
            Instr::Store { access, value, .. } => {
                access.expressions().for_each(|e| affine(e, f));
                f(*value);
            }
            Instr::Prefix(prefix) => prefix.values.iter().for_each(|r| f(*r)),
        }
    }
}

impl Access {
    /// The indices, then the index expressions of the guards.
    pub fn expressions(&self) -> impl Iterator<Item = &Affine> {
        self.indices.iter().chain(self.guards.iter().map(|g| &g.index))
    }
}

/// An element of a buffer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// One index per dimension.
    pub indices: Vec<Affine>,
    /// Conditions, all of which must hold for the access to take place.
    pub guards: Vec<Guard>,
    /// Whether each index is clamped to its dimension, which then must not be empty. For loads at
    /// indices that come from data.
    pub clamp: bool,
}

/// A reduction of a tuple over all inner axes of a phase. Elements are in row-major order of the
/// axes and combined by a tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduction {
    /// Registers of the row that receive the results.
    pub results: Vec<Reg>,
    /// Registers of the body that are reduced.
    pub values: Vec<Reg>,
    /// The operation that combines two partial results.
    pub combine: Combine,
    /// The order of the combinations.
    pub tree: Tree,
}

/// A reduction from row to row.
///
/// The rows that differ in the last parallel axis alone are a *band*. A total reduces the values
/// that the rows of a band have in one iteration of the inner axes, in the order of the rows. The
/// indices of its store do not mention the last parallel axis.
///
/// ```text
/// nest @f(in %x: f32[64,10], out %y: f32[64,10], out %s: f32[4,10]) {
///   parallel i: 4, r: 16
///   phase j: 10 {
///     %0: f32 = load %x[16*i+r, j]
///     %1: f32 = exp %0
///     store %y[16*i+r, j], %1
///     store %s[i, j], %1 total sum tree(4)
///   }
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Total {
    /// The operation that combines two partial results; of one value.
    pub combine: Combine,
    /// The order of the combinations.
    pub tree: Tree,
}

/// An inclusive scan of a tuple along the last inner axis of a phase, restarted for each
/// iteration of the other inner axes.
///
/// The state starts at the identity. Each element sets it to `combine(state, element)`, the
/// result for that element. All prefixes of a phase run in one direction, and a phase with a
/// reverse prefix has no reductions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prefix {
    /// Registers of the body that receive the running results.
    pub results: Vec<Reg>,
    /// Registers of the body that are scanned.
    pub values: Vec<Reg>,
    /// The operation that combines two partial results.
    pub combine: Combine,
    /// Whether the scan runs from the last element to the first.
    pub reverse: bool,
}

/// An associative operation on tuples: its identity, and a straight-line program for
/// `combine(a, b)`.
///
/// The program has its own registers: the first n stand for `a`, the next n for `b`, and then
/// come those that the body defines, in order. Associativity makes every [`Tree`] a valid choice;
/// it is not checked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Combine {
    /// The identity, one scalar per element of the tuple. Its dtypes are the tuple's.
    pub identity: Vec<Scalar>,
    /// Dtypes of the program's registers.
    pub registers: IdVec<Reg, DType>,
    /// Only `Scalar` and `Const` instructions.
    pub body: Vec<Instr>,
    /// Registers that hold `combine(a, b)`.
    pub results: Vec<Reg>,
}

/// The order in which a reduction combines n elements. It is part of a nest's semantics.
///
/// Element k goes to block `k / block`; if `block` is 0, all of `0..n` is one block. Within a
/// block, element number e goes to lane `e % lanes`. Each lane starts at the identity and
/// combines its elements in order, as `combine(accumulator, element)`. Then lanes are combined in
/// halves, `lane[l] = combine(lane[l], lane[l + h])` for h = lanes/2, …, 1. Blocks are combined
/// in order, `total = combine(total, block)`. The total starts at the first block, or is the
/// identity if n is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tree {
    /// A power of two, at least 1.
    pub lanes: u32,
    /// Elements per block, a multiple of `lanes`. 0 means one block.
    pub block: u32,
}

impl Tree {
    /// One element after the other.
    pub const SEQUENTIAL: Tree = Tree { lanes: 1, block: 0 };
}

impl Nest {
    /// The parameters, in the order of a step's arguments.
    pub fn parameters(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffers.iter().filter(|(_, b)| b.role != BufferRole::Row)
    }

    /// Number of rows: the product of the parallel extents.
    pub fn rows(&self) -> usize {
        self.parallel.iter().map(|a| self.axes[*a].extent).product()
    }

    /// The axis along which the rows of a band differ, if there are [totals](Total).
    pub fn band(&self) -> Option<AxisId> {
        let stores_total = |instr: &Instr| matches!(instr, Instr::Store { total: Some(_), .. });
        let has_totals = self.phases.iter().flat_map(|phase| &phase.body).any(stores_total);
        self.parallel.last().copied().filter(|_| has_totals)
    }
}

impl Buffer {
    /// Number of elements; the padding is none. The verifier bounds it.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of its memory, padding included. The verifier bounds it.
    pub fn bytes(&self) -> usize {
        pitch::memory_extents(&self.shape, self.pitch).product::<usize>() * self.dtype.size()
    }

    /// Distances, in elements, of the elements that are neighbours along each axis.
    pub fn strides(&self) -> Vec<i64> {
        pitch::strides(&self.shape, self.pitch)
    }

    /// Its rows, if they have padding between them.
    pub fn padded_rows(&self) -> Option<PaddedRows> {
        PaddedRows::of(&self.shape, self.pitch)
    }
}

impl Phase {
    /// Number of iterations of the body for one row.
    pub fn iterations(&self, nest: &Nest) -> usize {
        self.axes.iter().map(|a| nest.axes[*a].extent).product()
    }
}
