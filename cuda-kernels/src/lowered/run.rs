//! Execution of the actions.

use super::{Action, ActionKind, Launch, Lowered, Place, Trip};
use crate::stage::Access;
use wengert_core::plan::work::STEP;
use wengert_core::plan::{Allowance, Space, Work};
use wengert_core::{Diagnostic, Result};

/// Runs kernels: the driver, or the emulator. Effects happen in the order of the calls.
pub trait Machine {
    /// Launches a kernel on the memory of its arguments.
    fn launch(&mut self, launch: &Launch, arguments: &[Bound]) -> Result<()>;

    /// Runs call number `call` of [`Lowered::library`] on the library.
    fn library(&mut self, call: usize, arguments: &[Bound], workspace: Option<Bound>)
    -> Result<()>;

    /// Copies all bytes; the ranges have equal sizes, and are disjoint or the same.
    fn copy(&mut self, from: Bound, to: Bound) -> Result<()>;

    /// Waits for pending work, and reads the first bytes of a value, at most 8.
    fn read(&mut self, from: Bound) -> Result<[u8; 8]>;
}

/// A place, for the current values of the loop counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The memory space.
    pub space: Space,
    /// Bytes from the beginning of the space.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it is read or written.
    pub access: Access,
    /// Label of the value in it.
    pub label: Option<u32>,
}

/// An error of the machine, and the step of the plan in which it happened.
#[derive(Clone, PartialEq, Debug)]
pub struct StepError {
    /// Number of the step.
    pub step: usize,
    /// The error; it includes the text of the step.
    pub error: Diagnostic,
}

/// Runs a plan once, of at most `limit` operations ([`wengert_core::plan::work`]).
///
/// Errors: those of the machine, with their step; the run exceeds the limit.
pub fn run(lowered: &Lowered, machine: &mut impl Machine, limit: u64) -> Result<(), StepError> {
    let allowance = Allowance::new(limit);
    let outside = |error| StepError { step: usize::MAX, error };
    allowance.covers(least(&lowered.actions)).map_err(outside)?;
    let counters = vec![0; lowered.loops];
    let mut runner = Runner { lowered, machine, counters, arguments: Vec::new(), allowance };
    runner.actions(&lowered.actions)
}

/// The minimum number of operations of some actions, whatever the data ([`Work::least`]).
fn least(actions: &[Action]) -> u64 {
    let of_action = |action: &Action| match &action.kind {
        ActionKind::Loop { trip: Trip::Constant(count), body, .. } => {
            Work::repeated(*count, least(body)).saturating_add(action.work)
        }
        ActionKind::Branch { ways, .. } => {
            action.work.saturating_add(ways.iter().map(|way| least(way)).min().unwrap_or(0))
        }
        _ => action.work,
    };
    actions.iter().map(of_action).fold(0, u64::saturating_add)
}

struct Runner<'a, M> {
    lowered: &'a Lowered,
    machine: &'a mut M,
    counters: Vec<u64>,
    /// Arguments of the current step; kept to reuse the allocation.
    arguments: Vec<Bound>,
    /// The remaining operations of the run.
    allowance: Allowance,
}

impl<M: Machine> Runner<'_, M> {
    fn actions(&mut self, actions: &[Action]) -> Result<(), StepError> {
        actions.iter().try_for_each(|action| self.action(action))
    }

    fn action(&mut self, action: &Action) -> Result<(), StepError> {
        let lowered = self.lowered;
        let located = |error| lowered.locate(action.step, error);
        self.allowance.spend(action.work).map_err(located)?;
        let done = match &action.kind {
            ActionKind::Launch(launch) => {
                self.bind(&launch.arguments);
                self.machine.launch(launch, &self.arguments)
            }
            ActionKind::Library { call, arguments, workspace } => {
                self.bind(arguments);
                let workspace = workspace.as_ref().map(|w| self.place(w));
                self.machine.library(*call, &self.arguments, workspace)
            }
            ActionKind::Copy { from, to } => {
                let (from, to) = (self.place(from), self.place(to));
                self.machine.copy(from, to)
            }
            ActionKind::Loop { counter, trip, reverse, body } => {
                return self.repeat(action.step, *counter, trip, *reverse, body);
            }
            ActionKind::Branch { selector, is_bool, ways } => {
                let bytes = self.read(action.step, selector)?;
                let way = match is_bool {
                    true => usize::from(bytes[0] == 0),
                    false => usize::try_from(word(bytes)).unwrap_or(0).min(ways.len() - 1),
                };
                return self.actions(&ways[way]);
            }
        };
        done.map_err(|error| self.lowered.locate(action.step, error))
    }

    fn repeat(
        &mut self,
        step: usize,
        counter: usize,
        trip: &Trip,
        reverse: bool,
        body: &[Action],
    ) -> Result<(), StepError> {
        let count = match trip {
            Trip::Constant(count) => *count,
            Trip::Value { count, wide, limit } => {
                let bytes = self.read(step, count)?;
                let value = if *wide { i64::from_le_bytes(bytes) } else { word(bytes).into() };
                u64::try_from(value).unwrap_or(0).min(*limit)
            }
            Trip::While { limit, .. } => *limit,
        };
        let lowered = self.lowered;
        let located = |error| lowered.locate(step, error);
        if !matches!(trip, Trip::While { .. }) {
            self.allowance.covers(Work::repeated(count, least(body))).map_err(located)?;
        }
        for i in 0..count {
            if let Trip::While { condition, .. } = trip
                && self.read(step, condition)?[0] == 0
            {
                break;
            }
            self.allowance.spend(STEP).map_err(located)?;
            self.counters[counter] = if reverse { count - 1 - i } else { i };
            self.actions(body)?;
        }
        Ok(())
    }

    fn read(&mut self, step: usize, place: &Place) -> Result<[u8; 8], StepError> {
        let bound = self.place(place);
        self.machine.read(bound).map_err(|error| self.lowered.locate(step, error))
    }

    fn bind(&mut self, places: &[Place]) {
        self.arguments.clear();
        for place in places {
            let bound = self.place(place);
            self.arguments.push(bound);
        }
    }

    fn place(&self, place: &Place) -> Bound {
        let counted =
            place.strides.iter().map(|(counter, stride)| self.counters[*counter] * stride);
        let Place { space, bytes, access, label, .. } = *place;
        Bound { space, offset: place.offset + counted.sum::<u64>(), bytes, access, label }
    }
}

/// The i32 at the beginning.
fn word(bytes: [u8; 8]) -> i32 {
    i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
