//! Emits the equations of one microbatch, and those of whole values.

use super::axes::{Along, Typed};
use super::control::Form;
use super::regions::Inner;
use crate::autodiff::record;
use std::collections::BTreeMap;
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, Region, ValueId};
use wengert_core::op::{Scan, While};
use wengert_core::{Op, Result, Tensor, TensorType};

/// Emits equations of a function in a scope.
pub(super) struct Divide<'a> {
    pub scope: &'a Scope,
    pub microbatches: usize,
}

impl Divide<'_> {
    /// The results of an equation for one microbatch. `value` gives operands: whole or partial
    /// ones, or the microbatch's parts along an axis.
    pub fn equation(
        &self,
        body: &Body,
        equation: &Equation,
        along: &Along,
        value: &dyn Fn(ValueId, Option<usize>) -> Tensor,
    ) -> Result<Vec<Tensor>> {
        let operands = equation.operands.iter().zip(&along.operands);
        let operands: Vec<Tensor> = operands.map(|(v, axis)| value(*v, *axis)).collect();
        let op = Typed::of(body, equation).part(along, self.microbatches);
        let Some(construct) = equation.op.control() else {
            return self.emit(equation, op, &operands, equation.regions.clone());
        };
        let form = Form::of(construct, operands.len());
        let taken = operands[form.deciding..].iter().enumerate();
        let types: Vec<TensorType> = taken.map(|(i, x)| form.input(i, x.ty())).collect();
        let regions = equation.regions.iter().zip(&along.regions);
        let regions = regions
            .map(|(region, inner)| closed(&types, |inputs| self.region(region, inner, inputs)));
        self.emit(equation, op, &operands, regions.collect::<Result<Vec<Region>>>()?)
    }

    /// The outputs of a region for one microbatch.
    fn region(&self, region: &Body, inner: &Inner, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut values: BTreeMap<(ValueId, Option<usize>), Tensor> = BTreeMap::new();
        for (value, input) in region.inputs.iter().zip(inputs) {
            values.insert((*value, inner.states[*value].axis()), input.clone());
        }
        for (at, equation) in region.equations.iter().enumerate() {
            let results = {
                let value = |value, axis| values[&(value, axis)].clone();
                match &inner.along[at] {
                    Some(along) => self.equation(region, equation, along, &value)?,
                    None => self.unchanged(equation, &|v| value(v, None))?,
                }
            };
            for (value, result) in equation.results.iter().zip(results) {
                values.insert((*value, inner.states[*value].axis()), result);
            }
            for (part, along) in inner.cuts.get(&at).into_iter().flatten() {
                let value = |value, axis| values[&(value, axis)].clone();
                let cut = self.equation(region, equation, along, &value)?;
                values.extend(cut.into_iter().map(|cut| ((part.0, Some(part.1)), cut)));
            }
        }
        Ok(inner.outputs.iter().map(|output| values[output].clone()).collect())
    }

    /// The whole results of an equation: all without `along`, else those of a construct that has
    /// others too. `value` gives whole operands.
    pub fn whole(
        &self,
        equation: &Equation,
        along: Option<&Along>,
        value: &dyn Fn(ValueId) -> Tensor,
    ) -> Result<Vec<(ValueId, Tensor)>> {
        let Some(along) = along else {
            let results = self.unchanged(equation, value)?;
            return Ok(equation.results.iter().copied().zip(results).collect());
        };
        let construct = equation.op.control().expect("other ops have no whole results then");
        let form = Form::of(construct, equation.operands.len());
        let (deciding, taken) = equation.operands.split_at(form.deciding);
        // All regions take the same inputs.
        let (region, inner) = (&equation.regions[0], &along.regions[0]);
        let kept = |i: &usize| inner.states[region.inputs[*i]].is_whole();
        let kept: Vec<usize> = (0..taken.len()).filter(kept).collect();
        let carries = kept.iter().filter(|i| **i < form.carries).count();
        let captures = |all: usize| kept.iter().filter(|i| **i >= taken.len() - all).count();
        let op: Op = match &equation.op {
            Op::Scan(op) => {
                let captures = captures(op.captures);
                Scan { carries, captures, ..op.clone() }.into()
            }
            Op::While(op) => While { captures: captures(op.captures), ..op.clone() }.into(),
            op => op.clone(),
        };
        let operands: Vec<Tensor> =
            deciding.iter().copied().chain(kept.iter().map(|i| taken[*i])).map(value).collect();
        let inputs = kept.iter().zip(&operands[form.deciding..]);
        let types: Vec<TensorType> = inputs.map(|(i, x)| form.input(*i, x.ty())).collect();
        let whole: Vec<usize> = along.whole().collect();
        let regions = equation.regions.iter().enumerate().map(|(number, region)| {
            let outputs: Vec<ValueId> = match form.gives_results(number) {
                true => whole.iter().map(|i| region.outputs[*i]).collect(),
                false => region.outputs.clone(),
            };
            let taken: Vec<ValueId> = kept.iter().map(|i| region.inputs[*i]).collect();
            closed(&types, |inputs| {
                let inputs = taken.iter().copied().zip(inputs.iter().cloned()).collect();
                self.whole_region(region, &along.regions[number], inputs, &outputs)
            })
        });
        let regions = regions.collect::<Result<Vec<Region>>>()?;
        let results = self.emit(equation, op, &operands, regions)?;
        Ok(whole.iter().map(|i| equation.results[*i]).zip(results).collect())
    }

    /// Whole values of a region.
    fn whole_region(
        &self,
        region: &Body,
        inner: &Inner,
        mut values: BTreeMap<ValueId, Tensor>,
        outputs: &[ValueId],
    ) -> Result<Vec<Tensor>> {
        for (equation, along) in region.equations.iter().zip(&inner.along) {
            let has = |value: &ValueId| inner.states[*value].is_whole();
            if equation.results.iter().any(has) {
                let results = self.whole(equation, along.as_ref(), &|v| values[&v].clone())?;
                values.extend(results);
            }
        }
        Ok(outputs.iter().map(|v| values[v].clone()).collect())
    }

    /// An equation on other operands of the same types.
    fn unchanged(
        &self,
        equation: &Equation,
        value: &dyn Fn(ValueId) -> Tensor,
    ) -> Result<Vec<Tensor>> {
        let operands: Vec<Tensor> = equation.operands.iter().map(|v| value(*v)).collect();
        self.emit(equation, equation.op.clone(), &operands, equation.regions.clone())
    }

    fn emit(
        &self,
        equation: &Equation,
        op: Op,
        operands: &[Tensor],
        regions: Vec<Region>,
    ) -> Result<Vec<Tensor>> {
        Scope::emit(op, operands, regions, self.scope.location(equation.location))
    }
}

/// A region that uses its inputs only.
fn closed(
    types: &[TensorType],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Region> {
    let closure = record(types, f)?;
    assert!(closure.captures.is_empty(), "data parallelism: a region uses its inputs only");
    Ok(closure.body.renumber().into())
}
