//! A compiled nest: steps over blocks, grouped by the loop that contains them.

use super::address::{Offset, VectorAxes};
use super::combine::{Program, Reduction};
use super::condition::Condition;
use super::repeat::Repeat;
use crate::kernels::Kernel;
use crate::kernels::chain::{Chain, LONGEST};
use crate::native::Function;
use std::sync::Arc;
use wengert_core::{DType, Scalar};

/// A step, which runs once for a block.
#[derive(Debug)]
pub(super) enum Step {
    /// `result = kernel(arguments)`.
    Kernel { kernel: Kernel, result: u32, arguments: [u32; 3], uniform: bool, repeat: u32 },
    /// The same for a chain, whose lanes differ.
    Chain { chain: Chain, result: u32, arguments: [u32; LONGEST + 1], repeat: u32 },
    /// Broadcasts a register's first lane to `lanes` lanes.
    Splat { reg: u32, size: usize, lanes: usize },
    /// Fills a register with a constant.
    Const { result: u32, value: Scalar, lanes: usize },
    /// The value of an index expression.
    Index { result: u32, value: Offset, dtype: DType, spread: usize },
    /// Whether conditions hold.
    Test { result: u32, conditions: Vec<Condition>, spread: usize },
    /// Loads neighbouring elements of a parameter without conditions, a block at a time.
    Stream { result: u32, parameter: u32, size: u32, direct: Direct, offset: Offset },
    /// Loads from memory.
    Load(Box<Load>),
    /// Binds a register to the memory it is stored to: the next kernel that defines it writes
    /// there.
    Bind(Box<Store>),
    /// Stores to memory.
    Store(Box<Store>),
    /// Scans along the last inner axis.
    Prefix(Box<Prefix>),
    /// Passes the block's values to a reduction of the phase.
    Accumulate(usize),
    /// Runs native code on the block.
    Native(Box<Native>),
}

/// A compiled [group](super::group).
#[derive(Debug)]
pub(super) struct Native {
    pub function: Arc<Function>,
    /// The same with results stored past the caches, and the numbers of their pointers.
    pub past: Option<(Arc<Function>, Vec<usize>)>,
    /// The meaning of each pointer of the table.
    pub entries: Vec<Pointer>,
    /// Offset of the table in scratch memory. The distances by which [`Repeat`] moves pointers
    /// under conditions follow it.
    pub table: usize,
    /// Reductions of the phase to which it adds the block's values.
    pub folds: Vec<usize>,
    /// Vector instructions of sixteen lanes.
    pub size: usize,
}

/// The meaning of a pointer of native code.
#[derive(Debug)]
pub(super) enum Pointer {
    /// A register's block.
    Register(u32),
    /// An element of memory; the others follow it.
    Memory { memory: Memory, offset: Offset, size: usize },
    /// The same if the conditions hold, which are uniform; else the block of the register `fill`.
    Guarded { memory: Memory, offset: Offset, size: usize, conditions: Vec<Condition>, fill: u32 },
    /// Accumulators of a reduction of the phase.
    Accumulators(usize),
}

/// The memory of an access.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// A parameter, by number.
    Parameter(usize),
    /// Row storage at this offset of the scratch memory.
    Row(usize),
}

#[derive(Debug)]
pub(super) struct Load {
    pub result: u32,
    pub memory: Memory,
    pub offset: Offset,
    pub conditions: Vec<Condition>,
    pub fill: u32,
    pub size: usize,
    /// Lanes to fill if all are the same; 0 if they differ.
    pub spread: usize,
    pub direct: Direct,
}

/// When a register's block may be in a buffer rather than in scratch memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Direct {
    Always,
    /// If the buffer's memory is unaliased: otherwise a write might clobber it before its last
    /// use.
    Unaliased,
    Never,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    pub value: u32,
    pub memory: Memory,
    pub offset: Offset,
    pub conditions: Vec<Condition>,
    pub size: usize,
    /// Whether a single element is stored, not one per lane.
    pub single: bool,
    pub direct: Direct,
}

#[derive(Debug)]
pub(super) struct Prefix {
    pub program: Program,
    pub values: Vec<u32>,
    pub results: Vec<u32>,
    /// Offsets of the states: a block each if lanes are rows, else a chunk.
    pub states: Vec<usize>,
    /// A spare chunk for each component.
    pub spare: Vec<usize>,
    pub reverse: bool,
}

/// A loop over the values of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub axis: u32,
    pub extent: usize,
    pub reverse: bool,
}

#[derive(Debug)]
pub(super) struct PhaseProgram {
    /// Scalar loops over inner axes, outermost first.
    pub loops: Vec<Loop>,
    /// Inner axes along which blocks lie; `None` if lanes are rows or the phase has no inner
    /// axes.
    pub vector: Option<VectorAxes>,
    /// Whether blocks run from the last to the first.
    pub reverse: bool,
    /// Steps before the first loop, in each loop, and last those of a block.
    pub levels: Vec<Vec<Step>>,
    pub reductions: Vec<Reduction>,
    /// Whether the phase has prefixes, whose states are reset before the innermost loop.
    pub prefix: bool,
    /// Whether the inner loops run at all.
    pub runs: bool,
    /// The innermost loop, if it only runs native code.
    pub repeat: Option<Repeat>,
}
