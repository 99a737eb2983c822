//! Coalescing: from the lanes' addresses of a request to sectors.

use super::{LINE, SECTOR};
use crate::semantics::rows::WARP;

/// Lanes of the parts that a request is divided into: as many as ask for 128 bytes, at `bytes` a
/// lane.
pub(super) fn part_lanes(bytes: u32) -> usize {
    (LINE as usize / bytes.max(4) as usize).clamp(1, WARP)
}

/// Sectors of one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sectors {
    /// Address of the line divided by its size.
    pub(crate) line: u64,
    /// The sectors that are touched: bit 0 for the first of the line.
    pub(crate) touched: u8,
    /// Those whose bytes are all touched.
    pub(crate) whole: u8,
}

/// The bytes of a line that are touched: one bit for each.
struct Touched {
    line: u64,
    bytes: [u32; 4],
}

/// The sectors that a request touches: for each part of the request, its lines in order of the
/// first lane that touches them.
///
/// `spans` gives the address and the number of bytes of an active lane; `bytes` is the width of
/// the access, which a lane of an asynchronous copy may use in part.
pub(super) fn sectors(mask: u32, bytes: u32, spans: impl Fn(usize) -> (u64, u32)) -> Vec<Sectors> {
    let mut result = Vec::new();
    let mut lines: Vec<Touched> = Vec::new();
    let lanes = part_lanes(bytes);
    for first in (0..WARP).step_by(lanes) {
        lines.clear();
        for lane in (first..first + lanes).filter(|lane| mask >> lane & 1 == 1) {
            let (start, size) = spans(lane);
            let end = start + u64::from(size);
            let mut at = start;
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                let line = at / LINE;
                // Neighbouring lanes mostly touch the same line, so the last is found first.
                let found = match lines.iter().rposition(|touched| touched.line == line) {
                    Some(found) => found,
                    None => {
                        lines.push(Touched { line, bytes: [0; 4] });
                        lines.len() - 1
                    }
                };
                let ones = ((1u64 << (next - at)) - 1) as u32;
                lines[found].bytes[(at % LINE / SECTOR) as usize] |= ones << (at % SECTOR);
                at = next;
            }
        }
        for touched in &lines {
            let bits = |holds: fn(u32) -> bool| {
                (0..4).fold(0, |bits, n| bits | u8::from(holds(touched.bytes[n])) << n)
            };
            result.push(Sectors {
                line: touched.line,
                touched: bits(|bytes| bytes != 0),
                whole: bits(|bytes| bytes == u32::MAX),
            });
        }
    }
    result
}

/// The number of sectors of an access to local memory, whose words of 4 bytes are interleaved by
/// lane. `address` gives the address of an active lane.
pub(super) fn local_sectors(mask: u32, bytes: u32, address: impl Fn(usize) -> u64) -> u64 {
    let mut found: Vec<(u64, usize)> = Vec::new();
    for lane in (0..WARP).filter(|lane| mask >> lane & 1 == 1) {
        let start = address(lane);
        for word in start / 4..(start + u64::from(bytes)).div_ceil(4) {
            // 8 lanes' copies of a word fill a sector.
            let sector = (word, lane / 8);
            if !found.contains(&sector) {
                found.push(sector);
            }
        }
    }
    found.len() as u64
}
