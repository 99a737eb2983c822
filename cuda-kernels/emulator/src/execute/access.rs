//! Loads and stores.

use super::Machine;
use super::address::from_generic;
use super::block::Common;
use super::check::{Page, READ, WRITE};
use super::warp::{Warp, lanes};
use crate::decode::program::{Access, Instruction, Operand};
use crate::parse::syntax::Space;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::{Doubles, WARP};

type Result<T> = std::result::Result<T, Box<Fault>>;

impl Warp {
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
                    let (address, visited) = self.visit(
                        machine,
                        common,
                        (addresses[lane], access.cluster),
                        READ,
                        pc,
                        lane,
                    )?;
                    let at = self.shared(
                        machine,
                        common,
                        (address, total),
                        READ,
                        access.ordering.strong,
                        pc,
                        lane,
                    )?;
                    for (k, row) in rows.iter_mut().enumerate() {
                        row[lane] = take(&common.shared.bytes, at + bytes as usize * k, bytes);
                    }
                    Self::leave(common, visited);
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
        common.count_access(self, pc, access, READ, space, addresses, mask);
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
                    let (address, visited) = self.visit(
                        machine,
                        common,
                        (addresses[lane], access.cluster),
                        WRITE,
                        pc,
                        lane,
                    )?;
                    let at = self.shared(
                        machine,
                        common,
                        (address, total),
                        WRITE,
                        access.ordering.strong,
                        pc,
                        lane,
                    )?;
                    for (k, row) in rows.iter().enumerate() {
                        put(&mut common.shared.bytes, at + bytes as usize * k, bytes, row[lane]);
                    }
                    Self::leave(common, visited);
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
        common.count_access(self, pc, access, WRITE, space, addresses, mask);
        Ok(())
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
