//! Number of blocks of a kernel that are resident on a multiprocessor.

use crate::card::Limits;

/// Threads of a warp.
pub const WARP: u32 = 32;

/// The resource that limits the number of resident blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
    /// Threads that a multiprocessor holds.
    Threads,
    /// Blocks that a multiprocessor holds.
    Blocks,
}

/// Blocks and warps that are resident on a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Thread blocks; at least 1.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// Most warps that a multiprocessor can hold.
    pub of: u32,
    /// The limiting resource.
    pub limit: Limit,
}

impl Occupancy {
    /// Resident warps per hundred.
    pub fn percent(&self) -> u32 {
        self.warps * 100 / self.of
    }
}

/// Shared memory that the system reserves per block, since compute capability 8.0.
const RESERVED_SHARED: u32 = 1024;

/// The occupancy of a kernel with these threads per block, registers per thread and bytes of
/// shared memory per block; `None` if one block does not fit.
///
/// Source: the occupancy calculator of Nsight Compute, for compute capabilities 8.x and later.
/// Registers are allocated per warp in units of 256, for four warps at a time. Shared memory is
/// allocated per block in units of 128 bytes, with 1 KiB for the system.
pub fn occupancy(limits: &Limits, threads: u32, registers: u32, shared: u32) -> Option<Occupancy> {
    if threads == 0 || threads > limits.threads_per_block || shared > limits.shared_per_block {
        return None;
    }
    let warps = threads.div_ceil(WARP);
    let per_warp = (registers.max(1) * WARP).next_multiple_of(256);
    let with_registers = limits.registers / per_warp / 4 * 4;
    let choices = [
        (with_registers / warps, Limit::Registers),
        (limits.shared / (shared + RESERVED_SHARED).next_multiple_of(128), Limit::Shared),
        (limits.threads / WARP / warps, Limit::Threads),
        (limits.blocks, Limit::Blocks),
    ];
    let (blocks, limit) =
        choices.into_iter().min_by_key(|(blocks, _)| *blocks).expect("there are four");
    (blocks > 0).then_some(Occupancy {
        blocks,
        warps: blocks * warps,
        of: limits.threads / WARP,
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Architecture;

    fn on(number: u32, threads: u32, registers: u32, shared: u32) -> Option<(u32, u32, Limit)> {
        let limits = &Architecture::from_number(number).unwrap().limits;
        occupancy(limits, threads, registers, shared).map(|o| (o.blocks, o.percent(), o.limit))
    }

    #[test]
    fn known_cases() {
        // 32 registers · 2048 threads are exactly the registers of a multiprocessor.
        assert_eq!(on(80, 256, 32, 0), Some((8, 100, Limit::Registers)));
        assert_eq!(on(80, 256, 33, 0), Some((6, 75, Limit::Registers)));
        assert_eq!(on(86, 256, 32, 0), Some((6, 100, Limit::Threads)));
        assert_eq!(on(90, 32, 16, 0), Some((32, 50, Limit::Blocks)));
        assert_eq!(on(90, 128, 255, 0), Some((2, 12, Limit::Registers)));
        // 49 + 1 KiB: four blocks of the 228.
        assert_eq!(on(90, 128, 32, 49 << 10), Some((4, 25, Limit::Shared)));
        assert_eq!(on(80, 1024, 64, 0), Some((1, 50, Limit::Registers)));
    }

    #[test]
    fn what_does_not_fit() {
        assert_eq!(on(80, 1025, 16, 0), None);
        assert_eq!(on(80, 1024, 72, 0), None);
        assert_eq!(on(86, 128, 16, 100 << 10), None);
        assert!(on(80, 128, 16, 100 << 10).is_some());
    }
}
