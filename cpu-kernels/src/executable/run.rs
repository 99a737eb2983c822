//! Following the steps. Nothing here allocates.

use super::copy::copy;
use super::{Action, Executable, Memory, Place, Profile, Spent, Trip};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Buffer, Workspace};
use crate::nest::CompiledNest;
use std::ptr::NonNull;
use std::time::Instant;
use wengert_core::Diagnostic;
use wengert_core::plan::Space;

pub(super) fn run(executable: &mut Executable, memory: &Memory<'_>) -> Result<(), Diagnostic> {
    let Executable {
        nests,
        calls,
        actions,
        arena,
        constants,
        workspace,
        counters,
        launches,
        profile,
        buffers,
        ..
    } = executable;
    let mut runner = Runner {
        nests,
        calls,
        arena: Spaces { arena: arena.pointer(), length: arena.len(), constants, memory },
        workspace,
        counters,
        launches,
        profile: profile.as_mut(),
        buffers,
    };
    let result = runner.steps(actions);
    // The buffers name memory that is lent only until now.
    buffers.fill(Buffer::reading::<u8>(&[]));
    result
}

/// All memories of a run.
struct Spaces<'a> {
    arena: NonNull<u8>,
    length: usize,
    constants: &'a [AlignedBytes],
    memory: &'a Memory<'a>,
}

struct Runner<'a> {
    nests: &'a [CompiledNest],
    calls: &'a [CompiledCall],
    arena: Spaces<'a>,
    workspace: &'a Workspace,
    counters: &'a mut [u64],
    launches: &'a mut [u64],
    profile: Option<&'a mut Profile>,
    buffers: &'a mut [Buffer<'static>],
}

impl Runner<'_> {
    fn steps(&mut self, actions: &[Action]) -> Result<(), Diagnostic> {
        actions.iter().try_for_each(|action| self.step(action))
    }

    fn step(&mut self, action: &Action) -> Result<(), Diagnostic> {
        match action {
            Action::Nest { nest, arguments } => {
                self.launches[*nest] += 1;
                self.gather(arguments);
                let since = self.since();
                self.nests[*nest].run(self.workspace, &self.buffers[..arguments.len()])?;
                self.spent(since, |profile| &mut profile.nests[*nest]);
                Ok(())
            }
            Action::Call { call, arguments } => {
                self.gather(arguments);
                let since = self.since();
                self.calls[*call].run(self.workspace, &self.buffers[..arguments.len()])?;
                self.spent(since, |profile| &mut profile.calls[*call]);
                Ok(())
            }
            Action::Followed { call, nest, arguments } => {
                self.launches[*nest] += 1;
                self.gather(arguments);
                let since = self.since();
                let call_of = &self.calls[*call];
                let (of_call, of_nest) = self.buffers[..arguments.len()].split_at(call_of.arguments());
                let follower = self.nests[*nest].follower(self.workspace, of_nest)?;
                call_of.run_followed(self.workspace, of_call, Some(&follower))?;
                self.spent(since, |profile| &mut profile.calls[*call]);
                Ok(())
            }
            Action::Copy { from, to } => {
                let (from, to) = (self.buffer(from), self.buffer(to));
                assert!(from.bytes() == to.bytes(), "both places hold the same value");
                assert!(to.is_writable(), "the plan's verifier lets nothing be written that is only read");
                let since = self.since();
                // SAFETY: both are valid for their bytes, of which there are as many, and `to` may be written; no other step runs now.
                unsafe { copy(self.workspace.pool(), &from, &to)? };
                self.spent(since, |profile| &mut profile.copies);
                Ok(())
            }
            Action::Loop { counter, trip, reverse, body } => self.repeat(*counter, trip, *reverse, body),
            Action::If { predicate, then, otherwise } => {
                let taken = self.byte(predicate) != 0;
                self.steps(if taken { then } else { otherwise })
            }
            Action::Switch { index, arms } => {
                let arm = i32::from_le_bytes(self.read(index));
                let last = arms.len() - 1;
                self.steps(&arms[usize::try_from(arm).unwrap_or(0).min(last)])
            }
        }
    }

    /// Now, if time is measured.
    fn since(&self) -> Option<Instant> {
        self.profile.as_ref().map(|_| Instant::now())
    }

    fn spent(&mut self, since: Option<Instant>, on: impl FnOnce(&mut Profile) -> &mut Spent) {
        if let (Some(profile), Some(since)) = (self.profile.as_deref_mut(), since) {
            on(profile).add(since);
        }
    }

    fn repeat(
        &mut self,
        counter: usize,
        trip: &Trip,
        reverse: bool,
        body: &[Action],
    ) -> Result<(), Diagnostic> {
        let count = match trip {
            Trip::Constant(count) => *count,
            Trip::Value { count, wide, limit } => {
                let value = if *wide {
                    i64::from_le_bytes(self.read(count))
                } else {
                    i32::from_le_bytes(self.read(count)).into()
                };
                u64::try_from(value).unwrap_or(0).min(*limit)
            }
            Trip::While { condition, limit } => {
                for i in 0..*limit {
                    if self.byte(condition) == 0 {
                        break;
                    }
                    self.counters[counter] = i;
                    self.steps(body)?;
                }
                return Ok(());
            }
        };
        for i in 0..count {
            self.counters[counter] = if reverse { count - 1 - i } else { i };
            self.steps(body)?;
        }
        Ok(())
    }

    /// The buffers of a step, in `self.buffers`.
    fn gather(&mut self, places: &[Place]) {
        for (i, place) in places.iter().enumerate() {
            self.buffers[i] = self.buffer(place);
        }
    }

    /// The memory at a place. Its lifetime is a fiction that ends with the run: the buffers are neither given out nor kept.
    fn buffer(&self, place: &Place) -> Buffer<'static> {
        let spaces = &self.arena;
        let (base, length, writable) = match place.space {
            Space::Arena => (spaces.arena.as_ptr(), spaces.length, true),
            Space::Input(i) => of(&spaces.memory.inputs[i as usize]),
            Space::Output(i) => of(&spaces.memory.outputs[i as usize]),
            Space::Variable(i) => of(&spaces.memory.variables[i as usize]),
            Space::Constant(i) => {
                let constant = &spaces.constants[i as usize];
                (constant.pointer().as_ptr(), constant.len(), false)
            }
        };
        let iterations: usize =
            place.strides.iter().map(|(counter, stride)| self.counters[*counter] as usize * stride).sum();
        let offset = place.offset + iterations;
        assert!(
            offset <= length && place.bytes <= length - offset && (writable || !place.written),
            "the plan's verifier found every address within its space, and nothing written that is only read"
        );
        let pointer = NonNull::new(base.wrapping_add(offset)).expect("memory does not begin at 0");
        // SAFETY: within a space that is valid for this run: the arena and the constants are the executable's, and are borrowed as
        // long as it runs; the others are lent by the caller, whose buffers say whether they may be written, and were found
        // apart from each other. Steps run one after another, and each checks that what it writes overlaps nothing else it uses.
        unsafe { Buffer::from_raw(pointer, place.bytes, place.written) }
    }

    /// The first bytes of a scalar.
    fn read<const N: usize>(&self, place: &Place) -> [u8; N] {
        let buffer = self.buffer(place);
        assert!(buffer.bytes() >= N, "the scalar has the dtype that it is read as");
        // SAFETY: the buffer is valid for that many bytes, and no step runs now that could write them.
        unsafe { buffer.pointer().cast::<[u8; N]>().read() }
    }

    fn byte(&self, place: &Place) -> u8 {
        self.read::<1>(place)[0]
    }
}

fn of(buffer: &Buffer<'_>) -> (*mut u8, usize, bool) {
    (buffer.pointer(), buffer.bytes(), buffer.is_writable())
}
