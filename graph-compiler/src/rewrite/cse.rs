//! Common subexpression elimination: equal equations become one.
//!
//! One walk forward visits the regions of constructs on the way. An operand that is passed twice
//! is one value inside, and a result that is returned twice is one value outside ([`merge`]). An
//! equation is compared with earlier ones after its operands have been merged. So equal values
//! are found however long the chain of their equations is, and at any depth.

use super::control::merge;
use super::{of_regions, with_fuel};
use crate::probes::watches;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use wengert_core::Op;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;

/// Maximum number of elements of literals that are compared.
const MAX_LITERAL: usize = 4096;

/// Replaces an equation by an earlier one with the same op, operands and regions. Also merges
/// equal operands and results of constructs. At most `fuel` replacements.
pub(crate) fn cse(function: Function, fuel: u64) -> (Function, u64) {
    cse_but(function, fuel, &|_| false)
}

/// [`cse`], without changing the operands and results of constructs for which `stays` is true.
pub(crate) fn cse_but(
    function: Function,
    fuel: u64,
    stays: &dyn Fn(&Equation) -> bool,
) -> (Function, u64) {
    with_fuel(function, fuel, |body, left| of_body(body, left, stays))
}

fn of_body(body: &mut Body, left: &mut u64, stays: &dyn Fn(&Equation) -> bool) {
    let mut used: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    let operands = body.equations.iter().flat_map(|equation| &equation.operands);
    operands.chain(&body.outputs).for_each(|v| used[*v] = true);
    let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
    let mut known = Known::default();
    let mut kept: Vec<Equation> = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations) {
        equation.operands.iter_mut().for_each(|v| *v = current[*v]);
        let merges = equation.op.control().is_some() && !stays(&equation);
        if merges {
            merge::operands(&mut equation, left);
        }
        of_regions(&mut equation, left, &|body, left| of_body(body, left, stays));
        if merges {
            merge::results(&equation, &used, &mut current, left);
        }
        let large = matches!(&equation.op, Op::Constant(c) if c.value.len() > MAX_LITERAL);
        if large || *left == 0 || watches(&equation) || gathers(&equation.op) {
            kept.push(equation);
            continue;
        }
        match known.find_or_add(body, &kept, &equation) {
            Some(earlier) => {
                *left -= 1;
                let results = equation.results.iter().zip(&kept[earlier].results);
                results.for_each(|(v, e)| current[*v] = current[*e]);
            }
            None => kept.push(equation),
        }
    }
    body.equations = kept;
    body.outputs.iter_mut().for_each(|v| *v = current[*v]);
}

/// Whether the op gathers a divided variable. It is gathered again for readers that are far apart,
/// so that its memory is free in between.
fn gathers(op: &Op) -> bool {
    matches!(op, Op::AllGather(gather) if gather.invariant)
}

/// Positions of kept equations, by a hash of the fields that make two equal. Bodies are compared
/// by value.
#[derive(Default)]
struct Known {
    /// The last equation with a hash.
    last: FxHashMap<u64, usize>,
    /// The previous one with the same hash.
    before: FxHashMap<usize, usize>,
}

impl Known {
    /// The position of an equal kept equation. If there is none, the equation is recorded as the
    /// next kept one.
    fn find_or_add(
        &mut self,
        body: &Body,
        kept: &[Equation],
        equation: &Equation,
    ) -> Option<usize> {
        let hash = hash(equation);
        let mut candidate = self.last.get(&hash).copied();
        while let Some(at) = candidate {
            if equal(body, &kept[at], equation) {
                return Some(at);
            }
            candidate = self.before.get(&at).copied();
        }
        if let Some(before) = self.last.insert(hash, kept.len()) {
            self.before.insert(kept.len(), before);
        }
        None
    }
}

/// The two operands in canonical order, for a commutative op.
fn ordered(equation: &Equation) -> Option<[ValueId; 2]> {
    match equation.operands.as_slice() {
        [a, b] if equation.op.traits().commutative => Some([*a.min(b), *a.max(b)]),
        _ => None,
    }
}

fn hash(equation: &Equation) -> u64 {
    let mut hasher = FxHasher::default();
    equation.op.hash(&mut hasher);
    match ordered(equation) {
        Some(operands) => operands.hash(&mut hasher),
        None => equation.operands.hash(&mut hasher),
    }
    equation.regions.hash(&mut hasher);
    hasher.finish()
}

fn equal(body: &Body, a: &Equation, b: &Equation) -> bool {
    let operands = a.operands == b.operands || (ordered(a).is_some() && ordered(a) == ordered(b));
    let types = || a.results.iter().zip(&b.results).all(|(a, b)| body.ty(*a) == body.ty(*b));
    operands
        && a.op == b.op
        && a.regions == b.regions
        && a.results.len() == b.results.len()
        && types()
}
