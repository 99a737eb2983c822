//! The search compared with exhaustive enumeration, cut towers, and published problems.

use super::*;
use crate::memory::assign::bound::max_load;
use crate::memory::assign::problem::Buffer;
use crate::memory::assign::samples::{planted, problem};
use proptest::prelude::*;

/// The least height, by enumerating all orders of buffers, each placed on the earlier ones that
/// it overlaps in time.
fn exhausted(problem: &Problem) -> u64 {
    fn placed(
        buffers: &[Buffer],
        rest: &mut Vec<usize>,
        ends: &mut Vec<(usize, u64)>,
        best: &mut u64,
    ) {
        if rest.is_empty() {
            *best = (*best).min(ends.iter().map(|(_, end)| *end).max().unwrap_or(0));
        }
        for n in 0..rest.len() {
            let next = rest.remove(n);
            let met = ends.iter().filter(|(other, _)| buffers[*other].meets(&buffers[next]));
            let support = met.map(|(_, end)| *end).max().unwrap_or(0);
            ends.push((next, support + buffers[next].size));
            placed(buffers, rest, ends, best);
            ends.pop();
            rest.insert(n, next);
        }
    }
    let mut best = u64::MAX;
    placed(&problem.buffers, &mut (0..problem.buffers.len()).collect(), &mut Vec::new(), &mut best);
    best
}

fn solved(problem: &Problem, height: u64, effort: u64) -> Solution {
    let Found::Solution(solution) = within(problem, height, &mut effort.clone()) else {
        panic!("not solved")
    };
    assert_eq!(problem.conflict(&solution), None);
    assert!(solution.height <= height);
    solution
}

proptest! {
    #[test]
    fn the_least_height_is_found_and_no_less(
        rows in prop::collection::vec((0u64..6, 1u64..5, 0u64..9), 0..7)
    ) {
        let p = problem(&rows.iter().map(|(l, d, s)| (*l, l + d, *s)).collect::<Vec<_>>());
        let least = exhausted(&p);
        solved(&p, least, 1 << 20);
        if least > 0 {
            prop_assert_eq!(within(&p, least - 1, &mut (1 << 20)), Found::Nothing);
        }
    }
}

#[test]
fn towers_that_were_cut_up_are_put_together() {
    for seed in 0..40 {
        let (p, height) = planted(seed, 60 + 10 * seed as usize);
        assert_eq!(solved(&p, height, 1 << 18).height, height);
    }
}

#[test]
fn an_effort_ends() {
    let rows: Vec<(u64, u64, u64)> = (0..60).map(|n| (n, n + 40, 1000 + n)).collect();
    let (p, height) = (problem(&rows), max_load(&problem(&rows)));
    assert_eq!(within(&p, 2 * height, &mut 0u64), Found::Unknown);
    assert_eq!(within(&p, 2 * height, &mut 5), Found::Unknown);
    assert_eq!(within(&p, height - 1, &mut 5), Found::Nothing);
}

#[test]
fn buffers_without_bytes_or_moments_are_nobody_s_neighbours() {
    let p = problem(&[(0, 4, 10), (2, 2, 30), (1, 3, 0), (3, 5, 20)]);
    let Found::Solution(solution) = within(&p, 30, &mut 100) else { panic!("not solved") };
    assert_eq!((solution.height, solution.offsets[1], solution.offsets[2]), (30, 0, 0));
    assert_eq!(within(&p, 29, &mut 100), Found::Nothing);
    assert_eq!(within(&problem(&[]), 0, &mut 100), Found::Solution(Solution::default()));
}

#[test]
fn sums_that_do_not_fit_are_no_problem_of_the_search() {
    let p = problem(&[(0, 2, u64::MAX), (1, 3, 2)]);
    assert_eq!(within(&p, u64::MAX, &mut 100), Found::Unknown);
}

/// The instances of MiniMalloc.
fn instance(text: &str) -> Problem {
    let row = |line: &str| {
        let mut numbers = line.split(',').map(|n| n.parse().expect("a number"));
        let mut next = || numbers.next().expect("four columns");
        let (_, lower, upper, size): (u64, _, _, _) = (next(), next(), next(), next());
        (lower, upper, size)
    };
    problem(&text.lines().skip(1).map(row).collect::<Vec<_>>())
}

macro_rules! instances {
    ($($test:ident: $file:literal at $height:literal;)*) => {$(
        #[test]
        fn $test() {
            let text = include_str!(concat!("../../../../tests/data/minimalloc/", $file, ".csv"));
            let p = instance(text);
            assert!(max_load(&p) <= $height);
            solved(&p, $height, 50_000);
        }
    )*};
}
instances! {
    minimalloc_a: "A" at 1_048_576;
    minimalloc_b: "B" at 1_048_576;
    minimalloc_c: "C" at 1_039_360;
    minimalloc_d: "D" at 986_112;
    minimalloc_e: "E" at 1_048_576;
    minimalloc_f: "F" at 1_048_576;
}
