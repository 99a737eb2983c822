//! Checks of accesses: bounds, alignment, rights, initialised bytes, labels and races.

use super::address::{Region, untag};
use super::block::{Common, IN_FLIGHT, WRITTEN, ordered};
use super::warp::Warp;
use super::{Machine, PAGE_WORDS};
use crate::decode::program::Ordering;
use crate::parse::syntax::Space;
use crate::sanitize::race::{Conflict, Entry, RaceTable};
use crate::sanitize::{Fault, FaultKind, Other};
use crate::semantics::rows::WARP;
use std::sync::{Mutex, MutexGuard, OnceLock};

type Result<T> = std::result::Result<T, Box<Fault>>;

/// The page of histories that was used last, locked.
#[derive(Default)]
pub(crate) struct Page<'m> {
    open: Option<(u32, u64, MutexGuard<'m, RaceTable>)>,
}

impl<'m> Page<'m> {
    /// Histories of the page that holds a byte of an allocation.
    pub(crate) fn of(
        &mut self,
        machine: &'m Machine<'_>,
        allocation: u32,
        offset: u64,
    ) -> &mut RaceTable {
        let page = offset / (4 * PAGE_WORDS);
        if self.open.as_ref().is_none_or(|(a, p, _)| (*a, *p) != (allocation, page)) {
            // The old lock is released first: at most one is held.
            self.open = None;
            let pages = machine.races[allocation as usize].get_or_init(|| {
                let bytes = machine.memory.allocations[allocation as usize].bytes;
                (0..bytes.div_ceil(4 * PAGE_WORDS)).map(|_| OnceLock::new()).collect()
            });
            let cell = &pages[page as usize];
            let table = cell.get_or_init(|| Mutex::new(RaceTable::new(PAGE_WORDS as usize)));
            self.open =
                Some((allocation, page, table.lock().expect("no holder of the lock panics")));
        }
        &mut self.open.as_mut().expect("it was opened above").2
    }
}

/// Effect of an access on the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Does {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

pub(crate) const READ: Does = Does { reads: true, writes: false };
pub(crate) const WRITE: Does = Does { reads: false, writes: true };

impl Warp {
    fn thread(&self, lane: usize) -> u32 {
        self.index * WARP as u32 + lane as u32
    }

    /// A fault at an address.
    pub(crate) fn fault_at(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        kind: FaultKind,
        message: String,
        pc: u32,
        lane: usize,
        address: u64,
    ) -> Box<Fault> {
        let mut fault = self.fault(machine, common, kind, message, pc, 1 << lane);
        fault.address = Some(address);
        fault
    }

    /// A fault at an address of global memory.
    fn global_fault(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        kind: FaultKind,
        message: String,
        pc: u32,
        lane: usize,
        address: u64,
    ) -> Box<Fault> {
        let (plain, tag) = untag(address);
        let mut fault = self.fault_at(machine, common, kind, message, pc, lane, plain);
        fault.buffer = match machine.regions.get((tag as usize).wrapping_sub(1)) {
            Some(region) => {
                let name = machine.buffer_names[tag as usize - 1].clone();
                Some((name, plain.wrapping_sub(region.low) as i64))
            }
            None => machine.memory.find(plain).map(|index| {
                let allocation = &machine.memory.allocations[index];
                (allocation.name.clone(), (plain - allocation.base) as i64)
            }),
        };
        fault
    }

    /// A race.
    pub(crate) fn race(
        &self,
        machine: &Machine<'_>,
        mut fault: Box<Fault>,
        (before, wrote): Conflict,
        writes: bool,
    ) -> Box<Fault> {
        let line = machine.program.code.get(before.pc() as usize).map_or(0, |i| i.line);
        let name = |writes: bool| if writes { "write" } else { "read" };
        fault.message = format!(
            "a {} and an earlier {} of another thread touch the same bytes, \
             and nothing orders them",
            name(writes),
            name(wrote)
        );
        fault.other = Some(Other {
            line,
            text: machine.module.line(line),
            block: machine.block_id(before.owner()),
            thread: machine.thread_id(before.thread()),
            writes: wrote,
        });
        fault
    }

    /// Checks a global access of one lane; returns the region and the offset in the allocation.
    /// `region` is the region of the last access.
    #[inline(always)]
    pub(crate) fn global<'m>(
        &self,
        machine: &'m Machine<'_>,
        common: &Common,
        region: &mut Option<Region>,
        page: &mut Page<'m>,
        (address, bytes): (u64, u32),
        does: Does,
        ordering: Ordering,
        pc: u32,
        lane: usize,
    ) -> Result<(Region, u64)> {
        let (plain, tag) = untag(address);
        let fits = |r: &Region| {
            r.tag == tag && plain >= r.low && plain.wrapping_add(bytes.into()) <= r.high
        };
        let found = match region {
            Some(known) if fits(known) => *known,
            _ => match machine.region(address).filter(fits) {
                Some(found) => *region.insert(found),
                None => {
                    let kind = FaultKind::OutOfBounds(Space::Global);
                    let what = if does.writes { "write" } else { "read" };
                    let message = match machine.regions.get((tag as usize).wrapping_sub(1)) {
                        Some(r) => format!(
                            "a {what} of {bytes} bytes outside the buffer, which has {}",
                            r.high - r.low
                        ),
                        None => format!("a {what} of {bytes} bytes outside every allocation"),
                    };
                    return Err(
                        self.global_fault(machine, common, kind, message, pc, lane, address)
                    );
                }
            },
        };
        if !plain.is_multiple_of(bytes.into()) {
            let message =
                format!("the address of an access of {bytes} bytes is no multiple of {bytes}");
            return Err(self.global_fault(
                machine,
                common,
                FaultKind::Misaligned,
                message,
                pc,
                lane,
                address,
            ));
        }
        let allocation = &machine.memory.allocations[found.allocation as usize];
        let offset = plain - allocation.base;
        let sanitize = machine.options.sanitize;
        if let Some(copy) = common.hopper.stores_to(plain, bytes.into())
            && copy != pc
        {
            let line = machine.program.code[copy as usize].line;
            let message = format!(
                "the bulk copy of line {line} is still to write these bytes, and its thread has \
                 not waited for it by `cp.async.bulk.wait_group` without `.read`"
            );
            let kind = FaultKind::AsyncCopyNotAwaited;
            return Err(self.global_fault(machine, common, kind, message, pc, lane, address));
        }
        if does.writes && !found.write {
            let message = "a write to bytes that may only be read".to_owned();
            return Err(self.global_fault(
                machine,
                common,
                FaultKind::WriteToReadOnly,
                message,
                pc,
                lane,
                address,
            ));
        }
        if does.reads {
            if !found.read && !does.writes {
                let message = "a read of a buffer that is for writing only".to_owned();
                let kind = FaultKind::ReadOfWriteOnly;
                return Err(self.global_fault(machine, common, kind, message, pc, lane, address));
            }
            if sanitize.uninitialised && !allocation.is_written(offset, bytes) {
                let kind = FaultKind::UninitialisedRead(Space::Global);
                let message = format!("a read of {bytes} bytes that nothing has written");
                return Err(self.global_fault(machine, common, kind, message, pc, lane, address));
            }
            if sanitize.labels
                && found.expects != 0
                && let Some(label) = allocation.other_label(offset, bytes, found.expects)
                && (label == 0 || label != found.makes)
            {
                let name = |label: u32| match label {
                    0 => "no label".to_owned(),
                    label => format!("value {}", label - 1),
                };
                let (wanted, there) = (name(found.expects), name(label));
                let message =
                    format!("the buffer is to hold {wanted} here, and the bytes hold {there}");
                let kind = FaultKind::ExpectedValue;
                return Err(self.global_fault(machine, common, kind, message, pc, lane, address));
            }
        }
        if sanitize.races && found.track {
            let now =
                Entry::new(common.order.time, common.index, self.thread(lane), ordering.strong, pc);
            let table = page.of(machine, found.allocation, offset);
            let at = (offset % (4 * PAGE_WORDS)) as usize;
            let ordered = ordered(
                &common.order,
                self.index,
                self.full_time,
                self.lane_times.as_deref(),
                lane,
            );
            if let Some(conflict) = table.access(at, bytes as usize, now, does.writes, &ordered) {
                let fault = self.global_fault(
                    machine,
                    common,
                    FaultKind::GlobalRace,
                    String::new(),
                    pc,
                    lane,
                    address,
                );
                return Err(self.race(machine, fault, conflict, does.writes));
            }
        }
        if does.writes {
            allocation.mark_written(offset, bytes);
            if sanitize.labels {
                allocation.set_label(offset, bytes, found.makes);
            }
        }
        Ok((found, offset))
    }

    /// Checks a shared access of one lane; returns the offset.
    #[inline(always)]
    pub(crate) fn shared(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        (address, bytes): (u64, u32),
        does: Does,
        strong: bool,
        pc: u32,
        lane: usize,
    ) -> Result<usize> {
        let size = common.shared.bytes.len() as u64;
        if address > size || size - address < bytes.into() {
            let what = if does.writes { "write" } else { "read" };
            let message =
                format!("a {what} of {bytes} bytes; the block has {size} bytes of shared memory");
            let kind = FaultKind::OutOfBounds(Space::Shared);
            return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
        }
        if !address.is_multiple_of(bytes.into()) {
            let message =
                format!("the address of an access of {bytes} bytes is no multiple of {bytes}");
            return Err(self.fault_at(
                machine,
                common,
                FaultKind::Misaligned,
                message,
                pc,
                lane,
                address,
            ));
        }
        let at = address as usize;
        let sanitize = machine.options.sanitize;
        let range = at..at + bytes as usize;
        if sanitize.uninitialised || sanitize.races {
            let state = &common.shared.state[range.clone()];
            if state.iter().any(|&byte| byte != WRITTEN) {
                if state.iter().any(|&byte| byte & IN_FLIGHT != 0) {
                    let message = "an asynchronous copy is still to write these bytes, \
                                   and has not been waited for"
                        .to_owned();
                    let kind = FaultKind::AsyncCopyNotAwaited;
                    return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
                }
                self.check_shared_state(machine, common, (at, bytes as usize), does, pc, lane)?;
                if does.reads && sanitize.uninitialised {
                    let message = format!("a read of {bytes} bytes that nothing has written");
                    let kind = FaultKind::UninitialisedRead(Space::Shared);
                    return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
                }
            }
        }
        if does.writes && (common.shared.hopper.reading > 0 || common.shared.hopper.laid_out) {
            self.check_shared_state(machine, common, (at, bytes as usize), does, pc, lane)?;
            Self::forget_layout(common, at, bytes as usize);
        }
        if sanitize.races {
            let now = Entry::new(common.order.time, common.index, self.thread(lane), strong, pc);
            let conflict = {
                let Common { order, shared, .. } = &mut *common;
                let ordered =
                    ordered(order, self.index, self.full_time, self.lane_times.as_deref(), lane);
                shared.races.access(at, bytes as usize, now, does.writes, &ordered)
            };
            if let Some(conflict) = conflict
                && conflict.0.phase().is_some()
            {
                let message = "the bytes were copied here, and the thread has not waited for the \
                               phase of the copy's barrier"
                    .to_owned();
                let kind = FaultKind::AsyncCopyNotAwaited;
                return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
            }
            if let Some(conflict) = conflict {
                let kind = FaultKind::SharedRace;
                let fault = self.fault_at(machine, common, kind, String::new(), pc, lane, address);
                return Err(self.race(machine, fault, conflict, does.writes));
            }
        }
        if does.writes {
            common.shared.state[range].fill(WRITTEN);
        }
        Ok(at)
    }

    /// Checks an access of one lane to its local memory; returns the offset in that of all lanes.
    pub(super) fn local(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        (address, bytes): (u64, u32),
        does: Does,
        pc: u32,
        lane: usize,
    ) -> Result<usize> {
        let size = u64::from(machine.program.local_bytes);
        if address > size || size - address < bytes.into() {
            let message = format!(
                "an access of {bytes} bytes; the thread has {size} bytes of memory of its own"
            );
            let kind = FaultKind::OutOfBounds(Space::Local);
            return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
        }
        if !address.is_multiple_of(bytes.into()) {
            let message =
                format!("the address of an access of {bytes} bytes is no multiple of {bytes}");
            return Err(self.fault_at(
                machine,
                common,
                FaultKind::Misaligned,
                message,
                pc,
                lane,
                address,
            ));
        }
        let at = lane * size as usize + address as usize;
        if does.reads
            && machine.options.sanitize.uninitialised
            && !self.local_written[at..at + bytes as usize].iter().all(|&w| w)
        {
            let message = format!("a read of {bytes} bytes that nothing has written");
            let kind = FaultKind::UninitialisedRead(Space::Local);
            return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
        }
        Ok(at)
    }
}
