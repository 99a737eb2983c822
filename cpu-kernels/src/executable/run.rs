//! Runs the steps. Nothing here allocates.

use super::copy::copy;
use super::{Action, Executable, Memory, Place, Profile, Spent, Trip};
use crate::call::CompiledCall;
use crate::memory::{AlignedBytes, Buffer, Span, Workspace};
use crate::nest::CompiledNest;
use std::ptr::NonNull;
use std::time::Instant;
use wengert_core::plan::work::STEP;
use wengert_core::plan::{Allowance, NestId, Space, Work};
use wengert_core::{Diagnostic, Id};

pub(super) fn run(executable: &mut Executable, memory: &Memory<'_, '_>) -> Result<(), Diagnostic> {
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
        work,
        work_of_calls,
        least,
        limit,
        spans,
        ..
    } = executable;
    let allowance = Allowance::new(*limit);
    allowance.covers(*least)?;
    let mut runner = Runner {
        nests,
        calls,
        spaces: Spaces {
            arena: arena.pointer(),
            length: arena.len(),
            constants,
            inputs: memory.inputs,
            outputs: memory.outputs,
            variables: memory.variables,
        },
        workspace,
        counters,
        launches,
        profile: profile.as_mut(),
        work,
        work_of_calls,
        allowance,
        spans,
    };
    runner.steps(actions)
}

/// All memory spaces of a run.
struct Spaces<'a> {
    arena: NonNull<u8>,
    length: usize,
    constants: &'a [AlignedBytes],
    inputs: &'a [Buffer<'a>],
    outputs: &'a [Buffer<'a>],
    variables: &'a [Buffer<'a>],
}

struct Runner<'a> {
    nests: &'a [CompiledNest],
    calls: &'a [CompiledCall],
    spaces: Spaces<'a>,
    workspace: &'a Workspace,
    counters: &'a mut [u64],
    launches: &'a mut [u64],
    profile: Option<&'a mut Profile>,
    work: &'a Work,
    work_of_calls: &'a [u64],
    /// The operations left to the run.
    allowance: Allowance,
    spans: &'a mut [Span],
}

impl Runner<'_> {
    fn steps(&mut self, actions: &[Action]) -> Result<(), Diagnostic> {
        actions.iter().try_for_each(|action| self.step(action))
    }

    fn step(&mut self, action: &Action) -> Result<(), Diagnostic> {
        match action {
            Action::Nest { nest, arguments } => {
                self.allowance.spend(self.work.nest(NestId::new(*nest)))?;
                self.launches[*nest] += 1;
                self.gather(arguments);
                let since = self.since();
                // SAFETY: each span is in a memory of this run (see `span`), and no other step
                // runs now. If two of them overlap, the plan's verifier has checked that the nest
                // may run in place.
                unsafe {
                    self.nests[*nest].run_on(self.workspace, &self.spans[..arguments.len()])?
                };
                self.spent(since, |profile| &mut profile.nests[*nest]);
                Ok(())
            }
            Action::Call { call, arguments } => {
                self.allowance.spend(self.work_of_calls[*call])?;
                self.gather(arguments);
                let since = self.since();
                // SAFETY: each span is in a memory of this run, and no other step runs now.
                unsafe {
                    self.calls[*call].run_on(
                        self.workspace,
                        &self.spans[..arguments.len()],
                        None,
                    )?
                };
                self.spent(since, |profile| &mut profile.calls[*call]);
                Ok(())
            }
            Action::Followed { call, nest, arguments } => {
                self.allowance.spend(self.work_of_calls[*call])?;
                self.allowance.spend(self.work.nest(NestId::new(*nest)))?;
                self.launches[*nest] += 1;
                self.gather(arguments);
                let since = self.since();
                let call_of = &self.calls[*call];
                let (of_call, of_nest) =
                    self.spans[..arguments.len()].split_at(call_of.arguments());
                let follower = self.nests[*nest].follower(self.workspace, of_nest)?;
                // SAFETY: each span is in a memory of this run, and no other step runs now. The
                // two were paired because the nest reads only its own elements of the call's
                // result, and writes nothing that the call reads (`plan::follower`).
                unsafe { call_of.run_on(self.workspace, of_call, Some(&follower))? };
                self.spent(since, |profile| &mut profile.calls[*call]);
                Ok(())
            }
            Action::Copy { from, to, work } => {
                self.allowance.spend(*work)?;
                let (from, to) = (self.span(from), self.span(to));
                assert!(from.bytes() == to.bytes(), "both places hold the same value");
                assert!(
                    to.is_writable(),
                    "the plan's verifier lets nothing be written that is only read"
                );
                let since = self.since();
                // SAFETY: both are valid for their bytes, and have the same number of them. `to`
                // may be written. No other step runs now.
                unsafe { copy(self.workspace.pool(), from, to)? };
                self.spent(since, |profile| &mut profile.copies);
                Ok(())
            }
            Action::Loop { counter, least, trip, reverse, body } => {
                self.allowance.spend(STEP)?;
                self.repeat(*counter, *least, trip, *reverse, body)
            }
            Action::If { predicate, then, otherwise } => {
                self.allowance.spend(STEP)?;
                let taken = self.byte(predicate) != 0;
                self.steps(if taken { then } else { otherwise })
            }
            Action::Switch { index, arms } => {
                self.allowance.spend(STEP)?;
                let arm = i32::from_le_bytes(self.read(index));
                let last = arms.len() - 1;
                self.steps(&arms[usize::try_from(arm).unwrap_or(0).min(last)])
            }
        }
    }

    /// The current time, if time is measured.
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
        least: u64,
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
                    self.allowance.spend(STEP)?;
                    self.counters[counter] = i;
                    self.steps(body)?;
                }
                return Ok(());
            }
        };
        self.allowance.covers(Work::repeated(count, least))?;
        for i in 0..count {
            self.allowance.spend(STEP)?;
            self.counters[counter] = if reverse { count - 1 - i } else { i };
            self.steps(body)?;
        }
        Ok(())
    }

    /// Writes the spans of a step to `self.spans`.
    fn gather(&mut self, places: &[Place]) {
        for (i, place) in places.iter().enumerate() {
            self.spans[i] = self.span(place);
        }
    }

    /// The memory at a place. It is valid for this run, since it is within one of the run's
    /// spaces. The arena and the constants belong to the executable, which is borrowed during the
    /// run. The others are borrowed from the caller, the writable ones exclusively. Steps run one
    /// after another, and each checks that its written memory overlaps no other memory that it
    /// uses.
    fn span(&self, place: &Place) -> Span {
        let spaces = &self.spaces;
        let (base, length, writable) = match place.space {
            Space::Arena => (spaces.arena.as_ptr(), spaces.length, true),
            // Inputs are shared borrows: another run may read them now.
            Space::Input(i) => {
                let (base, length, _) = of(spaces.inputs[i as usize].span());
                (base, length, false)
            }
            Space::Output(i) => of(spaces.outputs[i as usize].span()),
            Space::Variable(i) => of(spaces.variables[i as usize].span()),
            Space::Constant(i) => {
                let constant = &spaces.constants[i as usize];
                (constant.pointer().as_ptr(), constant.len(), false)
            }
        };
        let offset = place.strides.iter().try_fold(place.offset, |at, (counter, stride)| {
            usize::try_from(self.counters[*counter]).ok()?.checked_mul(*stride)?.checked_add(at)
        });
        let inside = |offset: &usize| {
            *offset <= length && place.bytes <= length - offset && (writable || !place.written)
        };
        let offset = offset.filter(inside).expect(
            "the plan's verifier found every address within its space, and nothing written that is \
             only read",
        );
        let pointer = NonNull::new(base.wrapping_add(offset)).expect("memory does not begin at 0");
        Span::new(pointer, place.bytes, place.written)
    }

    /// The first bytes of a scalar.
    fn read<const N: usize>(&self, place: &Place) -> [u8; N] {
        let span = self.span(place);
        assert!(span.bytes() >= N, "the scalar has the dtype that it is read as");
        // SAFETY: the span is valid for that many bytes, and no step runs now that could write
        // them.
        unsafe { span.pointer().cast::<[u8; N]>().read() }
    }

    fn byte(&self, place: &Place) -> u8 {
        self.read::<1>(place)[0]
    }
}

fn of(span: Span) -> (*mut u8, usize, bool) {
    (span.pointer(), span.bytes(), span.is_writable())
}
