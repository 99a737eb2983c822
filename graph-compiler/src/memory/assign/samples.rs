//! Problems for tests.

use super::problem::{Buffer, Problem};

/// A problem of buffers `(lower, upper, size)`.
pub(super) fn problem(rows: &[(u64, u64, u64)]) -> Problem {
    let buffers = rows.iter().map(|(lower, upper, size)| Buffer::new(*lower, *upper, *size));
    Problem { buffers: buffers.collect() }
}

/// A tower of the given height, cut at random: there is a solution without a gap.
pub(super) fn planted(seed: u64, cuts: usize) -> (Problem, u64) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below.max(1)
    };
    // Rectangles (lower, upper, from, to) that tile the whole.
    let mut tiles = vec![(0u64, 1 << 16, 0u64, 1 << 16)];
    for _ in 0..cuts {
        let n = random(tiles.len() as u64) as usize;
        let (lower, upper, from, to) = tiles[n];
        if random(2) == 0 && upper - lower > 1 {
            let at = lower + 1 + random(upper - lower - 1);
            tiles[n] = (lower, at, from, to);
            tiles.push((at, upper, from, to));
        } else if to - from > 1 {
            let at = from + 1 + random(to - from - 1);
            tiles[n] = (lower, upper, from, at);
            tiles.push((lower, upper, at, to));
        }
    }
    (problem(&tiles.iter().map(|(l, u, f, t)| (*l, *u, t - f)).collect::<Vec<_>>()), 1 << 16)
}
