//! Counts of what a launch does: instructions, accesses, and traffic between the levels of memory.
//!
//! The emulator executes every instruction of every warp, so it can count what a profiler reads
//! from the counters of a GPU. [`Options::count`](crate::Options::count) asks for it, and
//! [`Statistics::counts`](crate::Statistics::counts) has the result. Nothing is timed here: a
//! model of a machine takes the counts and predicts a time.
//!
//! # Terms
//!
//! They are those of NVIDIA's *Nsight Compute, Kernel Profiling Guide*, section "Metrics Decoder",
//! unless another source is named.
//!
//! - **Instruction issue.** A warp issues an instruction once for all lanes that share a program
//!   counter. [`LineCounts::reached`] counts issues. [`LineCounts::issued`] omits those whose
//!   guard holds in no lane. [`LineCounts::lanes`] sums the lanes whose guard holds.
//! - **Request.** One access of a warp to one space, whatever the number of its lanes.
//! - **Sector.** 32 aligned bytes ([`SECTOR`]). Global memory moves in sectors.
//! - **Line.** 128 aligned bytes ([`LINE`]), four sectors. A tag of a cache names a line, and each
//!   sector of the line is valid or not.
//! - **Wavefront.** A pass over the banks of shared memory. Passes of a request follow each other.
//!
//! # Coalescing
//!
//! The lanes' addresses of a request become sectors. If a lane accesses more than 4 bytes, the
//! request is divided first, so that each part asks for at most 128 bytes: half-warps for 8
//! bytes, quarter-warps for 16 (*CUDA C++ Programming Guide*, "Compute Capability 3.x", section
//! "Global Memory"). Within a part each sector counts once, however many lanes use it. A warp that
//! reads 32 neighbouring floats uses 4 sectors; the same shifted by one float uses 5; one that
//! reads 16 bytes a lane uses 16.
//!
//! A bulk copy counts as requests of 32 parts of 16 bytes, of one lane's instruction. They bypass
//! L1. Its passes over shared memory are not counted: they are as many as it has lines.
//!
//! Local memory interleaves the lanes: a word of 4 bytes at the same address in all lanes fills
//! one line (same guide, "Device Memory Accesses", section "Local Memory").
//!
//! # Banks
//!
//! Shared memory has 32 banks. Successive words of 4 bytes lie in successive banks, and a bank
//! gives one word in a pass. Lanes that access bytes of one word share it (same guide, "Compute
//! Capability 5.x", section "Shared Memory"). So a request takes as many passes as its busiest
//! bank has words. The guide does not describe wider accesses. They are divided here as requests
//! of global memory are; `ldmatrix` and `stmatrix` make one part of the eight rows of each matrix.
//! Lanes of an atomic that meet in one word take one pass each, since each reads the result of
//! the lane before.
//!
//! # Caches
//!
//! [`Caches`] describes the machine. Each multiprocessor has an L1 cache, which serves loads.
//! Stores and atomics go on to the L2 cache, which all multiprocessors share. L1 is write-through
//! and allocates no line for a store. L2 is write-back: a line is written to DRAM when another
//! takes its place, or at the end of the launch. Both are set-associative, replace the line that
//! was used least recently, and fetch only the sectors that are asked for.
//!
//! Both caches are empty when a launch begins. That is what Nsight Compute measures by default
//! (option `--cache-control all`), and not what a sequence of launches sees that pass small
//! buffers on through L2.
//!
//! # Order of requests
//!
//! The content of a cache depends on the order of requests, and a GPU runs many blocks at a time.
//! Blocks are placed in order of their index. The first [`Caches::resident`] blocks of every
//! multiprocessor form a **wave**; block `n` of a wave runs on multiprocessor `n` modulo their
//! number. The blocks of a wave take turns, one request each. Within a block the warps take
//! turns likewise, but no warp passes a barrier before the others have made their requests up to
//! it. The next wave begins when the last block of a wave has ended.
//!
//! The result does not depend on the number of CPU threads, unless the kernel has a data race.
//! Where blocks can observe each other without one, by an atomic that returns a value or by an
//! ordered load, a single CPU thread runs all blocks, so that they observe the same in every run.
//!
//! # Samples
//!
//! [`Sample::Blocks`] runs some waves only, at even distances in the grid. The other blocks do not
//! run: memory is incomplete afterwards, and blocks that wait for others would wait for ever.
//! Checks of later launches for uninitialised bytes or labels have to be off
//! ([`Sanitize::NONE`](crate::Sanitize::NONE)).
//!
//! # Limits
//!
//! - Instructions are those of the text. ptxas may unroll, merge, move or drop them.
//! - Lanes reconverge at the immediate post-dominator of a branch, or earlier where they meet.
//!   Hardware may do otherwise.
//! - Hints to evict early or late, prefetches, and fetches of neighbouring sectors into L2 are
//!   ignored. So is the division of L2 into partitions.
//! - Two half-warps that read the same words of shared memory are not merged. Some devices merge
//!   them.
//! - A sector that is only partly written is not filled from DRAM, neither when it is written nor
//!   when it leaves L2. A later load fetches it.
//! - Local memory and constants do not pass the model of caches.
//! - `wmma.load` and `wmma.store` count as one request for each element of a fragment.

mod banks;
mod cache;
mod coalesce;
mod collect;
mod counts;
mod hierarchy;
mod tally;
mod trace;
mod waves;

pub(crate) use collect::Collector;
pub use counts::{
    AtomicAccess, ConstantAccess, Counts, GlobalAccess, LineCounts, LocalAccess, SharedAccess,
    Traffic,
};
pub(crate) use tally::{Kind, Tally};
pub(crate) use waves::Waves;

/// Bytes of a sector.
pub const SECTOR: u64 = 32;
/// Bytes of a line of the L1 and L2 caches.
pub const LINE: u64 = 128;

/// A request for counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Counting {
    /// The machine's caches.
    pub caches: Caches,
    /// The blocks that run.
    pub sample: Sample,
}

/// The blocks of a grid that run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sample {
    /// All of them.
    #[default]
    All,
    /// At least this many, in the fewest whole waves, at even distances in the grid; all, if the
    /// grid has no more. The module's documentation says what a sample leaves undone.
    Blocks(u64),
}

/// The figures of a machine that the model of caches needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Caches {
    /// Bytes of L1 of a multiprocessor that the blocks' shared memory leaves; less than a line
    /// means none.
    pub l1: u64,
    /// Bytes of L2 of the device.
    pub l2: u64,
    /// Lines of a set, in both caches; at least 1.
    pub ways: u32,
    /// Multiprocessors of the device; at least 1.
    pub multiprocessors: u32,
    /// Blocks of the launch that a multiprocessor runs at a time; at least 1.
    pub resident: u32,
}

impl Caches {
    /// Checks the figures.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Caches { l1, l2, ways, multiprocessors, resident } = *self;
        if ways == 0 || multiprocessors == 0 || resident == 0 {
            return Err(format!(
                "a machine with {ways} lines in a set of its caches, {multiprocessors} \
                 multiprocessors and {resident} blocks on each; none of them can be 0"
            ));
        }
        let set = u64::from(ways) * LINE;
        let l1_total = l1.saturating_mul(multiprocessors.into());
        if l2 < set || (LINE..set).contains(&l1) || l1_total.max(l2) > MOST_CACHE {
            return Err(format!(
                "caches of {l1} and {l2} bytes with sets of {set} bytes; both have at least one \
                 set, and all of a level have at most {MOST_CACHE} bytes"
            ));
        }
        Ok(())
    }

    /// Blocks of a wave.
    pub(crate) fn wave(&self) -> u32 {
        self.multiprocessors.saturating_mul(self.resident)
    }
}

/// Most bytes of the caches of a level, a bound of the model's own memory.
const MOST_CACHE: u64 = 1 << 30;
