//! Hopper's asynchronous instructions.
//!
//! An *asynchronous operation* is a bulk copy or a `wgmma`. It goes on after its instruction, until
//! the kernel waits for it: at a barrier in shared memory (`mbarrier`), for a group of bulk
//! copies, or for a group of products. Its accesses belong to the *async proxy*; those of loads and
//! stores belong to the *generic proxy* (PTX ISA, "Proxies").
//!
//! # When an operation takes place
//!
//! [`Asynchrony`](crate::Asynchrony) decides. By default an operation takes place as late as it
//! may: a copy into shared memory when no thread of the cluster can go on without it, a store when
//! it is waited for, a product when its group is waited for. With a seed, each takes place at a
//! pseudo-random moment between its instruction and its wait. The same seed gives the same moments.
//!
//! # What is watched
//!
//! - Bytes that a copy is still to write must not be accessed. Bytes that an operation is still to
//!   read must not be written. Both states last until the wait, whenever the bytes are moved.
//! - A thread may read copied bytes if it has seen the phase of the copy's barrier complete, or is
//!   ordered after a thread that has. Each warp keeps the number of phases of each barrier that it
//!   knows to be complete, and synchronisation passes this knowledge on as it passes times
//!   (`Order` in `block`).
//! - Bytes written through the generic proxy must not be accessed by an operation unless a
//!   `fence.proxy.async` lies between, ordered after the write and before the operation
//!   ([`proxy`]).
//! - Registers of a product must not be accessed before its group is waited for, and those that
//!   were accessed need a `wgmma.fence` before the next product ([`product`]).
//! - A barrier's phase that lacks arrivals or bytes stops the kernel. The report names each waiting
//!   thread's barrier, phase and pending counts. Bytes beyond those expected are an error at once.
//! - Groups of 16 bytes remember the swizzle with which a copy wrote them; a product or copy with
//!   another one must not read them.
//! - A block must not exit while an operation or another block accesses its shared memory
//!   ([`cluster`]).
//!
//! # Limits
//!
//! Knowledge is kept by warp, not by thread, and knowledge of other blocks by block. Writes of
//! global memory count as fenced for bulk copies after any `fence.proxy.async` of the block that
//! follows them. Some errors may therefore be missed; none is reported that the rules allow.

mod barrier;
mod bulk;
mod cluster;
mod group;
mod product;
mod proxy;
mod store;
mod tensor;
mod warpgroup;

pub(crate) use cluster::Cluster;
pub(crate) use group::Group;
pub(crate) use product::Register;

use super::Machine;
use super::block::Common;
use super::check::{Does, WRITE};
use super::splits::State;
use super::warp::{Next, Warp};
use crate::decode::hopper::{Hopper, Place};
use crate::decode::program::Instruction;
use crate::sanitize::{Fault, FaultKind};
use barrier::Mbarrier;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, Box<Fault>>;

/// A byte of shared memory that a bulk copy is to write.
pub(crate) const COPIED: u8 = 4;
/// A byte of a barrier.
pub(crate) const BARRIER: u8 = 8;

/// Bytes of a group, the unit of swizzles and of the states below.
const GROUP: usize = 16;

/// Where the addresses of another block's shared memory begin: its rank plus 1 stands above.
const RANK_SHIFT: u32 = 24;

/// State of the shared memory of a block.
#[derive(Default)]
pub(crate) struct SharedState {
    barriers: BTreeMap<u32, Mbarrier>,
    /// For each address that has held a barrier: its slot, and the phases that completed there.
    slots: BTreeMap<u32, (usize, u32)>,
    /// For each group: operations that are still to read it.
    readers: Vec<u16>,
    /// Sum of `readers`.
    pub(crate) reading: u64,
    /// For each group: 1 plus the bits of the swizzle with which a copy wrote it, or 0.
    layouts: Vec<u8>,
    /// Whether a group has a layout.
    pub(crate) laid_out: bool,
    /// Last access from each warp of another block: block, warp, time, instruction.
    visitors: BTreeMap<(u32, u32), (u32, u32)>,
    /// The block has exited.
    exited: bool,
}

/// State of a block.
#[derive(Default)]
pub(crate) struct BlockState {
    products: Vec<product::Pending>,
    stores: Vec<store::Store>,
    /// Groups of bulk stores that each thread has committed.
    store_groups: BTreeMap<u32, u32>,
    /// Groups of products that each warp has committed.
    product_groups: [u32; 32],
    warpgroups: [warpgroup::Warpgroup; 8],
    fences: Vec<proxy::Fence>,
    /// The time of the last `fence.proxy.async` for global memory.
    global_fence: u32,
    /// Registers that warps have more than when the block began, per lane, summed over the warps.
    register_change: i64,
    /// The cluster, while this block runs.
    pub(crate) cluster: Cluster,
    /// Instructions that found that they must wait, in this turn.
    pub(crate) polls: u64,
}

impl SharedState {
    /// Forgets everything; `bytes` is the size of the memory.
    pub(crate) fn start(&mut self, bytes: usize) {
        let groups = bytes.div_ceil(GROUP);
        self.barriers.clear();
        self.slots.clear();
        self.readers.clear();
        self.readers.resize(groups, 0);
        self.reading = 0;
        self.layouts.clear();
        self.layouts.resize(groups, 0);
        self.laid_out = false;
        self.visitors.clear();
        self.exited = false;
    }
}

impl BlockState {
    /// Forgets everything but the cluster.
    pub(crate) fn start(&mut self) {
        let cluster = std::mem::take(&mut self.cluster);
        *self = BlockState { cluster, ..BlockState::default() };
    }

    /// Whether a bulk store is to write some of these bytes of global memory; its instruction.
    pub(crate) fn stores_to(&self, low: u64, bytes: u64) -> Option<u32> {
        self.stores.iter().find(|store| store.writes(low, bytes)).map(|store| store.pc)
    }
}

impl Warp {
    /// Executes an instruction of Hopper in the `active` lanes of a split.
    pub(super) fn hopper(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        hopper: &Hopper,
        index: usize,
        pc: u32,
        (mask, active): (u32, u32),
    ) -> Result<Next> {
        match hopper {
            Hopper::Init(place) => self.barrier_init(machine, common, i, *place, pc, active)?,
            Hopper::Invalidate(place) => {
                self.barrier_invalidate(machine, common, i, *place, pc, active)?;
            }
            Hopper::Arrive(place, arrival) => {
                self.barrier_arrive(machine, common, i, *place, *arrival, pc, active)?;
            }
            Hopper::Transactions(place, expect) => {
                self.barrier_transactions(machine, common, i, *place, *expect, pc, active)?;
            }
            Hopper::Wait { place, parity } => {
                let form = (*place, *parity);
                return self.barrier_wait(machine, common, i, form, index, pc, active);
            }
            Hopper::PendingCount => self.barrier_pending(machine, i, active),
            Hopper::CopyArrive(place, no_increment) => {
                self.copy_arrive(machine, common, i, (*place, *no_increment), pc, active)?;
            }
            Hopper::ProxyFence { shared, global } => {
                self.proxy_fence(common, *shared, *global, active);
            }
            // The order that barriers of the cluster establish covers the initialisation.
            Hopper::InitFence => self.fenced = Some((common.order.time, common.order.all_time)),
            Hopper::Map { generic } => {
                self.map_address(machine, common, i, *generic, pc, active)?;
            }
            Hopper::RankOf { generic } => {
                self.rank_of(machine, common, i, *generic, pc, active)?;
            }
            Hopper::ClusterArrive { release, aligned } => {
                self.cluster_arrive(machine, common, (*release, *aligned), pc, active)?;
            }
            Hopper::ClusterWait { aligned } => {
                return self.cluster_wait(machine, common, *aligned, index, pc, active);
            }
            Hopper::Copy(copy) => self.bulk_copy(machine, common, i, copy, pc, active)?,
            Hopper::Commit => self.bulk_commit(common, active),
            Hopper::WaitGroup(groups, read) => {
                self.bulk_wait(machine, common, (*groups, *read), active)?;
            }
            Hopper::ProductFence
            | Hopper::ProductCommit
            | Hopper::ProductWait(_)
            | Hopper::Product(_)
            | Hopper::SetRegisters(..) => {
                self.whole_warp(machine, common, pc, mask, active)?;
                match hopper {
                    Hopper::ProductFence => self.product_fence(),
                    Hopper::ProductCommit => self.product_commit(common),
                    Hopper::ProductWait(groups) => {
                        self.product_wait(machine, common, *groups)?;
                    }
                    Hopper::Product(product) => self.product(machine, common, i, product, pc)?,
                    Hopper::SetRegisters(increase, count) => {
                        let change = (*increase, *count);
                        return self.set_registers(machine, common, change, index, pc);
                    }
                    _ => unreachable!("these are the instructions of the outer arm"),
                }
            }
        }
        Ok(Next::On)
    }

    /// A split cannot go on; it tries the instruction again once something has happened.
    fn poll(&mut self, common: &mut Common, index: usize) -> Next {
        self.splits.set_state(index, State::Poll);
        common.hopper.polls += 1;
        Next::Choose
    }

    /// Checks that all 32 lanes execute the instruction together.
    fn whole_warp(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        pc: u32,
        mask: u32,
        active: u32,
    ) -> Result<()> {
        let full = super::warp::FULL;
        if self.live == full && active == full {
            return Ok(());
        }
        let message = format!(
            "the whole warp executes this together, and only lanes {active:#010x} do \
             ({mask:#010x} before the guard, {:#010x} have not exited)",
            self.live
        );
        Err(self.fault(machine, common, FaultKind::WarpgroupDivergence, message, pc, active))
    }

    /// The rank and offset of an address of the cluster's shared memory.
    fn locate(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        address: u64,
        place: Place,
        pc: u32,
        lane: usize,
    ) -> Result<(u32, u32)> {
        let mut found = address;
        if place.generic {
            match super::address::from_generic(address) {
                (crate::Space::Shared, inside) => found = inside,
                _ => {
                    let message = "the address is not in shared memory".to_owned();
                    let kind = FaultKind::OutOfBounds(crate::Space::Shared);
                    return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
                }
            }
        }
        let cluster = &common.hopper.cluster;
        let (rank, offset) = split_address(found);
        let rank = rank.unwrap_or(cluster.rank);
        if rank >= cluster.size() {
            let size = cluster.size();
            let message = format!("the address is in block {rank} of a cluster of {size}");
            let kind = FaultKind::OutOfBounds(crate::Space::Shared);
            return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
        }
        if rank != cluster.rank && !place.cluster {
            let message = "the address is in another block, and the instruction accesses its own \
                           block's shared memory"
                .to_owned();
            let kind = FaultKind::OutOfBounds(crate::Space::Shared);
            return Err(self.fault_at(machine, common, kind, message, pc, lane, address));
        }
        Ok((rank, offset))
    }

    /// The state of an access to shared memory that is in use by an operation or a barrier.
    pub(super) fn check_shared_state(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        (at, bytes): (usize, usize),
        does: Does,
        pc: u32,
        lane: usize,
    ) -> Result<()> {
        let state = &common.shared.state[at..at + bytes];
        let hopper = &common.shared.hopper;
        let groups = at / GROUP..(at + bytes).div_ceil(GROUP);
        let busy = does.writes
            && hopper.reading > 0
            && hopper.readers[groups].iter().any(|&readers| readers > 0);
        let (kind, message) = if state.iter().any(|&byte| byte & COPIED != 0) {
            let message = "a bulk copy is still to write these bytes; its barrier's phase has not \
                           completed";
            (FaultKind::AsyncCopyNotAwaited, message)
        } else if state.iter().any(|&byte| byte & BARRIER != 0) {
            (FaultKind::InvalidBarrier, "an access to the bytes of a barrier")
        } else if busy {
            let message = "an asynchronous operation is still to read these bytes";
            (FaultKind::SourceInUse, message)
        } else {
            return Ok(());
        };
        let address = at as u64;
        Err(self.fault_at(machine, common, kind, message.to_owned(), pc, lane, address))
    }

    /// Bytes were written through the generic proxy: they have no swizzle.
    pub(super) fn forget_layout(common: &mut Common, at: usize, bytes: usize) {
        let groups = at / GROUP..(at + bytes).div_ceil(GROUP);
        common.shared.hopper.layouts[groups].fill(0);
    }

    /// Access to shared memory of another block. The two blocks' memories change places until
    /// [`Warp::leave`]; the result is the offset there.
    pub(super) fn visit(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        (address, cluster): (u64, bool),
        does: Does,
        pc: u32,
        lane: usize,
    ) -> Result<(u64, Option<u32>)> {
        if address >> RANK_SHIFT == 0 {
            return Ok((address, None));
        }
        let place = Place { offset: 0, generic: false, cluster };
        let (rank, offset) = self.locate(machine, common, address, place, pc, lane)?;
        if rank == common.hopper.cluster.rank {
            return Ok((offset.into(), None));
        }
        self.note_visit(machine, common, rank, does == WRITE, pc, lane)?;
        common.exchange(rank);
        Ok((offset.into(), Some(rank)))
    }

    /// Ends a visit.
    pub(super) fn leave(common: &mut Common, visited: Option<u32>) {
        if let Some(rank) = visited {
            common.exchange(rank);
        }
    }
}

/// The rank in an address of shared memory, if it has one, and the offset.
fn split_address(address: u64) -> (Option<u32>, u32) {
    let offset = address as u32 & ((1 << RANK_SHIFT) - 1);
    let rank = u32::try_from(address >> RANK_SHIFT).unwrap_or(u32::MAX);
    (rank.checked_sub(1), offset)
}

/// A number that depends on a seed and two counters: Steele's SplitMix64.
fn hash(seed: u64, a: u64, b: u64) -> u64 {
    let mut z = seed
        .wrapping_add(a.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(b.wrapping_mul(0xd1b5_4a32_d192_ed03));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
