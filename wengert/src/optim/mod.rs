//! Optimisers: graph code that updates state.
//!
//! `step` takes a model whose tensors are state of the function, and a gradient of the same structure. It declares its own state (moments,
//! a step counter) under key paths made of its name and the model's, e.g. `adamw.m.model.hidden.weight`, and replaces the model's
//! variables and its own by their next values. Nothing happens outside the graph: a training step with its optimiser is one
//! function, which a file holds and any session runs.
//!
//! Integers in a model have no gradient and stay as they are. The moments of halves are kept, and their updates computed, in f32.

mod adam;
mod clip;
mod rate;
mod sgd;

pub use adam::{Adam, AdamW};
pub use clip::clip_by_global_norm;
pub use rate::Rate;
pub use sgd::Sgd;

use wengert_core::graph::build::FunctionBuilder;
use wengert_core::{DType, Diagnostic, Differentiable, Initializer, Location, Tensor, TensorType};

/// A variable of a model with its gradient.
struct Variable {
    path: String,
    value: Tensor,
    gradient: Tensor,
}

/// The float variables of a model with their gradients. What is not state of the function is an error, which the function reports.
#[track_caller]
fn variables<M: Differentiable>(
    f: &FunctionBuilder,
    model: &M,
    gradient: &M::TangentVector,
) -> Vec<Variable> {
    let (tensors, gradients) = (model.tensors(), gradient.tensors());
    let mut variables = Vec::with_capacity(tensors.len());
    for ((path, value), (_, gradient)) in tensors.into_iter().zip(gradients) {
        if !value.dtype().is_float() || value.error().is_some() {
            continue;
        }
        let Some(state) = f.state_path(&value) else {
            let error = Diagnostic::new(format!("an optimiser cannot update `{path}`: it is no state"))
                .at(Location::caller(), "updated here")
                .help("give `step` the model that `state` of the function returned");
            f.scope().fail(&error);
            continue;
        };
        variables.push(Variable { path: state.into(), value, gradient });
    }
    variables
}

/// The dtype in which a variable's update is computed.
fn wide(tensor: &Tensor) -> DType {
    if tensor.dtype().is_half() { DType::F32 } else { tensor.dtype() }
}

/// State of an optimiser that begins with zeros, of the shape of a variable.
#[track_caller]
fn moment(f: &mut FunctionBuilder, name: &str, what: &str, variable: &Variable) -> (String, Tensor) {
    let path = format!("{name}.{what}.{}", variable.path);
    let ty = variable.value.ty().with_dtype(wide(&variable.value));
    let state = f.state(&path, Tensor::variable(ty, Initializer::Zeros));
    (path, state)
}

/// The number of this step, counted from 1, as i32; and its update.
#[track_caller]
fn count(f: &mut FunctionBuilder, name: &str) -> Tensor {
    let path = format!("{name}.step");
    let zero = Tensor::variable(TensorType::scalar(DType::I32), Initializer::Zeros);
    let step = f.state(&path, zero) + 1;
    f.update(&path, &step);
    step
}
