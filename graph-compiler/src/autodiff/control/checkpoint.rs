//! `checkpoint`: a function for which reverse mode keeps only its arguments and the values that
//! the user names.
//!
//! Linearization runs the function as it is. Its linear half is a region again, which recomputes
//! the function's values from the arguments and from the kept values. So is its transpose. In
//! these regions arguments pass a barrier first, so that recomputed values are not merged with
//! the original ones.

use super::branch::without_unused;
use super::{
    Operand, Site, derived, dual, flags, kept, linear, of_operands, opened, present, spread,
    transposed_region, types,
};
use crate::autodiff::activity::Activity;
use crate::autodiff::custom::Purpose;
use crate::autodiff::jvp::Duals;
use crate::autodiff::linearize::linearize as linearized;
use crate::autodiff::{current_scope, unpoisoned};
use crate::probes::unwatched;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Equation, ValueId};
use wengert_core::op::{Checkpoint, OptimizationBarrier};
use wengert_core::{Result, Tensor};

/// The function with its tangents, as one checkpointed function.
pub(super) fn jvp(at: &Site<'_>, op: &Checkpoint) -> Result<Duals> {
    let body = &at.equation.regions[0];
    let (dual, moving) = dual(at, body)?;
    let operands = [at.operands, &present(at.tangents)].concat();
    let mut results = at.emit(op.clone(), &operands, vec![dual])?;
    let tangents = results.split_off(body.outputs.len());
    Ok((results, spread(&tangents, &moving)))
}

/// A region whose known inputs pass a barrier.
fn guarded(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let guarded: Vec<Tensor> =
        inputs.iter().map(|t| Tensor::apply(OptimizationBarrier {}, &[t])).collect();
    unpoisoned(&guarded)?;
    Ok(guarded)
}

pub(super) fn linearize(at: &Site<'_>, op: &Checkpoint) -> Result<Duals> {
    let body = &at.equation.regions[0];
    let active = flags(at.tangents);
    let given = present(at.tangents);
    let kept_values = op.kept(body);

    // The linear half takes arguments, kept values, tangents. After its tangents it returns the
    // kept values as it recomputes them.
    let taken = [types(at.operands), body.types(&kept_values), types(&given)].concat();
    let (scope, inputs) = opened(current_scope()?.region(), &taken);
    let (arguments, rest) = inputs.split_at(at.operands.len());
    let tangents = &rest[kept_values.len()..];
    let mut extended = body.to_body();
    extended.outputs.extend(&kept_values);
    // The forward run has reported the probes already.
    let extended = unwatched(&extended);
    let wanted = [at.wanted, &vec![false; kept_values.len()][..]].concat();
    let mut moving = vec![];
    let outputs = scope.enter(|| -> Result<Vec<Tensor>> {
        let arguments = guarded(arguments)?;
        let closure = Closure { body: extended.clone(), captures: vec![] };
        let apart = linearized(&closure, &arguments, &active, &wanted)?;
        let made = apart.linear.apply_as(Purpose::Linear, &spread(tangents, &active))?;
        let (made, _) = made.split_at(body.outputs.len());
        moving = flags(made);
        Ok([present(made), apart.outputs[body.outputs.len()..].to_vec()].concat())
    })?;
    let mut linear = scope.close(&outputs)?.body;
    let again = linear.outputs.split_off(linear.outputs.len() - kept_values.len());
    // Recomputed kept values are replaced by the inputs.
    let outside = linear.inputs[at.operands.len()..][..kept_values.len()].to_vec();
    let replace = |v: &mut ValueId| {
        if let Some(i) = again.iter().position(|a| a == v) {
            *v = outside[i];
        }
    };
    for equation in &mut linear.equations {
        equation.operands.iter_mut().for_each(replace);
    }
    linear.outputs.iter_mut().for_each(replace);
    let live = Activity::prune(&mut linear);
    let needed: Vec<bool> = outside.iter().map(|v| live[*v]).collect();

    let mut primal = body.to_body();
    primal.outputs.extend(kept(&kept_values, &needed));
    let mut results = at.emit(op.clone(), at.operands, vec![primal])?;
    let saved = results.split_off(body.outputs.len());
    if !moving.contains(&true) {
        let none = vec![None; results.len()];
        return Ok((results, none));
    }
    let all = [
        &linear.inputs[..at.operands.len()],
        &kept(&outside, &needed),
        &linear.inputs[at.operands.len() + outside.len()..],
    ]
    .concat();
    linear.inputs = all;
    let operands = [at.operands, &saved, &given].concat();
    let (operands, regions) = without_unused(0, operands, vec![linear]);
    let tangents = at.emit_linear(op.clone(), &operands, regions)?;
    Ok((results, spread(&tangents, &moving)))
}

/// The transpose recomputes the values that it needs, as the linear half does.
pub(super) fn transpose(
    scope: &Scope,
    equation: &Equation,
    op: &Checkpoint,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let (transposed, moving) = transposed_region(&equation.regions[0], operands, cotangents)?;
    if !moving.contains(&true) {
        return Ok(vec![None; operands.len()]);
    }
    let all = [present(operands), present(cotangents)].concat();
    let (all, regions) = without_unused(0, all, vec![transposed]);
    let rule = format!("transpose({})", equation.op.name());
    let results = derived(scope, equation, rule, op.clone().into(), &all, regions)?;
    Ok(of_operands(&results, &moving, &linear(operands)))
}
