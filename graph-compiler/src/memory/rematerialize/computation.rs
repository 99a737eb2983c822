//! A computation whose values may be recomputed: steps that compute values from values, and
//! schedules that may run a step more than once.
//!
//! Steps are given in a fixed topological order. A [`Schedule`] runs every step once in that
//! order, with *repetitions* in between. A read of a value refers to the last execution of the
//! step that writes it. The value occupies its bytes from that execution to its last reader before
//! the next execution of that step. Operands and results of an execution do not share bytes, as in
//! [`crate::schedule`]. So a repetition changes only live ranges, and every set of repetitions
//! gives a valid schedule. Repetitions cost time and can lower the peak of memory.

/// A step.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Step {
    /// Cost of an execution, in any unit.
    pub cost: u64,
    /// Bytes needed while it runs.
    pub workspace: u64,
    /// Values read, possibly with duplicates.
    pub reads: Vec<usize>,
    /// Values written. No other step writes them.
    pub writes: Vec<usize>,
    /// The step whose first execution overwrites an operand of this step; from then on this step
    /// may not be repeated. [`NEVER`] if this step may not be repeated at all, because it writes
    /// memory outside the arena; [`ALWAYS`] if it may be repeated anywhere.
    pub barrier: usize,
}

/// The barrier of a step that may not be repeated.
pub const NEVER: usize = 0;

/// The barrier of a step that may be repeated anywhere.
pub const ALWAYS: usize = usize::MAX;

/// A value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Value {
    /// Bytes that the value takes in the limited memory; 0 if it is stored elsewhere. A value that
    /// no step writes is always present, and its bytes do not count.
    pub bytes: u64,
    /// Whether the value is live at the end.
    pub output: bool,
}

/// Steps and their values. The sum of all bytes, workspaces included, is below 2⁴⁴, and so is the
/// sum of all costs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computation {
    /// In an order in which each value is written before it is read.
    pub steps: Vec<Step>,
    /// In any order.
    pub values: Vec<Value>,
}

/// The order of executions. The first execution of a step is required; later ones are
/// repetitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Schedule {
    /// The step of each execution.
    pub executions: Vec<usize>,
}

/// Cost of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cost {
    /// The greatest number of bytes live at one time.
    pub peak: u64,
    /// Total cost of the repetitions.
    pub added: u64,
    /// Number of repetitions.
    pub repetitions: usize,
}

impl Computation {
    /// The schedule without repetitions.
    pub fn given(&self) -> Schedule {
        Schedule { executions: (0..self.steps.len()).collect() }
    }
}
