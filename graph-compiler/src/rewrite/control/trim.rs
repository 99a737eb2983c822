//! Takes out of a construct what is not used or never changes.

use super::{Parts, inline, needed, with_regions};
use std::collections::BTreeMap;
use wengert_core::Op;
use wengert_core::TensorType;
use wengert_core::graph::{Body, Equation, Function, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Control, Cost};

/// Trims every construct; at most `fuel` changes.
pub(crate) fn trim(function: Function, fuel: u64) -> (Function, u64) {
    trim_but(function, fuel, &|_| false)
}

/// [`trim`], which leaves some constructs as they are.
pub(crate) fn trim_but(function: Function, fuel: u64, stays: &dyn Fn(&Equation) -> bool) -> (Function, u64) {
    with_regions(function, fuel, |body, left| of_body(body, left, stays))
}

fn of_body(body: &mut Body, left: &mut u64, stays: &dyn Fn(&Equation) -> bool) {
    let mut used: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    body.outputs.iter().chain(body.equations.iter().flat_map(|e| &e.operands)).for_each(|v| used[*v] = true);
    let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
    let mut equations = Vec::with_capacity(body.equations.len());
    let mut constants: BTreeMap<ValueId, Equation> = BTreeMap::new();
    let mut broadcasts: BTreeMap<ValueId, (Equation, TensorType)> = BTreeMap::new();
    for mut equation in std::mem::take(&mut body.equations) {
        if is_known(&equation) {
            constants.insert(equation.results[0], equation.clone());
        }
        // What has been put in the place of a result is in its place already.
        equation.operands.iter_mut().for_each(|v| *v = current[*v]);
        if matches!(equation.op, Op::BroadcastInDim(_)) {
            let ty = body.values[equation.operands[0]].clone();
            broadcasts.insert(equation.results[0], (equation.clone(), ty));
        }
        if equation.op.control().is_some() && stays(&equation) {
            equations.push(equation);
            continue;
        }
        // A function that is called is one for all its calls: it is trimmed where it has taken the place of one.
        if equation.op.callee().is_none() {
            equation.regions.iter_mut().for_each(|region| of_body(region, left, stays));
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

/// What is made of nothing, wherever it is wanted: a number, or the numbers of positions.
fn is_known(equation: &Equation) -> bool {
    match &equation.op {
        Op::Constant(constant) => constant.value.len() == 1,
        op => equation.operands.is_empty() && op.traits().cost == Cost::Free,
    }
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
        let mut gone = vec![false; self.equation.results.len()];
        for n in (parts.carries..gone.len()).rev() {
            gone[n] = !used[self.equation.results[n]] && self.spend();
        }
        self.remove_results(&gone);
    }

    /// Of results of branches that are one value whichever way is taken, and of stacks of one value, the first is enough.
    fn repeated_results(&mut self, used: &mut IdVec<ValueId, bool>, current: &mut IdVec<ValueId, ValueId>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let regions = &self.equation.regions[self.first_giving()..];
        let given = |n: usize| regions.iter().map(|region| region.outputs[n]).collect::<Vec<_>>();
        let count = self.equation.results.len();
        let mut first: BTreeMap<Vec<ValueId>, usize> = BTreeMap::new();
        let twins: Vec<usize> = (parts.carries..count).map(|n| *first.entry(given(n)).or_insert(n)).collect();
        let mut gone = vec![false; count];
        for n in (parts.carries..count).rev() {
            let twin = twins[n - parts.carries];
            if twin == n {
                continue;
            }
            if !self.spend() {
                break;
            }
            let (result, kept) = (self.equation.results[n], self.equation.results[twin]);
            used[kept] |= used[result];
            current[result] = kept;
            gone[n] = true;
        }
        self.remove_results(&gone);
    }

    /// The first region that gives results: the condition of a while gives none.
    fn first_giving(&self) -> usize {
        if self.is_branch() { 0 } else { self.equation.regions.len() - 1 }
    }

    /// Takes away results, none of them carries.
    fn remove_results(&mut self, gone: &[bool]) {
        if !gone.contains(&true) {
            return;
        }
        let from = self.first_giving();
        without(&mut self.equation.results, 0, gone);
        self.equation.regions[from..].iter_mut().for_each(|region| without(&mut region.outputs, 0, gone));
    }

    /// A carry that a step hands on as it was becomes a capture, and what it was is its result.
    fn constant_carries(&mut self, current: &mut IdVec<ValueId, ValueId>) {
        let Some(mut parts) = Parts::of(self.equation) else { return };
        let mut gone = vec![false; parts.carries];
        for n in (0..parts.carries).rev() {
            let step = &self.equation.regions[self.equation.regions.len() - 1];
            gone[n] = step.outputs[n] == step.inputs[n] && self.spend();
            if gone[n] {
                current[self.equation.results[n]] = self.equation.operands[parts.first + n];
            }
        }
        let constant: Vec<usize> = (0..parts.carries).rev().filter(|n| gone[*n]).collect();
        if constant.is_empty() {
            return;
        }
        let more: Vec<ValueId> = constant.iter().map(|n| self.equation.operands[parts.first + n]).collect();
        without(&mut self.equation.operands, parts.first, &gone);
        self.equation.operands.extend(more);
        for region in &mut self.equation.regions {
            let region: &mut Body = region;
            let more: Vec<ValueId> = constant.iter().map(|n| region.inputs[*n]).collect();
            without(&mut region.inputs, 0, &gone);
            region.inputs.extend(more);
        }
        self.remove_carries(&gone);
        parts.carries -= constant.len();
        parts.captures += constant.len();
        parts.set(self.equation);
    }

    /// Takes away the results of carries, and what the step gives for them.
    fn remove_carries(&mut self, gone: &[bool]) {
        let last = self.equation.regions.len() - 1;
        without(&mut self.equation.results, 0, gone);
        without(&mut self.equation.regions[last].outputs, 0, gone);
    }

    /// Carries that nobody uses but what makes their own next values.
    fn dead_carries(&mut self, used: &IdVec<ValueId, bool>) {
        let Some(mut parts) = Parts::of(self.equation) else { return };
        let Some(step) = self.equation.regions.last() else { return };
        let mut live: Vec<bool> = self.equation.results.iter().map(|v| used[*v]).collect();
        if let [condition, _] = self.equation.regions.as_slice() {
            let needed = needed(condition, condition.outputs.iter().copied());
            for n in 0..parts.carries {
                live[n] |= needed[condition.inputs[n]];
            }
        }
        make_live(step, parts.carries, &mut live);
        let gone: Vec<bool> = live[..parts.carries].iter().map(|live| !live).collect();
        // Together, since dead ones may be made of each other.
        if !gone.contains(&true) || !self.spend() {
            return;
        }
        without(&mut self.equation.operands, parts.first, &gone);
        self.remove_carries(&gone);
        for region in &mut self.equation.regions {
            // What made its next value is dead; it stays for dce, which finds nobody that needs it.
            let region: &mut Body = region;
            let inputs =
                region.inputs.iter().zip(&gone).filter(|(_, gone)| **gone).map(|(v, _)| *v).collect();
            without(&mut region.inputs, 0, &gone);
            forget(region, inputs);
        }
        parts.carries -= gone.iter().filter(|gone| **gone).count();
        parts.set(self.equation);
    }

    /// Of a captured value that repeats a smaller one, the smaller one is captured: to repeat it is free where it is used.
    fn repeated_captures(&mut self, broadcasts: &BTreeMap<ValueId, (Equation, TensorType)>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let used = used_inputs(&self.equation.regions);
        let mut smaller: Vec<(usize, &Equation, &TensorType)> = Vec::new();
        let captures = self.captures_from()..self.equation.operands.len() - parts.first;
        for (n, used) in used.iter().enumerate().take(captures.end).skip(captures.start) {
            let operand = &mut self.equation.operands[parts.first + n];
            let Some((broadcast, ty)) = broadcasts.get(operand) else { continue };
            if !used || *self.left == 0 {
                continue;
            }
            *self.left -= 1;
            *operand = broadcast.operands[0];
            smaller.push((n, broadcast, ty));
        }
        for region in self.equation.regions.iter_mut().filter(|_| !smaller.is_empty()) {
            let region: &mut Body = region;
            let mut first = Vec::with_capacity(smaller.len() + region.equations.len());
            for (n, broadcast, ty) in &smaller {
                let (made, input) = (region.inputs[*n], region.values.push((*ty).clone()));
                region.inputs[*n] = input;
                first.push(Equation { operands: vec![input], results: vec![made], ..(*broadcast).clone() });
            }
            put_in_front(region, first);
        }
    }

    /// What is captured and [known](is_known) is made in the regions that use it; then nobody uses the capture.
    fn constant_captures(&mut self, constants: &BTreeMap<ValueId, Equation>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let used = used_inputs(&self.equation.regions);
        let mut known: Vec<(usize, &Equation)> = Vec::new();
        let captures = self.captures_from()..self.equation.operands.len() - parts.first;
        for (n, used) in used.iter().enumerate().take(captures.end).skip(captures.start) {
            let Some(constant) = constants.get(&self.equation.operands[parts.first + n]) else { continue };
            if *used && self.spend() {
                known.push((n, constant));
            }
        }
        for region in self.equation.regions.iter_mut().filter(|_| !known.is_empty()) {
            let region: &mut Body = region;
            let mut current: IdVec<ValueId, ValueId> = region.values.ids().collect();
            let mut first = Vec::with_capacity(known.len() + region.equations.len());
            for (n, constant) in &known {
                let input = region.inputs[*n];
                let made = region.values.push(region.ty(input).clone());
                current[input] = made;
                first.push(Equation { results: vec![made], ..(*constant).clone() });
            }
            replace_uses(region, &current);
            put_in_front(region, first);
        }
    }

    /// Operands that no region uses, and those that are handed in twice.
    fn operands(&mut self) {
        let Some(mut parts) = Parts::of(self.equation) else { return };
        let captures = self.captures_from();
        let count = self.equation.operands.len() - parts.first;
        // Captures are alike wherever they are, slices too; a capture is no slice.
        let mut first: BTreeMap<(bool, ValueId), usize> = BTreeMap::new();
        let operands = &self.equation.operands[parts.first..];
        // Carries stay, and are nobody's twins.
        let mut twin = |n: usize| *first.entry((n >= captures, operands[n])).or_insert(n);
        let twins: Vec<Option<usize>> = (0..count)
            .map(|n| Some(n).filter(|n| *n >= parts.carries).map(&mut twin).filter(|t| *t < n))
            .collect();
        let mut used = used_inputs(&self.equation.regions);
        let mut gone = vec![false; count];
        for n in (parts.carries..count).rev() {
            if (used[n] && twins[n].is_none()) || !self.spend() {
                continue;
            }
            gone[n] = true;
            if let Some(twin) = twins[n] {
                used[twin] |= used[n];
            }
            parts.captures -= usize::from(n >= captures);
        }
        if !gone.contains(&true) {
            return;
        }
        without(&mut self.equation.operands, parts.first, &gone);
        for region in &mut self.equation.regions {
            let region: &mut Body = region;
            let mut current: IdVec<ValueId, ValueId> = region.values.ids().collect();
            for n in (0..count).filter(|n| gone[*n]) {
                if let Some(twin) = twins[n] {
                    current[region.inputs[n]] = region.inputs[twin];
                }
            }
            replace_uses(region, &current);
            without(&mut region.inputs, 0, &gone);
        }
        parts.set(self.equation);
    }

    /// Position of the first capture among the inputs of a region.
    fn captures_from(&self) -> usize {
        let parts = Parts::of(self.equation).expect("it is control flow");
        self.equation.operands.len() - parts.first - parts.captures
    }
}

/// Takes away the items from position `first` on that are gone.
fn without<T>(list: &mut Vec<T>, first: usize, gone: &[bool]) {
    let mut position = 0;
    list.retain(|_| {
        let there = position < first || gone.get(position - first) != Some(&true);
        position += 1;
        there
    });
}

/// For each input of the regions, which all take the same, whether one uses it.
fn used_inputs(regions: &[Region]) -> Vec<bool> {
    let mut used = vec![false; regions.first().map_or(0, |region| region.inputs.len())];
    for region in regions {
        let mut uses: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
        let operands = region.equations.iter().flat_map(|e| &e.operands);
        operands.chain(&region.outputs).for_each(|v| uses[*v] = true);
        used.iter_mut().zip(&region.inputs).for_each(|(used, input)| *used |= uses[*input]);
    }
    used
}

/// Puts other values in the places of some, wherever they are used.
fn replace_uses(region: &mut Body, current: &IdVec<ValueId, ValueId>) {
    let operands = region.equations.iter_mut().flat_map(|e| &mut e.operands);
    // What has no place in the list is newer than it.
    let uses = operands.chain(&mut region.outputs);
    uses.for_each(|v| *v = current.get(*v).copied().unwrap_or(*v));
}

/// Puts equations in front of all others, the last of them first.
fn put_in_front(region: &mut Body, mut equations: Vec<Equation>) {
    equations.reverse();
    equations.append(&mut region.equations);
    region.equations = equations;
}

/// Carries that live ones are made of live too. `live` has an entry for each result of the loop.
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

/// Removes the equations of a region that depend on values which are known to be dead.
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
