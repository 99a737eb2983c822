//! Forward mode and linearization of `scan`.

use super::{
    Site, active_carries, innermost, kept, opened, or_zeros, part, present, pruned, spread, types,
};
use crate::autodiff::custom::{self, Purpose};
use crate::autodiff::jvp::{Duals, run, zeros};
use crate::autodiff::linearize::{Linear, linearize as linearized};
use crate::probes::unwatched;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::Body;
use wengert_core::op::Scan;
use wengert_core::{Dim, Result, Tensor, TensorType};

/// The inputs of a loop's differentiation.
#[derive(Clone)]
pub(super) struct Plan<'a> {
    pub step: &'a Body,
    pub carries: &'a [Tensor],
    pub slices: &'a [Tensor],
    pub captures: &'a [Tensor],
    /// Tangents of the above, in this order.
    pub tangents: &'a [Option<Tensor>],
    /// Whether each carry gets a tangent.
    pub moving: Vec<bool>,
    /// Whether each output of the step needs a tangent.
    pub wanted: Vec<bool>,
}

impl<'a> Plan<'a> {
    /// `operands` and `tangents` without a count.
    pub fn new(
        at: &Site<'a>,
        step: &'a Body,
        operands: &'a [Tensor],
        tangents: &'a [Option<Tensor>],
        carries: usize,
        captures: usize,
    ) -> Self {
        let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        let moving = active_carries(step, carries, &active, at.wanted);
        let wanted = moving.iter().chain(&at.wanted[carries..]).copied().collect();
        let (carried, rest) = operands.split_at(carries);
        let (slices, captures) = rest.split_at(rest.len() - captures);
        Plan { step, carries: carried, slices, captures, tangents, moving, wanted }
    }

    /// Initial tangents of the carries; zeros for carries that get a tangent only later.
    pub fn initial(&self) -> Result<Vec<Tensor>> {
        let moving = (0..self.carries.len()).filter(|i| self.moving[*i]);
        moving.map(|i| or_zeros(self.tangents[i].as_ref(), self.carries[i].ty())).collect()
    }

    pub fn tangents_of_slices(&self) -> &[Option<Tensor>] {
        &self.tangents[self.carries.len()..][..self.slices.len()]
    }

    pub fn tangents_of_captures(&self) -> &[Option<Tensor>] {
        &self.tangents[self.carries.len() + self.slices.len()..]
    }

    /// Types of the step's inputs after the carries: rows of slices.
    pub fn parts(&self) -> Vec<TensorType> {
        self.slices.iter().map(|t| part(t.ty())).collect()
    }

    /// Whether each input of a step has a tangent.
    pub fn active(&self) -> Vec<bool> {
        let rest = self.tangents[self.carries.len()..].iter().map(Option::is_some);
        self.moving.iter().copied().chain(rest).collect()
    }
}

/// A step on carries, slices and captures with their tangents. Captures are used from outside, so
/// values that depend on them alone move out.
pub(super) struct Joint {
    /// Inputs are carries, their tangents, rows of slices, their tangents, captures. Outputs are
    /// carries, their tangents, rows of stacks, their tangents.
    pub closure: Closure,
    /// Initial tangents of the carries.
    initial: Vec<Tensor>,
    /// Tangents of slices.
    slices: Vec<Tensor>,
    /// The number of stacks, and whether each has a tangent.
    stacks: usize,
    moving_stacks: Vec<bool>,
}

impl Joint {
    /// Results and tangents of a loop from the results of the loop of this step.
    pub fn duals(&self, plan: &Plan<'_>, mut results: Vec<Tensor>) -> Duals {
        let mut rest = results.split_off(plan.carries.len());
        let mut whole = rest.split_off(self.initial.len());
        let stacked = whole.split_off(self.stacks);
        results.extend(whole);
        let mut tangents = spread(&rest, &plan.moving);
        tangents.extend(spread(&stacked, &self.moving_stacks));
        (results, tangents)
    }
}

/// Primal and tangent in one loop, or separate (linearized). Only a separate tangent can be
/// transposed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    Interwoven,
    Apart,
}

pub(super) fn joint(plan: &Plan<'_>, initial: Vec<Tensor>, mode: Mode) -> Result<Joint> {
    let count = plan.carries.len();
    let slices = present(plan.tangents_of_slices());
    let taken = [types(plan.carries), types(&initial), plan.parts(), parts(&slices)].concat();
    let (scope, inputs) = opened(innermost(plan.tangents.iter().flatten())?.child(), &taken);
    let (carries, rest) = inputs.split_at(count);
    let (carried, rest) = rest.split_at(initial.len());
    let (sliced, rest) = rest.split_at(plan.slices.len());
    let primals: Vec<Tensor> = [carries, sliced, plan.captures].concat();
    let mut tangents = spread(carried, &plan.moving);
    tangents.extend(spread(rest, &super::flags(plan.tangents_of_slices())));
    tangents.extend(plan.tangents_of_captures().iter().cloned());
    let (mut outputs, mut made) = scope.enter(|| match mode {
        Mode::Interwoven => run(plan.step, &primals, &tangents, &plan.wanted, false),
        Mode::Apart => {
            let closure = Closure { body: plan.step.clone(), captures: vec![] };
            let apart = linearized(&closure, &primals, &plan.active(), &plan.wanted)?;
            let tangents = apart.linear.apply_as(Purpose::Linear, &tangents)?;
            Ok((apart.outputs, tangents))
        }
    })?;
    let mut stacks = outputs.split_off(count);
    if mode == Mode::Apart {
        stacks.clear();
    }
    let stacked = made.split_off(count);
    let next = scope.enter(|| {
        let moving = (0..count).filter(|i| plan.moving[*i]);
        moving.map(|i| or_zeros(made[i].as_ref(), outputs[i].ty())).collect::<Result<Vec<_>>>()
    })?;
    let moving_stacks = super::flags(&stacked);
    let all = [outputs, next, stacks.clone(), present(&stacked)].concat();
    Ok(Joint {
        closure: pruned(scope.close(&all)?),
        initial,
        slices,
        stacks: stacks.len(),
        moving_stacks,
    })
}

/// Carries and slices together with their tangents.
pub(super) fn jvp(at: &Site<'_>, op: &Scan) -> Result<Duals> {
    let first = usize::from(op.counted);
    let step = &at.equation.regions[0];
    let plan =
        Plan::new(at, step, &at.operands[first..], &at.tangents[first..], op.carries, op.captures);
    let joint = joint(&plan, plan.initial()?, Mode::Interwoven)?;
    let op = Scan {
        carries: op.carries + joint.initial.len(),
        captures: joint.closure.captures.len(),
        ..op.clone()
    };
    let count = &at.operands[..first];
    let operands =
        [count, plan.carries, &joint.initial, plan.slices, &joint.slices, &joint.closure.captures]
            .concat();
    let results = at.emit(op, &operands, vec![joint.closure.body.clone()])?;
    Ok(joint.duals(&plan, results))
}

/// A linear loop that recomputes the carries beside their tangents, since there is no tape.
/// Returns tangents of the carries, then of the stacks. Its only nonlinear values are known
/// carries, so its transpose may choose how to obtain them.
pub(super) fn recomputing(
    at: &Site<'_>,
    plan: &Plan<'_>,
    looped: Loop<'_>,
    checkpoints: usize,
) -> Result<Vec<Option<Tensor>>> {
    // The forward run has reported the probes already.
    let step = unwatched(plan.step);
    let apart = Plan { step: &step, ..plan.clone() };
    let joint = joint(&apart, plan.initial()?, Mode::Apart)?;
    let op = Scan {
        length: looped.length.clone(),
        carries: plan.carries.len() + joint.initial.len(),
        captures: joint.closure.captures.len(),
        reverse: looped.reverse,
        counted: looped.count.is_some(),
        checkpoints,
    };
    let count: Vec<Tensor> = looped.count.cloned().into_iter().collect();
    let operands =
        [&count, plan.carries, &joint.initial, plan.slices, &joint.slices, &joint.closure.captures]
            .concat();
    let results = at.emit_linear(op, &operands, vec![joint.closure.body.clone()])?;
    Ok(joint.duals(plan, results).1)
}

fn parts(wholes: &[Tensor]) -> Vec<TensorType> {
    wholes.iter().map(|t| part(t.ty())).collect()
}

/// The source of a step's residual.
pub(super) enum Source {
    /// A row of the slice of this number.
    Slice(usize),
    /// A row of the tape of this number.
    Tape(usize),
    /// Loop-invariant.
    Invariant(Tensor),
}

/// A linearized step: the closed primal step, and the sources of the linear step's residuals.
pub(super) struct Tape {
    /// Outputs are those of the step, then the tape's. Inputs are the explicit ones, then
    /// captures.
    pub closure: Closure,
    pub linear: Linear,
    pub sources: Vec<Source>,
    /// The number of values per step on the tape.
    pub kept: usize,
}

/// Linearizes the step of a loop. `more` computes further outputs, placed after the carries, from
/// inputs of the `further` types after the carries.
pub(super) fn tape(
    plan: &Plan<'_>,
    further: &[TensorType],
    more: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
) -> Result<Tape> {
    let taken = [types(plan.carries), further.to_vec(), plan.parts()].concat();
    let (scope, inputs) = opened(innermost([])?.child(), &taken);
    let (carries, rest) = inputs.split_at(plan.carries.len());
    let (extra, slices) = rest.split_at(further.len());
    let primals: Vec<Tensor> = [carries, slices, plan.captures].concat();
    let closure = Closure { body: plan.step.clone(), captures: vec![] };
    let (linearized, extra) = scope.enter(|| -> Result<_> {
        Ok((linearized(&closure, &primals, &plan.active(), &plan.wanted)?, more(extra)))
    })?;
    let mut outputs = linearized.outputs;
    outputs.splice(carries.len()..carries.len(), extra);
    let mut taped: Vec<Tensor> = Vec::new();
    let source = |residual: &Tensor| {
        if let Some(outer) = scope.captured(residual) {
            return Source::Invariant(outer);
        }
        if residual.scope().is_none_or(|s| !s.is_same(&scope)) {
            return Source::Invariant(residual.clone());
        }
        if let Some(i) = slices.iter().position(|slice| slice.is_same(residual)) {
            return Source::Slice(i);
        }
        let known = taped.iter().position(|t| t.is_same(residual));
        Source::Tape(known.unwrap_or_else(|| {
            taped.push(residual.clone());
            taped.len() - 1
        }))
    };
    let sources = linearized.linear.residuals.iter().map(source).collect();
    let kept = taped.len();
    outputs.extend(taped);
    let closure = pruned(scope.close(&outputs)?);
    Ok(Tape { closure, linear: linearized.linear, sources, kept })
}

/// The loop with a tape, and the linear loop that reads it.
pub(super) fn linearize(at: &Site<'_>, op: &Scan) -> Result<Duals> {
    let first = usize::from(op.counted);
    let step = &at.equation.regions[0];
    let plan =
        Plan::new(at, step, &at.operands[first..], &at.tangents[first..], op.carries, op.captures);
    if op.checkpoints > 0 {
        let results = at.emit(op.clone(), at.operands, at.equation.regions.clone())?;
        let looped =
            Loop { length: &op.length, reverse: op.reverse, count: at.operands[..first].first() };
        return Ok((results, recomputing(at, &plan, looped, op.checkpoints)?));
    }
    let tape = tape(&plan, &[], |_| vec![])?;
    let primal = Scan { captures: tape.closure.captures.len(), ..op.clone() };
    let count = &at.operands[..first];
    let operands = [count, plan.carries, plan.slices, &tape.closure.captures].concat();
    let mut results = at.emit(primal, &operands, vec![tape.closure.body.clone()])?;
    let kept = results.split_off(results.len() - tape.kept);
    let looped =
        Loop { length: &op.length, reverse: op.reverse, count: at.operands[..first].first() };
    let tangents = linear_loop(at, &plan, &tape, &kept, looped)?;
    Ok((results, tangents))
}

/// The iteration of a linear loop.
pub(super) struct Loop<'a> {
    pub length: &'a Dim,
    pub reverse: bool,
    pub count: Option<&'a Tensor>,
}

/// The scan of a linear step over a tape. Returns tangents of the carries, then of the stacks.
pub(super) fn linear_loop(
    at: &Site<'_>,
    plan: &Plan<'_>,
    tape: &Tape,
    kept_parts: &[Tensor],
    looped: Loop<'_>,
) -> Result<Vec<Option<Tensor>>> {
    let linear = &tape.linear;
    let (moving, stacked): (Vec<bool>, Vec<bool>) = {
        let has: Vec<bool> = linear.outputs.iter().map(|(_, at)| at.is_some()).collect();
        (plan.moving.clone(), has[plan.carries.len()..].to_vec())
    };
    if !moving.contains(&true) && !stacked.contains(&true) {
        return Ok(vec![None; moving.len() + stacked.len()]);
    }
    let initial = plan.initial()?;
    let sliced = present(plan.tangents_of_slices());
    // The slices: tangents, operands that are residuals, the tape.
    let again: Vec<bool> = (0..plan.slices.len())
        .map(|i| tape.sources.iter().any(|s| matches!(s, Source::Slice(j) if *j == i)))
        .collect();
    let slices = [sliced.clone(), kept(plan.slices, &again), kept_parts.to_vec()].concat();
    let taken = [types(&initial), parts(&slices)].concat();
    let outer: Scope = innermost(plan.tangents.iter().flatten())?;
    let (scope, inputs) = opened(outer.child(), &taken);
    let (carried, rest) = inputs.split_at(initial.len());
    let (moved, rest) = rest.split_at(sliced.len());
    let (known, taped) = rest.split_at(rest.len() - kept_parts.len());
    let known = spread(known, &again);
    // The linear step takes tangents of the active carries, slices and captures, then residuals.
    let mut given: Vec<Option<Tensor>> = carried.iter().chain(moved).cloned().map(Some).collect();
    given.extend(present(plan.tangents_of_captures()).into_iter().map(Some));
    for source in &tape.sources {
        given.push(Some(match source {
            Source::Slice(i) => known[*i].clone().expect("what is a residual is sliced again"),
            Source::Tape(i) => taped[*i].clone(),
            Source::Invariant(tensor) => tensor.clone(),
        }));
    }
    let closure = scope.enter(|| {
        let made = custom::run(&linear.body, &given, Purpose::Linear)?;
        let output = |i: usize| linear.outputs[i].1.and_then(|at| made[at].clone());
        let all = (0..linear.outputs.len()).filter(|i| match i.checked_sub(moving.len()) {
            None => moving[*i],
            Some(stack) => stacked[stack],
        });
        let outputs = all.map(|i| output(i).map_or_else(|| zeros(&linear.outputs[i].0), Ok));
        scope.close(&outputs.collect::<Result<Vec<_>>>()?)
    })?;
    let closure = pruned(closure);
    let op = Scan {
        length: looped.length.clone(),
        carries: initial.len(),
        captures: closure.captures.len(),
        reverse: looped.reverse,
        counted: looped.count.is_some(),
        checkpoints: 0,
    };
    let count: Vec<Tensor> = looped.count.cloned().into_iter().collect();
    let operands = [count, initial, slices, closure.captures].concat();
    let mut results = at.emit_linear(op, &operands, vec![closure.body])?;
    let stacks = results.split_off(moving.iter().filter(|m| **m).count());
    let mut tangents = spread(&results, &moving);
    tangents.extend(spread(&stacks, &stacked));
    Ok(tangents)
}
