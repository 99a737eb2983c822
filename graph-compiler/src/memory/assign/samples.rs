//! Problems for tests.

use super::problem::{Buffer, Problem, Solution};

/// A problem of buffers `(lower, upper, size)`.
pub(super) fn problem(rows: &[(u64, u64, u64)]) -> Problem {
    let buffers = rows.iter().map(|(lower, upper, size)| Buffer::new(*lower, *upper, *size));
    Problem { buffers: buffers.collect() }
}

/// A tower of known height, cut at random: there is a solution without a gap.
pub(super) fn planted(seed: u64, cuts: usize) -> (Problem, u64) {
    let mut random = numbers(seed);
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

/// A tower cut like `planted`, with some cuts into five around a middle: there no cut goes from
/// edge to edge.
pub(super) fn wound(seed: u64, cuts: usize) -> (Problem, u64) {
    let mut random = numbers(seed);
    let mut tiles = vec![(0u64, 1 << 20, 0u64, 1 << 20)];
    for _ in 0..cuts {
        let n = random(tiles.len() as u64) as usize;
        let (lower, upper, from, to) = tiles[n];
        let way = random(3);
        if upper - lower < 8 || to - from < 8 {
            continue;
        }
        let mut two = |from: u64, to: u64| {
            let a = from + 1 + random((to - from) / 2 - 1);
            (a, a + 1 + random(to - a - 2))
        };
        let ((t, u), (a, b)) = (two(lower, upper), two(from, to));
        match way {
            0 => {
                tiles[n] = (lower, t, from, to);
                tiles.push((t, upper, from, to));
            }
            1 => {
                tiles[n] = (lower, upper, from, a);
                tiles.push((lower, upper, a, to));
            }
            _ => {
                tiles[n] = (lower, t, from, b);
                let others =
                    [(lower, u, b, to), (u, upper, a, to), (t, upper, from, a), (t, u, a, b)];
                tiles.extend(others);
            }
        }
    }
    (problem(&tiles.iter().map(|(l, u, f, t)| (*l, *u, t - f)).collect::<Vec<_>>()), 1 << 20)
}

/// The buffers of a training step, about `layers` times 36: activations that are written forwards
/// and read backwards, last in, first out; short-lived buffers in each layer; and, if
/// `accumulated`, gradients that are live from their layer to the end. Sizes are of a few
/// classes. `jitter` is the deviation of sizes and live ranges in percent.
pub(super) fn training(seed: u64, layers: u64, accumulated: bool, jitter: u64) -> Problem {
    let mut random = numbers(seed);
    let mut problem = Problem::default();
    let (forwards, backwards) = (16, 32);
    let middle = layers * forwards + 8;
    let end = middle + layers * backwards + 8;
    let width = 4096 << random(3);
    let mut push = |lower: u64, upper: u64, size: u64, random: &mut dyn FnMut(u64) -> u64| {
        let mut off = |n: u64| (n * (100 - jitter + random(2 * jitter + 1)) / 100).max(1);
        let upper = (lower + off(upper - lower)).min(end);
        if lower < upper {
            problem.push(Buffer::new(lower, upper, off(size)));
        }
    };
    // The loss, where the load is greatest.
    for n in 0..5 * (seed % 2) {
        push(middle - 8 + 3 * n, middle - 2 + 3 * n, width * layers / 8 * (1 + n % 3), &mut random);
    }
    for layer in 0..layers {
        let (first, back) = (layer * forwards, middle + (layers - 1 - layer) * backwards);
        for n in 0..10 {
            let made = first + random(forwards);
            let read = back + random(backwards);
            push(made, read + 1, width * [1, 1, 1, 3, 4, 4, 1, 2, 1, 1][n], &mut random);
        }
        for _ in 0..8 {
            let made = first + random(forwards);
            let factor = [1, 3, 4, 12][random(4) as usize];
            push(made, made + 1 + random(4), width * factor, &mut random);
        }
        for _ in 0..14 {
            let made = back + random(backwards);
            let factor = [1, 3, 4, 12][random(4) as usize];
            push(made, made + 1 + random(5), width * factor, &mut random);
        }
        for n in 0..4 {
            let made = back + random(backwards);
            let until = if accumulated { end } else { made + 6 };
            push(made, until, width / 2 * [1, 3, 4, 4][n], &mut random);
        }
    }
    problem
}

/// Copies of a training step with different sizes and live ranges. Each begins at a random time
/// before the first one ends.
pub(super) fn laid_over(seed: u64, copies: u64, layers: u64, jitter: u64) -> Problem {
    let mut random = numbers(seed);
    let mut problem = Problem::default();
    for copy in 0..copies {
        let step = training(seed + 2 * copy, layers, seed.is_multiple_of(2), jitter);
        let end = step.buffers.iter().map(|b| b.upper).max().unwrap_or(0);
        let begin = random(end);
        for b in step.buffers {
            problem.push(Buffer { lower: begin + b.lower, upper: begin + b.upper, ..b });
        }
    }
    problem
}

/// Whether no two buffers that are live at one moment share a byte. Checks every pair.
pub(super) fn is_solved(problem: &Problem, solution: &Solution) -> bool {
    let of = |n: usize| {
        (&problem.buffers[n], solution.offsets[n], solution.offsets[n] + problem.buffers[n].size)
    };
    (0..problem.buffers.len()).all(|n| {
        let (one, from, to) = of(n);
        let apart = |m| {
            let (other, start, end) = of(m);
            one.upper <= other.lower || other.upper <= one.lower || to <= start || end <= from
        };
        to <= solution.height && one.may_lie_at(from) && (0..n).all(apart)
    })
}

/// Pseudo-random numbers, each below its argument (Knuth's linear congruential generator,
/// *MMIX*).
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below.max(1)
    }
}
