//! Constants of a function under construction, and scopes that copy them.
//!
//! A value is **constant** if it depends on no input: a constant, an iota, and every value
//! computed from constants. The linear program of a linearization captures its residuals. A
//! captured constant would be a residual too: a loop would store it for every step, and a branch
//! would return it. But both halves of a derivative know a constant. A
//! [repeating](Scope::repeating) scope therefore copies the equations that define a constant of
//! an outer scope, once each, instead of capturing the constant. This is the rule of partial
//! evaluation that a statically known value is known on both sides.
//!
//! Invariants:
//! 1. A captured value is not constant in the scope that captures it, even if it is in the outer
//!    one.
//! 2. A probe's result is not constant, since a copy would report the value twice.
//! 3. Nor is the result of a collective that exchanges data: a copy might be in a branch that not
//!    all ranks take.
//! 4. A copy keeps the location of the original equation.

use super::{Building, Scope};
use crate::graph::{Equation, Region, ValueId};
use crate::op::Op;
use std::collections::HashSet;

impl Building {
    /// True if an equation on values of this scope has constant results.
    pub(super) fn is_constant(&self, equation: &Equation) -> bool {
        equation.operands.iter().all(|v| self.constants[*v].is_some())
            && !observes(equation, &mut HashSet::new())
    }
}

/// True if an equation reports a value to the run's observer, or exchanges data with other ranks.
/// A shared region is searched once.
fn observes(equation: &Equation, seen: &mut HashSet<usize>) -> bool {
    let mut within = |region: &Region| {
        seen.insert(region.address()) && region.equations.iter().any(|inner| observes(inner, seen))
    };
    matches!(equation.op, Op::Probe(_))
        || equation.op.exchanges()
        || equation.regions.iter().any(&mut within)
}

impl Scope {
    /// A child scope that copies the constants of outer scopes instead of capturing them.
    pub fn repeating(&self) -> Self {
        Scope::with(Some(self.clone()), self.0.depth + 1, false, true, self.0.context.clone())
    }

    /// A copy in this scope of a value of an outer scope, if the value is constant.
    pub(super) fn repeated(&self, outer: &Scope, value: ValueId) -> Option<ValueId> {
        outer.building().constants[value]?;
        let key = |value: ValueId| (outer.0.depth, value);
        let mut pending = vec![value];
        while let Some(next) = pending.last().copied() {
            if self.building().captured.contains_key(&key(next)) {
                pending.pop();
                continue;
            }
            let source = outer.building();
            let maker = source.constants[next].expect("a constant is made of constants");
            let equation = &source.body.equations[maker];
            let known = self.building();
            let missing =
                equation.operands.iter().filter(|v| !known.captured.contains_key(&key(**v)));
            let missing: Vec<ValueId> = missing.copied().collect();
            drop(known);
            if missing.is_empty() {
                self.copy(outer, &source, equation);
            }
            pending.extend(missing);
        }
        self.building().captured.get(&key(value)).copied()
    }

    /// Appends a copy of an equation of an outer scope. Its operands must already have copies
    /// here.
    fn copy(&self, outer: &Scope, source: &Building, equation: &Equation) {
        let mut building = self.0.building.borrow_mut();
        let depth = outer.0.depth;
        let operands = equation.operands.iter().map(|v| building.captured[&(depth, *v)]).collect();
        let define = |v: &ValueId| building.define(source.body.ty(*v).clone(), equation.location);
        let results: Vec<ValueId> = equation.results.iter().map(define).collect();
        let copy = Equation { operands, results, ..equation.clone() };
        if self.is_eager() {
            let arrays = equation.results.iter().map(|v| source.values.array(*v)).collect();
            building.values.insert(&copy, arrays);
        }
        for (result, copied) in equation.results.iter().zip(&copy.results) {
            building.captured.insert((depth, *result), *copied);
        }
        building.push(copy, true);
    }
}
