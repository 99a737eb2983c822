//! Independent calls that run together: the threads are divided among them.
//!
//! A product of few rows takes the time of reading rhs. If its rows are short, the threads read
//! short runs of memory, each a part of every row, and the hardware prefetcher does not follow
//! them. Of two such products with equal extents, as those of keys and values in decoding, two
//! threads read one each, from its first byte to its last.

use super::{Arguments, CompiledCall};
use crate::memory::{Span, Workspace};
use wengert_core::Diagnostic;

/// A call that may run together with others.
pub(super) trait Member {
    /// Batch, rows, columns and terms. Calls run together if these are equal.
    fn extents(&self) -> [usize; 4];

    /// Computes a part of the result, one of `parts`, on a thread.
    ///
    /// # Safety
    ///
    /// The arguments were checked. No other code uses this part of the result.
    unsafe fn part(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        part: usize,
        parts: usize,
    );
}

impl CompiledCall {
    /// Whether it may run together with another call, if the two are independent.
    pub(crate) fn is_like(&self, other: &CompiledCall) -> bool {
        let extents = |call: &CompiledCall| call.kernels.member().map(Member::extents);
        extents(self).is_some() && extents(self) == extents(other)
    }

    /// Runs calls that are [alike](Self::is_like) together, on the buffers of all of them.
    ///
    /// Error: as for [`run`](Self::run); or a result overlaps a buffer of another call.
    ///
    /// # Safety
    ///
    /// As for [`run_on`](Self::run_on).
    pub(crate) unsafe fn run_together(
        calls: &[CompiledCall],
        workspace: &Workspace,
        buffers: &[Span],
    ) -> Result<(), Diagnostic> {
        let of = |number: usize| {
            let first: usize = calls[..number].iter().map(CompiledCall::arguments).sum();
            &buffers[first..first + calls[number].arguments()]
        };
        for (number, call) in calls.iter().enumerate() {
            let check = || {
                call.check(workspace, of(number), None)?;
                let others = (0..calls.len()).filter(|other| *other != number);
                let results = of(number).iter().zip(&call.parameters).filter(|(_, p)| p.written);
                for (result, parameter) in results {
                    if others.clone().any(|other| of(other).iter().any(|b| b.overlaps(result))) {
                        let name = &parameter.name;
                        let message = format!("the buffer of {name} overlaps one of another call");
                        return Err(Diagnostic::new(message));
                    }
                }
                Ok(())
            };
            check().map_err(|e: Diagnostic| e.context(format!("call `{}`", call.name)))?;
        }
        let parts = workspace.pool().threads().div_ceil(calls.len());
        Ok(workspace.pool().parallel_for(calls.len() * parts, |thread, task| {
            let (number, part) = (task / parts, task % parts);
            let arguments = Arguments { buffers: of(number), follower: None };
            let member = calls[number].kernels.member().expect("calls that are alike are members");
            // SAFETY: the arguments were checked. A part of a result belongs to one task.
            unsafe { member.part(workspace, thread, &arguments, part, parts) };
        })?)
    }
}
