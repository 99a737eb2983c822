//! Forward mode and linearization of `while`.

use super::scan::{Loop, Mode, Plan, joint, linear_loop, recomputing, tape};
use super::{Site, innermost, opened, pruned, types};
use crate::autodiff::jvp::Duals;
use wengert_core::build::Closure;
use wengert_core::build::inline;
use wengert_core::op::While;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor, TensorType};

/// Carries together with their tangents. The condition does not read tangents.
pub(super) fn jvp(at: &Site<'_>, op: &While) -> Result<Duals> {
    let [condition, step] = at.equation.regions.as_slice() else {
        unreachable!("it has two regions")
    };
    let carries = op.parts(at.operands)?.carries.len();
    let plan = Plan::new(at, step, at.operands, at.tangents, carries, op.captures);
    let initial = plan.initial()?;
    let taken = [types(plan.carries), types(&initial)].concat();
    let outer = innermost(plan.tangents.iter().flatten())?;

    let (scope, inputs) = opened(outer.child(), &taken);
    let primals = [&inputs[..carries], plan.captures].concat();
    let goes_on = scope.enter(|| inline(condition, &primals))?;
    let condition = pruned(scope.close(&goes_on)?);

    let all = [plan.carries, &initial].concat();
    let joint = joint(&plan, initial, Mode::Interwoven)?;
    let results = emit(at, op, condition, joint.closure.clone(), &all)?;
    Ok(joint.duals(&plan, results))
}

/// The loop with other regions.
fn emit(
    at: &Site<'_>,
    op: &While,
    condition: Closure,
    step: Closure,
    initial: &[Tensor],
) -> Result<Vec<Tensor>> {
    let mut closures = [condition, step];
    let captures = Closure::captures_of(&closures);
    closures.iter_mut().for_each(|c| c.capture(&captures));
    let op = While { captures: captures.len(), ..op.clone() };
    let operands = [initial, &captures].concat();
    at.emit(op, &operands, closures.into_iter().map(|c| c.body).collect())
}

/// The loop with a tape and a count of its steps, and the linear loop of that many steps.
pub(super) fn linearize(at: &Site<'_>, op: &While) -> Result<Duals> {
    let length = match (&op.max_steps, op.checkpoints) {
        (Some(length), _) => length.clone(),
        (None, 0) => return Err(unbounded(at)),
        (None, _) => Dim::constant(While::LIMIT as i64),
    };
    let [condition, step] = at.equation.regions.as_slice() else {
        unreachable!("it has two regions")
    };
    let carries = op.parts(at.operands)?.carries.len();
    let plan = Plan::new(at, step, at.operands, at.tangents, carries, op.captures);
    let number = TensorType::scalar(DType::I32);
    let next = |n: &[Tensor]| vec![&n[0] + Tensor::constant(1i32)];
    let tape = match op.checkpoints {
        0 => Some(tape(&plan, std::slice::from_ref(&number), next)?),
        _ => None,
    };
    let counting = [types(plan.carries), vec![number]].concat();
    let (scope, inputs) = opened(innermost([])?.child(), &counting);
    let primals = [&inputs[..carries], plan.captures].concat();
    let goes_on = scope.enter(|| inline(condition, &primals))?;
    let condition = pruned(scope.close(&goes_on)?);
    let primal = match &tape {
        Some(tape) => tape.closure.clone(),
        None => {
            let (scope, inputs) = opened(innermost([])?.child(), &counting);
            let primals = [&inputs[..carries], plan.captures].concat();
            let outputs = scope.enter(|| -> Result<Vec<Tensor>> {
                let mut outputs = inline(step, &primals)?;
                outputs.splice(carries..carries, next(&inputs[carries..]));
                Ok(outputs)
            })?;
            pruned(scope.close(&outputs)?)
        }
    };

    let initial = [plan.carries, &[Tensor::constant(0i32)]].concat();
    let mut results = emit(at, op, condition, primal, &initial)?;
    let kept = results.split_off(results.len() - tape.as_ref().map_or(0, |tape| tape.kept));
    let count = results.remove(carries);
    let looped = Loop { length: &length, reverse: false, count: Some(&count) };
    let tangents = match &tape {
        Some(tape) => linear_loop(at, &plan, tape, &kept, looped)?,
        None => recomputing(at, &plan, looped, op.checkpoints)?,
    };
    Ok((results, tangents))
}

fn unbounded(at: &Site<'_>) -> Diagnostic {
    Diagnostic::new(
        "reverse mode through a `while` loop without a bound would have to remember any number of \
         steps",
    )
    .at(at.scope.origin(at.equation.location), "the loop is here")
    .help(
        "give it a bound by `while_at_most`, or checkpoints by `while_checkpointed`; or write it \
         as a `scan` or `fori`, whose number of steps is known; or use forward mode \
         (`jvp`, `jacfwd`)",
    )
}
