//! Loads and stores, and their checks.

use super::address::{Region, from_generic, untag};
use super::block::{Common, IN_FLIGHT, Order, WRITTEN, ordered};
use super::warp::{Warp, lanes};
use super::{Machine, PAGE_WORDS};
use crate::decode::program::{Access, Instruction, Operand, Ordering};
use crate::parse::syntax::Space;
use crate::sanitize::race::{Conflict, Entry, RaceTable};
use crate::sanitize::{Fault, FaultKind, Other};
use crate::semantics::rows::{Doubles, WARP};
use std::sync::{Mutex, MutexGuard, OnceLock};

type Result<T> = std::result::Result<T, Box<Fault>>;

/// The page of histories that was used last, locked.
#[derive(Default)]
pub(crate) struct Page<'m> {
    open: Option<(u32, u64, MutexGuard<'m, RaceTable>)>,
}

impl<'m> Page<'m> {
    /// Histories of the page that holds a byte of an allocation.
    fn of(&mut self, machine: &'m Machine<'_>, allocation: u32, offset: u64) -> &mut RaceTable {
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
    fn race(
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
            block: machine.block_id(before.block),
            thread: machine.thread_id(before.thread()),
            writes: wrote,
        });
        fault
    }

    /// The address of the access in each lane.
    #[inline(always)]
    pub(crate) fn addresses(&self, machine: &Machine<'_>, base: Operand, offset: i64) -> Doubles {
        let mut row = self.any(machine, base);
        if offset != 0 {
            for address in &mut row {
                *address = address.wrapping_add(offset as u64);
            }
        }
        row
    }

    /// The lanes of each space that their generic addresses lie in; replaces the addresses by
    /// those in the space.
    pub(crate) fn spaces(&self, addresses: &mut Doubles, active: u32) -> Vec<(Space, u32)> {
        let mut spaces: Vec<(Space, u32)> = Vec::with_capacity(1);
        for lane in lanes(active) {
            let (space, address) = from_generic(addresses[lane]);
            addresses[lane] = address;
            match spaces.iter_mut().find(|(known, _)| *known == space) {
                Some((_, mask)) => *mask |= 1 << lane,
                None => spaces.push((space, 1 << lane)),
            }
        }
        spaces
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
                if does.reads && sanitize.uninitialised {
                    let message = format!("a read of {bytes} bytes that nothing has written");
                    let kind = FaultKind::UninitialisedRead(Space::Shared);
                    return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
                }
            }
        }
        if sanitize.races {
            let now = Entry::new(common.order.time, common.index, self.thread(lane), strong, pc);
            let conflict = {
                let Common { order, shared, .. } = &mut *common;
                let ordered =
                    ordered(order, self.index, self.full_time, self.lane_times.as_deref(), lane);
                shared.races.access(at, bytes as usize, now, does.writes, &ordered)
            };
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
    fn local(
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

    /// `ld`
    pub(crate) fn load(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        access: Access,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let mut addresses = self.addresses(machine, i.inputs[0], access.offset);
        let mut rows = [[0; WARP]; 8];
        let rows = &mut rows[..access.count as usize];
        match access.space {
            Some(space) => {
                self.load_from(machine, common, access, space, &addresses, active, pc, rows)?
            }
            None => {
                for (space, mask) in self.spaces(&mut addresses, active) {
                    self.load_from(machine, common, access, space, &addresses, mask, pc, rows)?;
                }
            }
        }
        if access.signed {
            let bits = access.bytes * 8;
            let cut =
                if access.register_bits >= 64 { u64::MAX } else { (1 << access.register_bits) - 1 };
            for value in rows.iter_mut().flatten() {
                *value = crate::semantics::convert::extend(*value, bits) as u64 & cut;
            }
        }
        for (&output, row) in i.outputs.iter().zip(rows.iter()) {
            self.set_any(output, active, row);
        }
        Ok(())
    }

    pub(crate) fn load_from(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        access: Access,
        space: Space,
        addresses: &Doubles,
        mask: u32,
        pc: u32,
        rows: &mut [Doubles],
    ) -> Result<()> {
        let (bytes, total) = (access.bytes, access.bytes * access.count);
        match space {
            Space::Global | Space::Const => {
                let wide = access.ordering.strong && bytes == 8;
                let guard =
                    wide.then(|| machine.wide.lock().expect("no holder of the lock panics"));
                if access.ordering.strong {
                    self.acquire(machine, common, addresses, mask);
                }
                let (mut region, mut page) = (None, Page::default());
                for lane in lanes(mask) {
                    let place = (addresses[lane], total);
                    let (found, offset) = self.global(
                        machine,
                        common,
                        &mut region,
                        &mut page,
                        place,
                        READ,
                        access.ordering,
                        pc,
                        lane,
                    )?;
                    let allocation = &machine.memory.allocations[found.allocation as usize];
                    for (k, row) in rows.iter_mut().enumerate() {
                        row[lane] = allocation.load(offset + u64::from(bytes) * k as u64, bytes);
                    }
                }
                drop(guard);
            }
            Space::Shared => {
                for lane in lanes(mask) {
                    let place = (addresses[lane], total);
                    let at = self.shared(
                        machine,
                        common,
                        place,
                        READ,
                        access.ordering.strong,
                        pc,
                        lane,
                    )?;
                    for (k, row) in rows.iter_mut().enumerate() {
                        row[lane] = take(&common.shared.bytes, at + bytes as usize * k, bytes);
                    }
                }
            }
            Space::Local => {
                for lane in lanes(mask) {
                    let at =
                        self.local(machine, common, (addresses[lane], total), READ, pc, lane)?;
                    for (k, row) in rows.iter_mut().enumerate() {
                        row[lane] = take(&self.local, at + bytes as usize * k, bytes);
                    }
                }
            }
            Space::Param => {
                for lane in lanes(mask) {
                    let (address, size) = (addresses[lane], machine.parameters.len() as u64);
                    if address > size || size - address < total.into() {
                        let message = format!(
                            "an access of {total} bytes; the kernel has {size} bytes of parameters"
                        );
                        let kind = FaultKind::OutOfBounds(Space::Param);
                        return Err(
                            self.fault_at(machine, common, kind, message, pc, lane, address)
                        );
                    }
                    for (k, row) in rows.iter_mut().enumerate() {
                        row[lane] =
                            take(&machine.parameters, address as usize + bytes as usize * k, bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// `st`
    pub(crate) fn store(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        access: Access,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let mut addresses = self.addresses(machine, i.inputs[0], access.offset);
        let mut rows = [[0; WARP]; 8];
        let rows = &mut rows[..access.count as usize];
        for (row, &input) in rows.iter_mut().zip(&i.inputs[1..]) {
            *row = self.any(machine, input);
        }
        match access.space {
            Some(space) => {
                self.store_to(machine, common, access, space, &addresses, active, pc, rows)
            }
            None => {
                for (space, mask) in self.spaces(&mut addresses, active) {
                    self.store_to(machine, common, access, space, &addresses, mask, pc, rows)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn store_to(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        access: Access,
        space: Space,
        addresses: &Doubles,
        mask: u32,
        pc: u32,
        rows: &[Doubles],
    ) -> Result<()> {
        let (bytes, total) = (access.bytes, access.bytes * access.count);
        match space {
            Space::Global | Space::Const => {
                let wide = access.ordering.strong && bytes == 8;
                let guard =
                    wide.then(|| machine.wide.lock().expect("no holder of the lock panics"));
                if access.ordering.strong {
                    self.release(machine, common, addresses, mask, access.ordering.release);
                }
                let (mut region, mut page) = (None, Page::default());
                for lane in lanes(mask) {
                    let place = (addresses[lane], total);
                    let (found, offset) = self.global(
                        machine,
                        common,
                        &mut region,
                        &mut page,
                        place,
                        WRITE,
                        access.ordering,
                        pc,
                        lane,
                    )?;
                    let allocation = &machine.memory.allocations[found.allocation as usize];
                    for (k, row) in rows.iter().enumerate() {
                        allocation.store(offset + u64::from(bytes) * k as u64, bytes, row[lane]);
                    }
                }
                drop(guard);
            }
            Space::Shared => {
                for lane in lanes(mask) {
                    let place = (addresses[lane], total);
                    let at = self.shared(
                        machine,
                        common,
                        place,
                        WRITE,
                        access.ordering.strong,
                        pc,
                        lane,
                    )?;
                    for (k, row) in rows.iter().enumerate() {
                        put(&mut common.shared.bytes, at + bytes as usize * k, bytes, row[lane]);
                    }
                }
            }
            Space::Local => {
                for lane in lanes(mask) {
                    let at =
                        self.local(machine, common, (addresses[lane], total), WRITE, pc, lane)?;
                    for (k, row) in rows.iter().enumerate() {
                        put(&mut self.local, at + bytes as usize * k, bytes, row[lane]);
                    }
                    self.local_written[at..at + total as usize].fill(true);
                }
            }
            Space::Param => {
                let message = "a write to the kernel's parameters".to_owned();
                return Err(self.fault(
                    machine,
                    common,
                    FaultKind::WriteToReadOnly,
                    message,
                    pc,
                    mask,
                ));
            }
        }
        Ok(())
    }

    /// A strong read of global memory: acquires the knowledge released there.
    pub(crate) fn acquire(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        addresses: &Doubles,
        mask: u32,
    ) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !machine.options.sanitize.races
            || !machine.any_released.load(std::sync::atomic::Ordering::SeqCst)
        {
            return;
        }
        let released = machine.released.lock().expect("no holder of the lock panics");
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let (plain, _) = untag(addresses[lane]);
            if plain != last
                && let Some(known) = released.get(&plain)
            {
                join(&mut common.order, known);
            }
            last = plain;
        }
    }

    /// A strong write of global memory: releases the accesses that a fence before it (or the
    /// write itself) has ordered.
    pub(crate) fn release(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        addresses: &Doubles,
        mask: u32,
        releases: bool,
    ) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !machine.options.sanitize.races {
            return;
        }
        if releases {
            self.fenced = Some((common.order.time, common.order.all_time));
        }
        let Some((fence, met)) = self.fenced else { return };
        let order = &common.order;
        let mut publish = order.known.clone();
        // After a barrier that follows the fence, accesses of the whole block before the fence
        // are ordered too.
        let everyone = if fence <= order.all_time { fence } else { met };
        publish.insert((order.block, u32::MAX), everyone);
        publish.insert((order.block, self.index), fence);
        let mut released = machine.released.lock().expect("no holder of the lock panics");
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let (plain, _) = untag(addresses[lane]);
            if plain != last {
                let known = released.entry(plain).or_default();
                for (&who, &time) in &publish {
                    let old = known.entry(who).or_insert(0);
                    *old = time.max(*old);
                }
            }
            last = plain;
        }
        machine.any_released.store(true, std::sync::atomic::Ordering::SeqCst);
        // Accesses after this one are not released by it.
        common.order.time = common.order.time.saturating_add(1);
    }
}

fn join(order: &mut Order, known: &super::Known) {
    for (&who, &time) in known {
        if who.0 != order.block {
            let old = order.known.entry(who).or_insert(0);
            *old = time.max(*old);
        }
    }
}

/// Little-endian bytes at a checked place.
#[inline(always)]
pub(crate) fn take(memory: &[u8], at: usize, bytes: u32) -> u64 {
    match bytes {
        4 => u64::from(u32::from_le_bytes(memory[at..at + 4].try_into().expect("four bytes"))),
        8 => u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes")),
        2 => u64::from(u16::from_le_bytes(memory[at..at + 2].try_into().expect("two bytes"))),
        _ => u64::from(memory[at]),
    }
}

/// Writes little-endian bytes at a checked place.
#[inline(always)]
pub(crate) fn put(memory: &mut [u8], at: usize, bytes: u32, value: u64) {
    memory[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
}
