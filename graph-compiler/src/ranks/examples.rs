//! Where the examples of a batch are in each value of a function.
//!
//! The analysis goes forward over the equations. A value is *whole*, the same for every
//! microbatch, or *by example*: one of its axes runs over the examples, so it falls into a part
//! for each microbatch. [`super::axes`] says how an op treats such an axis. An op that reduces it
//! gives a *partial* result for each microbatch; what combines them is whole.
//!
//! **Stages.** The combination of partial results needs all microbatches, and a value by example
//! may depend on it: the output of a batch normalisation depends on a mean over the batch. So
//! values have stages. Inputs are of stage 0. The result of an op is of the greatest stage of its
//! operands; a combination of partial results is one later. The values by example of a stage are
//! computed in one loop over the microbatches, after the whole values of the stage. A training
//! step without such dependencies has one loop.
//!
//! **Cuts.** A whole value may meet a value by example: a mask of random bits for the batch, or
//! the cotangent of a mean, repeated for each example. Then each microbatch takes its part of the
//! whole value, the *cut* along the axis of the examples. A repeated or elementwise value is
//! computed again in the smaller shape, from the cuts of its operands. Any other is sliced.

use super::axes::{Along, Fate, Typed};
use super::mixing::Mixing;
use super::regions::State;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::collective::PReduceKind;
use wengert_core::{Op, Result};

/// A value, and the axis along which a microbatch takes its part.
pub(super) type Part = (ValueId, usize);

/// A loop over the microbatches: the values by example of one stage.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    /// The parts that the loop is given: of inputs, of earlier stages, slices of whole values.
    pub given: BTreeSet<Part>,
    /// Whole values that are computed again for the part, in an order in which operands come
    /// first.
    pub cuts: Vec<(Part, Along)>,
    /// Equations of values by example, by their index.
    pub equations: Vec<usize>,
    /// The values by example that are used outside of the loop.
    pub results: BTreeSet<Part>,
    /// Values that combine partial results.
    pub partial: Vec<(ValueId, PReduceKind)>,
}

/// A body, analysed.
pub(super) struct Examples {
    /// The axis of examples of each value; `None` if it is whole.
    pub axis: IdVec<ValueId, Option<usize>>,
    /// The stage of each value.
    pub stage: IdVec<ValueId, usize>,
    /// How each equation treats the axis of examples; `None` if all its values are whole.
    pub along: Vec<Option<Along>>,
    /// The loops.
    pub stages: Vec<Stage>,
}

/// Analyses a function without dimension variables. `batch` has the inputs whose axis 0 runs over
/// the examples, which fall into `parts` microbatches.
///
/// Errors: an op mixes the examples.
pub(super) fn examples(function: &Function, batch: &[usize], parts: usize) -> Result<Examples> {
    let body = &function.body;
    let mut axis: IdVec<ValueId, Option<usize>> = body.values.ids().map(|_| None).collect();
    let mut stage: IdVec<ValueId, usize> = body.values.ids().map(|_| 0).collect();
    batch.iter().for_each(|input| axis[body.inputs[*input]] = Some(0));
    let mut along = Vec::with_capacity(body.equations.len());
    let definitions = body.definitions();
    let mut stages = vec![];
    for (at, equation) in body.equations.iter().enumerate() {
        let own = equation.operands.iter().map(|v| stage[*v]).max().unwrap_or(0);
        equation.results.iter().for_each(|v| stage[*v] = own);
        if equation.operands.iter().all(|v| axis[*v].is_none()) {
            along.push(None);
            continue;
        }
        let state = |value: &ValueId| match axis[*value] {
            Some(axis) => State::ByExample(axis),
            None if is_zero(body, &definitions, *value) => State::Zero,
            None => State::Whole,
        };
        let of: Vec<State> = equation.operands.iter().map(state).collect();
        let found = Mixing { function, body, equation }.along(&of, parts)?;
        while stages.len() <= own {
            stages.push(Stage::default());
        }
        stages[own].equations.push(at);
        for (result, fate) in equation.results.iter().zip(&found.results) {
            match fate {
                Fate::Kept(kept) => axis[*result] = Some(*kept),
                Fate::Reduced(kind) => {
                    stage[*result] = own + 1;
                    stages[own].partial.push((*result, *kind));
                }
                Fate::Whole => {}
            }
        }
        along.push(Some(found));
    }
    let mut found = Examples { axis, stage, along, stages };
    found.need_parts(body, &definitions, parts);
    for output in &body.outputs {
        if let Some(axis) = found.axis[*output] {
            found.used_outside((*output, axis), &definitions, None);
        }
    }
    Ok(found)
}

impl Examples {
    /// Finds what each stage is given and computes again.
    fn need_parts(
        &mut self,
        body: &Body,
        definitions: &IdVec<ValueId, Option<usize>>,
        parts: usize,
    ) {
        for number in 0..self.stages.len() {
            let mut cuts: BTreeMap<(usize, usize), (Part, Along)> = BTreeMap::new();
            let mut open: Vec<Part> = Vec::new();
            let needs = |equation: &Equation, along: &Along, open: &mut Vec<Part>| {
                let places = equation.operands.iter().zip(&along.operands);
                open.extend(places.filter_map(|(v, axis)| axis.map(|axis| (*v, axis))));
            };
            for at in self.stages[number].equations.clone() {
                let along = self.along[at].as_ref().expect("an equation of a stage");
                needs(&body.equations[at], along, &mut open);
            }
            while let Some(part) = open.pop() {
                let (value, axis) = part;
                let by_example = self.axis[value].is_some();
                if by_example && self.stage[value] == number && definitions[value].is_some() {
                    continue;
                }
                let definition = definitions[value].filter(|_| !by_example);
                let repeated = definition.and_then(|at| {
                    let along = again(body, &body.equations[at], axis, parts)?;
                    Some((at, along))
                });
                match repeated {
                    Some((at, along)) => {
                        if cuts.contains_key(&(at, axis)) {
                            continue;
                        }
                        needs(&body.equations[at], &along, &mut open);
                        cuts.insert((at, axis), (part, along));
                    }
                    None => {
                        self.stages[number].given.insert(part);
                        if by_example {
                            self.used_outside(part, definitions, Some(number));
                        }
                    }
                }
            }
            self.stages[number].cuts = cuts.into_values().collect();
        }
    }

    /// A value by example is used by another stage, or is an output.
    fn used_outside(
        &mut self,
        part: Part,
        definitions: &IdVec<ValueId, Option<usize>>,
        by: Option<usize>,
    ) {
        let stage = self.stage[part.0];
        if definitions[part.0].is_some() && by != Some(stage) {
            self.stages[stage].results.insert(part);
        }
    }
}

/// How an equation of whole values is computed again for a part of its result; `None` if the part
/// is sliced out of the result.
fn again(body: &Body, equation: &Equation, axis: usize, parts: usize) -> Option<Along> {
    if is_cheap(&equation.op) { Typed::of(body, equation).computes(axis, parts) } else { None }
}

/// Whether an op of whole values is computed again for a part, rather than its result sliced.
pub(super) fn is_cheap(op: &Op) -> bool {
    op.traits().elementwise
        || matches!(
            op,
            Op::BroadcastInDim(_)
                | Op::Iota(_)
                | Op::Constant(_)
                | Op::Permute(_)
                | Op::Reshape(_)
                | Op::PVary(_)
        )
}

/// Whether a value is known to be zero.
fn is_zero(body: &Body, definitions: &IdVec<ValueId, Option<usize>>, mut value: ValueId) -> bool {
    loop {
        let Some(at) = definitions[value] else { return false };
        let equation = &body.equations[at];
        match &equation.op {
            Op::Constant(op) => return op.value.splat().is_some_and(|s| s.to_f64() == 0.0),
            Op::BroadcastInDim(_) | Op::Reshape(_) | Op::ConvertElementType(_) | Op::PVary(_) => {
                value = equation.operands[0];
            }
            _ => return false,
        }
    }
}
