//! Overlap of collectives with kernels, where memory permits it.
//!
//! [`schedule::overlap`] makes orders in which collectives are under way while kernels run, for a
//! bound of the bytes under way. This module makes plans of such orders, from the most bytes under
//! way to the fewest, and takes the first that is not too large:
//!
//! - Without a budget, its arena is at most that of the order of least memory, or [`SPARE`].
//! - With a budget, the plan is within the budget. A budget that needs repetitions leaves no memory
//!   for transfers, and collectives stay calls.
//!
//! A start and a wait are kernels of the [`Run`]. The wait reads operand and result. So the passes
//! that place buffers keep the bytes of both until then, and know nothing else of transfers.
//! Collectives in the regions of loops and branches stay calls.

use super::part::{Laid, Part};
use super::run::{End, Run};
use crate::kernels::{Kernel, Kernels};
use crate::pass::within;
use crate::schedule::{self, Overlap};
use std::borrow::Cow;
use wengert_core::Result;

/// The arena up to which no memory is saved, in bytes, as for late updates
/// ([`schedule`](crate::schedule)).
pub(crate) const SPARE: u64 = 64 << 20;
/// The bounds of the bytes under way: all bytes of the function's collectives, then half of the
/// bound before.
const BOUNDS: u32 = 8;

/// The layout in which the most bytes are under way, of those whose arena has at most `limit`
/// bytes. None if no collective can be under way while a kernel runs.
pub(super) fn overlapped<'k>(part: &mut Part<'k, '_>, limit: u64) -> Result<Option<Laid<'k>>> {
    let kernels = part.kernels;
    if !part.target.overlaps_collectives || kernels.mesh.is_empty() {
        return Ok(None);
    }
    let sizes = kernels.kernels.iter().filter_map(|k| schedule::exchanged(kernels, k));
    let all = sizes.fold(0, u64::saturating_add);
    let mut before: Option<Overlap> = None;
    for shift in 0..BOUNDS {
        let most = all >> shift;
        let next = within("overlap", || schedule::overlap(kernels, &part.order, most));
        if next.waits.is_empty() || before.as_ref() == Some(&next) {
            continue;
        }
        let laid = part.lay(Run::overlapping(kernels, &next))?;
        if laid.arena.bytes <= limit {
            return Ok(Some(laid));
        }
        before = Some(next);
    }
    Ok(None)
}

/// The arena that a plan without a budget may have, from that of the order of least memory.
pub(super) fn unbudgeted(given: u64) -> u64 {
    given.max(SPARE)
}

impl<'k> Run<'k> {
    /// The run with starts and waits.
    fn overlapping(kernels: &'k Kernels, overlap: &Overlap) -> Run<'k> {
        let Overlap { order, waits } = overlap;
        let mut made = kernels.clone();
        let mut run = Run::given(kernels, Vec::with_capacity(order.len() + waits.len()));
        run.ends = vec![None; kernels.kernels.len()];
        // For each position the waits before it.
        let mut at: Vec<Vec<usize>> = vec![Vec::new(); order.len() + 1];
        for (number, (k, position)) in waits.iter().enumerate() {
            at[*position].push(made.kernels.len());
            let Kernel { work, reads, writes, locations } = kernels.kernels[*k].clone();
            let reads = [reads, writes].concat();
            made.kernels.push(Kernel { work, reads, writes: Vec::new(), locations });
            run.ends[*k] = Some(End::Start(number));
            run.ends.push(Some(End::Wait(number)));
            run.from.push(*k);
            run.repeats.push(false);
        }
        for (position, waits) in at.into_iter().enumerate() {
            run.order.extend(waits);
            run.order.extend(order.get(position));
        }
        Run { kernels: Cow::Owned(made), ..run }
    }
}
