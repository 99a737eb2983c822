//! Plans within budgets compute the same results as plans without, in the given number of bytes.

use super::plan;
use super::random::{arguments, function, recipes};
use crate::kernels::BufferId;
use crate::memory::{Planned, frontier};
use crate::pipeline::{PIPELINE, plan_kernels};
use crate::samples::Sample;
use proptest::prelude::*;
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::plan::{Plan, account, interpret, verify};
use wengert_core::{Binding, Diagnostic, Target};

fn budgeted(sample: &Sample, budget: u64) -> Result<Planned, Diagnostic> {
    plan_kernels(&sample.0, &Target::cpu(), &Binding::new(), Some(budget))
}

/// The plans of a function's frontier, at most `count` of them with repetitions.
fn points(sample: &Sample, count: u64) -> Vec<Planned<Plan>> {
    frontier(&sample.0, &Target::cpu(), &Binding::new(), count, PIPELINE.memory).unwrap()
}

/// The plans of a function's frontier except the one without repetitions, at most `count`.
pub(super) fn within(sample: &Sample, count: u64) -> Vec<Plan> {
    let mut plans = points(sample, count);
    plans.pop();
    plans.into_iter().map(|planned| planned.plan).collect()
}

/// A chain forwards and backwards: each backward step reads the result of its forward step.
pub(super) fn there_and_back(steps: usize, elements: usize) -> Sample {
    let mut s = Sample::new();
    let mut made = vec![s.input("x", InputRole::Input, elements)];
    for n in 0..steps {
        made.push(s.reversed(made[n]));
    }
    let back = made.iter().rev().copied().reduce(|back: BufferId, x| {
        let both = s.sum(&[back, x]);
        s.reversed(both)
    });
    s.output("y", OutputRole::Output, back.unwrap());
    s
}

#[test]
fn a_chain_runs_in_less_by_running_steps_again() {
    let s = there_and_back(24, 256);
    let free = plan(&s);
    let outside = account(&free).total() - free.arena;
    let (inputs, variables) = arguments(&free);
    let wanted = interpret(&free, &inputs, &variables).unwrap();
    let mut last = 0;
    for percent in [100, 75, 50, 35] {
        let budget = outside + free.arena * percent / 100;
        let Planned { plan, all, repetitions, .. } = budgeted(&s, budget).unwrap();
        assert!(account(&plan).total() <= budget, "{percent} %: {}", plan.arena);
        assert_eq!(interpret(&plan, &inputs, &variables).unwrap(), wanted, "{percent} %");
        assert_eq!(plan.steps.len(), all.kernels, "every kernel is a step");
        assert_eq!(all.kernels - repetitions.kernels, free.steps.len());
        assert!(
            repetitions.kernels >= last && (percent < 100) == (repetitions.kernels > 0),
            "{percent} %"
        );
        last = repetitions.kernels;
    }
    assert!(last < 60, "{last} repetitions");
    let error = budgeted(&s, outside + 2048).unwrap_err();
    assert!(error.message.contains("no way was found"), "{error}");
    assert!(!error.message.contains("-0 %"), "{error}");
    let error = budgeted(&s, outside - 1).unwrap_err();
    assert!(
        error.message.contains("lie outside the arena: inputs 1.00 KiB, outputs 1.00 KiB"),
        "{error}"
    );
}

#[test]
fn where_no_repetition_saves_memory_the_error_says_so() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 256);
    let made = s.reversed(x);
    let made = s.reversed(made);
    let made = s.reversed(made);
    s.output("y", OutputRole::Output, made);
    let free = plan(&s);
    let error = budgeted(&s, account(&free).total() - 1).unwrap_err();
    assert!(error.message.contains("and repeating kernels saves nothing"), "{error}");
}

#[test]
fn a_frontier_goes_from_the_least_to_the_plan_as_it_is() {
    let s = there_and_back(40, 64);
    let plans = points(&s, 8);
    assert!(plans.len() > 4, "{}", plans.len());
    assert_eq!(plans.last().unwrap().plan, plan(&s));
    for pair in plans.windows(2) {
        verify(&pair[0].plan).unwrap();
        assert!(pair[0].plan.arena < pair[1].plan.arena);
        assert!(pair[0].repetitions.seconds > pair[1].repetitions.seconds);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn what_is_feasible_with_less_is_feasible_with_more_and_costs_no_more(recipe in recipes()) {
        let sample = Sample(function(&recipe));
        let free = plan(&sample);
        let outside = account(&free).total() - free.arena;
        // The solver counts costs in nanoseconds.
        let rounding = 1e-9 * 100.0 * sample.0.kernels.len() as f64;
        let mut last: Option<f64> = None;
        for eighth in 0..=8 {
            match (budgeted(&sample, outside + free.arena * eighth / 8), last) {
                (Ok(planned), before) => {
                    let seconds = planned.repetitions.seconds;
                    prop_assert!(
                        before.is_none_or(|before| seconds <= before + rounding),
                        "{eighth}"
                    );
                    last = Some(seconds);
                }
                (Err(error), before) => {
                    prop_assert!(before.is_none() && eighth < 8, "{eighth}: {}", error)
                }
            }
        }
        for planned in points(&sample, 8) {
            let budget = account(&planned.plan).total();
            let again = budgeted(&sample, budget).unwrap_or_else(|e| panic!("{budget}: {e}"));
            prop_assert!(again.repetitions.seconds <= planned.repetitions.seconds + rounding);
        }
    }

    #[test]
    fn budgets_are_kept(recipe in recipes(), thousandths in 0u64..1000) {
        let sample = Sample(function(&recipe));
        let free = plan(&sample);
        let outside = account(&free).total() - free.arena;
        let budget = outside + free.arena * thousandths / 1000;
        match budgeted(&sample, budget) {
            Ok(Planned { plan, .. }) => {
                prop_assert!(account(&plan).total() <= budget);
                let (inputs, variables) = arguments(&plan);
                let wanted = interpret(&free, &inputs, &variables).unwrap();
                prop_assert_eq!(interpret(&plan, &inputs, &variables).unwrap(), wanted, "{}", plan);
            }
            // The least budget that the error names suffices.
            Err(error) if error.message.contains("repeating kernels saves nothing") => {
                let least = points(&sample, 1);
                prop_assert_eq!(least.len(), 1, "{}", error);
            }
            Err(error) => {
                let bytes =
                    error.message.split(" bytes)").next().and_then(|m| m.rsplit('(').next());
                let least: u64 = bytes.unwrap().parse().unwrap();
                prop_assert!(least > budget, "{}", error);
                prop_assert!(account(&budgeted(&sample, least).unwrap().plan).total() <= least);
            }
        }
    }
}
