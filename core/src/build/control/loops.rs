//! Traces steps and emits loops.

use super::unroll::{Unrolling, number_of_steps};
use super::{current, finish, leaves, step_of, together, types_of};
use crate::build::Scope;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Result, ensure};
use crate::differentiable::{Differentiable, rebuild};
use crate::dim::Dim;
use crate::location::Location;
use crate::op::{Scan, While};
use crate::ty::TensorType;

/// The parameters of a scan.
pub(super) struct Loop<'a> {
    pub length: Result<Dim>,
    pub reverse: bool,
    pub count: Option<&'a Tensor>,
    pub checkpoints: usize,
    /// Number of steps that one step of the loop runs, if it is unrolled.
    pub unroll: Option<usize>,
}

impl Loop<'_> {
    pub fn of(length: Result<Dim>) -> Self {
        Loop { length, reverse: false, count: None, checkpoints: 0, unroll: None }
    }
}

pub(super) fn steps<C: Differentiable, X: Differentiable, Y: Differentiable>(
    Loop { length, reverse, count, checkpoints, unroll }: Loop<'_>,
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
    caller: Location,
) -> (C, Y) {
    let (carries, slices) = (leaves(init), leaves(xs));
    let poison = carries.iter().chain(&slices).chain(count).find_map(|t| t.error().cloned());
    let length = match (length, poison, current()) {
        (Ok(length), None, Ok(_)) => length,
        (Err(error), ..) | (_, Some(error), _) | (_, _, Err(error)) => {
            // The closure is run only for the structure of its result. The error is recorded
            // first, so that it precedes any error of the closure.
            let error = error.within(&caller, "the control flow is here");
            if let Some(scope) = Scope::current() {
                scope.fail(&error);
            }
            let poisoned = |t: &[Tensor]| vec![Tensor::poisoned(error.clone()); t.len()];
            let given = step(&rebuild(init, poisoned(&carries)), &rebuild(xs, poisoned(&slices)));
            let stacks = finish(&given.1, Err(error.clone()), &caller);
            return (finish(init, Err(error), &caller), stacks);
        }
    };
    let part = |ty: TensorType| ty.with_shape(ty.shape[1..].to_vec());
    let types: Vec<TensorType> =
        types_of(&carries).into_iter().chain(types_of(&slices).into_iter().map(part)).collect();
    let mut given = None;
    let closure = step_of(&types, |inputs| {
        let (carry, x) = inputs.split_at(carries.len());
        let (carry, stack) = step(&rebuild(init, carry.to_vec()), &rebuild(xs, x.to_vec()));
        let outputs = leaves(&carry).into_iter().chain(leaves(&stack)).collect();
        given = Some((carry, stack));
        outputs
    });
    let (carry, stack) = given.expect("there is a current scope, so the step has been run");
    let results = closure.and_then(|closure| {
        let count_of = leaves(&carry).len();
        ensure!(
            count_of == carries.len(),
            "a step gives a carry of {count_of} tensors, and takes one of {}", carries.len();
            help "a carry has the same structure before and after a step"
        );
        if let Some(unroll) = unroll {
            let steps = number_of_steps(unroll, &length)?;
            let closure = &closure;
            let unrolling =
                Unrolling { closure, carries: carries.len(), unroll, reverse, caller: &caller };
            return unrolling.run(carries.clone(), &slices, steps);
        }
        let op = Scan {
            length,
            carries: carries.len(),
            captures: closure.captures.len(),
            reverse,
            counted: count.is_some(),
            checkpoints,
        };
        let operands = count.into_iter().chain(&carries).chain(&slices).chain(&closure.captures);
        let operands: Vec<Tensor> = operands.cloned().collect();
        let mut results = Scope::emit(
            op.into(),
            &operands,
            vec![closure.body.renumber().into()],
            caller.clone(),
        )?;
        let stacks = results.split_off(carries.len());
        Ok((results, stacks))
    });
    let (carried, stacked) = match results {
        Ok((carried, stacks)) => (Ok(carried), Ok(stacks)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    (finish(init, carried, &caller), finish(&stack, stacked, &caller))
}

pub(super) fn repeat<C: Differentiable>(
    max_steps: Option<Dim>,
    checkpoints: usize,
    init: &C,
    condition: impl FnOnce(&C) -> Tensor,
    step: impl FnOnce(&C) -> C,
    caller: Location,
) -> C {
    let carries = leaves(init);
    if let Some(error) = carries.iter().find_map(Tensor::error) {
        return finish(init, Err(error.clone()), &caller);
    }
    let types = types_of(&carries);
    let results =
        step_of(&types, |c| vec![condition(&rebuild(init, c.to_vec()))]).and_then(|condition| {
            let step = step_of(&types, |c| leaves(&step(&rebuild(init, c.to_vec()))))?;
            let (regions, captures) = together(vec![condition, step]);
            let op = While { captures: captures.len(), max_steps, checkpoints };
            let operands: Vec<Tensor> = carries.iter().cloned().chain(captures).collect();
            Scope::emit(op.into(), &operands, regions, caller.clone())
        });
    finish(init, results, &caller)
}
