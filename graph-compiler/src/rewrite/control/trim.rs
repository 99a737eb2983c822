//! Takes out of a construct what is not used or never changes.

use super::{Parts, inline, needed};
use std::collections::BTreeMap;
use wengert_core::Op;
use wengert_core::TensorType;
use wengert_core::graph::{Body, Equation, Function, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Control;

/// Trims every construct; at most `fuel` changes.
pub(crate) fn trim(mut function: Function, fuel: u64) -> (Function, u64) {
    let mut left = fuel;
    of_body(&mut function.body, &mut left);
    (function.renumber(), fuel - left)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut used: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    body.outputs.iter().chain(body.equations.iter().flat_map(|e| &e.operands)).for_each(|v| used[*v] = true);
    let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
    let mut equations = Vec::with_capacity(body.equations.len());
    let mut constants: BTreeMap<ValueId, Equation> = BTreeMap::new();
    let mut broadcasts: BTreeMap<ValueId, (Equation, TensorType)> = BTreeMap::new();
    for mut equation in std::mem::take(&mut body.equations) {
        if matches!(&equation.op, Op::Constant(c) if c.value.len() == 1) {
            constants.insert(equation.results[0], equation.clone());
        }
        // What has been put in the place of a result is in its place already.
        equation.operands.iter_mut().for_each(|v| *v = current[*v]);
        if matches!(equation.op, Op::BroadcastInDim(_)) {
            let ty = body.values[equation.operands[0]].clone();
            broadcasts.insert(equation.results[0], (equation.clone(), ty));
        }
        // A function that is called is one for all its calls: it is trimmed where it has taken the place of one.
        if equation.op.callee().is_none() {
            equation.regions.iter_mut().for_each(|region| of_body(region, left));
        }
        if equation.op.control().is_some() && *left > 0 {
            if let Some(once) = inline::once(body, &constants, &equation) {
                *left -= 1;
                let more = inline::emit(body, &equation, once, &mut equations);
                for (old, new) in equation.results.iter().zip(more) {
                    current[*old] = new;
                }
                continue;
            }
            let mut trimming = Trimming { equation: &mut equation, left };
            trimming.repeated_results(&mut used, &mut current);
            trimming.unused_results(&used);
            trimming.constant_carries(&mut current);
            trimming.dead_carries(&used);
            trimming.repeated_captures(&broadcasts);
            trimming.constant_captures(&constants);
            trimming.operands();
        }
        equations.push(equation);
    }
    body.equations = equations;
    body.outputs.iter_mut().for_each(|v| *v = current[*v]);
}

struct Trimming<'e> {
    equation: &'e mut Equation,
    left: &'e mut u64,
}

impl Trimming<'_> {
    fn spend(&mut self) -> bool {
        let some = *self.left > 0;
        *self.left -= u64::from(some);
        some
    }

    fn is_branch(&self) -> bool {
        matches!(self.equation.op.control(), Some(Control::Branch))
    }

    /// Results of branches, and stacks.
    fn unused_results(&mut self, used: &IdVec<ValueId, bool>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        for n in (parts.carries..self.equation.results.len()).rev() {
            if !used[self.equation.results[n]] && self.spend() {
                self.remove_result(n);
            }
        }
    }

    /// Of results of branches that are one value whichever way is taken, and of stacks of one value, the first is enough.
    fn repeated_results(&mut self, used: &mut IdVec<ValueId, bool>, current: &mut IdVec<ValueId, ValueId>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let from = if self.is_branch() { 0 } else { self.equation.regions.len() - 1 };
        for n in (parts.carries..self.equation.results.len()).rev() {
            let regions = &self.equation.regions[from..];
            let is_twin = |m: &usize| regions.iter().all(|region| region.outputs[*m] == region.outputs[n]);
            let Some(twin) = (parts.carries..n).find(is_twin) else { continue };
            if !self.spend() {
                return;
            }
            let (gone, kept) = (self.equation.results[n], self.equation.results[twin]);
            used[kept] |= used[gone];
            current[gone] = kept;
            self.remove_result(n);
        }
    }

    /// Takes away result number `n`, which is no carry.
    fn remove_result(&mut self, n: usize) {
        // The condition of a while gives no results.
        let from = if self.is_branch() { 0 } else { self.equation.regions.len() - 1 };
        self.equation.results.remove(n);
        self.equation.regions[from..].iter_mut().for_each(|region| {
            region.outputs.remove(n);
        });
    }

    /// A carry that a step hands on as it was becomes a capture, and what it was is its result.
    fn constant_carries(&mut self, current: &mut IdVec<ValueId, ValueId>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        for n in (0..parts.carries).rev() {
            let step = &self.equation.regions[self.equation.regions.len() - 1];
            if step.outputs[n] != step.inputs[n] || !self.spend() {
                continue;
            }
            let mut parts = Parts::of(self.equation).expect("it still is control flow");
            parts.carries -= 1;
            parts.captures += 1;
            let operand = self.equation.operands.remove(parts.first + n);
            self.equation.operands.push(operand);
            for region in &mut self.equation.regions {
                let region: &mut Body = region;
                let input = region.inputs.remove(n);
                region.inputs.push(input);
            }
            let last = self.equation.regions.len() - 1;
            self.equation.regions[last].outputs.remove(n);
            current[self.equation.results.remove(n)] = operand;
            parts.set(self.equation);
        }
    }

    /// Carries that nobody uses but what makes their own next values.
    fn dead_carries(&mut self, used: &IdVec<ValueId, bool>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let Some(step) = self.equation.regions.last() else { return };
        let mut live: Vec<bool> = self.equation.results.iter().map(|v| used[*v]).collect();
        if let [condition, _] = self.equation.regions.as_slice() {
            let needed = needed(condition, condition.outputs.iter().copied());
            for n in 0..parts.carries {
                live[n] |= needed[condition.inputs[n]];
            }
        }
        loop {
            let outputs = step.outputs.iter().zip(&live).filter(|(_, live)| **live).map(|(v, _)| *v);
            let needed = needed(step, outputs);
            let more =
                (0..parts.carries).filter(|n| !live[*n] && needed[step.inputs[*n]]).collect::<Vec<_>>();
            if more.is_empty() {
                break;
            }
            more.into_iter().for_each(|n| live[n] = true);
        }
        let dead: Vec<usize> = (0..parts.carries).rev().filter(|n| !live[*n]).collect();
        // Together, since dead ones may be made of each other.
        if dead.is_empty() || !self.spend() {
            return;
        }
        for n in dead {
            let mut parts = Parts::of(self.equation).expect("it still is control flow");
            parts.carries -= 1;
            self.equation.operands.remove(parts.first + n);
            self.equation.results.remove(n);
            let last = self.equation.regions.len() - 1;
            self.equation.regions[last].outputs.remove(n);
            for region in &mut self.equation.regions {
                // What made its next value is dead; it stays for dce, which finds nobody that needs it.
                let input = region.inputs.remove(n);
                forget(region, input);
            }
            parts.set(self.equation);
        }
    }

    /// Of a captured value that repeats a smaller one, the smaller one is captured: to repeat it is free where it is used.
    fn repeated_captures(&mut self, broadcasts: &BTreeMap<ValueId, (Equation, TensorType)>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        for n in self.captures_from()..self.equation.operands.len() - parts.first {
            let operand = self.equation.operands[parts.first + n];
            let Some((broadcast, ty)) = broadcasts.get(&operand) else { continue };
            if !is_used(&self.equation.regions, n) || !self.spend() {
                continue;
            }
            self.equation.operands[parts.first + n] = broadcast.operands[0];
            for region in &mut self.equation.regions {
                let region: &mut Body = region;
                let (made, input) = (region.inputs[n], region.values.push(ty.clone()));
                region.inputs[n] = input;
                region
                    .equations
                    .insert(0, Equation { operands: vec![input], results: vec![made], ..broadcast.clone() });
            }
        }
    }

    /// A captured number that is known is made in the regions that use it; then nobody uses the capture.
    fn constant_captures(&mut self, constants: &BTreeMap<ValueId, Equation>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        for n in self.captures_from()..self.equation.operands.len() - parts.first {
            let Some(constant) = constants.get(&self.equation.operands[parts.first + n]) else { continue };
            if !is_used(&self.equation.regions, n) || !self.spend() {
                continue;
            }
            for region in &mut self.equation.regions {
                let region: &mut Body = region;
                let ty = region.ty(region.inputs[n]).clone();
                let (input, made) = (region.inputs[n], region.values.push(ty));
                let uses =
                    region.equations.iter_mut().flat_map(|e| &mut e.operands).chain(&mut region.outputs);
                uses.filter(|v| **v == input).for_each(|v| *v = made);
                region.equations.insert(0, Equation { results: vec![made], ..constant.clone() });
            }
        }
    }

    /// Operands that no region uses, and those that are handed in twice.
    fn operands(&mut self) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let inputs = self.equation.operands.len() - parts.first;
        for n in (parts.carries..inputs).rev() {
            let operand = self.equation.operands[parts.first + n];
            // Captures are alike wherever they are, slices too; a capture is no slice.
            let alike = if n >= self.captures_from() { self.captures_from()..n } else { parts.carries..n };
            let twin = alike.into_iter().find(|m| self.equation.operands[parts.first + m] == operand);
            let unused = !is_used(&self.equation.regions, n);
            if !(unused || twin.is_some()) || !self.spend() {
                continue;
            }
            let mut parts = Parts::of(self.equation).expect("it still is control flow");
            let is_capture = n >= self.captures_from();
            parts.captures -= usize::from(is_capture);
            self.equation.operands.remove(parts.first + n);
            for region in &mut self.equation.regions {
                let region: &mut Body = region;
                let input = region.inputs.remove(n);
                if let Some(twin) = twin {
                    let same = region.inputs[twin];
                    let uses =
                        region.equations.iter_mut().flat_map(|e| &mut e.operands).chain(&mut region.outputs);
                    uses.filter(|v| **v == input).for_each(|v| *v = same);
                }
            }
            parts.set(self.equation);
        }
    }

    /// Position of the first capture among the inputs of a region.
    fn captures_from(&self) -> usize {
        let parts = Parts::of(self.equation).expect("it is control flow");
        self.equation.operands.len() - parts.first - parts.captures
    }
}

/// True if some region uses its input number `n`.
fn is_used(regions: &[Region], n: usize) -> bool {
    regions.iter().any(|region| {
        let mut uses = region.equations.iter().flat_map(|e| &e.operands).chain(&region.outputs);
        uses.any(|v| *v == region.inputs[n])
    })
}

/// Removes the equations of a region that depend on a value, which are known to be dead.
fn forget(region: &mut Body, value: ValueId) {
    let mut gone: IdVec<ValueId, bool> = region.values.ids().map(|v| v == value).collect();
    region.equations.retain(|equation| {
        let depends = equation.operands.iter().any(|v| gone[*v]);
        if depends {
            equation.results.iter().for_each(|v| gone[*v] = true);
        }
        !depends
    });
}
