//! `cp.async`: copies from global to shared memory that complete at a wait.
//!
//! The source is read when the copy is issued. The bytes arrive when the issuing thread waits for
//! the copy's group, and not before, so that a kernel without the wait always fails here. Until
//! then no thread may access the bytes.

use super::Machine;
use super::address::from_generic;
use super::block::{Common, IN_FLIGHT, WRITTEN};
use super::check::{Page, READ, WRITE};
use super::warp::{Warp, lanes};
use crate::decode::program::{Instruction, Level, Ordering};
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::WARP;

type Result<T> = std::result::Result<T, Box<Fault>>;

/// A copy that has not been waited for.
#[derive(Clone, Copy, Debug)]
struct Copy {
    lane: usize,
    group: u32,
    to: u64,
    bytes: u32,
    data: [u8; 16],
    pc: u32,
}

/// The copies of a warp's lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pending: Vec<Copy>,
    /// Groups that each lane has committed.
    committed: [u32; WARP],
}

impl Copies {
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; WARP];
    }

    /// Commits the current group of some lanes.
    pub(crate) fn commit(&mut self, active: u32) {
        for lane in lanes(active) {
            self.committed[lane] += 1;
        }
    }
}

impl Warp {
    /// `cp.async.ca`, `cp.async.cg`
    pub(crate) fn copy_async(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        (bytes, to, from, sized, ignores, level): (u32, i64, i64, bool, bool, Level),
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let targets = self.addresses(machine, i.inputs[0], to);
        let sources = self.addresses(machine, i.inputs[1], from);
        let sizes = match (sized, ignores) {
            (false, _) => [u64::from(bytes); WARP],
            (true, false) => self.any(machine, i.inputs[2]),
            (true, true) => {
                let p = self.predicate(machine, i.inputs[2]);
                std::array::from_fn(|lane| if p >> lane & 1 == 1 { 0 } else { bytes.into() })
            }
        };
        let (mut region, mut page) = (None, Page::default());
        for lane in lanes(active) {
            // Both `.shared` addresses and generic ones that lie in the window occur in practice.
            let target = match from_generic(targets[lane]) {
                (crate::parse::syntax::Space::Shared, address) => address,
                _ => targets[lane],
            };
            let size = sizes[lane] as u32;
            if size > bytes {
                let message = format!("the copy of {bytes} bytes is to read {size}");
                return Err(self.fault(
                    machine,
                    common,
                    FaultKind::OutOfBounds(crate::Space::Global),
                    message,
                    pc,
                    1 << lane,
                ));
            }
            let mut data = [0; 16];
            let source = sources[lane];
            if size > 0 && !source.is_multiple_of(bytes.into()) {
                let message =
                    format!("the source of a copy of {bytes} bytes is no multiple of {bytes}");
                return Err(self.fault_at(
                    machine,
                    common,
                    FaultKind::Misaligned,
                    message,
                    pc,
                    lane,
                    source,
                ));
            }
            // Part of the bytes is read in the largest aligned pieces.
            let mut done = 0;
            while done < size {
                let piece = [16, 8, 4, 2, 1]
                    .into_iter()
                    .find(|&p| p <= size - done && done % p == 0)
                    .unwrap_or(1);
                let place = (source + u64::from(done), piece);
                let (found, offset) = self.global(
                    machine,
                    common,
                    &mut region,
                    &mut page,
                    place,
                    READ,
                    Ordering::WEAK,
                    pc,
                    lane,
                )?;
                let allocation = &machine.memory.allocations[found.allocation as usize];
                for byte in 0..piece {
                    data[(done + byte) as usize] =
                        allocation.load(offset + u64::from(byte), 1) as u8;
                }
                done += piece;
            }
            let at = self.shared(machine, common, (target, bytes), WRITE, false, pc, lane)?;
            for state in &mut common.shared.state[at..at + bytes as usize] {
                *state = WRITTEN | IN_FLIGHT;
            }
            let group = self.copies.committed[lane];
            self.copies.pending.push(Copy { lane, group, to: target, bytes, data, pc });
        }
        common.count_copy(self, pc, level, (&sources, &targets), (&sizes, bytes), active);
        Ok(())
    }

    /// `cp.async.wait_group N` (all but the last N groups) or `wait_all` (everything).
    pub(crate) fn wait_async(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        groups: Option<u32>,
        _pc: u32,
        active: u32,
    ) -> Result<()> {
        let committed = self.copies.committed;
        let done = |copy: &Copy| {
            active >> copy.lane & 1 == 1
                && groups
                    .is_none_or(|groups| copy.group < committed[copy.lane].saturating_sub(groups))
        };
        let pending = std::mem::take(&mut self.copies.pending);
        let (ended, pending): (Vec<Copy>, Vec<Copy>) = pending.into_iter().partition(done);
        self.copies.pending = pending;
        for copy in ended {
            let at = copy.to as usize;
            let range = at..at + copy.bytes as usize;
            common.shared.state[range.clone()].fill(WRITTEN);
            // The bytes arrive between the issue and now: a read since the issue, or one before
            // the next barrier, is a race.
            self.shared(machine, common, (copy.to, copy.bytes), WRITE, false, copy.pc, copy.lane)?;
            common.shared.bytes[range].copy_from_slice(&copy.data[..copy.bytes as usize]);
        }
        Ok(())
    }
}
