//! Bulk copies into shared memory: `cp.async.bulk` and `cp.async.bulk.tensor`.
//!
//! A copy is checked when it is issued. Its bytes are marked until it takes place; then it writes
//! all its bytes and signals its barrier.

use super::super::Machine;
use super::super::address::untag;
use super::super::block::{Common, WRITTEN};
use super::super::check::{Page, READ};
use super::super::warp::{Warp, lanes};
use super::proxy::Operation;
use super::tensor::{boxed, consecutive, layout};
use super::{COPIED, GROUP, Result};
use crate::count::Kind;
use crate::decode::hopper::{Copy, Direction};
use crate::decode::program::{Instruction, Ordering};
use crate::sanitize::FaultKind;
use crate::sanitize::race::Entry;
use crate::semantics::rows::WARP;
use crate::tensor_map::TensorMap;

/// Where a part of a copy comes from.
#[derive(Clone, Copy)]
enum Source {
    Global { allocation: u32, offset: u64 },
    Shared { rank: u32, at: u32 },
    Zero,
}

/// Bytes that lie together in source and destination.
#[derive(Clone, Copy)]
struct Part {
    from: Source,
    at: u32,
    bytes: u32,
}

/// A copy into shared memory that has not taken place.
pub(super) struct Transfer {
    parts: Vec<Part>,
    /// The blocks that get the bytes, each with its barrier.
    targets: Vec<(u32, u32)>,
    bytes: u32,
    layout: u8,
    /// The issuing block, thread, and time.
    block: u32,
    thread: u32,
    time: u32,
    pc: u32,
}

impl Transfer {
    pub(super) fn signals(&self, rank: u32, barrier: u32) -> bool {
        self.targets.contains(&(rank, barrier))
    }

    pub(super) fn writes_to(&self, rank: u32) -> bool {
        self.targets.iter().any(|target| target.0 == rank)
    }

    pub(super) fn pc(&self) -> u32 {
        self.pc
    }
}

impl Warp {
    pub(super) fn thread_of(&self, lane: usize) -> u32 {
        self.index * WARP as u32 + lane as u32
    }

    /// Issues a copy in each active lane.
    pub(super) fn bulk_copy(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        copy: &Copy,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let rows = self.inputs(machine, i, 0);
        for lane in lanes(active) {
            let inputs: Vec<u64> = rows.iter().map(|row| row[lane]).collect();
            if copy.direction == Direction::Store {
                self.issue_store(machine, common, copy, &inputs, pc, lane)?;
            } else {
                self.issue_load(machine, common, copy, &inputs, pc, lane)?;
            }
        }
        Ok(())
    }

    /// The map and coordinates of a copy, if it has some.
    pub(super) fn tensor(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        rank: usize,
        inputs: &[u64],
        pc: u32,
        lane: usize,
    ) -> Result<(TensorMap, Vec<i32>)> {
        let map = self.tensor_map(machine, common, inputs[0], pc, lane)?;
        if map.dims.len() != rank {
            let message =
                format!("the map's tensor has {} dimensions, the copy {rank}", map.dims.len());
            let kind = FaultKind::InvalidDescriptor;
            return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
        }
        Ok((map, inputs[1..=rank].iter().map(|&c| c as u32 as i32).collect()))
    }

    /// Checks the size of a copy of consecutive bytes, and the alignment of its addresses.
    pub(super) fn check_sizes(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        (addresses, size): (&[u64], u64),
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        if size == 0 || !size.is_multiple_of(16) {
            let message = format!("a bulk copy of {size} bytes, no multiple of 16");
            let kind = FaultKind::Misaligned;
            return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
        }
        match addresses.iter().find(|address| !address.is_multiple_of(16)) {
            None => Ok(()),
            Some(&address) => {
                let message = "the address of a bulk copy is no multiple of 16".to_owned();
                let kind = FaultKind::Misaligned;
                Err(self.fault_at(machine, common, kind, message, pc, lane, address))
            }
        }
    }

    fn issue_load(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        copy: &Copy,
        inputs: &[u64],
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let to = inputs[0].wrapping_add(copy.to.offset as u64);
        let (rank, at) = self.locate(machine, common, to, copy.to, pc, lane)?;
        let fault = |this: &Self, common: &Common, kind: FaultKind, message: String| {
            Err(this.fault_at(machine, common, kind, message, pc, lane, to))
        };
        let own = common.hopper.cluster.rank;
        let (pieces, swizzle, rest, from_shared, bytes) = if copy.rank > 0 {
            let (map, coordinates) =
                self.tensor(machine, common, copy.rank, &inputs[1..], pc, lane)?;
            if at % 128 != 0 {
                let message = "the destination of a tensor copy is no multiple of 128".to_owned();
                return fault(self, common, FaultKind::Misaligned, message);
            }
            let pieces = boxed(&map, at, &coordinates);
            (pieces, Some(map.swizzle), &inputs[2 + copy.rank..], false, map.box_bytes())
        } else {
            let from = inputs[1].wrapping_add(copy.from.offset as u64);
            let sizes = (&[at.into(), untag(from).0][..], inputs[2]);
            self.check_sizes(machine, common, sizes, pc, lane)?;
            let bytes = inputs[2] as u32;
            let limit = common.shared_of(rank).bytes.len() as u64;
            if u64::from(at) + inputs[2] > limit {
                let message =
                    format!("a copy of {bytes} bytes; the block has {limit} of shared memory");
                let kind = FaultKind::OutOfBounds(crate::Space::Shared);
                return fault(self, common, kind, message);
            }
            let shared = copy.direction == Direction::Share;
            (consecutive(at, from, bytes), None, &inputs[3..], shared, bytes)
        };
        let (barrier_rank, barrier) =
            self.barrier_at(machine, common, rest[0], copy.barrier, pc, lane)?;
        if barrier_rank != rank {
            let message =
                "the barrier of a bulk copy is not in the block that gets the bytes".to_owned();
            return fault(self, common, FaultKind::InvalidBarrier, message);
        }
        let targets = self.targets(machine, common, copy, (rank, barrier), rest, pc, lane)?;
        let mut parts = Vec::with_capacity(pieces.len());
        let (mut region, mut page) = (None, Page::default());
        let mut read = Vec::new();
        for piece in &pieces {
            if from_shared {
                let place = (piece.address as u32, 16);
                let operation = Operation { writes: false, layout: None };
                self.check_async(machine, common, own, place, operation, pc, lane)?;
                common.shared.hopper.mark(piece.address as u32, true);
                let from = Source::Shared { rank: own, at: piece.address as u32 };
                parts.push(Part { from, at: piece.at, bytes: 16 });
                continue;
            }
            let (low, high) = piece.inside;
            for (at, bytes) in [(piece.at, low), (piece.at + high, piece.bytes - high)] {
                if bytes > 0 {
                    parts.push(Part { from: Source::Zero, at, bytes });
                }
            }
            for (address, inside, bytes) in piece.accesses() {
                let (found, offset) = self.global(
                    machine,
                    common,
                    &mut region,
                    &mut page,
                    (address, bytes),
                    READ,
                    Ordering::WEAK,
                    pc,
                    lane,
                )?;
                let place = (found.allocation, offset, bytes);
                self.check_global_proxy(machine, common, &mut page, place, pc, lane)?;
                read.push((address, bytes));
                let from = Source::Global { allocation: found.allocation, offset };
                parts.push(Part { from, at: piece.at + inside, bytes });
            }
        }
        drop(page);
        common.count_bulk(self, pc, Kind::LoadFromL2, &read);
        for &(rank, _) in &targets {
            if rank != own {
                self.note_visit(machine, common, rank, true, pc, lane)?;
            }
            for piece in &pieces {
                let operation = Operation { writes: true, layout: None };
                let place = (piece.at, piece.bytes);
                self.check_async(machine, common, rank, place, operation, pc, lane)?;
            }
            // Marked after all checks, which refuse bytes that are marked.
            let (_, shared) = common.order_and_shared(rank);
            for piece in &pieces {
                let range = piece.at as usize..(piece.at + piece.bytes) as usize;
                shared.state[range].iter_mut().for_each(|byte| *byte |= COPIED);
            }
        }
        let transfer = Transfer {
            parts,
            targets,
            bytes,
            layout: swizzle.map_or(0, layout),
            block: common.order.block,
            thread: self.thread_of(lane),
            time: common.order.time,
            pc,
        };
        common.hopper.cluster.begin(transfer);
        Ok(())
    }

    /// The blocks that get a copy's bytes, each with its barrier.
    fn targets(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        copy: &Copy,
        (rank, barrier): (u32, u32),
        rest: &[u64],
        pc: u32,
        lane: usize,
    ) -> Result<Vec<(u32, u32)>> {
        if !copy.multicast {
            return Ok(vec![(rank, barrier)]);
        }
        let (mask, size) = (rest[1] as u32 & 0xffff, common.hopper.cluster.size());
        if mask == 0 || mask >> size != 0 {
            let message = format!("the mask {mask:#06x} of blocks, in a cluster of {size}");
            let kind = FaultKind::InvalidDescriptor;
            return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
        }
        let targets: Vec<(u32, u32)> = lanes(mask).map(|rank| (rank as u32, barrier)).collect();
        for &(rank, _) in &targets {
            if !common.shared_of(rank).hopper.barriers.contains_key(&barrier) {
                let message = format!("block {rank} of the cluster has no barrier at {barrier:#x}");
                let kind = FaultKind::InvalidBarrier;
                return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
            }
        }
        Ok(targets)
    }
}

impl super::SharedState {
    /// An operation begins or ends to read a group.
    pub(super) fn mark(&mut self, at: u32, begins: bool) {
        let readers = &mut self.readers[at as usize / GROUP];
        if begins {
            *readers += 1;
            self.reading += 1;
        } else {
            *readers -= 1;
            self.reading -= 1;
        }
    }
}

impl Common {
    /// A copy into shared memory takes place.
    pub(super) fn transfer(&mut self, machine: &Machine<'_>, transfer: &Transfer) -> Result<()> {
        let mut data: Vec<[u8; GROUP]> = Vec::with_capacity(transfer.parts.len());
        for part in &transfer.parts {
            let mut bytes = [0; GROUP];
            match part.from {
                Source::Zero => {}
                Source::Global { allocation, offset } => {
                    let allocation = &machine.memory.allocations[allocation as usize];
                    let width = part.bytes.min(8);
                    for at in (0..part.bytes).step_by(width as usize) {
                        let value = allocation.load(offset + u64::from(at), width).to_le_bytes();
                        let at = at as usize;
                        bytes[at..at + width as usize].copy_from_slice(&value[..width as usize]);
                    }
                }
                Source::Shared { rank, at } => {
                    let (_, shared) = self.order_and_shared(rank);
                    let at = at as usize;
                    bytes.copy_from_slice(&shared.bytes[at..at + GROUP]);
                    shared.hopper.mark(at as u32, false);
                }
            }
            data.push(bytes);
        }
        for &(rank, barrier) in &transfer.targets {
            let block = self.block_of(rank);
            let (_, shared) = self.order_and_shared(rank);
            let Some(mbarrier) = shared.hopper.barriers.get(&barrier) else {
                let message = "the barrier of this copy is no longer there".to_owned();
                let kind = FaultKind::InvalidBarrier;
                let (pc, block, thread) = (transfer.pc, transfer.block, transfer.thread);
                return Err(machine.fault(kind, message, pc, block, thread));
            };
            // It completes with the phase that is current, or with a later one.
            let (slot, serial) = (mbarrier.slot, mbarrier.serial + 1);
            let written = Entry::copied(slot, serial, block, transfer.thread, transfer.pc);
            for (part, data) in transfer.parts.iter().zip(&data) {
                let range = part.at as usize..(part.at + part.bytes) as usize;
                shared.bytes[range.clone()].copy_from_slice(&data[..part.bytes as usize]);
                shared.state[range.clone()].fill(WRITTEN);
                shared.races.replace(range.start, range.len(), written);
                shared.hopper.layouts[range.start / GROUP] = transfer.layout;
                shared.hopper.laid_out |= transfer.layout != 0;
            }
            let mbarrier = shared.hopper.barriers.get_mut(&barrier).expect("it was found above");
            if transfer.block != block {
                let warp = transfer.thread / WARP as u32;
                mbarrier.visited((transfer.block, warp), transfer.time);
            }
            let outcome = mbarrier.transact(-i64::from(transfer.bytes));
            self.hopper.cluster.happened();
            if let Err((kind, message)) = outcome {
                let (pc, block, thread) = (transfer.pc, transfer.block, transfer.thread);
                return Err(machine.fault(kind, message, pc, block, thread));
            }
        }
        Ok(())
    }
}
