//! Removes the unused parts of constructs: part of `dce`.
//!
//! Liveness runs backward through a construct. The liveness of its results is known before its
//! regions are visited, that of its operands after. `dce` calls the methods of [`Unused`] in this
//! order, so one walk removes dead code from nests of any depth:
//!
//! 1. [`Unused::results`] removes results of branches and stacks without a reader, and the region
//!    outputs of these.
//! 2. [`Unused::carries`] removes carries that only dead carries depend on.
//! 3. The regions are cleaned.
//! 4. [`Unused::operands`] removes operands that no region reads any more.

use super::{Parts, first_giving, needed, spend, used_inputs, without};
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;

/// A construct whose unused parts are removed.
pub(in crate::rewrite) struct Unused<'e> {
    pub equation: &'e mut Equation,
    /// Fuel that is left.
    pub left: &'e mut u64,
}

impl Unused<'_> {
    /// Removes unread results of branches, and unread stacks.
    pub fn results(&mut self, live: &IdVec<ValueId, bool>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let mut gone = vec![false; self.equation.results.len()];
        for n in (parts.carries..gone.len()).rev() {
            gone[n] = !live[self.equation.results[n]] && spend(self.left);
        }
        if !gone.contains(&true) {
            return;
        }
        let from = first_giving(self.equation);
        without(&mut self.equation.results, 0, &gone);
        self.equation.regions[from..]
            .iter_mut()
            .for_each(|region| without(&mut region.outputs, 0, &gone));
    }

    /// Removes carries whose only readers are dead carries' next values. Returns whether there
    /// were any.
    pub fn carries(&mut self, live: &IdVec<ValueId, bool>) -> bool {
        let Some(mut parts) = Parts::of(self.equation).filter(|parts| parts.carries > 0) else {
            return false;
        };
        let Some(step) = self.equation.regions.last() else { return false };
        let mut live: Vec<bool> = self.equation.results.iter().map(|v| live[*v]).collect();
        if let [condition, _] = self.equation.regions.as_slice() {
            let needed = needed(condition, condition.outputs.iter().copied());
            for n in 0..parts.carries {
                live[n] |= needed[condition.inputs[n]];
            }
        }
        make_live(step, parts.carries, &mut live);
        let gone: Vec<bool> = live[..parts.carries].iter().map(|live| !live).collect();
        // Dead carries may depend on each other, so they are removed together.
        if !gone.contains(&true) || !spend(self.left) {
            return false;
        }
        without(&mut self.equation.operands, parts.first, &gone);
        without(&mut self.equation.results, 0, &gone);
        let last = self.equation.regions.len() - 1;
        without(&mut self.equation.regions[last].outputs, 0, &gone);
        for region in &mut self.equation.regions {
            let region: &mut Body = region;
            let inputs = region
                .inputs
                .iter()
                .zip(&gone)
                .filter(|(_, gone)| **gone)
                .map(|(v, _)| *v)
                .collect();
            without(&mut region.inputs, 0, &gone);
            forget(region, inputs);
        }
        parts.carries -= gone.iter().filter(|gone| **gone).count();
        parts.set(self.equation);
        true
    }

    /// Removes slices and captures that no region reads.
    pub fn operands(&mut self) {
        let Some(mut parts) = Parts::of(self.equation) else { return };
        let count = self.equation.operands.len() - parts.first;
        let captures = count - parts.captures;
        let used = used_inputs(&self.equation.regions);
        let mut gone = vec![false; count];
        for n in (parts.carries..count).rev() {
            gone[n] = !used[n] && spend(self.left);
            parts.captures -= usize::from(gone[n] && n >= captures);
        }
        if !gone.contains(&true) {
            return;
        }
        without(&mut self.equation.operands, parts.first, &gone);
        self.equation.regions.iter_mut().for_each(|region| without(&mut region.inputs, 0, &gone));
        parts.set(self.equation);
    }
}

/// Marks the carries on which live ones depend. `live` has an entry for each result of the loop.
fn make_live(step: &Body, carries: usize, live: &mut [bool]) {
    let definitions = step.definitions();
    let mut carry: IdVec<ValueId, Option<usize>> = step.values.ids().map(|_| None).collect();
    step.inputs[..carries].iter().enumerate().for_each(|(n, v)| carry[*v] = Some(n));
    let mut seen: IdVec<ValueId, bool> = step.values.ids().map(|_| false).collect();
    let outputs = step.outputs.iter().zip(live.iter()).filter(|(_, live)| **live);
    let mut open: Vec<ValueId> = outputs.map(|(v, _)| *v).collect();
    while let Some(value) = open.pop() {
        if std::mem::replace(&mut seen[value], true) {
            continue;
        }
        if let Some(n) = carry[value].filter(|n| !live[*n]) {
            live[n] = true;
            open.push(step.outputs[n]);
        }
        open.extend(definitions[value].iter().flat_map(|n| &step.equations[*n].operands));
    }
}

/// Removes the equations of a region that depend on values known to be dead.
fn forget(region: &mut Body, values: Vec<ValueId>) {
    let mut gone: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
    values.into_iter().for_each(|v| gone[v] = true);
    region.equations.retain(|equation| {
        let depends = equation.operands.iter().any(|v| gone[*v]);
        if depends {
            equation.results.iter().for_each(|v| gone[*v] = true);
        }
        !depends
    });
}
