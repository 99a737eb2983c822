//! Recording: a resolved plan as a program that a device executes without the host.
//!
//! [`ResolvedPlan::run`] follows loops and branches on the host, which reads each condition back
//! from the device. A device that has loops and branches of its own (a CUDA graph with conditional
//! nodes) is given the plan once instead. [`ResolvedPlan::record`] visits every action once, and
//! the device ([`StepRecorder`]) records it.
//!
//! The addresses of a recorded kernel are fixed. So a loop is recorded in one of two ways:
//!
//! - **Unrolled**: its body is recorded once for each iteration, at the addresses of that
//!   iteration. The number of iterations is constant.
//! - **Repeated**: its body is recorded once, and the device repeats it. No address in the body
//!   moves with the loop's counter.
//!
//! [`ResolvedPlan::recording`] chooses. Constant loops are unrolled, as a captured straight plan
//! always was. If that takes more commands than the device holds, they are repeated where their
//! addresses permit it. A plan that has a loop which is neither, or that stays too long, is not
//! recorded: the error is the reason, and the host follows the plan.
//!
//! **Limits.** A recorded loop stops at its own limit, which the device counts. The limit on the
//! operations of a run ([`super::work`]) is not counted by the device. [`Recording::most`] is a
//! bound of the operations for any data: only a plan that cannot exceed the limit may be recorded.

use super::resolve::{Action, ActionKind, Place, ResolvedPlan, Trip};
use super::walk::{Counters, Region, StepRunner};
use super::work::STEP;
use crate::diagnostic::Result;

/// Decisions of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// For each loop whether the device repeats it.
    repeated: Vec<bool>,
    /// Kernels and copies that are recorded.
    pub length: u64,
    /// Loops that the device repeats; those in an unrolled body count once for each iteration.
    pub loops: u64,
    /// Branches, counted likewise.
    pub branches: u64,
    /// A bound of the operations of a run, whatever the data. Saturates.
    pub most: u64,
}

/// Why the host has to follow a plan's loops and branches.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unrecordable {
    /// The number of iterations is not constant, and addresses move with the counter.
    #[error(
        "the loop of step {step} has a number of iterations that depends on data, and step {mover} \
         in it reads or writes a part that its counter chooses"
    )]
    Moves {
        /// The step of the loop.
        step: usize,
        /// The first step whose address moves.
        mover: usize,
    },
    /// It takes too many commands.
    #[error("it takes {length} kernels and copies, and {most} are recorded at most")]
    Long {
        /// Kernels and copies.
        length: u64,
        /// Most of them.
        most: u64,
    },
}

/// The iterations of a repeated loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repetition {
    /// A constant number.
    Times(u64),
    /// The i32 or i64 at `count` when the loop begins, clamped to `0..=limit`.
    Count {
        /// The scalar.
        count: Region,
        /// Most iterations.
        limit: u64,
    },
    /// While the bool at `condition` is true, tested before each iteration, at most `limit` times.
    While {
        /// The scalar.
        condition: Region,
        /// Most iterations.
        limit: u64,
    },
}

/// A device's part of a recording. Kernels and copies are recorded by the methods of
/// [`StepRunner`], in the order of the calls; [`StepRunner::read`] is not called.
pub trait StepRecorder: StepRunner + Sized {
    /// Records a loop, whose body `body` records.
    fn repeat(
        &mut self,
        place: LoopPlace,
        repetition: Repetition,
        body: &mut Body<'_, Self>,
    ) -> Result<(), Self::Error>;

    /// Records a branch with `arms` arms, at least one: the arm is executed whose number the
    /// scalar at `selector` is, clamped. `arm` records the arm of a number.
    fn branch(
        &mut self,
        step: usize,
        selector: Region,
        arms: usize,
        arm: &mut Arm<'_, Self>,
    ) -> Result<(), Self::Error>;
}

/// Visits the memory that a kernel accesses.
pub type Visit<'a, K> = dyn Fn(&K, &mut dyn FnMut(&Place)) + 'a;

/// Records the body of a loop.
pub type Body<'a, R> = dyn FnMut(&mut R) -> Result<(), <R as StepRunner>::Error> + 'a;

/// Records an arm of a branch.
pub type Arm<'a, R> = dyn FnMut(&mut R, usize) -> Result<(), <R as StepRunner>::Error> + 'a;

/// A loop of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPlace {
    /// Number of its step.
    pub step: usize,
    /// Its number among the plan's loops, below [`ResolvedPlan::loops`].
    pub counter: usize,
}

impl<K> ResolvedPlan<K> {
    /// Number of loops.
    pub fn loops(&self) -> usize {
        self.loops
    }

    /// How the plan is recorded in at most `most` kernels and copies. `places` visits the memory
    /// that a kernel accesses.
    ///
    /// Error: why it is not.
    pub fn recording(&self, most: u64, places: &Visit<'_, K>) -> Result<Recording, Unrecordable> {
        let unrolled =
            Analysis { places, repeats: false, loops: self.loops }.plan(&self.actions)?;
        if unrolled.length <= most {
            return Ok(unrolled);
        }
        let repeated = Analysis { places, repeats: true, loops: self.loops }.plan(&self.actions)?;
        let length = repeated.length;
        if length > most { Err(Unrecordable::Long { length, most }) } else { Ok(repeated) }
    }

    /// Gives the plan to a device that executes loops and branches itself. `recording` is that of
    /// this plan.
    ///
    /// Errors: those of the device.
    pub fn record<R: StepRecorder<Kernel = K>>(
        &self,
        recording: &Recording,
        recorder: &mut R,
    ) -> Result<(), R::Error> {
        record(&self.actions, &mut self.counters(), recording, recorder)
    }
}

/// The choice of unrolled and repeated loops.
struct Analysis<'a, K> {
    places: &'a Visit<'a, K>,
    /// Whether constant loops are repeated where that is possible.
    repeats: bool,
    loops: usize,
}

impl<K> Analysis<'_, K> {
    fn plan(&self, actions: &[Action<K>]) -> Result<Recording, Unrecordable> {
        let mut all = Recording::none(self.loops);
        self.actions(actions, &mut all)?;
        Ok(all)
    }

    fn actions(&self, actions: &[Action<K>], all: &mut Recording) -> Result<(), Unrecordable> {
        actions.iter().try_for_each(|action| self.action(action, all))
    }

    fn action(&self, action: &Action<K>, all: &mut Recording) -> Result<(), Unrecordable> {
        all.most = all.most.saturating_add(action.work);
        match &action.kind {
            ActionKind::Kernel(_) | ActionKind::Copy { .. } => {
                all.length = all.length.saturating_add(1);
            }
            ActionKind::Loop { counter, trip, body, .. } => {
                let mut inner = Recording::none(self.loops);
                self.actions(body, &mut inner)?;
                let limit = match trip {
                    Trip::Constant(limit)
                    | Trip::Value { limit, .. }
                    | Trip::While { limit, .. } => *limit,
                };
                let mover = self.mover(body, *counter);
                let repeats = match trip {
                    Trip::Constant(_) => self.repeats && mover.is_none(),
                    _ => true,
                };
                match mover {
                    Some(mover) if repeats => {
                        return Err(Unrecordable::Moves { step: action.step, mover });
                    }
                    _ => all.repeated[*counter] = repeats,
                }
                let times = if repeats { 1 } else { limit };
                // The device executes a small kernel of its own before the loop, and one in it.
                let own = if repeats { 2 } else { 0 };
                all.loops = all.loops.saturating_add(u64::from(repeats));
                all.add(&inner, times);
                all.length = all.length.saturating_add(own);
                let iterations = STEP.saturating_add(inner.most).saturating_mul(limit);
                all.most = all.most.saturating_add(iterations);
            }
            ActionKind::Branch { arms, .. } => {
                all.branches = all.branches.saturating_add(1);
                all.length = all.length.saturating_add(arms.len() as u64);
                let mut most = 0;
                for arm in arms {
                    let mut inner = Recording::none(self.loops);
                    self.actions(arm, &mut inner)?;
                    all.add(&inner, 1);
                    most = inner.most.max(most);
                }
                all.most = all.most.saturating_add(most);
            }
        }
        Ok(())
    }

    /// The first step of these whose memory moves with a counter.
    fn mover(&self, actions: &[Action<K>], counter: usize) -> Option<usize> {
        let moves = |place: &Place| place.strides.iter().any(|(c, _)| *c == counter);
        actions.iter().find_map(|action| {
            let (own, inner) = match &action.kind {
                ActionKind::Kernel(kernel) => {
                    let mut found = false;
                    (self.places)(kernel, &mut |place| found |= moves(place));
                    (found, None)
                }
                ActionKind::Copy { from, to } => (moves(from) || moves(to), None),
                ActionKind::Loop { trip, body, .. } => {
                    let own = match trip {
                        Trip::Constant(_) => false,
                        Trip::Value { count: at, .. } | Trip::While { condition: at, .. } => {
                            moves(at)
                        }
                    };
                    (own, self.mover(body, counter))
                }
                ActionKind::Branch { selector, arms } => {
                    (moves(selector), arms.iter().find_map(|arm| self.mover(arm, counter)))
                }
            };
            if own { Some(action.step) } else { inner }
        })
    }
}

impl Recording {
    fn none(loops: usize) -> Recording {
        Recording { repeated: vec![false; loops], length: 0, loops: 0, branches: 0, most: 0 }
    }

    /// Adds nested actions that are recorded `times` times; their operations are added apart.
    fn add(&mut self, inner: &Recording, times: u64) {
        let more = |sum: u64, part: u64| sum.saturating_add(part.saturating_mul(times));
        self.length = more(self.length, inner.length);
        self.loops = more(self.loops, inner.loops);
        self.branches = more(self.branches, inner.branches);
        for (all, inner) in self.repeated.iter_mut().zip(&inner.repeated) {
            *all |= inner;
        }
    }
}

fn record<R: StepRecorder>(
    actions: &[Action<R::Kernel>],
    counters: &mut Counters,
    recording: &Recording,
    recorder: &mut R,
) -> Result<(), R::Error> {
    for action in actions {
        let step = action.step;
        match &action.kind {
            ActionKind::Kernel(kernel) => {
                let done = recorder.launch(kernel, counters);
                done.map_err(|error| recorder.located(Some(step), error))?;
            }
            ActionKind::Copy { from, to } if from.bytes > 0 => {
                let done = recorder.copy(counters.region(from), counters.region(to));
                done.map_err(|error| recorder.located(Some(step), error))?;
            }
            ActionKind::Copy { .. } => {}
            ActionKind::Loop { counter, trip, body, .. } if recording.repeated[*counter] => {
                let repetition = match trip {
                    Trip::Constant(count) => Repetition::Times(*count),
                    Trip::Value { count, limit } => {
                        Repetition::Count { count: counters.region(count), limit: *limit }
                    }
                    Trip::While { condition, limit } => {
                        Repetition::While { condition: counters.region(condition), limit: *limit }
                    }
                };
                let place = LoopPlace { step, counter: *counter };
                recorder.repeat(place, repetition, &mut |recorder| {
                    record(body, counters, recording, recorder)
                })?;
            }
            ActionKind::Loop { counter, trip, reverse, body, .. } => {
                let Trip::Constant(count) = trip else {
                    unreachable!("loops of other trips are repeated, or the plan is not recorded")
                };
                for n in 0..*count {
                    counters.set(*counter, if *reverse { count - 1 - n } else { n });
                    record(body, counters, recording, recorder)?;
                }
            }
            ActionKind::Branch { selector, arms } => {
                let selector = counters.region(selector);
                recorder.branch(step, selector, arms.len(), &mut |recorder, arm| {
                    record(&arms[arm], counters, recording, recorder)
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
