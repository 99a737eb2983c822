//! Merges the equal operands and the equal results of constructs: part of `cse`.
//!
//! Equality runs forward through a construct. An operand that is passed twice is one value inside
//! ([`operands`]), so equations of the regions become equal. An output that is returned twice is
//! one value outside ([`results`]). `cse` calls `operands` before a construct's regions and
//! `results` after them. So one walk merges equal values in nests of any depth and after any
//! number of loops. Parts that lose their last reader are left for `dce`.

use super::{Parts, first_giving, replace_uses, spend, used_inputs};
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;

/// Replaces, in the regions, inputs by earlier ones for the same operand. Slices are merged with
/// slices, captures with captures. Carries differ from step to step, so they are not merged.
pub(in crate::rewrite) fn operands(equation: &mut Equation, left: &mut u64) {
    let Some(parts) = Parts::of(equation) else { return };
    let operands = &equation.operands[parts.first..];
    let captures = operands.len() - parts.captures;
    let mut first: BTreeMap<(bool, ValueId), usize> = BTreeMap::new();
    let mut twins: Vec<(usize, usize)> = Vec::new();
    for (n, operand) in operands.iter().enumerate().skip(parts.carries) {
        let twin = *first.entry((n >= captures, *operand)).or_insert(n);
        twins.extend((twin < n).then_some((n, twin)));
    }
    if twins.is_empty() {
        return;
    }
    let used = used_inputs(&equation.regions);
    twins.retain(|(n, _)| used[*n] && spend(left));
    for region in equation.regions.iter_mut().filter(|_| !twins.is_empty()) {
        let region: &mut Body = region;
        let mut current: IdVec<ValueId, ValueId> = region.values.ids().collect();
        twins.iter().for_each(|(n, twin)| current[region.inputs[*n]] = region.inputs[*twin]);
        replace_uses(region, &current);
    }
}

/// Replaces, in `current`, results by earlier results that equal them: results of a branch that
/// are equal in every region, and stacks of one value.
pub(in crate::rewrite) fn results(
    equation: &Equation,
    used: &IdVec<ValueId, bool>,
    current: &mut IdVec<ValueId, ValueId>,
    left: &mut u64,
) {
    let Some(parts) = Parts::of(equation) else { return };
    let regions = &equation.regions[first_giving(equation)..];
    let mut first: BTreeMap<Vec<ValueId>, ValueId> = BTreeMap::new();
    for (n, result) in equation.results.iter().enumerate().skip(parts.carries) {
        let given = regions.iter().map(|region| region.outputs[n]).collect();
        let twin = *first.entry(given).or_insert(*result);
        if twin != *result && used[*result] && spend(left) {
            current[*result] = twin;
        }
    }
}
