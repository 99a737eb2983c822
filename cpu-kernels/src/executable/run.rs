//! A device's part of a run. Nothing here allocates, except for collectives.

use super::copy::copy;
use super::{CpuExecutable, Kernel, Profile, RunMemory, Spent};
use crate::call::{CompiledCall, CompiledCollective};
use crate::memory::{Span, Workspace};
use crate::nest::CompiledNest;
use crate::ranks::Ranks;
use std::ptr::NonNull;
use std::time::Instant;
use wengert_core::Diagnostic;
use wengert_core::plan::{Counters, Memories, Place, Region, StepRunner};

pub(super) fn run(
    executable: &mut CpuExecutable,
    memory: &RunMemory<'_, '_>,
) -> Result<(), Diagnostic> {
    let CpuExecutable {
        nests,
        calls,
        collectives,
        resolved,
        counters,
        memories,
        workspace,
        launches,
        profile,
        limit,
        spans,
        ..
    } = executable;
    // Their capacity was reserved.
    for (spans, buffers) in [
        (&mut memories.inputs, memory.inputs),
        (&mut memories.outputs, &*memory.outputs),
        (&mut memories.variables, &*memory.variables),
    ] {
        spans.clear();
        spans.extend(buffers.iter().map(|buffer| buffer.span()));
    }
    // Inputs are shared borrows: another run may read them now.
    memories.inputs.iter_mut().for_each(|span| *span = span.read_only());
    let profile = profile.as_mut();
    let mut runner = Runner {
        nests,
        calls,
        collectives,
        memories,
        workspace,
        launches,
        profile,
        spans,
        under_way: false,
    };
    // A run that ends well has waited for all of them (P18).
    let abandons = Abandons(workspace.ranks());
    let done = resolved.run(counters, &mut runner, *limit);
    drop(abandons);
    // The caller's memory is lent for this run only.
    for spans in [&mut memories.inputs, &mut memories.outputs, &mut memories.variables] {
        spans.clear();
    }
    done
}

/// Gives up the transfers that are left when a run ends, also if it panics: they read its memory.
struct Abandons<'a>(&'a Ranks);

impl Drop for Abandons<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

struct Runner<'a> {
    nests: &'a [CompiledNest],
    calls: &'a [CompiledCall],
    collectives: &'a [CompiledCollective],
    memories: &'a Memories<Span>,
    workspace: &'a Workspace,
    launches: &'a mut [u64],
    profile: Option<&'a mut Profile>,
    spans: &'a mut [Span],
    /// Whether transfers may be under way.
    under_way: bool,
}

impl StepRunner for Runner<'_> {
    type Kernel = Kernel;
    type Error = Diagnostic;

    fn launch(&mut self, kernel: &Kernel, counters: &Counters) -> Result<(), Diagnostic> {
        if let Kernel::Nest { nest, .. } | Kernel::Followed { nest, .. } = kernel {
            self.launches[*nest] += 1;
        }
        self.progress()?;
        let _span = tracing::trace_span!("kernel", name = self.name(kernel)).entered();
        let arguments = kernel.arguments();
        self.gather(arguments, counters);
        let (since, spans) = (self.since(), &self.spans[..arguments.len()]);
        match *kernel {
            Kernel::Together { ref calls, .. } => {
                let members = &self.calls[calls.clone()];
                // SAFETY: each span is in a memory of this run, and only these steps run now. They
                // are independent (`prepare::are_independent`).
                unsafe { CompiledCall::run_together(members, self.workspace, spans)? };
                if let (Some(profile), Some(since)) = (self.profile.as_deref_mut(), since) {
                    let each = since.elapsed() / members.len() as u32;
                    profile.calls[calls.clone()].iter_mut().for_each(|call| call.add(each));
                }
            }
            Kernel::Nest { nest, .. } => {
                // SAFETY: each span is in a memory of this run (see `span`), and no other step
                // runs now. If two of them overlap, the plan's verifier has checked that the nest
                // may run in place.
                unsafe { self.nests[nest].run_on(self.workspace, spans)? };
                self.spent(since, |profile| &mut profile.nests[nest]);
            }
            Kernel::Call { call, .. } => {
                // SAFETY: each span is in a memory of this run, and no other step runs now.
                unsafe { self.calls[call].run_on(self.workspace, spans, None)? };
                self.spent(since, |profile| &mut profile.calls[call]);
            }
            Kernel::Start { transfer, .. } => {
                self.under_way = true;
                let operand = spans[0];
                // SAFETY: the span is in a memory of this run, and nothing writes it now.
                let operand = unsafe {
                    std::slice::from_raw_parts(operand.pointer().cast_const(), operand.bytes())
                };
                let call = &self.collectives[transfer];
                // SAFETY: the operand is in a memory of this run. The plan's verifier lets no step
                // write it before the wait (P18), and a run that fails abandons its transfers.
                unsafe { self.workspace.ranks().start(Some(transfer), call, operand)? };
                self.spent(since, |profile| &mut profile.transfers);
            }
            Kernel::Wait { transfer, .. } => {
                let (operand, result) = (spans[0], spans[1]);
                assert!(result.is_writable(), "the plan's verifier lets it be written (P9)");
                let are_apart = operand.bytes() == 0 || !operand.overlaps(&result);
                assert!(are_apart, "both are in use until the wait (P18)");
                // SAFETY: the span is in a memory of this run, it may be written, it is apart from
                // the operand, which the transfer reads, and no other step runs now.
                let result =
                    unsafe { std::slice::from_raw_parts_mut(result.pointer(), result.bytes()) };
                self.workspace.ranks().wait(Some(transfer), result)?;
                self.spent(since, |profile| &mut profile.transfers);
            }
            Kernel::Followed { call, nest, .. } => {
                let call_of = &self.calls[call];
                let (of_call, of_nest) = spans.split_at(call_of.arguments());
                let follower = self.nests[nest].follower(self.workspace, of_nest)?;
                // SAFETY: each span is in a memory of this run, and no other step runs now. The
                // two were paired because the nest reads only its own elements of the call's
                // result, and writes nothing that the call reads (`plan::follower`).
                unsafe { call_of.run_on(self.workspace, of_call, Some(&follower))? };
                self.spent(since, |profile| &mut profile.calls[call]);
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<(), Diagnostic> {
        let (from, to) = (self.span(from), self.span(to));
        assert!(from.bytes() == to.bytes(), "both places hold the same value");
        assert!(to.is_writable(), "the plan's verifier lets nothing be written that is only read");
        let _span = tracing::trace_span!("kernel", name = "copy").entered();
        let since = self.since();
        // SAFETY: both are valid for their bytes, and have the same number of them. `to` may be
        // written. No other step runs now.
        unsafe { copy(self.workspace.pool(), from, to)? };
        self.spent(since, |profile| &mut profile.copies);
        Ok(())
    }

    fn read(&mut self, from: Region) -> Result<[u8; 8], Diagnostic> {
        let (span, mut word) = (self.span(from), [0; 8]);
        let bytes = span.bytes().min(word.len());
        // SAFETY: the span is valid for that many bytes, and no step runs now that could write
        // them. They are on the heap, in pages of their own or borrowed from the caller, and so
        // apart from `word`.
        unsafe { span.pointer().copy_to_nonoverlapping(word.as_mut_ptr(), bytes) };
        Ok(word)
    }

    /// The errors of this device's kernels name no step.
    fn located(&self, _: Option<usize>, error: Diagnostic) -> Diagnostic {
        error
    }
}

impl Runner<'_> {
    /// The name of a kernel in a trace: that of its nest, or of its first call.
    fn name(&self, kernel: &Kernel) -> &str {
        match kernel {
            Kernel::Nest { nest, .. } => self.nests[*nest].name(),
            Kernel::Call { call, .. } | Kernel::Followed { call, .. } => {
                self.calls[*call].description()
            }
            Kernel::Start { .. } => "start",
            Kernel::Wait { .. } => "wait",
            Kernel::Together { calls, .. } => self.calls[calls.start].description(),
        }
    }

    /// Advances the transfers under way.
    #[inline]
    fn progress(&mut self) -> Result<(), Diagnostic> {
        if self.under_way {
            let since = self.since();
            self.under_way = self.workspace.ranks().progress()?;
            self.spent(since, |profile| &mut profile.transfers);
        }
        Ok(())
    }

    /// The current time, if time is measured.
    fn since(&self) -> Option<Instant> {
        self.profile.as_ref().map(|_| Instant::now())
    }

    fn spent(&mut self, since: Option<Instant>, on: impl FnOnce(&mut Profile) -> &mut Spent) {
        if let (Some(profile), Some(since)) = (self.profile.as_deref_mut(), since) {
            on(profile).add(since.elapsed());
        }
    }

    /// Writes the spans of a step to `self.spans`.
    fn gather(&mut self, places: &[Place], counters: &Counters) {
        for (i, place) in places.iter().enumerate() {
            self.spans[i] = self.span(counters.region(place));
        }
    }

    /// The memory of a region. It is valid for this run, since it is within one of the run's
    /// memories. The arena and the constants belong to the executable, which is borrowed during
    /// the run. The others are borrowed from the caller, the writable ones exclusively. Steps run
    /// one after another, and each checks that its written memory overlaps no other memory that
    /// it uses.
    #[inline(always)]
    fn span(&self, region: Region) -> Span {
        let memory = &self.memories[region.space];
        let written = region.is_written();
        let size = |n: u64| usize::try_from(n).ok();
        let inside = size(region.offset).zip(size(region.bytes)).filter(|(offset, bytes)| {
            *offset <= memory.bytes()
                && *bytes <= memory.bytes() - offset
                && (memory.is_writable() || !written)
        });
        let (offset, bytes) = inside.expect(
            "the plan's verifier found every address within its space, and nothing written that is \
             only read",
        );
        let pointer = NonNull::new(memory.pointer().wrapping_add(offset));
        Span::new(pointer.expect("memory does not begin at 0"), bytes, written)
    }
}
