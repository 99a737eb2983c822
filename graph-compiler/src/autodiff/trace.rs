//! Closures of Rust as bodies.

use super::current_scope;
use wengert_core::graph::build::Closure;
use wengert_core::{Location, Result, Tensor, TensorType};

/// Runs `f` on fresh inputs of the given types in a scope within the current one, and returns what it computed. Equations that do
/// not depend on the inputs land in the current scope and are captured.
#[track_caller]
pub fn trace(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Closure> {
    let caller = Location::caller();
    let scope = current_scope()?.child();
    let inputs: Vec<Tensor> = types.iter().map(|ty| scope.input_at(ty.clone(), caller.clone())).collect();
    let outputs = scope.enter(|| f(&inputs));
    if let Some(error) = outputs.iter().find_map(Tensor::error) {
        return Err(error.clone());
    }
    scope.close(&outputs)
}

/// [`trace`] of what may fail.
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
