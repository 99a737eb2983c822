//! Banks of shared memory: from the lanes' addresses of a request to passes.

use super::coalesce::part_lanes;
use crate::semantics::rows::WARP;

const BANKS: u64 = 32;

/// The passes that a request takes, and the least number for its active lanes and width.
///
/// `address` gives the address of an active lane, which accesses `bytes` bytes. `exclusive` says
/// that lanes do not share a word: they are atomic operations.
pub(super) fn wavefronts(
    mask: u32,
    bytes: u32,
    exclusive: bool,
    address: impl Fn(usize) -> u64,
) -> (u64, u64) {
    let (mut passes, mut least) = (0, 0);
    let lanes = part_lanes(bytes);
    let mut words: Vec<u64> = Vec::new();
    for first in (0..WARP).step_by(lanes) {
        words.clear();
        let mut banks = [0u64; BANKS as usize];
        let mut last = [0u64; BANKS as usize];
        for lane in (first..first + lanes).filter(|lane| mask >> lane & 1 == 1) {
            let start = address(lane);
            for word in start / 4..(start + u64::from(bytes)).div_ceil(4) {
                let bank = (word % BANKS) as usize;
                // Only a bank that is in use can have the word; mostly it is its last one.
                let in_use = !exclusive && banks[bank] > 0;
                if in_use && (last[bank] == word || words.contains(&word)) {
                    continue;
                }
                words.push(word);
                last[bank] = word;
                banks[bank] += 1;
            }
        }
        let busiest = banks.into_iter().max().unwrap_or(0);
        passes += busiest;
        least += u64::from(busiest > 0);
    }
    (passes, least)
}
