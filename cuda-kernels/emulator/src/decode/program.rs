//! The executable form of a kernel: straight code with resolved operands, targets and
//! reconvergence points.

use super::hopper::Hopper;
use crate::parse::syntax::{Space, Special};
use crate::semantics::exact::Format;
use crate::semantics::float::{Float, Relation};
pub(crate) use crate::semantics::matrix::Element;
use crate::semantics::matrix::Shape;
use crate::semantics::rows::{CompareRows, Rows};
use crate::semantics::scalar::Scalar;

/// An operand or result: a row of the register file of that class, or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operand {
    /// 16 or 32 bits a lane; 16-bit values are zero-extended.
    Word(u32),
    /// 64 bits a lane.
    Double(u32),
    /// One bit a lane.
    Predicate(u32),
    /// The same value in every lane.
    Constant(u32),
    /// Discarded.
    Sink,
}

/// A value known before the kernel runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Constant {
    Value(u64),
    /// The address of a module variable, known once it has been placed in memory.
    Address {
        variable: u32,
        offset: i64,
    },
    /// The start of the launch's dynamic shared memory, plus this offset.
    Dynamic(i64),
}

/// One instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    /// Predicate and whether it is negated.
    pub(crate) guard: Option<(u32, bool)>,
    pub(crate) op: Op,
    pub(crate) outputs: Box<[Operand]>,
    pub(crate) inputs: Box<[Operand]>,
    pub(crate) line: u32,
    /// Whether it reads or writes a register that some path leaves unwritten; such registers are
    /// checked.
    pub(crate) watched: bool,
    /// Whether it reads or writes a register of a `wgmma`, and is none itself.
    pub(crate) pinned: bool,
    /// Whether it is only part of an instruction of the text, such as the copy of a call's
    /// argument. Counts of instructions omit it.
    pub(crate) part: bool,
}

/// Combination of two predicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Boolean {
    And,
    Or,
    Xor,
}

/// Operands of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Comparison {
    Rows(CompareRows),
    Float {
        format: Format,
        relation: Relation,
        unordered: bool,
        flush: bool,
    },
    /// Both halves of a word; the two predicates get one each.
    Pair {
        format: Format,
        relation: Relation,
        unordered: bool,
        flush: bool,
    },
    /// `testp`
    Test {
        format: Format,
        property: Property,
    },
}

/// Properties that `testp` tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// Kind and memory ordering of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ordering {
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`, and atomics: two such accesses are no
    /// data race.
    pub(crate) strong: bool,
    pub(crate) acquire: bool,
    pub(crate) release: bool,
}

impl Ordering {
    pub(crate) const WEAK: Ordering = Ordering { strong: false, acquire: false, release: false };
}

/// The first level of the memory system that a load looks up. It changes no result; the model of
/// caches needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// The multiprocessor's L1 cache.
    L1,
    /// The L2 cache: hints that bypass L1, and accesses that other blocks may observe.
    L2,
    /// Registers: parameters of a call, which only the text keeps in memory.
    Register,
}

/// A load or store; `None` for the space means a generic address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) space: Option<Space>,
    /// An address of shared memory may lie in another block of the cluster.
    pub(crate) cluster: bool,
    /// Bytes of one element.
    pub(crate) bytes: u32,
    pub(crate) count: u32,
    pub(crate) offset: i64,
    /// Elements are sign-extended into wider registers.
    pub(crate) signed: bool,
    /// Bits of the destination registers.
    pub(crate) register_bits: u32,
    pub(crate) ordering: Ordering,
    pub(crate) level: Level,
}

/// Operation of an atomic on the old value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicOperation {
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Add,
    Increment,
    Decrement,
    Minimum { signed: bool },
    Maximum { signed: bool },
    Float(Float),
    FloatPair(Float),
}

/// Source lane of `shfl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Result of `vote`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// `redux`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WarpReduction {
    Add,
    And,
    Or,
    Xor,
    Minimum { signed: bool },
    Maximum { signed: bool },
    Float { maximum: bool, absolute: bool, nan: bool },
}

/// A barrier of the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// All threads of a warp must execute it together.
    pub(crate) aligned: bool,
    /// The number of threads is given.
    pub(crate) counted: bool,
}

/// Operation of a barrier besides waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    ReduceAnd,
    ReduceOr,
    ReducePopulation,
}

/// An `mma.sync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Matrix {
    pub(crate) shape: Shape,
    pub(crate) a: Element,
    pub(crate) b: Element,
    /// f16, f32, f64, or a 32-bit integer.
    pub(crate) c: Element,
    pub(crate) saturate: bool,
}

/// A `wmma.load` or `wmma.store`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Row-major in memory; else column-major.
    pub(crate) by_rows: bool,
    /// Bits of an element.
    pub(crate) bits: u32,
    pub(crate) registers: usize,
    pub(crate) space: Option<Space>,
    pub(crate) offset: i64,
    pub(crate) store: bool,
}

/// Operation of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Rows(Rows),
    /// The result is truncated to this many bits.
    Scalar(Scalar, u32),
    Logic(u8),
    /// `selp`; also used for `mov` of predicates.
    Select,
    /// `setp`, `set` (with the value that stands for true), `testp`.
    Compare {
        comparison: Comparison,
        combine: Option<Boolean>,
        value: Option<u32>,
    },
    /// Predicate logic: inputs may be predicates or constants.
    Predicates(Option<Boolean>, bool),
    /// `add.cc`, `subc` …
    Carry {
        subtract: bool,
        uses: bool,
        sets: bool,
    },
    /// `mad.lo.cc`, `madc.hi` …
    MultiplyCarry {
        high: bool,
        signed: bool,
        uses: bool,
        sets: bool,
    },
    /// `mov.b64 d, {a, b}`
    Join {
        bits: u32,
    },
    /// `mov.b64 {a, b}, d`
    Split {
        bits: u32,
    },
    ReadSpecial(Special),
    Load(Access),
    Store(Access),
    Atomic {
        access: Access,
        operation: AtomicOperation,
    },
    CopyAsync {
        bytes: u32,
        to: i64,
        from: i64,
        sized: bool,
        ignores: bool,
        level: Level,
    },
    CommitAsync,
    /// Waits for all but this many groups; `None` waits for all copies, committed or not.
    WaitAsync(Option<u32>),
    /// `cvta` into generic addresses.
    ToGeneric(Space),
    /// `cvta.to`
    FromGeneric(Space),
    IsSpace(Space),
    Branch(u32),
    BranchTable(Box<[u32]>),
    Exit,
    Trap(&'static str),
    Barrier(Barrier),
    WarpBarrier,
    Shuffle(Shuffle),
    Vote(Vote),
    Match {
        all: bool,
    },
    ActiveMask,
    WarpReduce(WarpReduction),
    Elect,
    /// Whether its scope is wider than the block.
    Fence {
        wide: bool,
    },
    LoadMatrix {
        count: u32,
        transposed: bool,
        offset: i64,
        space: Option<Space>,
    },
    StoreMatrix {
        count: u32,
        transposed: bool,
        offset: i64,
        space: Option<Space>,
    },
    MoveMatrix,
    Matrix(Box<Matrix>),
    Fragment(Box<Fragment>),
    /// With the registers of A and of B.
    FragmentProduct(Box<Matrix>, [usize; 2]),
    Hopper(Box<Hopper>),
    Nothing,
}

/// A kernel, ready for execution.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) code: Vec<Instruction>,
    pub(crate) constants: Vec<Constant>,
    /// Number of rows of each class of registers.
    pub(crate) words: u32,
    pub(crate) doubles: u32,
    pub(crate) predicates: u32,
    /// For each class: how many of its first rows may be read before they are written.
    pub(crate) watched: [u32; 3],
    /// Registers that hold special registers from the start.
    pub(crate) specials: Vec<(Special, Operand)>,
    /// For each instruction that may diverge: the reconvergence point (the code's length: the
    /// exit).
    pub(crate) reconvergence: Vec<u32>,
    /// Which instructions begin a basic block.
    pub(crate) leaders: Vec<bool>,
    pub(crate) shared_bytes: u32,
    pub(crate) dynamic_align: u32,
    pub(crate) local_bytes: u32,
    /// Whether it has a `wgmma`, whose registers each keep a row of their own.
    pub(crate) has_products: bool,
}

impl Program {
    /// Whether a block may observe accesses of others without a data race: by an atomic that
    /// returns a value, or by an ordered load.
    pub(crate) fn observes_blocks(&self) -> bool {
        let global = |space| matches!(space, None | Some(Space::Global));
        self.code.iter().any(|i| match &i.op {
            Op::Atomic { access, .. } => global(access.space) && i.outputs[0] != Operand::Sink,
            Op::Load(access) => global(access.space) && access.ordering.strong,
            _ => false,
        })
    }
}
