//! Moves values that regions can compute themselves into constructs, and unchanging carries out
//! of them.
//!
//! Numbers and repetitions move in before the regions are trimmed, and unchanging carries move
//! out after. So one walk moves a number into a nest of any depth, and an unchanging carry out of
//! it.

use super::{Parts, inline, replace_uses, spend, used_inputs, with_regions, without};
use std::collections::BTreeMap;
use wengert_core::Op;
use wengert_core::TensorType;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Cost;

/// Trims every construct; at most `fuel` changes.
pub(crate) fn trim(function: Function, fuel: u64) -> (Function, u64) {
    trim_but(function, fuel, &|_| false)
}

/// [`trim`], without changing constructs for which `stays` is true.
pub(crate) fn trim_but(
    function: Function,
    fuel: u64,
    stays: &dyn Fn(&Equation) -> bool,
) -> (Function, u64) {
    with_regions(function, fuel, |body, left| of_body(body, left, stays))
}

fn of_body(body: &mut Body, left: &mut u64, stays: &dyn Fn(&Equation) -> bool) {
    let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
    let mut equations = Vec::with_capacity(body.equations.len());
    let mut constants: BTreeMap<ValueId, Equation> = BTreeMap::new();
    let mut broadcasts: BTreeMap<ValueId, (Equation, TensorType)> = BTreeMap::new();
    for mut equation in std::mem::take(&mut body.equations) {
        if is_known(&equation) {
            constants.insert(equation.results[0], equation.clone());
        }
        // The operands of this equation may have been replaced.
        equation.operands.iter_mut().for_each(|v| *v = current[*v]);
        if matches!(equation.op, Op::BroadcastInDim(_)) {
            let ty = body.values[equation.operands[0]].clone();
            broadcasts.insert(equation.results[0], (equation.clone(), ty));
        }
        let is_construct = equation.op.control().is_some();
        if is_construct && stays(&equation) {
            equations.push(equation);
            continue;
        }
        if is_construct {
            let mut trimming = Trimming { equation: &mut equation, left };
            trimming.repeated_captures(&broadcasts);
            trimming.constant_captures(&constants);
        }
        // A called function has one body for all its calls. It is trimmed only after a call has
        // been inlined.
        if equation.op.callee().is_none() {
            equation.regions.iter_mut().for_each(|region| of_body(region, left, stays));
        }
        if is_construct && *left > 0 {
            if let Some(once) = inline::once(body, &constants, &equation) {
                *left -= 1;
                let more = inline::emit(body, &equation, once, &mut equations);
                for (old, new) in equation.results.iter().zip(more) {
                    current[*old] = new;
                }
                continue;
            }
            Trimming { equation: &mut equation, left }.constant_carries(&mut current);
        }
        equations.push(equation);
    }
    body.equations = equations;
    body.outputs.iter_mut().for_each(|v| *v = current[*v]);
}

/// Whether an equation has no operands and can be repeated anywhere: a number, or the numbers of
/// positions.
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
    /// Turns a carry that no step changes into a capture. Its result is its initial value.
    fn constant_carries(&mut self, current: &mut IdVec<ValueId, ValueId>) {
        let Some(mut parts) = Parts::of(self.equation) else { return };
        let mut gone = vec![false; parts.carries];
        for n in (0..parts.carries).rev() {
            let step = &self.equation.regions[self.equation.regions.len() - 1];
            gone[n] = step.outputs[n] == step.inputs[n] && spend(self.left);
            if gone[n] {
                current[self.equation.results[n]] = self.equation.operands[parts.first + n];
            }
        }
        let constant: Vec<usize> = (0..parts.carries).rev().filter(|n| gone[*n]).collect();
        if constant.is_empty() {
            return;
        }
        let more: Vec<ValueId> =
            constant.iter().map(|n| self.equation.operands[parts.first + n]).collect();
        without(&mut self.equation.operands, parts.first, &gone);
        self.equation.operands.extend(more);
        for region in &mut self.equation.regions {
            let region: &mut Body = region;
            let more: Vec<ValueId> = constant.iter().map(|n| region.inputs[*n]).collect();
            without(&mut region.inputs, 0, &gone);
            region.inputs.extend(more);
        }
        without(&mut self.equation.results, 0, &gone);
        let last = self.equation.regions.len() - 1;
        without(&mut self.equation.regions[last].outputs, 0, &gone);
        parts.carries -= constant.len();
        parts.captures += constant.len();
        parts.set(self.equation);
    }

    /// A captured repetition of a smaller value is replaced by the smaller value, and repeated
    /// where it is used, which is free.
    fn repeated_captures(&mut self, broadcasts: &BTreeMap<ValueId, (Equation, TensorType)>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let used = used_inputs(&self.equation.regions);
        let mut smaller: Vec<(usize, &Equation, &TensorType)> = Vec::new();
        let captures = self.captures_from()..self.equation.operands.len() - parts.first;
        for (n, used) in used.iter().enumerate().take(captures.end).skip(captures.start) {
            let operand = &mut self.equation.operands[parts.first + n];
            let Some((broadcast, ty)) = broadcasts.get(operand) else { continue };
            if !used || !spend(self.left) {
                continue;
            }
            *operand = broadcast.operands[0];
            smaller.push((n, broadcast, ty));
        }
        for region in self.equation.regions.iter_mut().filter(|_| !smaller.is_empty()) {
            let region: &mut Body = region;
            let mut first = Vec::with_capacity(smaller.len() + region.equations.len());
            for (n, broadcast, ty) in &smaller {
                let (made, input) = (region.inputs[*n], region.values.push((*ty).clone()));
                region.inputs[*n] = input;
                first.push(Equation {
                    operands: vec![input],
                    results: vec![made],
                    ..(*broadcast).clone()
                });
            }
            put_in_front(region, first);
        }
    }

    /// A capture that is [known](is_known) is computed in the regions that use it. Then the
    /// capture is unused.
    fn constant_captures(&mut self, constants: &BTreeMap<ValueId, Equation>) {
        let Some(parts) = Parts::of(self.equation) else { return };
        let used = used_inputs(&self.equation.regions);
        let mut known: Vec<(usize, &Equation)> = Vec::new();
        let captures = self.captures_from()..self.equation.operands.len() - parts.first;
        for (n, used) in used.iter().enumerate().take(captures.end).skip(captures.start) {
            let Some(constant) = constants.get(&self.equation.operands[parts.first + n]) else {
                continue;
            };
            if *used && spend(self.left) {
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

    /// Position of the first capture among the inputs of a region.
    fn captures_from(&self) -> usize {
        let parts = Parts::of(self.equation).expect("it is control flow");
        self.equation.operands.len() - parts.first - parts.captures
    }
}

/// Puts equations in front of all others, in reverse order.
fn put_in_front(region: &mut Body, mut equations: Vec<Equation>) {
    equations.reverse();
    equations.append(&mut region.equations);
    region.equations = equations;
}
