//! The function of a rank of tensor parallelism.
//!
//! A divided value exists as the rank's part. Where it is needed whole, it is gathered, once. Where
//! a whole value is needed by part, it is *cut*: a cheap equation is computed again for the part,
//! from the cuts of its operands, and any other value is sliced.

use super::analysis::Analysis;
use super::split::{Follow, Split, computes};
use crate::autodiff::function::Maker;
use crate::autodiff::{current_scope, unpoisoned};
use crate::ranks::axes::{Fate, Typed};
use crate::ranks::examples::is_cheap;
use std::collections::BTreeMap;
use wengert_core::build::Scope;
use wengert_core::graph::{Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::location::LocationId;
use wengert_core::op::collective::PReduce;
use wengert_core::{Mesh, Op, Result, Tensor};

/// The rule of locations of equations that the pass adds.
const RULE: &str = "tensor_parallel";

/// The function that is being made.
pub(super) struct Rewrite<'a> {
    pub function: &'a Function,
    pub analysis: &'a Analysis,
    /// The axis of the mesh.
    pub axis: &'a str,
    pub ranks: usize,
    /// The divisions of inputs.
    pub inputs: &'a [Option<Split>],
    /// The same of outputs.
    pub outputs: &'a [Option<Split>],
}

impl Rewrite<'_> {
    /// The function of a rank.
    pub fn run(&self) -> Result<Function> {
        let body = &self.function.body;
        let mut types = body.types(&body.inputs);
        for (ty, split) in types.iter_mut().zip(self.inputs) {
            if let Some(split) = split {
                *ty = split.part_of(ty, self.ranks).varying_over(&[self.axis]);
            }
        }
        let maker = Maker::with_types(self.function, &types);
        maker.scope.set_mesh(Mesh::new([(self.axis, self.ranks)])?);
        let outputs = maker.scope.clone().enter(|| self.equations(&maker.primals))?;
        let names = self.function.outputs.clone();
        maker.finish(self.function.name.clone(), names, &outputs)
    }

    fn equations(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let body = &self.function.body;
        let scope = current_scope()?;
        let mut values = Values {
            rewrite: self,
            scope: &scope,
            definitions: body.definitions(),
            made: BTreeMap::new(),
        };
        for ((value, tensor), split) in body.inputs.iter().zip(inputs).zip(self.inputs) {
            values.made.insert((*value, *split), tensor.clone());
        }
        for (equation, follow) in body.equations.iter().zip(&self.analysis.follows) {
            values.equation(equation, follow.as_ref())?;
        }
        let results = body.outputs.iter().zip(self.outputs).map(|(value, split)| {
            let result = values.get(*value, *split, LocationId(0))?;
            // The part of a constant is the same on all ranks.
            let invariant = split.is_some() && !result.ty().varying.contains(self.axis);
            Ok(if invariant { result.pvary(self.axis) } else { result })
        });
        results.collect()
    }
}

/// The values that exist so far.
struct Values<'a> {
    rewrite: &'a Rewrite<'a>,
    scope: &'a Scope,
    definitions: IdVec<ValueId, Option<usize>>,
    /// Whole values, and the rank's parts.
    made: BTreeMap<(ValueId, Option<Split>), Tensor>,
}

impl Values<'_> {
    fn equation(&mut self, equation: &Equation, follow: Option<&Follow>) -> Result<()> {
        let at = equation.location;
        let Some(follow) = follow else {
            let operands = equation.operands.iter().map(|v| self.get(*v, None, at));
            let operands = operands.collect::<Result<Vec<Tensor>>>()?;
            let results = self.emit(equation, equation.op.clone(), &operands)?;
            let results = equation.results.iter().zip(results);
            self.made.extend(results.map(|(value, result)| ((*value, None), result)));
            return Ok(());
        };
        let operands = equation.operands.iter().enumerate();
        let operands = operands.map(|(i, v)| self.get(*v, follow.operand(i), at));
        let operands = operands.collect::<Result<Vec<Tensor>>>()?;
        let results = self.emit_part(equation, follow, &operands)?;
        let fates = equation.results.iter().zip(&follow.along.results);
        for ((value, fate), result) in fates.zip(results) {
            let (split, result) = match fate {
                Fate::Kept(axis) => (Some(follow.kept(*axis)), result),
                Fate::Reduced(kind) => {
                    let over = vec![self.rewrite.axis.to_owned()];
                    let op = PReduce { kind: *kind, over };
                    (None, self.derived(at, || Tensor::apply(op, &[&result]))?)
                }
                Fate::Whole => unreachable!("only constructs have results that no part changes"),
            };
            self.made.insert((*value, split), result);
        }
        Ok(())
    }

    /// A value, whole or the rank's part of it.
    fn get(&mut self, value: ValueId, split: Option<Split>, at: LocationId) -> Result<Tensor> {
        if let Some(made) = self.made.get(&(value, split)) {
            return Ok(made.clone());
        }
        match split {
            None => {
                let own = self.rewrite.analysis.splits[value].expect("a whole value is made whole");
                let part = self.made[&(value, Some(own))].clone();
                let whole = self.derived(at, || own.gather(&part, self.rewrite.axis))?;
                self.made.insert((value, None), whole.clone());
                Ok(whole)
            }
            Some(split) => {
                self.cut(value, split, at)?;
                Ok(self.made[&(value, Some(split))].clone())
            }
        }
    }

    /// Makes the rank's part of a value that is whole or divided otherwise.
    fn cut(&mut self, value: ValueId, split: Split, at: LocationId) -> Result<()> {
        let function = self.rewrite.function;
        let mut open = vec![(value, split)];
        while let Some((value, split)) = open.last().copied() {
            if self.made.contains_key(&(value, Some(split))) {
                open.pop();
                continue;
            }
            let Some((equation, follow)) = self.again(value, split) else {
                let whole = self.get(value, None, at)?;
                let (axis, ranks) = (self.rewrite.axis, self.rewrite.ranks);
                let part = self.derived(at, || split.slice(&whole, axis, ranks))?;
                self.made.insert((value, Some(split)), part);
                continue;
            };
            let operands = function.body.equations[equation].operands.iter().enumerate();
            let needed = operands.map(|(i, operand)| (*operand, follow.operand(i)));
            let needed: Vec<(ValueId, Option<Split>)> = needed.collect();
            let parts = needed.iter().filter_map(|(value, split)| Some((*value, (*split)?)));
            let missing = parts.filter(|(v, split)| !self.made.contains_key(&(*v, Some(*split))));
            let known = open.len();
            open.extend(missing);
            if open.len() > known {
                continue;
            }
            let operands = needed.into_iter().map(|(value, split)| self.get(value, split, at));
            let operands = operands.collect::<Result<Vec<Tensor>>>()?;
            let equation = &function.body.equations[equation];
            let mut results = self.emit_part(equation, &follow, &operands)?;
            self.made.insert((value, Some(split)), results.swap_remove(0));
        }
        Ok(())
    }

    /// How a whole value is computed again for a part: its equation, and that on parts. None if
    /// the part is sliced.
    fn again(&self, value: ValueId, split: Split) -> Option<(usize, Follow)> {
        let at = self.definitions[value]?;
        let (body, analysis) = (&self.rewrite.function.body, self.rewrite.analysis);
        let equation = &body.equations[at];
        if !is_cheap(&equation.op) || analysis.follows[at].is_some() {
            return None;
        }
        Some((at, computes(&Typed::of(body, equation), split, self.rewrite.ranks)?))
    }

    fn emit_part(
        &self,
        equation: &Equation,
        follow: &Follow,
        operands: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let typed = Typed::of(&self.rewrite.function.body, equation);
        self.emit(equation, typed.part(&follow.along, self.rewrite.ranks), operands)
    }

    fn emit(&self, equation: &Equation, op: Op, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let location = self.scope.location(equation.location);
        Scope::emit(op, operands, equation.regions.clone(), location)
    }

    fn derived(&self, at: LocationId, make: impl FnOnce() -> Tensor) -> Result<Tensor> {
        let tensor = self.scope.derived(at, RULE, make);
        unpoisoned([&tensor])?;
        Ok(tensor)
    }
}
