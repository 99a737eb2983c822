//! Instructions of Hopper: barriers in shared memory, bulk copies, products of a warpgroup,
//! clusters of blocks.
//!
//! The types are here. [`barrier`] decodes barriers, fences and clusters, [`bulk`] decodes copies
//! and [`product`] decodes `wgmma`.
//!
//! Each instruction needs a minimum target, which is checked when the text is read. `wgmma` and
//! `setmaxnreg` exist for `sm_90a` only: their machine code runs on no other architecture (PTX
//! ISA, "Target ISA Notes" of the two).

mod barrier;
mod bulk;
mod product;

use super::program::{AtomicOperation, Element};
use super::{Builder, Result};
use crate::parse::syntax;

/// An instruction of Hopper. Its addresses and other operands are inputs of the instruction, in
/// the order of the text.
#[derive(Clone, Debug)]
pub(crate) enum Hopper {
    /// `mbarrier.init`: address, count.
    Init(Place),
    /// `mbarrier.inval`: address.
    Invalidate(Place),
    /// `mbarrier.arrive`, `mbarrier.arrive_drop`: address, then a count or bytes.
    Arrive(Place, Arrival),
    /// `mbarrier.expect_tx` (true) and `mbarrier.complete_tx`: address, bytes.
    Transactions(Place, bool),
    /// `mbarrier.test_wait`, `mbarrier.try_wait`: address, then a state or a parity.
    Wait {
        place: Place,
        parity: bool,
    },
    /// `mbarrier.pending_count`: state.
    PendingCount,
    /// `cp.async.mbarrier.arrive`: address. With `.noinc` the arrival is part of the count that the
    /// barrier was initialised with.
    CopyArrive(Place, bool),
    /// `fence.proxy.async`
    ProxyFence {
        shared: bool,
        global: bool,
    },
    /// `fence.mbarrier_init.release.cluster`
    InitFence,
    /// `mapa`: address in this block, rank of the other.
    Map {
        generic: bool,
    },
    /// `getctarank`: address.
    RankOf {
        generic: bool,
    },
    /// `barrier.cluster.arrive`
    ClusterArrive {
        release: bool,
        aligned: bool,
    },
    /// `barrier.cluster.wait`
    ClusterWait {
        aligned: bool,
    },
    Copy(Copy),
    /// `cp.async.bulk.commit_group`
    Commit,
    /// `cp.async.bulk.wait_group`: all but this many groups; whether only their reads.
    WaitGroup(u32, bool),
    /// `wgmma.fence`
    ProductFence,
    /// `wgmma.commit_group`
    ProductCommit,
    /// `wgmma.wait_group`
    ProductWait(u32),
    Product(Product),
    /// `setmaxnreg`: whether it increases, and the registers of a thread.
    SetRegisters(bool, u32),
}

/// The form of an address: offset from the operand, and whether it is generic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) offset: i64,
    pub(crate) generic: bool,
    /// `.shared::cluster`: it may lie in another block of the cluster.
    pub(crate) cluster: bool,
}

/// The form of an arrival at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    /// The thread leaves the barrier: later phases expect one arrival less.
    pub(crate) drop: bool,
    /// `.noComplete`: the arrival must not complete the phase.
    pub(crate) no_complete: bool,
    /// `.expect_tx`: the operand is a number of bytes.
    pub(crate) expects: bool,
    /// It has an operand: bytes, or a count of arrivals.
    pub(crate) counted: bool,
}

/// Direction of a bulk copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Global to shared memory of the cluster.
    Load,
    /// Shared memory of the block to global.
    Store,
    /// Shared memory of the block to shared memory of the cluster.
    Share,
}

/// A bulk copy. Inputs: destination, source, size, barrier, mask of blocks, as far as it has them.
/// A tensor's map stands for its global address, followed by the coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) direction: Direction,
    /// Number of coordinates; 0 for a copy of consecutive bytes.
    pub(crate) rank: usize,
    pub(crate) to: Place,
    pub(crate) from: Place,
    pub(crate) barrier: Place,
    pub(crate) multicast: bool,
    /// `cp.reduce`: what is done with the bytes at the destination, and bytes of an element.
    pub(crate) reduce: Option<(AtomicOperation, u32)>,
}

/// A `wgmma.mma_async`. Outputs: the registers of D. Inputs: the registers of A, or its descriptor;
/// the descriptor of B; the predicate that says whether D is added to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Element,
    pub(crate) b: Element,
    pub(crate) d: Element,
    pub(crate) a_in_registers: bool,
    pub(crate) a_transposed: bool,
    pub(crate) b_transposed: bool,
    pub(crate) a_negated: bool,
    pub(crate) b_negated: bool,
    pub(crate) saturate: bool,
}

impl Product {
    /// Registers of A in a thread, if it is in registers.
    pub(crate) const A_REGISTERS: usize = 4;
}

/// The target that an instruction needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// This compute capability or a later one.
    AtLeast(u32),
    /// `sm_90a` exactly.
    Hopper,
}

impl<'a> Builder<'a> {
    /// An error if the module's target lacks the instruction.
    fn needs(&self, i: &syntax::Instruction, what: &str, needs: Needs) -> Result<()> {
        let target = self.tree.target.as_str();
        let digits: String =
            target.trim_start_matches("sm_").chars().take_while(char::is_ascii_digit).collect();
        let level: u32 = digits.parse().unwrap_or(0);
        match needs {
            Needs::AtLeast(least) if level < least => self
                .error(i, format!("`{what}` needs `.target sm_{least}`, and this is `{target}`")),
            Needs::Hopper if target != "sm_90a" => {
                self.error(i, format!("`{what}` needs `.target sm_90a`, and this is `{target}`"))
            }
            _ => Ok(()),
        }
    }
}
