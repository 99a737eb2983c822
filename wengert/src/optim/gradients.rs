//! Gradients as outputs of a training step.

use wengert_core::build::FunctionBuilder;
use wengert_core::{Differentiable, Location};

/// The names of outputs that are gradients begin so; the rest is the variable's key path.
pub const GRADIENT: &str = "gradient.";

/// Adds each tensor of a gradient as an output, `gradient.` and its key path. A run with
/// [event files](crate::tensorboard) then has their distributions. Every run of the step keeps the
/// gradients until it ends, which costs the memory of the parameters once more.
#[track_caller]
pub fn report_gradients<G: Differentiable>(f: &mut FunctionBuilder, gradient: &G) {
    let _user = Location::caller().attributed();
    for (path, tensor) in gradient.tensors() {
        if tensor.dtype().is_float() {
            f.output(&format!("{GRADIENT}{path}"), tensor);
        }
    }
}
