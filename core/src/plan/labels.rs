//! Labels of values: values that share their bytes without a step that writes them have one label.

use super::{Plan, Step, Trip, ValueId};
use crate::id::{Id, IdVec};

/// The label of each value; values from before the plan begins have none.
pub(super) fn labels(plan: &Plan) -> IdVec<ValueId, Option<u32>> {
    let mut classes = Classes((0..plan.values.len() as u32).collect());
    plan.visit(&mut |step| classes.step(step));
    let mut before: Vec<bool> = vec![false; plan.values.len()];
    let sources = plan.inputs.iter().map(|i| i.value);
    let sources = sources.chain(plan.constants.iter().map(|c| c.value));
    for value in sources.chain(plan.variables.iter().filter_map(|v| v.before)) {
        before[classes.root(value.index() as u32) as usize] = true;
    }
    let label =
        |v: ValueId| Some(classes.root(v.index() as u32)).filter(|root| !before[*root as usize]);
    plan.values.ids().map(label).collect()
}

/// Union-find over values: the parent of each; the root is the least value of its class.
struct Classes(Vec<u32>);

impl Classes {
    /// Joins the values that a loop carries between iterations, its wholes and their slices, and
    /// the merges of branches.
    fn step(&mut self, step: &Step) {
        match step {
            Step::Loop(l) => {
                for c in &l.carries {
                    self.join(&[c.initial, c.input, c.output, c.result]);
                }
                l.slices.iter().for_each(|s| self.join(&[s.whole, s.part]));
                for s in &l.stacks {
                    self.join(&[s.whole, s.part]);
                    s.initial.iter().for_each(|i| self.join(&[s.whole, *i]));
                }
                if let Trip::While { before, after, .. } = &l.trip {
                    self.join(&[before.value, *after]);
                }
            }
            Step::If { merges, .. } | Step::Switch { merges, .. } => {
                for merge in merges {
                    merge.ways.iter().for_each(|way| self.join(&[*way, merge.result]));
                }
            }
            Step::Nest { .. }
            | Step::Call { .. }
            | Step::Start { .. }
            | Step::Wait(_)
            | Step::Copy { .. } => {}
        }
    }

    fn root(&self, mut n: u32) -> u32 {
        while self.0[n as usize] != n {
            n = self.0[n as usize];
        }
        n
    }

    fn join(&mut self, values: &[ValueId]) {
        for pair in values.windows(2) {
            let (a, b) = (self.root(pair[0].index() as u32), self.root(pair[1].index() as u32));
            self.0[a.max(b) as usize] = a.min(b);
        }
    }
}
