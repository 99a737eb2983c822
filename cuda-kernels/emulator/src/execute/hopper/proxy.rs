//! The async proxy: whether a fence lies between a write and an operation that accesses its bytes.
//!
//! A `fence.proxy.async` counts for a write if the write is ordered before the fence, and the fence
//! before the operation. It may be executed by the writing thread, by the issuing thread or by
//! another one (PTX ISA, "Causality order": a proxy fence along the path). So each fence is kept
//! with what its warp knew.

use super::super::Machine;
use super::super::block::{Common, Order};
use super::super::check::Page;
use super::super::warp::Warp;
use super::barrier::times;
use super::{BARRIER, COPIED, GROUP, Result};
use crate::sanitize::race::Entry;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::descriptor::Swizzle;
use crate::semantics::rows::WARP;

/// A fence of shared memory by some lanes of a warp.
pub(super) struct Fence {
    warp: u32,
    time: u32,
    lanes: u32,
    /// What the warp knew of the others, and of its own lanes.
    times: [u32; WARP],
    full_time: u32,
    lane_times: Option<Box<[[u32; WARP]; WARP]>>,
}

impl Fence {
    /// Whether a write is ordered before the fence.
    fn covers(&self, write: Entry) -> bool {
        let (warp, lane) = (write.thread() / WARP as u32, write.thread() as usize % WARP);
        if warp != self.warp {
            return write.time <= self.times[warp as usize];
        }
        write.time <= self.time
            && (self.lanes >> lane & 1 == 1
                || write.time <= self.full_time
                || self.lane_times.as_ref().is_some_and(|times| {
                    let first = self.lanes.trailing_zeros() as usize % WARP;
                    write.time <= times[first][lane]
                }))
    }
}

/// A proxy's access to shared memory.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// Writes, or reads.
    pub(super) writes: bool,
    /// The layout in which it reads the bytes; `None` if it does not matter.
    pub(super) layout: Option<Swizzle>,
}

impl Common {
    /// Whether a fence lies between a write of this block and an operation that `warp` issues now.
    fn fenced(&self, order: &Order, write: Entry, warp: u32) -> bool {
        let known = times(order, warp);
        // The latest fences are the likeliest.
        self.hopper.fences.iter().rev().any(|fence| {
            let before = fence.warp == warp || fence.time <= known[fence.warp as usize];
            before && fence.covers(write)
        })
    }
}

impl Warp {
    /// `fence.proxy.async`
    pub(super) fn proxy_fence(
        &mut self,
        common: &mut Common,
        shared: bool,
        global: bool,
        active: u32,
    ) {
        if shared {
            let mut full_time = self.full_time;
            let times = times(&common.order, self.index);
            full_time = full_time.max(common.order.all_time);
            let fence = Fence {
                warp: self.index,
                time: common.order.time,
                lanes: active,
                times,
                full_time,
                lane_times: self.lane_times.clone(),
            };
            common.hopper.fences.push(fence);
        }
        if global {
            common.hopper.global_fence = common.order.time;
        }
        // Writes after the fence are not covered.
        common.order.time = common.order.time.saturating_add(1);
    }

    /// Checks an asynchronous operation's access to bytes of shared memory of block `rank`: bounds,
    /// state, order and proxy. `range` is aligned to 16 bytes or lies in a group of 16.
    pub(super) fn check_async(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        rank: u32,
        (at, bytes): (u32, u32),
        operation: Operation,
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let warp = self.index;
        let sanitize = machine.options.sanitize;
        let fault = |common: &Common, kind: FaultKind, message: String| -> Box<Fault> {
            self.fault_at(machine, common, kind, message, pc, lane, at.into())
        };
        let what = if operation.writes { "write" } else { "read" };
        let (start, end) = (at as usize, at as usize + bytes as usize);
        let size = common.shared_of(rank).bytes.len();
        if end > size {
            let message =
                format!("a {what} of {bytes} bytes; the block has {size} bytes of shared memory");
            return Err(fault(common, FaultKind::OutOfBounds(crate::Space::Shared), message));
        }
        if !(sanitize.uninitialised || sanitize.races) {
            return Ok(());
        }
        let shared = common.shared_of(rank);
        let state = &shared.state[start..end];
        if state.iter().any(|&byte| byte & COPIED != 0) {
            let message = format!(
                "an asynchronous operation is to {what} bytes that a bulk copy is still to write; \
                 its barrier's phase has not completed"
            );
            return Err(fault(common, FaultKind::AsyncCopyNotAwaited, message));
        }
        if state.iter().any(|&byte| byte & super::super::block::IN_FLIGHT != 0) {
            let message = format!(
                "an asynchronous operation is to {what} bytes that a `cp.async` is still to write"
            );
            return Err(fault(common, FaultKind::AsyncCopyNotAwaited, message));
        }
        if state.iter().any(|&byte| byte & BARRIER != 0) {
            let message = "an asynchronous operation accesses the bytes of a barrier".to_owned();
            return Err(fault(common, FaultKind::InvalidBarrier, message));
        }
        if !operation.writes
            && sanitize.uninitialised
            && state.iter().any(|&byte| byte & super::super::block::WRITTEN == 0)
        {
            let message = format!("a read of {bytes} bytes that nothing has written");
            let kind = FaultKind::UninitialisedRead(crate::Space::Shared);
            return Err(fault(common, kind, message));
        }
        let groups = start / GROUP..end.div_ceil(GROUP);
        if operation.writes && shared.hopper.readers[groups.clone()].iter().any(|&n| n > 0) {
            let message = "a bulk copy is to write bytes that an asynchronous operation is still \
                           to read"
                .to_owned();
            return Err(fault(common, FaultKind::SourceInUse, message));
        }
        if let Some(layout) = operation.layout {
            let layouts = &shared.hopper.layouts[groups];
            let other = layouts.iter().find(|&&l| l != 0 && u32::from(l) - 1 != layout.bits());
            if let Some(&other) = other {
                let message = format!(
                    "the bytes were copied here with swizzle mode {} and are read with {layout} \
                     (modes: 0 none, 1, 2, 3 for 32, 64, 128 bytes)",
                    other - 1
                );
                return Err(fault(common, FaultKind::WrongSwizzle, message));
            }
        }
        if !sanitize.races {
            return Ok(());
        }
        // The proxy: the last write of each word, mostly the same for many words.
        let mut last = Entry::default();
        let mut missing = false;
        shared.races.last_writes(start, bytes as usize, |write| {
            if write != last && write.time != 0 && write.phase().is_none() {
                let local = write.block == common.order.block;
                missing |= local && !common.fenced(&common.order, write, warp);
            }
            last = write;
        });
        if missing {
            let message = format!(
                "an asynchronous operation is to {what} bytes that a thread has written, and no \
                 `fence.proxy.async` lies between"
            );
            return Err(fault(common, FaultKind::ProxyFenceMissing, message));
        }
        let thread = warp * WARP as u32 + lane as u32;
        let now = Entry::new(common.order.time, common.order.block, thread, false, pc);
        let conflict = {
            let (order, shared) = common.order_and_shared(rank);
            let ordered = super::super::block::ordered(
                order,
                warp,
                self.full_time,
                self.lane_times.as_deref(),
                lane,
            );
            shared.races.access(start, bytes as usize, now, operation.writes, &ordered)
        };
        match conflict {
            None => Ok(()),
            Some(conflict) if conflict.0.phase().is_some() => {
                let message = "the bytes were copied here, and the thread has not waited for the \
                               phase of the copy's barrier"
                    .to_owned();
                Err(fault(common, FaultKind::AsyncCopyNotAwaited, message))
            }
            Some(conflict) => {
                let fault = fault(common, FaultKind::SharedRace, String::new());
                Err(self.race(machine, fault, conflict, operation.writes))
            }
        }
    }

    /// Checks that a fence lies between this launch's writes of global memory and a bulk copy.
    pub(super) fn check_global_proxy<'m>(
        &self,
        machine: &'m Machine<'_>,
        common: &Common,
        page: &mut Page<'m>,
        (allocation, offset, bytes): (u32, u64, u32),
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        if !machine.options.sanitize.races {
            return Ok(());
        }
        let mut missing = false;
        let at = (offset % (4 * super::super::PAGE_WORDS)) as usize;
        page.of(machine, allocation, offset).last_writes(at, bytes as usize, |write| {
            missing |= write.time != 0
                && write.block == common.order.block
                && write.time > common.hopper.global_fence;
        });
        if !missing {
            return Ok(());
        }
        let message = "a bulk copy accesses global memory that the block has written, and no \
                       `fence.proxy.async` lies between"
            .to_owned();
        Err(self.fault(machine, common, FaultKind::ProxyFenceMissing, message, pc, 1 << lane))
    }
}
