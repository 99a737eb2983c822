//! Clusters: blocks that run together and access each other's shared memory.
//!
//! While a block runs, its state holds that of the cluster, with the shared memories of the other
//! blocks.
//!
//! An address of the cluster's shared memory has the block's rank plus 1 in bits 24 and above. An
//! address without rank is in the block's own memory.
//!
//! Access to another block's memory must be ordered after that block's beginning and before its
//! exit (PTX ISA, "barrier.cluster"). A block is known to have begun once the accessing block has
//! synchronised with it. When a block exits, every access from other blocks must be ordered before.

use super::super::block::{Common, Order, Shared};
use super::super::warp::{Next, Warp, lanes};
use super::super::{Known, Machine, join_known};
use super::barrier::times;
use super::bulk::Transfer;
use super::{RANK_SHIFT, Result, hash};
use crate::decode::program::Instruction;
use crate::launch::Asynchrony;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::WARP;
use std::collections::VecDeque;

/// State that the blocks of a cluster share.
#[derive(Default)]
pub(crate) struct Cluster {
    /// The rank of the block that holds this.
    pub(super) rank: u32,
    /// Indices of the blocks, by rank.
    pub(super) blocks: Vec<u32>,
    /// Shared memory of the other blocks, by rank.
    pub(super) peers: Vec<Shared>,
    pub(super) transfers: VecDeque<Transfer>,
    /// Counts changes for which something may wait.
    pub(super) events: u64,
    /// Counts the rounds in which waits return false.
    pub(super) rounds: u64,
    /// Transfers that have taken place.
    pub(super) moved: u64,
    /// Threads that have not exited.
    pub(super) live: u32,
    /// Threads that have arrived at the cluster's barrier.
    pub(super) arrived: u32,
    pub(super) phase: u32,
    pub(super) gathering: Known,
    pub(super) released: Known,
    /// For each block: completed phases of its barriers that the arriving warps know.
    pub(super) phases: Vec<Vec<u32>>,
    pub(super) released_phases: Vec<Vec<u32>>,
}

impl Cluster {
    /// Number of blocks.
    pub(super) fn size(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Something has changed for which a thread may wait.
    pub(super) fn happened(&mut self) {
        self.events += 1;
    }

    /// Whether a wait that is not over returns false; at most once a round. `seen` is the last
    /// round in which the warp did.
    pub(super) fn gives_up(&self, seen: &mut u64) -> bool {
        let gives_up = *seen != self.rounds;
        *seen = self.rounds;
        gives_up
    }

    /// What waits compare to see whether they should be tried again.
    pub(crate) fn changes(&self) -> u64 {
        self.events + self.rounds
    }

    pub(crate) fn has_transfers(&self) -> bool {
        !self.transfers.is_empty()
    }

    pub(super) fn signals(&self, rank: u32, barrier: u32) -> bool {
        self.transfers.iter().any(|transfer| transfer.signals(rank, barrier))
    }

    pub(super) fn begin(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    /// The barrier of the cluster, if all threads have arrived.
    fn complete(&mut self) {
        if self.arrived == 0 || self.arrived < self.live {
            return;
        }
        self.arrived = 0;
        self.phase += 1;
        self.released = std::mem::take(&mut self.gathering);
        self.released_phases = std::mem::take(&mut self.phases);
        self.phases.resize(self.blocks.len(), Vec::new());
        self.happened();
    }
}

impl Common {
    pub(super) fn shared_of(&self, rank: u32) -> &Shared {
        let cluster = &self.hopper.cluster;
        if rank == cluster.rank { &self.shared } else { &cluster.peers[rank as usize] }
    }

    pub(super) fn order_and_shared(&mut self, rank: u32) -> (&mut Order, &mut Shared) {
        let cluster = &mut self.hopper.cluster;
        let shared =
            if rank == cluster.rank { &mut self.shared } else { &mut cluster.peers[rank as usize] };
        (&mut self.order, shared)
    }

    pub(super) fn block_of(&self, rank: u32) -> u32 {
        self.hopper.cluster.blocks[rank as usize]
    }

    /// Exchanges the shared memory with that of another block.
    pub(super) fn exchange(&mut self, rank: u32) {
        std::mem::swap(&mut self.shared, &mut self.hopper.cluster.peers[rank as usize]);
    }

    /// The oldest copy takes place; false if there is none.
    pub(super) fn transfer_oldest(&mut self, machine: &Machine<'_>) -> Result<bool> {
        let Some(transfer) = self.hopper.cluster.transfers.pop_front() else { return Ok(false) };
        self.hopper.cluster.moved += 1;
        self.transfer(machine, &transfer)?;
        Ok(true)
    }

    /// With a seed, a copy may take place at any moment.
    pub(crate) fn transfer_perhaps(&mut self, machine: &Machine<'_>, turn: u64) -> Result<()> {
        let Asynchrony::Seeded(seed) = machine.options.asynchrony else { return Ok(()) };
        let cluster = &mut self.hopper.cluster;
        let count = cluster.transfers.len();
        if count == 0 {
            return Ok(());
        }
        let number = hash(seed, turn, cluster.moved + cluster.events);
        if number & 1 == 0 {
            return Ok(());
        }
        let at = (number >> 1) as usize % count;
        let transfer = cluster.transfers.remove(at).expect("the index is below the length");
        cluster.moved += 1;
        self.transfer(machine, &transfer)
    }
}

impl Warp {
    /// Notes an access to the shared memory of another block of the cluster.
    pub(super) fn note_visit(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        rank: u32,
        writes: bool,
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let what = if writes { "write to" } else { "read from" };
        let block = common.block_of(rank);
        let begun = common.order.known.keys().any(|&(known, _)| known == block);
        let (time, own, warp) = (common.order.time, common.order.block, self.index);
        let (_, shared) = common.order_and_shared(rank);
        let message = if shared.hopper.exited {
            format!("a {what} shared memory of block {rank} of the cluster, which has exited")
        } else if !begun {
            format!(
                "a {what} shared memory of block {rank} of the cluster, which may not have begun: \
                 no `barrier.cluster` lies before"
            )
        } else {
            shared.hopper.visitors.insert((own, warp), (time, pc));
            return Ok(());
        };
        Err(self.fault(machine, common, FaultKind::RemoteBlock, message, pc, 1 << lane))
    }

    /// `mapa`
    pub(super) fn map_address(
        &mut self,
        machine: &Machine<'_>,
        common: &Common,
        i: &Instruction,
        generic: bool,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let mut addresses = self.any(machine, i.inputs[0]);
        let ranks = *self.word(machine, i.inputs[1]);
        let window = if generic { super::super::address::SHARED } else { 0 };
        for lane in lanes(active) {
            let size = common.hopper.cluster.size();
            if ranks[lane] >= size {
                let message = format!("there is no block {} in a cluster of {size}", ranks[lane]);
                let kind = FaultKind::OutOfBounds(crate::Space::Shared);
                return Err(self.fault(machine, common, kind, message, pc, 1 << lane));
            }
            let place = crate::decode::hopper::Place { offset: 0, generic, cluster: true };
            let (_, at) = self.locate(machine, common, addresses[lane], place, pc, lane)?;
            addresses[lane] = window + u64::from((ranks[lane] + 1) << RANK_SHIFT | at);
        }
        self.set_any(i.outputs[0], active, &addresses);
        Ok(())
    }

    /// `getctarank`
    pub(super) fn rank_of(
        &mut self,
        machine: &Machine<'_>,
        common: &Common,
        i: &Instruction,
        generic: bool,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let addresses = self.any(machine, i.inputs[0]);
        let mut row = [0; WARP];
        for lane in lanes(active) {
            let place = crate::decode::hopper::Place { offset: 0, generic, cluster: true };
            row[lane] = self.locate(machine, common, addresses[lane], place, pc, lane)?.0;
        }
        self.set_word(i.outputs[0], active, &row);
        Ok(())
    }

    fn divergent(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        message: String,
        pc: u32,
        lanes: u32,
    ) -> Box<Fault> {
        self.fault(machine, common, FaultKind::DivergentBarrier, message, pc, lanes)
    }

    /// `.aligned`: all threads of the warp execute it together.
    fn aligned(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        aligned: bool,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        if !aligned || active == self.live {
            return Ok(());
        }
        let message = format!(
            "only lanes {active:#010x} of the warp's {:#010x} execute `barrier.cluster.aligned`",
            self.live
        );
        Err(self.divergent(machine, common, message, pc, active))
    }

    /// `barrier.cluster.arrive`
    pub(super) fn cluster_arrive(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        (release, aligned): (bool, bool),
        pc: u32,
        active: u32,
    ) -> Result<()> {
        self.aligned(machine, common, aligned, pc, active)?;
        let again = self.cluster_arrived & active;
        if again != 0 {
            let message = "the thread arrives at the cluster's barrier again, without \
                           `barrier.cluster.wait`"
                .to_owned();
            return Err(self.divergent(machine, common, message, pc, again));
        }
        self.cluster_arrived |= active;
        self.cluster_phase = common.hopper.cluster.phase;
        let (block, warp) = (common.order.block, self.index);
        // A relaxed arrival releases what a fence before it has ordered.
        let until = match (release, self.fenced) {
            (true, _) => Some(common.order.time),
            (false, fence) => fence.map(|(time, _)| time),
        };
        let rank = common.hopper.cluster.rank as usize;
        let mut times = until.map_or([0; WARP], |_| times(&common.order, warp));
        times[warp as usize] = until.unwrap_or(0);
        let Common { order, hopper, .. } = &mut *common;
        let cluster = &mut hopper.cluster;
        for (other, time) in times.into_iter().enumerate() {
            if time > 0 || other as u32 == warp {
                let old = cluster.gathering.entry((block, other as u32)).or_insert(0);
                *old = time.max(*old);
            }
        }
        if until.is_some() {
            join_known(&mut cluster.gathering, &order.known, u32::MAX);
            let phases = &mut cluster.phases[rank];
            phases.resize(phases.len().max(order.phases.len()), 0);
            for (ours, theirs) in phases.iter_mut().zip(&order.phases) {
                *ours = theirs[warp as usize].max(*ours);
            }
        }
        order.time = order.time.saturating_add(1);
        cluster.arrived += active.count_ones();
        cluster.complete();
        Ok(())
    }

    /// `barrier.cluster.wait`
    pub(super) fn cluster_wait(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        aligned: bool,
        index: usize,
        pc: u32,
        active: u32,
    ) -> Result<Next> {
        self.aligned(machine, common, aligned, pc, active)?;
        let missing = active & !self.cluster_arrived;
        if missing != 0 {
            let message = "the thread waits at the cluster's barrier without having arrived";
            return Err(self.divergent(machine, common, message.to_owned(), pc, missing));
        }
        if common.hopper.cluster.phase == self.cluster_phase {
            return Ok(self.poll(common, index));
        }
        self.cluster_arrived &= !active;
        let Common { order, hopper, .. } = &mut *common;
        let cluster = &hopper.cluster;
        let warp = self.index;
        let mut own = [0; WARP];
        for (other, time) in own.iter_mut().enumerate() {
            let known = cluster.released.get(&(order.block, other as u32));
            *time = known.copied().unwrap_or(0);
        }
        self.full_time = self.full_time.max(own[warp as usize]);
        let times = order.warp_times.get_or_insert_with(|| Box::new([[0; WARP]; WARP]));
        for (ours, theirs) in times[warp as usize].iter_mut().zip(own) {
            *ours = theirs.max(*ours);
        }
        join_known(&mut order.known, &cluster.released, order.block);
        let rank = cluster.rank as usize;
        for (slot, &serial) in cluster.released_phases[rank].iter().enumerate() {
            order.learn(slot, warp, serial);
        }
        Ok(Next::On)
    }

    /// Threads exit: nothing may be left that accesses what goes with them.
    pub(in crate::execute) fn hopper_exit(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        self.exit_stores(machine, common, active)?;
        if active == self.live {
            self.exit_products(machine, common, pc)?;
        }
        let last = common.live == active.count_ones();
        let cluster = &mut common.hopper.cluster;
        cluster.live -= active.count_ones();
        if cluster.phase == self.cluster_phase {
            cluster.arrived -= (self.cluster_arrived & active).count_ones();
        }
        cluster.complete();
        if !last {
            return Ok(());
        }
        let rank = cluster.rank;
        let open = cluster.transfers.iter().find(|transfer| transfer.writes_to(rank));
        if let Some(transfer) = open {
            let message = "the block exits, and this copy is still to write its shared memory; \
                           no thread has waited for its barrier"
                .to_owned();
            let pc = transfer.pc();
            let kind = FaultKind::ExitWhilePending;
            return Err(self.fault(machine, common, kind, message, pc, active));
        }
        common.shared.hopper.exited = true;
        let order = &common.order;
        let known = |&(&(block, warp), &(time, _)): &(&(u32, u32), &(u32, u32))| {
            let until = |who| order.known.get(&(block, who)).is_some_and(|&t| time <= t);
            !until(warp) && !until(u32::MAX)
        };
        let visitor = common.shared.hopper.visitors.iter().find(known);
        if let Some((&(block, warp), &(_, at))) = visitor {
            let message = format!(
                "block {:?} accesses shared memory of block {:?} here, and nothing orders the \
                 access before that block's exit",
                machine.block_id(block),
                machine.block_id(common.order.block)
            );
            let thread = warp * WARP as u32;
            return Err(machine.fault(FaultKind::RemoteBlock, message, at, block, thread));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RANK_SHIFT, split_address};

    #[test]
    fn addresses_hold_the_rank() {
        assert_eq!(split_address(0x1234), (None, 0x1234));
        assert_eq!(split_address(3 << RANK_SHIFT | 8), (Some(2), 8));
    }
}
