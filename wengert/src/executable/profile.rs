//! Time of a function, by kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wengert_core::Id;
use wengert_core::plan::{Argument, Plan, Step};
use wengert_cpu::executable::{Profile, Spent};

/// Time and traffic of a kernel of a plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KernelTime {
    /// The nest's number and name, or the call and its extents.
    pub kernel: String,
    /// Number of its runs.
    pub runs: u64,
    /// Time of all runs together.
    pub time: Duration,
    /// Bytes of its operands and results, in all runs together, each counted once per run.
    pub bytes: u64,
    /// Multiplications and additions of a call, in all runs together.
    pub flops: u64,
}

/// Time of a step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepTime {
    /// Its number, in the order of the plan's text.
    pub step: usize,
    /// Number of runs that were measured. Steps that run the same nest are measured together.
    pub runs: u64,
    /// Time of all these runs together.
    pub time: Duration,
    /// Number of steps that these runs belong to.
    pub shared: usize,
}

/// The measurements by the steps of the plan, in their order. Copies, loops and branches have none,
/// and neither have nests that ran within the product before them.
pub fn by_step(plan: &Plan, profile: &Profile) -> Vec<StepTime> {
    let mut shared = vec![0usize; plan.nests.len()];
    plan.visit(&mut |step| {
        if let Step::Nest { nest, .. } = step {
            shared[nest.index()] += 1;
        }
    });
    let mut calls = profile.calls.iter();
    let (mut times, mut number) = (Vec::new(), 0);
    plan.visit(&mut |step| {
        let spent = match step {
            Step::Nest { nest, .. } => Some((profile.nests[nest.index()], shared[nest.index()])),
            Step::Call { .. } => {
                Some((*calls.next().expect("the profile has every call of the plan"), 1))
            }
            _ => None,
        };
        if let Some((Spent { runs, time }, shared)) = spent.filter(|(spent, _)| spent.runs > 0) {
            times.push(StepTime { step: number, runs, time, shared });
        }
        number += 1;
    });
    times
}

/// The measurements by the kernels of the plan, the longest first.
pub fn by_kernel(plan: &Plan, profile: &Profile) -> Vec<KernelTime> {
    let mut found = BTreeMap::<String, KernelTime>::new();
    let mut add = |kernel: String, spent: Spent, arguments: &[Argument], flops: u64| {
        let bytes: u64 = arguments.iter().map(|a| plan.values[a.value].bytes()).sum();
        let entry =
            found.entry(kernel.clone()).or_insert(KernelTime { kernel, ..KernelTime::default() });
        entry.runs += spent.runs;
        entry.time += spent.time;
        entry.bytes += bytes * spent.runs;
        entry.flops += flops * spent.runs;
    };
    let mut nests = BTreeSet::new();
    // Calls are numbered in the order of the steps.
    let mut calls = profile.calls.iter();
    plan.visit(&mut |step| match step {
        // A nest has one entry, however many steps run it.
        Step::Nest { nest, arguments } if nests.insert(*nest) => {
            let name = format!("{nest} {}", plan.nests[*nest].name);
            add(name, profile.nests[nest.index()], arguments, 0);
        }
        Step::Call { call, arguments, .. } => {
            let spent = calls.next().expect("the profile has every call of the plan");
            add(call.description(), *spent, arguments, call.flops());
        }
        _ => {}
    });
    for (name, spent) in [("copy", profile.copies), ("transfers", profile.transfers)] {
        if spent.runs > 0 {
            add(name.into(), spent, &[], 0);
        }
    }
    let mut found: Vec<KernelTime> = found.into_values().collect();
    found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.kernel.cmp(&b.kernel)));
    found
}
