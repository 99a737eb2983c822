//! Samples of a launch: which blocks the emulator runs and counts for a card.

use crate::card::Card;
use crate::occupancy::Occupancy;
use wengert_emulator::count::{Caches, Counting, LINE, Sample};

/// Lines of a set of the caches. NVIDIA does not publish it.
const WAYS: u32 = 16;

/// Counts of whole waves of resident blocks, at least `least` blocks. `shared` is the shared
/// memory of a block: what all resident blocks leave is L1.
pub fn waves(card: &Card, resident: Occupancy, shared: u32, least: u64) -> Counting {
    let few = blocks(card, resident, shared, least);
    let caches = Caches {
        multiprocessors: card.multiprocessors.value as u32,
        resident: resident.blocks,
        ..few.caches
    };
    Counting { caches, ..few }
}

/// Counts of just so many blocks, one after the other. What they count is that of all blocks, but
/// the traffic with L2 and device memory is that of a few blocks alone.
pub fn blocks(card: &Card, resident: Occupancy, shared: u32, number: u64) -> Counting {
    let used = resident.blocks.saturating_mul(shared);
    let l1 = u64::from(card.architecture.l1_and_shared.saturating_sub(used));
    let set = u64::from(WAYS) * LINE;
    Counting {
        caches: Caches {
            l1: if l1 < set { 0 } else { l1 },
            l2: card.l2_bytes.value as u64,
            ways: WAYS,
            multiprocessors: 1,
            resident: 1,
        },
        sample: Sample::Blocks(number),
    }
}
