//! Bulk copies out of shared memory: `cp.async.bulk`, `cp.async.bulk.tensor` and
//! `cp.reduce.async.bulk` to global memory.
//!
//! A copy belongs to a group of its thread. Its reads end at `wait_group.read`, its writes at
//! `wait_group` or at the thread's exit.

use super::super::Machine;
use super::super::address::untag;
use super::super::atomic::apply;
use super::super::block::Common;
use super::super::check::{Does, Page, WRITE};
use super::super::warp::{Warp, lanes};
use super::proxy::Operation;
use super::tensor::{Piece, boxed, consecutive};
use super::{GROUP, Result, hash};
use crate::count::Kind;
use crate::decode::hopper::Copy;
use crate::decode::program::{AtomicOperation, Ordering};
use crate::launch::Asynchrony;
use crate::sanitize::FaultKind;
use crate::sanitize::race::Entry;
use crate::semantics::exact::{BF16, F16, F32};
use crate::semantics::float::{Float, Operation as Arithmetic};
use crate::tensor_map::{ElementType, TensorMap};

/// A copy out of shared memory that has not been waited for.
pub(super) struct Store {
    thread: u32,
    /// Number of the group, once it is committed.
    group: Option<u32>,
    pieces: Vec<Piece>,
    /// The bytes of each piece, once they have been read.
    data: Option<Vec<[u8; GROUP]>>,
    /// Whether its reads have been waited for.
    released: bool,
    reduce: Option<(AtomicOperation, u32)>,
    pub(super) pc: u32,
}

impl Store {
    /// Whether it is to write some of these bytes of global memory.
    pub(super) fn writes(&self, low: u64, bytes: u64) -> bool {
        self.pieces.iter().any(|piece| {
            let (start, end) = piece.inside;
            let address = untag(piece.address).0;
            address < low + bytes && low < address + u64::from(end - start)
        })
    }
}

/// What a tensor's elements are added by.
fn addition(map: &TensorMap) -> Option<(AtomicOperation, u32)> {
    let float = |format| AtomicOperation::Float(Float::new(Arithmetic::Add, format));
    let operation = match map.ty {
        ElementType::U32 | ElementType::S32 | ElementType::U64 => AtomicOperation::Add,
        ElementType::F16 => float(F16),
        ElementType::BF16 => float(BF16),
        ElementType::F32 => float(F32),
        _ => return None,
    };
    Some((operation, map.ty.bytes()))
}

impl Warp {
    /// Issues a copy out of shared memory.
    pub(super) fn issue_store(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        copy: &Copy,
        inputs: &[u64],
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let (pieces, swizzle, reduce) = if copy.rank > 0 {
            let (map, coordinates) = self.tensor(machine, common, copy.rank, inputs, pc, lane)?;
            let from = inputs[1 + copy.rank].wrapping_add(copy.from.offset as u64);
            let (_, at) = self.locate(machine, common, from, copy.from, pc, lane)?;
            if at % 128 != 0 {
                let message = "the source of a tensor copy is no multiple of 128".to_owned();
                let kind = FaultKind::Misaligned;
                return Err(self.fault_at(machine, common, kind, message, pc, lane, from));
            }
            let reduce = match (copy.reduce, addition(&map)) {
                (None, _) => None,
                (Some(_), Some(add)) => Some(add),
                (Some(_), None) => {
                    let message = format!("a tensor of {:?} is not added to", map.ty);
                    let kind = FaultKind::InvalidDescriptor;
                    return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
                }
            };
            (boxed(&map, at, &coordinates), Some(map.swizzle), reduce)
        } else {
            let to = inputs[0].wrapping_add(copy.to.offset as u64);
            let from = inputs[1].wrapping_add(copy.from.offset as u64);
            let (_, at) = self.locate(machine, common, from, copy.from, pc, lane)?;
            let sizes = (&[at.into(), untag(to).0][..], inputs[2]);
            self.check_sizes(machine, common, sizes, pc, lane)?;
            let limit = common.shared.bytes.len() as u64;
            if u64::from(at) + inputs[2] > limit {
                let message = format!(
                    "a copy of {} bytes; the block has {limit} of shared memory",
                    inputs[2]
                );
                let kind = FaultKind::OutOfBounds(crate::Space::Shared);
                return Err(self.fault_at(machine, common, kind, message, pc, lane, from));
            }
            (consecutive(at, to, inputs[2] as u32), None, copy.reduce)
        };
        let own = common.hopper.cluster.rank;
        for piece in &pieces {
            let operation = Operation { writes: false, layout: swizzle };
            let place = (piece.at, piece.bytes);
            self.check_async(machine, common, own, place, operation, pc, lane)?;
        }
        for piece in &pieces {
            common.shared.hopper.mark(piece.at, true);
        }
        let written: Vec<(u64, u32)> = pieces
            .iter()
            .flat_map(|piece| piece.accesses())
            .map(|(address, _, bytes)| (address, bytes))
            .collect();
        let kind = if reduce.is_some() { Kind::Atomic } else { Kind::Store };
        common.count_bulk(self, pc, kind, &written);
        let mut store = Store {
            thread: self.thread_of(lane),
            group: None,
            pieces,
            data: None,
            released: false,
            reduce,
            pc,
        };
        if let Asynchrony::Seeded(seed) = machine.options.asynchrony
            && hash(seed, pc.into(), self.clock) & 1 == 1
        {
            store.read(common);
        }
        common.hopper.stores.push(store);
        Ok(())
    }

    /// `cp.async.bulk.commit_group`
    pub(super) fn bulk_commit(&mut self, common: &mut Common, active: u32) {
        for lane in lanes(active) {
            let thread = self.thread_of(lane);
            let next = common.hopper.store_groups.entry(thread).or_insert(0);
            let group = *next;
            *next += 1;
            for store in &mut common.hopper.stores {
                if store.thread == thread && store.group.is_none() {
                    store.group = Some(group);
                }
            }
        }
    }

    /// `cp.async.bulk.wait_group`: all but the last `groups` groups of each thread.
    pub(super) fn bulk_wait(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        (groups, read): (u32, bool),
        active: u32,
    ) -> Result<()> {
        for lane in lanes(active) {
            let thread = self.thread_of(lane);
            let committed = common.hopper.store_groups.get(&thread).copied().unwrap_or(0);
            let before = committed.saturating_sub(groups);
            self.end_stores(machine, common, lane, read, |store| {
                store.group.is_some_and(|group| group < before)
            })?;
        }
        Ok(())
    }

    /// Ends the reads, and unless `read` the writes, of a thread's stores that `ends` selects.
    fn end_stores(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        lane: usize,
        read: bool,
        ends: impl Fn(&Store) -> bool,
    ) -> Result<()> {
        let thread = self.thread_of(lane);
        let stores = std::mem::take(&mut common.hopper.stores);
        let mut kept = Vec::new();
        let mut ended = Vec::new();
        for store in stores {
            if store.thread == thread && ends(&store) {
                ended.push(store)
            } else {
                kept.push(store)
            }
        }
        common.hopper.stores = kept;
        for mut store in ended {
            if !store.released {
                store.read(common);
                store.released = true;
                for piece in &store.pieces {
                    common.shared.hopper.mark(piece.at, false);
                    // Read until now: a later write is to be ordered after the wait.
                    let now =
                        Entry::new(common.order.time, common.order.block, thread, false, store.pc);
                    let bytes = piece.bytes as usize;
                    common.shared.races.access(piece.at as usize, bytes, now, false, &|_| true);
                }
            }
            if read {
                common.hopper.stores.push(store);
            } else {
                self.write_store(machine, common, &store, lane)?;
            }
        }
        Ok(())
    }

    /// The writes of a store.
    fn write_store(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        store: &Store,
        lane: usize,
    ) -> Result<()> {
        let (mut region, mut page) = (None, Page::default());
        let data = store.data.as_deref().expect("the reads come before the writes");
        let reads = store.reduce.is_some();
        let does = if reads { Does { reads, writes: true } } else { WRITE };
        // Additions are atomic, so those of different blocks do not race.
        let ordering = Ordering { strong: reads, ..Ordering::WEAK };
        for (piece, data) in store.pieces.iter().zip(data) {
            for (address, inside, bytes) in piece.accesses() {
                let width = store.reduce.map_or(bytes.min(8), |(_, width)| width);
                for part in (0..bytes).step_by(width as usize) {
                    let (found, offset) = self.global(
                        machine,
                        common,
                        &mut region,
                        &mut page,
                        (address + u64::from(part), width),
                        does,
                        ordering,
                        store.pc,
                        lane,
                    )?;
                    let start = (inside + part) as usize;
                    let mut word = [0; 8];
                    word[..width as usize].copy_from_slice(&data[start..start + width as usize]);
                    let mut value = u64::from_le_bytes(word);
                    let allocation = &machine.memory.allocations[found.allocation as usize];
                    let guard = machine.wide.lock().expect("no holder of the lock panics");
                    if let Some((operation, _)) = store.reduce {
                        let old = allocation.load(offset, width);
                        value = apply(operation, 8 * width, old, value, 0);
                    }
                    allocation.store(offset, width, value);
                    drop(guard);
                }
            }
        }
        Ok(())
    }

    /// Threads exit: their stores' writes end, and their reads must have ended.
    pub(super) fn exit_stores(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        active: u32,
    ) -> Result<()> {
        if common.hopper.stores.is_empty() {
            return Ok(());
        }
        for lane in lanes(active) {
            let thread = self.thread_of(lane);
            let open = common.hopper.stores.iter().find(|s| s.thread == thread && !s.released);
            if let Some(store) = open {
                let message = "the thread exits without `cp.async.bulk.wait_group` for this copy, \
                               whose source is the block's shared memory"
                    .to_owned();
                let kind = FaultKind::ExitWhilePending;
                return Err(self.fault(machine, common, kind, message, store.pc, 1 << lane));
            }
            self.end_stores(machine, common, lane, false, |_| true)?;
        }
        Ok(())
    }
}

impl Store {
    /// Reads the source.
    fn read(&mut self, common: &Common) {
        if self.data.is_some() {
            return;
        }
        let data = self.pieces.iter().map(|piece| {
            let mut bytes = [0; GROUP];
            let (start, count) = (piece.at as usize, piece.bytes as usize);
            bytes[..count].copy_from_slice(&common.shared.bytes[start..start + count]);
            bytes
        });
        self.data = Some(data.collect());
    }
}
