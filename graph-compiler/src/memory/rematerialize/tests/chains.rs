//! Chains: counts of actions, and the general solver compared with the exact one.

use super::super::computation::Schedule;
use super::super::samples::{chain, links};
use super::super::{effort, frontier};
use super::chain::{Action, Length, advances, reverse};
use super::checked;
use super::varied::{Link, Varied};
use std::collections::BTreeSet;

/// Runs actions and checks that every state is present when it is needed, every step is taped
/// once, the last first, and no more checkpoints are kept than allowed. Returns the number of
/// advances.
fn run(actions: &[Action], steps: u64, checkpoints: usize) -> u64 {
    let mut current = Some(0);
    let mut kept = BTreeSet::from([0]);
    let (mut left, mut count) = (steps, 0);
    for action in actions {
        match *action {
            Action::Advance(step) => {
                assert_eq!(current, Some(step));
                current = Some(step + 1);
                count += 1;
            }
            Action::Checkpoint(state) => {
                assert!(current == Some(state) && kept.insert(state));
                assert!(kept.len() <= checkpoints, "{kept:?}");
            }
            Action::Restore(state) => {
                assert!(kept.contains(&state));
                current = Some(state);
            }
            Action::Free(state) => assert!(kept.remove(&state)),
            Action::Tape(step) => {
                assert_eq!((current, step), (Some(step), left - 1));
                left -= 1;
                current = None;
            }
        }
    }
    assert_eq!((left, kept), (0, BTreeSet::from([0])));
    count
}

#[test]
fn counts_of_the_literature() {
    for (steps, checkpoints, count) in
        [(10, 3, 15), (100, 10, 222), (1000, 10, 3636), (1000, 32, 2405)]
    {
        assert_eq!(advances(steps, checkpoints, Length::Known), count);
        assert_eq!(advances(steps, checkpoints, Length::Found), count + steps);
        for length in [Length::Known, Length::Found] {
            let actions = reverse(steps, checkpoints, length);
            assert_eq!(
                run(&actions, steps, checkpoints as usize),
                advances(steps, checkpoints, length)
            );
        }
    }
}

#[test]
fn actions_are_as_many_as_the_formula_says_and_as_few_as_possible() {
    let (most, wide) = (60usize, 12usize);
    // t(l, s) by its recurrence, over the place of the next checkpoint.
    let mut least = vec![vec![0u64; wide + 1]; most + 1];
    for steps in 2..=most {
        least[steps][1] = (steps * (steps - 1) / 2) as u64;
        for s in 2..=wide {
            let cuts = (1..steps).map(|m| m as u64 + least[steps - m][s - 1] + least[m][s]);
            least[steps][s] = cuts.min().unwrap();
        }
    }
    for (steps, row) in least.iter().enumerate() {
        for (s, count) in row.iter().enumerate().skip(1) {
            assert_eq!(advances(steps as u64, s as u64, Length::Known), *count, "t({steps}, {s})");
            for length in [Length::Known, Length::Found] {
                let actions = reverse(steps as u64, s as u64, length);
                assert_eq!(
                    run(&actions, steps as u64, s),
                    advances(steps as u64, s as u64, length)
                );
            }
        }
    }
    for (steps, s) in [(500, 2), (1000, 5), (3000, 100), (777, 776), (777, 5000)] {
        assert_eq!(
            run(&reverse(steps, s, Length::Known), steps, s as usize),
            advances(steps, s, Length::Known)
        );
    }
    assert_eq!(advances(u64::MAX, 1, Length::Known), u64::MAX);
    assert_eq!(advances(u64::MAX, u64::MAX, Length::Known), u64::MAX - 1);
}

/// Converts actions to executions of a chain's problem.
fn schedule(actions: &[Action], steps: usize) -> Schedule {
    let execution = |action: &Action| match *action {
        Action::Advance(step) => Some(step as usize),
        Action::Tape(step) => Some(2 * (steps - 1) - step as usize),
        _ => None,
    };
    Schedule { executions: actions.iter().filter_map(execution).collect() }
}

#[test]
fn equal_steps_are_a_special_case_of_differing_ones() {
    let link = Link { cost: 1, state: 1, ..Link::default() };
    for steps in [2usize, 3, 7, 12, 25, 40] {
        for point in Varied::new(&vec![link; steps]).frontier() {
            // Besides s − 1 checkpoints behind the initial one there is the current state. While
            // it advances, the next state is there too, unless it is a checkpoint.
            let least = advances(steps as u64, point.peak, Length::Known);
            assert!(least <= point.cost, "{steps} {point:?}");
            let most = if point.peak > 1 { point.peak - 1 } else { 1 };
            assert!(point.cost <= advances(steps as u64, most, Length::Known), "{steps} {point:?}");
        }
    }
}

#[test]
fn actions_cost_what_a_frontier_says() {
    for seed in 0..20 {
        let links = links(seed, 2 + seed as usize);
        let p = chain(&links);
        let varied = Varied::new(&links);
        let first: u64 = links[..links.len() - 1].iter().map(|l| l.cost).sum();
        for point in varied.frontier() {
            let actions = varied.actions(point.peak).unwrap();
            run(&actions, links.len() as u64, usize::MAX);
            let cost = checked(&p, &schedule(&actions, links.len()));
            assert_eq!((cost.peak, cost.added + first), (point.peak, point.cost), "seed {seed}");
        }
        assert_eq!(varied.actions(varied.frontier()[0].peak - 1), None);
    }
}

#[test]
fn the_general_solver_is_near_the_exact_one() {
    let mut sums = (0, 0);
    for (seed, length) in [(1, 8), (2, 12), (3, 16), (4, 24), (5, 40), (6, 40)] {
        let links = links(seed, length);
        let p = chain(&links);
        let varied = Varied::new(&links);
        let first: u64 = links[..length - 1].iter().map(|l| l.cost).sum();
        let (low, top) = (varied.frontier()[0].peak, checked(&p, &p.given()).peak);
        let budgets: Vec<u64> = (1..10).map(|n| low + (top - low) * n / 10).collect();
        for (budget, answer) in budgets.iter().zip(frontier(&p, &budgets, effort(&p))) {
            let exact =
                varied.frontier().iter().rev().find(|f| f.peak <= *budget).unwrap().cost - first;
            let found = checked(&p, &answer.unwrap()).added;
            assert!(
                20 * found.saturating_sub(exact) <= p.total() + exact,
                "{seed}: {found}, {exact} of {}",
                p.total()
            );
            sums = (sums.0 + found, sums.1 + exact);
        }
    }
    assert!(sums.0 * 100 <= sums.1 * 110, "{sums:?}");
}
