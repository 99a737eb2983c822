//! Rematerialisation by itself: steps that make values out of values, and schedules that may run a step more than once.
//!
//! Steps are given in an order that is topological and stays: a [`Schedule`] runs every step once in it, and *repetitions* in between. A value is read as the last
//! execution of its step left it, and takes its bytes from that execution to the last one that reads it before it is made anew; operands and results of an
//! execution lie side by side, as in [`crate::schedule`]. So a repetition only ever changes how long values live, and every set of repetitions is a
//! schedule: what it costs is time, what it gains is memory.

/// A step.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Step {
    /// What an execution costs, in any unit.
    pub cost: u64,
    /// Bytes that it needs while it runs.
    pub workspace: u64,
    /// Values read. One may be there more than once.
    pub reads: Vec<usize>,
    /// Values written; no other step writes them.
    pub writes: Vec<usize>,
    /// The number of the step whose first execution ends the time in which this one may be repeated: the one that overwrites what it reads. [`NEVER`] if it may
    /// not be repeated at all, because it writes memory that is not its own; [`ALWAYS`] if nothing stands against it.
    pub barrier: usize,
}

/// No repetition.
pub const NEVER: usize = 0;

/// Repetitions everywhere.
pub const ALWAYS: usize = usize::MAX;

/// A value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Value {
    /// Bytes that it takes of the memory that is short: 0 for what lies elsewhere. What no step writes is always there, and its bytes do not count.
    pub bytes: u64,
    /// Whether it is alive at the end.
    pub output: bool,
}

/// Steps and their values. All bytes together, workspaces among them, are below 2⁴⁴, and so are all costs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problem {
    /// In an order in which each value is written before it is read.
    pub steps: Vec<Step>,
    /// In any order.
    pub values: Vec<Value>,
}

/// Which step runs when. The first execution of a step is the given one, others are repetitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Schedule {
    /// Numbers of steps.
    pub executions: Vec<usize>,
}

/// What a schedule costs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cost {
    /// The greatest number of bytes that are taken at one time.
    pub peak: u64,
    /// What the repetitions cost together.
    pub added: u64,
    /// Number of repetitions.
    pub repetitions: usize,
}

impl Problem {
    /// Adds a value and returns its number.
    pub fn value(&mut self, bytes: u64) -> usize {
        self.values.push(Value { bytes, output: false });
        self.values.len() - 1
    }

    /// Adds a step that may be repeated anywhere and returns its number.
    pub fn step(&mut self, cost: u64, reads: &[usize], writes: &[usize]) -> usize {
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.steps.push(Step { cost, workspace: 0, reads, writes, barrier: ALWAYS });
        self.steps.len() - 1
    }

    /// The schedule without repetitions.
    pub fn given(&self) -> Schedule {
        Schedule { executions: (0..self.steps.len()).collect() }
    }

    /// What all steps cost, each executed once.
    pub fn total(&self) -> u64 {
        self.steps.iter().map(|step| step.cost).sum()
    }
}
