//! Execution of a resolved plan: the walk over loops and branches, the same for all devices.
//!
//! The walk keeps the loop counters, reads trip counts and conditions, and spends the run's
//! allowance ([`super::work`]). A device ([`StepRunner`]) launches kernels, copies bytes and reads
//! scalars. The walk is generic over the device and allocates nothing.

use super::resolve::{Access, Action, ActionKind, Place, ResolvedPlan, Trip};
use super::work::STEP;
use super::{Allowance, Space, Work};
use crate::diagnostic::{Diagnostic, Result};

/// A device's part of a run. Effects happen in the order of the calls.
pub trait StepRunner {
    /// A prepared nest or call ([`super::resolve::Prepare`]).
    type Kernel;
    /// The error of a run.
    type Error;

    /// Executes a kernel on the memory of its places.
    fn launch(&mut self, kernel: &Self::Kernel, counters: &Counters) -> Result<()>;

    /// Copies all bytes; the regions have equal sizes, and are disjoint or the same.
    fn copy(&mut self, from: Region, to: Region) -> Result<()>;

    /// Waits for pending work, and reads the first bytes of a region, at most 8.
    fn read(&mut self, from: Region) -> Result<[u8; 8]>;

    /// The error of a run, from the number of the step in which it happened; `None` if it
    /// happened before the first step.
    fn located(&self, step: Option<usize>, error: Diagnostic) -> Self::Error;
}

/// A place for the current values of the loop counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The memory space.
    pub space: Space,
    /// Bytes from the beginning of the space.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// How the step accesses it.
    pub access: Access,
    /// Label of the value in it.
    pub label: Option<u32>,
}

impl Region {
    /// True if the step writes it.
    pub fn is_written(&self) -> bool {
        self.access != Access::Read
    }
}

/// The counter of each loop.
#[derive(Debug)]
pub struct Counters(Vec<u64>);

impl Counters {
    /// Sets the counter of a loop.
    pub(super) fn set(&mut self, counter: usize, value: u64) {
        self.0[counter] = value;
    }

    /// The region of a place now.
    #[inline]
    pub fn region(&self, place: &Place) -> Region {
        let moved = place.strides.iter().map(|(counter, stride)| self.0[*counter] * stride);
        let Place { space, bytes, access, label, .. } = *place;
        Region { space, offset: place.offset + moved.sum::<u64>(), bytes, access, label }
    }
}

/// One item for each memory of a plan.
#[derive(Clone, Default, Debug)]
pub struct Memories<T> {
    /// The arena.
    pub arena: T,
    /// Inputs, in the plan's order, as all that follow.
    pub inputs: Vec<T>,
    /// Outputs.
    pub outputs: Vec<T>,
    /// Variables.
    pub variables: Vec<T>,
    /// Constants.
    pub constants: Vec<T>,
}

impl<T> std::ops::Index<Space> for Memories<T> {
    type Output = T;

    #[inline]
    fn index(&self, space: Space) -> &T {
        match space {
            Space::Arena => &self.arena,
            Space::Input(n) => &self.inputs[n as usize],
            Space::Output(n) => &self.outputs[n as usize],
            Space::Variable(n) => &self.variables[n as usize],
            Space::Constant(n) => &self.constants[n as usize],
        }
    }
}

impl<T> std::ops::IndexMut<Space> for Memories<T> {
    fn index_mut(&mut self, space: Space) -> &mut T {
        match space {
            Space::Arena => &mut self.arena,
            Space::Input(n) => &mut self.inputs[n as usize],
            Space::Output(n) => &mut self.outputs[n as usize],
            Space::Variable(n) => &mut self.variables[n as usize],
            Space::Constant(n) => &mut self.constants[n as usize],
        }
    }
}

impl<K> ResolvedPlan<K> {
    /// Counters for [`run`](Self::run); each run sets those that it uses.
    pub fn counters(&self) -> Counters {
        Counters(vec![0; self.loops])
    }

    /// Runs the plan once, with at most `limit` operations.
    ///
    /// Errors: those of the device; the run takes more operations.
    pub fn run<R: StepRunner<Kernel = K>>(
        &self,
        counters: &mut Counters,
        runner: &mut R,
        limit: u64,
    ) -> Result<(), R::Error> {
        let allowance = Allowance::new(limit);
        allowance.covers(self.least).map_err(|error| runner.located(None, error))?;
        Walk { counters, runner, allowance }.actions(&self.actions)
    }
}

struct Walk<'a, R> {
    counters: &'a mut Counters,
    runner: &'a mut R,
    /// The operations left to the run.
    allowance: Allowance,
}

impl<R: StepRunner> Walk<'_, R> {
    fn actions(&mut self, actions: &[Action<R::Kernel>]) -> Result<(), R::Error> {
        actions.iter().try_for_each(|action| self.action(action))
    }

    fn action(&mut self, action: &Action<R::Kernel>) -> Result<(), R::Error> {
        let step = action.step;
        let spent = self.allowance.spend(action.work);
        self.located(step, spent)?;
        match &action.kind {
            ActionKind::Kernel(kernel) => {
                let done = self.runner.launch(kernel, self.counters);
                self.located(step, done)
            }
            ActionKind::Copy { from, to } if from.bytes > 0 => {
                let (from, to) = (self.counters.region(from), self.counters.region(to));
                let done = self.runner.copy(from, to);
                self.located(step, done)
            }
            ActionKind::Copy { .. } => Ok(()),
            ActionKind::Loop { counter, trip, reverse, least, body } => {
                self.repeat(step, *counter, trip, *reverse, *least, body)
            }
            ActionKind::Branch { selector, arms } => {
                let selected = usize::try_from(self.scalar(step, selector)?).unwrap_or(0);
                self.actions(&arms[selected.min(arms.len() - 1)])
            }
        }
    }

    fn repeat(
        &mut self,
        step: usize,
        counter: usize,
        trip: &Trip,
        reverse: bool,
        least: u64,
        body: &[Action<R::Kernel>],
    ) -> Result<(), R::Error> {
        let count = match trip {
            Trip::Constant(count) => *count,
            Trip::Value { count, limit } => {
                u64::try_from(self.scalar(step, count)?).unwrap_or(0).min(*limit)
            }
            Trip::While { limit, .. } => *limit,
        };
        if !matches!(trip, Trip::While { .. }) {
            let covered = self.allowance.covers(Work::repeated(count, least));
            self.located(step, covered)?;
        }
        for n in 0..count {
            if let Trip::While { condition, .. } = trip
                && self.scalar(step, condition)? == 0
            {
                break;
            }
            let spent = self.allowance.spend(STEP);
            self.located(step, spent)?;
            self.counters.set(counter, if reverse { count - 1 - n } else { n });
            self.actions(body)?;
        }
        Ok(())
    }

    /// A bool (0 or 1), an i32 or an i64.
    fn scalar(&mut self, step: usize, place: &Place) -> Result<i64, R::Error> {
        let read = self.runner.read(self.counters.region(place));
        let bytes = self.located(step, read)?;
        Ok(match place.bytes {
            1 => bytes[0].into(),
            4 => i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
            _ => i64::from_le_bytes(bytes),
        })
    }

    #[inline]
    fn located<T>(&self, step: usize, result: Result<T>) -> Result<T, R::Error> {
        result.map_err(|error| self.runner.located(Some(step), error))
    }
}
