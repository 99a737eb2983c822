//! Mutants of plans of several ranks. All that are harmful are refused.
//!
//! A case takes a plan, and changes it on some ranks ([`OfRanks`]) or on all ([`OfValues`]).
//!
//! - The first kind is harmful if the ranks do not meet, by the definition of [`exchanges`], which
//!   shares nothing with the verifier. [`verify_ranks`] has to refuse it, whether or not the
//!   verifier of one plan does. One case is left to the verifier of one plan: an axis that the mesh
//!   lacks, on all ranks of a group.
//! - The second kind is harmful if a step reads bytes that do not hold its operand, or writes bytes
//!   of a transfer under way, by the argument that stands with the change. The ranks may still
//!   meet, so the verifier of one plan has to refuse it.
//!
//! Other mutants are drawn again. Some are harmless: two collectives of disjoint groups change
//! places. Others compute something else with plans that are sound, such as a maximum in place of a
//! sum on all ranks, which no verifier of plans can know.
//!
//! A case is determined by the seed and its number. `ci/deep/plans` runs 100,000 cases. Variables:
//!
//! - `WENGERT_FUZZ_FIRST` and `WENGERT_FUZZ_CASES`: the range of cases;
//! - `WENGERT_FUZZ_SEED`: the seed;
//! - `WENGERT_FUZZ_PROGRESS`: a file to which the test writes the number of the current case.
#![allow(clippy::print_stdout)] // Prints how many mutants of each kind there were.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

mod exchanges;
mod mutations;
mod plans;
mod values;

use exchanges::do_not_meet;
use mutations::{OfRanks, OfValues, change, spoil};
use plans::{Named, along_both_axes, plans};
use std::collections::BTreeMap;
use wengert_core::plan::{Plan, verify, verify_ranks};
use wengert_testing::Random;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The mutants of a kind.
#[derive(Default)]
struct Tally {
    refused: usize,
    /// Refused by the verifier of all ranks.
    together: usize,
    /// Refused by the verifier of one plan.
    alone: usize,
    /// Drawn, but not harmful.
    harmless: usize,
}

/// The plans of all ranks after a change on some of them, which begin at a random rank.
fn on_some_ranks(plan: &Plan, mutation: OfRanks, random: &mut Random) -> Option<Vec<Plan>> {
    let ranks = plan.mesh.ranks();
    let mut changed = plan.clone();
    change(&mut changed, mutation, random)?;
    let mut all = vec![plan.clone(); ranks];
    let (first, count) = (random.below(ranks), 1 + random.below(ranks - 1));
    (0..count).for_each(|i| all[(first + i) % ranks] = changed.clone());
    Some(all)
}

/// Draws until a mutant of this kind is harmful, and checks that it is refused.
fn refuse(plans: &[Named], number: usize, random: &mut Random, tallies: &mut Tallies) {
    let kinds = OfRanks::ALL.len() + OfValues::ALL.len();
    let kind = number % kinds;
    for _ in 0..10_000 {
        let (name, plan) = random.pick(plans);
        if kind < OfRanks::ALL.len() {
            let mutation = OfRanks::ALL[kind];
            let Some(mutants) = on_some_ranks(plan, mutation, random) else { continue };
            let tally = tallies.entry(format!("{mutation:?}")).or_default();
            let mutants: Vec<&Plan> = mutants.iter().collect();
            if !do_not_meet(&mutants) {
                tally.harmless += 1;
                continue;
            }
            let together = verify_ranks(&mutants).is_err();
            let alone = mutants.iter().any(|plan| verify(plan).is_err());
            let refused = together || alone && mutation == OfRanks::Axes;
            assert!(refused, "case {number}: {mutation:?} of {name} is accepted");
            tally.refused += 1;
            tally.together += usize::from(together);
            tally.alone += usize::from(alone);
        } else {
            let mutation = OfValues::ALL[kind - OfRanks::ALL.len()];
            let mut mutant = plan.clone();
            let Some(harmful) = spoil(&mut mutant, mutation, random) else { continue };
            let tally = tallies.entry(format!("{mutation:?}")).or_default();
            if !harmful {
                tally.harmless += 1;
                continue;
            }
            assert!(
                verify(&mutant).is_err(),
                "case {number}: {mutation:?} of {name} is accepted\n{mutant}"
            );
            let together = verify_ranks(&vec![&mutant; plan.mesh.ranks()]).is_err();
            tally.refused += 1;
            tally.together += usize::from(together);
            tally.alone += 1;
        }
        return;
    }
    panic!("case {number}: no harmful mutant");
}

type Tallies = BTreeMap<String, Tally>;

#[test]
fn harmful_mutants_are_refused() {
    let (first, cases) = (number("WENGERT_FUZZ_FIRST", 0), number("WENGERT_FUZZ_CASES", 200));
    let seed = number("WENGERT_FUZZ_SEED", 20_261_130);
    let progress = std::env::var_os("WENGERT_FUZZ_PROGRESS");
    let plans = plans();
    for (name, plan) in &plans {
        let ranks = vec![plan; plan.mesh.ranks()];
        verify(plan).unwrap_or_else(|e| panic!("{name}: {e}"));
        verify_ranks(&ranks).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!do_not_meet(&ranks), "{name}");
    }
    let mut tallies = Tallies::new();
    for case in first..first + cases {
        if let Some(path) = &progress {
            std::fs::write(path, format!("{case}\n")).unwrap();
        }
        let mut random = Random(seed ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        refuse(&plans, case as usize, &mut random, &mut tallies);
    }
    println!(
        "{} plans; kind: refused, by all ranks' verifier, by one plan's, harmless",
        plans.len()
    );
    for (kind, Tally { refused, together, alone, harmless }) in &tallies {
        println!("{kind}: {refused}, {together}, {alone}, {harmless}");
    }
    let refused: usize = tallies.values().map(|tally| tally.refused).sum();
    assert_eq!(refused as u64, cases);
}

/// A plan whose neighbouring collectives over different axes have changed places.
fn swapped(plan: &Plan) -> Plan {
    let over = |at: usize| plan.steps[at].exchange().map(|c| c.over.clone());
    let places: Vec<usize> = (0..plan.steps.len()).filter(|at| over(*at).is_some()).collect();
    let pair = places.windows(2).find(|pair| over(pair[0]) != over(pair[1])).unwrap();
    let mut swapped = plan.clone();
    swapped.steps.swap(pair[0], pair[1]);
    swapped
}

/// The definition of harm, on orders that were decided by hand.
#[test]
fn a_cycle_of_four_ranks_is_found() {
    let plan = &along_both_axes(false);
    let swapped = swapped(plan);
    // Rank 3 waits, and is met. With ranks 1 and 2, each rank waits for another one.
    assert!(!do_not_meet(&[plan, plan, plan, &swapped]));
    verify_ranks(&[plan, plan, plan, &swapped]).unwrap();
    assert!(do_not_meet(&[plan, &swapped, &swapped, plan]));
    assert!(verify_ranks(&[plan, &swapped, &swapped, plan]).is_err());
}

/// Starts do not block, so these ranks meet. The verifier refuses the plans: it takes starts for
/// calls.
#[test]
fn starts_in_two_orders_meet_and_are_refused() {
    let plan = &along_both_axes(true);
    let swapped = swapped(plan);
    assert!(!do_not_meet(&[plan, &swapped, &swapped, plan]));
    assert!(verify_ranks(&[plan, &swapped, &swapped, plan]).is_err());
}
