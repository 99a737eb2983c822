//! Time of a function, by kernel.

use std::collections::BTreeMap;
use std::time::Duration;
use wengert_core::plan::{Argument, Plan, Step};
use wengert_cpu::executable::{Profile, Spent};

/// Time and traffic of a kernel of a plan.
#[derive(Clone, PartialEq, Debug)]
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

/// The measurements by the kernels of the plan, the longest first.
pub(super) fn by_kernel(plan: &Plan, profile: &Profile) -> Vec<KernelTime> {
    let mut reading = Reading { plan, profile, calls: 0, found: BTreeMap::new() };
    reading.steps(&plan.steps);
    let copies = profile.copies;
    let mut found: Vec<KernelTime> = reading.found.into_values().collect();
    if copies.runs > 0 {
        found.push(KernelTime {
            kernel: "copy".into(),
            runs: copies.runs,
            time: copies.time,
            bytes: 0,
            flops: 0,
        });
    }
    found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.kernel.cmp(&b.kernel)));
    found
}

struct Reading<'a> {
    plan: &'a Plan,
    profile: &'a Profile,
    /// Calls seen so far: they are numbered in the order of the steps.
    calls: usize,
    found: BTreeMap<String, KernelTime>,
}

impl Reading<'_> {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Nest { nest, arguments } => {
                    let name = format!("{nest} {}", self.plan.nests[*nest].name);
                    // A nest has one entry, however many steps run it.
                    if !self.found.contains_key(&name) {
                        self.add(
                            name,
                            self.profile.nests[wengert_core::Id::index(*nest)],
                            arguments,
                            0,
                        );
                    }
                }
                Step::Call { call, arguments, .. } => {
                    let spent = self.profile.calls[self.calls];
                    self.calls += 1;
                    self.add(call.description(), spent, arguments, call.flops());
                }
                Step::Copy { .. } => {}
                Step::Loop(l) => self.steps(&l.body),
                Step::If { then, otherwise, .. } => {
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::Switch { arms, .. } => arms.iter().for_each(|arm| self.steps(arm)),
            }
        }
    }

    fn add(&mut self, kernel: String, spent: Spent, arguments: &[Argument], flops: u64) {
        let bytes: u64 = arguments.iter().map(|a| self.plan.values[a.value].bytes()).sum();
        let nothing = KernelTime {
            kernel: kernel.clone(),
            runs: 0,
            time: Duration::ZERO,
            bytes: 0,
            flops: 0,
        };
        let entry = self.found.entry(kernel).or_insert(nothing);
        entry.runs += spent.runs;
        entry.time += spent.time;
        entry.bytes += bytes * spent.runs;
        entry.flops += flops * spent.runs;
    }
}
