//! The counts of a launch.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// What a launch did, counted by instruction. Counts are of warps unless they say otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// By line of the PTX text, from 1. Lines that no warp reached are absent.
    pub lines: BTreeMap<u32, LineCounts>,
    /// Blocks of the grid.
    pub grid: u64,
    /// Blocks that ran: fewer than `grid` if a sample was asked for.
    pub blocks: u64,
    /// Warps of the blocks that ran.
    pub warps: u64,
    /// Traffic by the model of caches, of the blocks that ran.
    pub traffic: Traffic,
}

impl Counts {
    /// The factor from the blocks that ran to the grid. Counts of lines scale by it if the blocks
    /// do alike. Traffic does so only where blocks share no data: what all of them read is fetched
    /// by the first of them.
    pub fn scale(&self) -> f64 {
        self.grid as f64 / self.blocks as f64
    }

    /// The sum over all lines.
    pub fn total(&self) -> LineCounts {
        let mut total = LineCounts::default();
        for line in self.lines.values() {
            total += *line;
        }
        total
    }
}

/// Declares a record of counts, and the sums of two.
macro_rules! record {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $ty,)*
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

record!(
    /// Counts of the instructions of a line.
    LineCounts {
        /// Warp instructions issued with at least one active lane whose guard holds.
        issued: u64,
        /// Warp instructions issued, whether the guard holds in a lane or not.
        reached: u64,
        /// Active lanes whose guard holds, in all of these.
        lanes: u64,
        /// Branches: warps whose lanes went different ways.
        diverged: u64,
        /// Loads and stores of global memory, the sources of asynchronous copies, and bulk copies.
        global: GlobalAccess,
        /// Accesses to shared memory, with atomics, matrices and the targets of asynchronous
        /// copies.
        shared: SharedAccess,
        /// Atomic operations on global memory.
        atomics: AtomicAccess,
        /// Accesses to local memory. Parameters of calls are not among them.
        local: LocalAccess,
        /// Loads of constants (`ld.const`).
        constants: ConstantAccess,
    }
);

record!(
    /// Accesses to global memory.
    GlobalAccess {
        /// Requests.
        requests: u64,
        /// Sectors of 32 bytes.
        sectors: u64,
        /// Bytes asked for by lanes; bytes that several lanes ask for count for each.
        bytes: u64,
    }
);

record!(
    /// Accesses to shared memory.
    SharedAccess {
        /// Requests.
        requests: u64,
        /// Passes over the banks.
        wavefronts: u64,
        /// Bytes asked for by lanes.
        bytes: u64,
        /// Passes that the same lanes need without conflicts. `wavefronts - least` is the price
        /// of bank conflicts.
        least: u64,
    }
);

record!(
    /// Atomic operations on global memory.
    AtomicAccess {
        /// Requests.
        requests: u64,
        /// Sectors of 32 bytes.
        sectors: u64,
    }
);

record!(
    /// Accesses to local memory.
    LocalAccess {
        /// Requests.
        requests: u64,
        /// Sectors of 32 bytes, by the interleaved layout.
        sectors: u64,
        /// Bytes asked for by lanes.
        bytes: u64,
    }
);

record!(
    /// Loads of constants.
    ConstantAccess {
        /// Requests.
        requests: u64,
        /// Different addresses of the requests. The constant cache serves one at a time (*CUDA
        /// C++ Programming Guide*, "Device Memory Accesses", section "Constant Memory").
        addresses: u64,
    }
);

record!(
    /// Traffic between the levels of memory.
    Traffic {
        /// Sectors that loads look up in L1. Loads that bypass L1 are not among them.
        l1_sectors: u64,
        /// Those that L1 has.
        l1_hits: u64,
        /// Bytes that L2 gives to multiprocessors, in sectors.
        l2_read: u64,
        /// Bytes that multiprocessors store to L2, in sectors.
        l2_write: u64,
        /// Bytes that atomic operations touch in L2, in sectors.
        l2_atomic: u64,
        /// Bytes that L2 reads from DRAM.
        dram_read: u64,
        /// Those of `dram_read` whose sector no earlier access of the launch touched.
        compulsory: u64,
        /// Bytes that L2 writes to DRAM, those in L2 at the end of the launch included.
        dram_write: u64,
        /// Those of `dram_write` that are still in L2 at the end of the launch.
        dirty: u64,
    }
);
