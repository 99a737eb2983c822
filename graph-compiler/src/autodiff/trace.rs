//! Rust closures as bodies.

use super::{current_scope, unpoisoned};
use wengert_core::build::{Closure, Scope};
use wengert_core::{Location, Result, Tensor, TensorType};

/// Runs `f` on fresh inputs of the given types in a child scope of the current one, and returns
/// the closure. Equations that do not depend on the inputs go to the current scope, and their
/// results are captured.
#[track_caller]
pub fn trace(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Closure> {
    let caller = Location::caller();
    let scope = current_scope()?.child();
    let inputs = types.iter().map(|ty| scope.input_at(ty.clone(), caller.clone())).collect();
    run(scope, inputs, f)
}

/// [`trace`] at a point: in an eager scope, the inputs have the values of `primals`, so that `f`
/// may look at them.
#[track_caller]
pub fn trace_at(primals: &[Tensor], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Closure> {
    let caller = Location::caller();
    let scope = current_scope()?.child();
    let input = |t: &Tensor| match t.value() {
        Ok(value) if scope.is_eager() => scope.input_with_value(&value, caller.clone()),
        _ => scope.input_at(t.ty().clone(), caller.clone()),
    };
    let inputs = primals.iter().map(input).collect();
    run(scope.clone(), inputs, f)
}

fn run(
    scope: Scope,
    inputs: Vec<Tensor>,
    f: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
) -> Result<Closure> {
    let outputs = scope.enter(|| f(&inputs));
    unpoisoned(&outputs)?;
    scope.close(&outputs)
}

/// [`trace`] of a function that may fail.
#[track_caller]
pub(crate) fn record(
    types: &[TensorType],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Closure> {
    let mut failed = None;
    let closure = trace(types, |inputs| {
        f(inputs).unwrap_or_else(|error| {
            failed = Some(error);
            vec![]
        })
    });
    failed.map_or(closure, Err)
}
