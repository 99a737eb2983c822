//! Barriers in shared memory: `mbarrier`.
//!
//! A barrier has a phase. The phase completes when its pending arrivals and its pending
//! transactions are both zero; then the next phase begins with the initial count of arrivals (PTX
//! ISA, "Parallel Synchronization and Communication Instructions: mbarrier"). The object of 64 bits
//! is opaque: here its bytes are marked, and its state lies beside the memory.
//!
//! Arrivals release: what the arriving warp knows is collected. A wait that finds the phase
//! complete acquires what was collected.
//!
//! A wait whose phase is incomplete returns false once, as `test_wait` does and `try_wait` may. The
//! same wait, tried again, suspends its lanes until the phase is complete: the kernel cannot tell
//! when it is executed. If no thread can go on otherwise, waits return false once more; a kernel
//! that then only tries again is stuck.

use super::super::Machine;
use super::super::address::from_generic;
use super::super::block::{Common, Order};
use super::super::warp::{Next, Warp, lanes};
use super::super::{Known, join_known};
use super::{BARRIER, Result};
use crate::decode::hopper::{Arrival, Hopper, Place};
use crate::decode::program::{Instruction, Op};
use crate::sanitize::FaultKind;
use crate::semantics::rows::WARP;

/// Highest count of arrivals and of transactions.
const MOST: u32 = (1 << 20) - 1;

/// The order that arrivals hand to waits.
#[derive(Clone, Default)]
pub(super) struct Knowledge {
    /// Warps of the barrier's block: the time up to which their accesses are ordered before.
    warps: [u32; WARP],
    known: Known,
    /// Completed phases of each barrier of the block.
    phases: Vec<u32>,
}

/// A barrier.
pub(super) struct Mbarrier {
    pub(super) slot: usize,
    /// Arrivals of a phase.
    expected: u32,
    /// Arrivals that this phase lacks.
    pending: u32,
    /// Bytes that this phase lacks.
    transactions: i64,
    /// Phases that have completed since the initialisation.
    completed: u32,
    /// Phases that have ever completed at this address.
    pub(super) serial: u32,
    gathering: Knowledge,
    released: Knowledge,
    /// The initialising block, warp, and time.
    initialised: (u32, u32, u32),
}

/// A barrier's error, with the kind of the fault.
pub(super) type Wrong = (FaultKind, String);

impl Mbarrier {
    /// Completes the phase if nothing is pending; returns whether it did.
    fn settle(&mut self) -> std::result::Result<bool, Wrong> {
        if self.pending > 0 || self.transactions > 0 {
            return Ok(false);
        }
        if self.transactions < 0 {
            let message = format!(
                "the barrier's phase {} has all its arrivals and {} bytes more than it expects",
                self.completed, -self.transactions
            );
            return Err((FaultKind::TransactionBytes, message));
        }
        self.completed += 1;
        self.serial += 1;
        self.pending = self.expected;
        self.released = std::mem::take(&mut self.gathering);
        Ok(true)
    }

    /// Adds to the pending bytes.
    pub(super) fn transact(&mut self, bytes: i64) -> std::result::Result<bool, Wrong> {
        self.transactions += bytes;
        if self.transactions.unsigned_abs() > u64::from(MOST) {
            let pending = self.transactions;
            let message = format!("{pending} pending bytes are beyond the limit of {MOST}");
            return Err((FaultKind::TransactionBytes, message));
        }
        // Only the completion of bytes may complete a phase.
        if bytes < 0 { self.settle() } else { Ok(false) }
    }

    /// A copy that a warp of another block has issued completes here.
    pub(super) fn visited(&mut self, who: (u32, u32), time: u32) {
        let old = self.gathering.known.entry(who).or_insert(0);
        *old = time.max(*old);
    }

    fn arrive(&mut self, count: u32, drops: bool) -> std::result::Result<bool, Wrong> {
        if count == 0 || count > self.pending {
            let message = format!(
                "{count} arrivals at a barrier whose phase {} lacks {} of {}",
                self.completed, self.pending, self.expected
            );
            return Err((FaultKind::InvalidBarrier, message));
        }
        self.pending -= count;
        if drops {
            self.expected -= count;
        }
        self.settle()
    }

    /// Its state, for reports.
    pub(super) fn describe(&self) -> String {
        format!(
            "phase {} (parity {}) lacks {} of {} arrivals and {} bytes",
            self.completed,
            self.completed & 1,
            self.pending,
            self.expected,
            self.transactions
        )
    }
}

/// The times of other warps that a warp knows.
pub(super) fn times(order: &Order, warp: u32) -> [u32; WARP] {
    let mut times = order.warp_times.as_ref().map_or([0; WARP], |times| times[warp as usize]);
    times.iter_mut().for_each(|time| *time = order.all_time.max(*time));
    times
}

impl Knowledge {
    /// Adds what a warp knows; `block` is that of the barrier.
    fn collect(&mut self, order: &mut Order, warp: u32, block: u32) {
        let mut times = times(order, warp);
        times[warp as usize] = order.time;
        if order.block == block {
            for (ours, theirs) in self.warps.iter_mut().zip(times) {
                *ours = theirs.max(*ours);
            }
            self.phases.resize(self.phases.len().max(order.phases.len()), 0);
            for (ours, theirs) in self.phases.iter_mut().zip(&order.phases) {
                *ours = theirs[warp as usize].max(*ours);
            }
        } else {
            for (other, time) in times.into_iter().enumerate() {
                if time > 0 {
                    let old = self.known.entry((order.block, other as u32)).or_insert(0);
                    *old = time.max(*old);
                }
            }
        }
        join_known(&mut self.known, &order.known, block);
        // Accesses after the arrival are not ordered by it.
        order.time = order.time.saturating_add(1);
    }
}

impl Order {
    /// A warp learns that phases of a barrier have completed.
    pub(super) fn learn(&mut self, slot: usize, warp: u32, serial: u32) {
        if self.phases.len() <= slot {
            self.phases.resize(slot + 1, [0; WARP]);
        }
        let known = &mut self.phases[slot][warp as usize];
        *known = serial.max(*known);
    }

    fn acquire(&mut self, warp: u32, from: &Knowledge) {
        let times = self.warp_times.get_or_insert_with(|| Box::new([[0; WARP]; WARP]));
        for (ours, &theirs) in times[warp as usize].iter_mut().zip(&from.warps) {
            *ours = theirs.max(*ours);
        }
        for (slot, &serial) in from.phases.iter().enumerate() {
            if serial > 0 {
                self.learn(slot, warp, serial);
            }
        }
        join_known(&mut self.known, &from.known, self.block);
    }
}

impl Warp {
    /// The rank and offset of a barrier, which must be there.
    pub(super) fn barrier_at(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        address: u64,
        place: Place,
        pc: u32,
        lane: usize,
    ) -> Result<(u32, u32)> {
        let address = address.wrapping_add(place.offset as u64);
        let (rank, at) = self.locate(machine, common, address, place, pc, lane)?;
        let shared = common.shared_of(rank);
        let invalid = |kind, message: String| {
            Err(self.fault_at(machine, common, kind, message, pc, lane, at.into()))
        };
        if at % 8 != 0 {
            return invalid(
                FaultKind::Misaligned,
                "the address of a barrier is no multiple of 8".to_owned(),
            );
        }
        let Some(barrier) = shared.hopper.barriers.get(&at) else {
            let size = shared.bytes.len();
            let message = if at as usize + 8 > size {
                format!("there is no barrier at {at:#x}: the block has {size} bytes")
            } else {
                format!("no barrier has been initialised at {at:#x}")
            };
            return invalid(FaultKind::InvalidBarrier, message);
        };
        let (block, warp, time) = barrier.initialised;
        let ordered = if block != common.order.block {
            let known = |who| common.order.known.get(&(block, who)).is_some_and(|&t| time < t);
            known(warp) || known(u32::MAX)
        } else {
            warp == self.index || time < times(&common.order, self.index)[warp as usize]
        };
        if machine.options.sanitize.races && !ordered {
            let message = "the use of a barrier is not ordered after its initialisation".to_owned();
            return invalid(FaultKind::SharedRace, message);
        }
        Ok((rank, at))
    }

    fn wrong(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        (kind, message): Wrong,
        pc: u32,
        lane: usize,
        at: u32,
    ) -> Box<crate::Fault> {
        self.fault_at(machine, common, kind, message, pc, lane, at.into())
    }

    /// `mbarrier.init`
    pub(super) fn barrier_init(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        place: Place,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let addresses = self.addresses(machine, i.inputs[0], place.offset);
        let counts = *self.word(machine, i.inputs[1]);
        for lane in lanes(active) {
            let plain = Place { offset: 0, cluster: false, ..place };
            let (_, at) = self.locate(machine, common, addresses[lane], plain, pc, lane)?;
            let count = counts[lane];
            if count == 0 || count > MOST {
                let message = format!("a barrier counts 1 to {MOST} arrivals, not {count}");
                let wrong = (FaultKind::InvalidBarrier, message);
                return Err(self.wrong(machine, common, wrong, pc, lane, at));
            }
            if common.shared.hopper.barriers.contains_key(&at) {
                let message = "a barrier that is in use is initialised again".to_owned();
                let wrong = (FaultKind::InvalidBarrier, message);
                return Err(self.wrong(machine, common, wrong, pc, lane, at));
            }
            let does = super::super::check::WRITE;
            self.shared(machine, common, (at.into(), 8), does, false, pc, lane)?;
            let initialised = (common.order.block, self.index, common.order.time);
            let state = &mut common.shared.hopper;
            let next = state.slots.len();
            let (slot, serial) = *state.slots.entry(at).or_insert((next, 0));
            state.barriers.insert(
                at,
                Mbarrier {
                    slot,
                    expected: count,
                    pending: count,
                    transactions: 0,
                    completed: 0,
                    serial,
                    gathering: Knowledge::default(),
                    released: Knowledge::default(),
                    initialised,
                },
            );
            common.shared.state[at as usize..at as usize + 8].fill(BARRIER);
        }
        // Later accesses of this warp are not part of the initialisation.
        common.order.time = common.order.time.saturating_add(1);
        Ok(())
    }

    /// `mbarrier.inval`
    pub(super) fn barrier_invalidate(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        place: Place,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let addresses = self.any(machine, i.inputs[0]);
        for lane in lanes(active) {
            let local = Place { cluster: false, ..place };
            let (rank, at) = self.barrier_at(machine, common, addresses[lane], local, pc, lane)?;
            if common.hopper.cluster.signals(rank, at) {
                let message = "a bulk copy is still to signal this barrier".to_owned();
                let wrong = (FaultKind::InvalidBarrier, message);
                return Err(self.wrong(machine, common, wrong, pc, lane, at));
            }
            let state = &mut common.shared.hopper;
            let barrier = state.barriers.remove(&at).expect("the barrier was found above");
            state.slots.insert(at, (barrier.slot, barrier.serial));
            common.shared.state[at as usize..at as usize + 8].fill(0);
        }
        Ok(())
    }

    /// `mbarrier.arrive`, `mbarrier.arrive_drop`
    pub(super) fn barrier_arrive(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        place: Place,
        arrival: Arrival,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let addresses = self.any(machine, i.inputs[0]);
        let operand = if arrival.counted { *self.word(machine, i.inputs[1]) } else { [1; WARP] };
        let mut states = [0; WARP];
        for lane in lanes(active) {
            let (rank, at) = self.barrier_at(machine, common, addresses[lane], place, pc, lane)?;
            if rank != common.hopper.cluster.rank {
                self.note_visit(machine, common, rank, true, pc, lane)?;
                if !i.outputs.is_empty() && i.outputs[0] != crate::decode::program::Operand::Sink {
                    let message = "an arrival in another block returns no state".to_owned();
                    let wrong = (FaultKind::InvalidBarrier, message);
                    return Err(self.wrong(machine, common, wrong, pc, lane, at));
                }
            }
            let (bytes, count) =
                if arrival.expects { (operand[lane], 1) } else { (0, operand[lane]) };
            if bytes > 0 {
                self.transact(machine, common, (rank, at), bytes.into(), pc, lane)?;
            }
            let warp = self.index;
            let block = common.block_of(rank);
            let (order, shared) = common.order_and_shared(rank);
            let barrier = shared.hopper.barriers.get_mut(&at).expect("the barrier was found");
            states[lane] = u64::from(barrier.completed) << 32 | u64::from(barrier.pending);
            barrier.gathering.collect(order, warp, block);
            let outcome = if arrival.no_complete && count >= barrier.pending {
                let message =
                    format!("`.noComplete`, and the phase lacks {} arrivals", barrier.pending);
                Err((FaultKind::InvalidBarrier, message))
            } else {
                barrier.arrive(count, arrival.drop)
            };
            common.hopper.cluster.happened();
            outcome.map_err(|wrong| self.wrong(machine, common, wrong, pc, lane, at))?;
        }
        if let Some(&output) = i.outputs.first() {
            self.set_double(output, active, &states);
        }
        Ok(())
    }

    /// Adds to a barrier's pending bytes.
    fn transact(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        (rank, at): (u32, u32),
        bytes: i64,
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let (_, shared) = common.order_and_shared(rank);
        let barrier = shared.hopper.barriers.get_mut(&at).expect("the caller has found it");
        let outcome = barrier.transact(bytes);
        common.hopper.cluster.happened();
        outcome.map_err(|wrong| self.wrong(machine, common, wrong, pc, lane, at))?;
        Ok(())
    }

    /// `mbarrier.expect_tx`, `mbarrier.complete_tx`
    pub(super) fn barrier_transactions(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        place: Place,
        expect: bool,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let addresses = self.any(machine, i.inputs[0]);
        let bytes = *self.word(machine, i.inputs[1]);
        for lane in lanes(active) {
            let (rank, at) = self.barrier_at(machine, common, addresses[lane], place, pc, lane)?;
            if rank != common.hopper.cluster.rank {
                self.note_visit(machine, common, rank, true, pc, lane)?;
            }
            let bytes = i64::from(bytes[lane]);
            let change = if expect { bytes } else { -bytes };
            self.transact(machine, common, (rank, at), change, pc, lane)?;
        }
        Ok(())
    }

    /// `mbarrier.test_wait`, `mbarrier.try_wait`
    pub(super) fn barrier_wait(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        (place, parity): (Place, bool),
        index: usize,
        pc: u32,
        active: u32,
    ) -> Result<Next> {
        let addresses = self.any(machine, i.inputs[0]);
        let phases = self.any(machine, i.inputs[1]);
        let mut done = 0;
        for lane in lanes(active) {
            let local = Place { cluster: false, ..place };
            let (_, at) = self.barrier_at(machine, common, addresses[lane], local, pc, lane)?;
            let barrier = &common.shared.hopper.barriers[&at];
            let over = if parity {
                if phases[lane] > 1 {
                    let message = format!("a parity is 0 or 1, not {}", phases[lane]);
                    let wrong = (FaultKind::InvalidBarrier, message);
                    return Err(self.wrong(machine, common, wrong, pc, lane, at));
                }
                u64::from(barrier.completed & 1) != phases[lane]
            } else {
                let phase = phases[lane] >> 32;
                let current = u64::from(barrier.completed);
                if phase > current || phase + 1 < current {
                    let message = format!(
                        "the state is of phase {phase}, and the barrier is in phase {current}"
                    );
                    let wrong = (FaultKind::InvalidBarrier, message);
                    return Err(self.wrong(machine, common, wrong, pc, lane, at));
                }
                phase < current
            };
            if !over {
                continue;
            }
            done |= 1 << lane;
            let Common { order, shared, .. } = &mut *common;
            let barrier = &shared.hopper.barriers[&at];
            order.acquire(self.index, &barrier.released);
            order.learn(barrier.slot, self.index, barrier.serial);
            // Lanes of this warp that have arrived are ordered, too.
            self.full_time = self.full_time.max(barrier.released.warps[self.index as usize]);
        }
        if done == 0 {
            // The first attempt returns false, so that a kernel which ignores the result goes on
            // too early. A second one shows that it tries again.
            let lane = active.trailing_zeros() as usize;
            let attempt = Some((pc, addresses[lane], phases[lane]));
            let again = self.refused == attempt;
            self.refused = attempt;
            if again && !common.hopper.cluster.gives_up(&mut self.gave_up) {
                return Ok(self.poll(common, index));
            }
        } else {
            self.refused = None;
        }
        self.set_predicate(i.outputs[0], active, done);
        Ok(Next::On)
    }

    /// `mbarrier.pending_count`
    pub(super) fn barrier_pending(&mut self, machine: &Machine<'_>, i: &Instruction, active: u32) {
        let row = self.any(machine, i.inputs[0]).map(|state| state as u32);
        self.set_word(i.outputs[0], active, &row);
    }

    /// `cp.async.mbarrier.arrive`: the copies of `cp.async` that a thread has issued arrive at the
    /// barrier when they are complete. They complete here, since nothing shows when: a wait for
    /// the phase must follow in any case.
    pub(super) fn copy_arrive(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        (place, no_increment): (Place, bool),
        pc: u32,
        active: u32,
    ) -> Result<()> {
        self.wait_async(machine, common, None, pc, active)?;
        let addresses = self.any(machine, i.inputs[0]);
        for lane in lanes(active) {
            let local = Place { cluster: false, ..place };
            let (rank, at) = self.barrier_at(machine, common, addresses[lane], local, pc, lane)?;
            let (warp, block) = (self.index, common.order.block);
            let (order, shared) = common.order_and_shared(rank);
            let barrier = shared.hopper.barriers.get_mut(&at).expect("the barrier was found");
            // Without `.noinc` the pending count is incremented first, so it does not change.
            if !no_increment {
                barrier.pending += 1;
            }
            barrier.gathering.collect(order, warp, block);
            let outcome = barrier.arrive(1, false);
            common.hopper.cluster.happened();
            outcome.map_err(|wrong| self.wrong(machine, common, wrong, pc, lane, at))?;
        }
        Ok(())
    }
}

impl Warp {
    /// What a split waits for, for the report of a deadlock.
    pub(in crate::execute) fn describe_wait(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        pc: u32,
        mask: u32,
    ) -> String {
        let i = &machine.program.code[pc as usize];
        let Op::Hopper(op) = &i.op else { return "it waits".to_owned() };
        let lane = mask.trailing_zeros() as usize % WARP;
        match &**op {
            Hopper::Wait { place, parity } => {
                let address = self.addresses(machine, i.inputs[0], place.offset)[lane];
                let inside = if place.generic { from_generic(address).1 } else { address };
                let at = super::split_address(inside).1;
                let phase = self.any(machine, i.inputs[1])[lane];
                let wanted = if *parity {
                    format!("the phase of parity {phase}")
                } else {
                    format!("phase {}", phase >> 32)
                };
                let state = common.shared.hopper.barriers.get(&at);
                let state = state.map_or_else(|| "it is gone".to_owned(), Mbarrier::describe);
                format!("it waits for {wanted} of the barrier at {at:#x}, whose {state}")
            }
            Hopper::ClusterWait { .. } => {
                "it waits at the cluster's barrier, at which not all threads arrive".to_owned()
            }
            _ => "it waits for registers that no warpgroup releases".to_owned(),
        }
    }
}
