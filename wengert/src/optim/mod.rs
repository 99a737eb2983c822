//! Optimisers: graph code that updates state.
//!
//! `step` takes a model whose tensors are state of the function, and a gradient of the same
//! structure. It declares the optimiser's state (moments, a step counter) under key paths that
//! join the optimiser's name and the variable's path, e.g. `adamw.m.model.hidden.weight`. It then
//! sets the next values of the model's variables and of this state. All of this is in the graph:
//! a training step with its optimiser is one function, which can be saved and run by any session.
//!
//! The model is moved by [`move_along`](wengert_core::Differentiable::move_along): vectors by
//! addition, manifolds (e.g. rotations) by their own definition. Moments have the shape of the
//! gradient.
//!
//! Integers in a model have no gradient and do not change. For f16 and bf16 variables, moments
//! are kept and updates computed in f32. Moments may be stored in bf16 as well
//! ([`AdamW::moments`]), and states in bf16 may be rounded stochastically
//! ([`AdamW::stochastic_rounding`]).
//!
//! A training log shows the learning rate and the norm of the gradient of a step function that has
//! them as outputs: `report_rate` of an optimiser adds [`LEARNING_RATE`], and
//! `f.output(optim::GRAD_NORM, optim::global_norm(&gradient))` the norm.

mod adam;
mod clip;
mod gradients;
mod loss_scale;
mod muon;
mod rate;
mod sgd;
mod storage;

pub use adam::{Adam, AdamW};
pub use clip::{GRAD_NORM, clip_by_global_norm, global_norm};
pub use gradients::{GRADIENT, report_gradients};
pub use loss_scale::{LEAST_LOSS_SCALE, LOSS_SCALE, LossScale, SKIPPED, Scaled, scales_loss};
pub use muon::Muon;
pub use rate::{LEARNING_RATE, Rate};
pub use sgd::Sgd;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use storage::{Role, Storage};
use wengert_core::build::FunctionBuilder;
use wengert_core::{
    DType, Differentiable, Initializer, KeyPath, Location, Tensor, TensorType, diagnostic,
};

/// A choice of variables, by key path and type.
#[derive(Clone)]
struct Choice(Rc<Predicate>);

type Predicate = dyn Fn(&str, &TensorType) -> bool;

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choice")
    }
}

/// A variable of a model with its gradient.
struct Variable {
    /// Its path in the function's state.
    path: String,
    /// Its path in the model.
    key: KeyPath,
    value: Tensor,
    gradient: Tensor,
    /// Its number among the variables.
    index: u32,
}

/// The float variables of a model with their gradients. A tensor that is not state of the
/// function is an error, which the function reports.
#[track_caller]
fn variables<M: Differentiable>(
    f: &FunctionBuilder,
    model: &M,
    gradient: &M::TangentVector,
) -> Vec<Variable> {
    let (tensors, gradients) = (model.tensors(), gradient.tensors());
    if tensors.len() != gradients.len() {
        let error = diagnostic!(
            "the gradient has {} tensors, the model has {}",
            gradients.len(),
            tensors.len()
        )
        .at(Location::caller(), "updated here")
        .help("pass the gradient that `grad` gives at this model");
        f.scope().fail(&error);
        return vec![];
    }
    let mut variables = Vec::with_capacity(tensors.len());
    for ((path, value), (_, gradient)) in tensors.into_iter().zip(gradients) {
        if !value.dtype().is_float() || value.error().is_some() {
            continue;
        }
        let Some(state) = f.state_path(&value) else {
            let error = diagnostic!("an optimiser cannot update `{path}`: it is not state")
                .at(Location::caller(), "updated here")
                .help("give `step` the model that `state` of the function returned");
            f.scope().fail(&error);
            continue;
        };
        let index = u32::try_from(variables.len()).expect("a model has fewer variables than 2^32");
        variables.push(Variable { path: state.into(), key: path, value, gradient, index });
    }
    variables
}

/// Moves `model` by each of `steps` in order, and makes the result the variables' next values. A
/// step has one tensor for each variable, of the dtype that [`wide`] gives.
#[track_caller]
fn advance<M: Differentiable>(
    f: &mut FunctionBuilder,
    model: &M,
    gradient: &M::TangentVector,
    variables: &[Variable],
    steps: &[Vec<Tensor>],
    storage: &Storage,
) {
    let caller = Location::caller();
    let positions: BTreeMap<&KeyPath, usize> =
        variables.iter().enumerate().map(|(i, v)| (&v.key, i)).collect();
    let index = |path: &KeyPath| positions.get(path).copied();
    // The tangent has one tensor for each of the model's, in the same order. Its paths may differ.
    let places: Vec<Option<usize>> = model.tensors().iter().map(|(path, _)| index(path)).collect();
    let mut moved = model.map_tensors(&KeyPath::default(), &mut |path, t| match index(path) {
        Some(_) => caller.attribute(|| t.convert(wide(t))),
        None => t.clone(),
    });
    for step in steps {
        let mut places = places.iter();
        let direction = gradient.map_tensors(&KeyPath::default(), &mut |_, g| match places
            .next()
            .expect("there is a gradient for each tensor")
        {
            Some(i) => step[*i].clone(),
            None => g.clone(),
        });
        moved = moved.move_along(&direction);
    }
    for (place, (_, next)) in places.iter().zip(moved.tensors()) {
        if let Some(variable) = place.map(|i| &variables[i]) {
            let dtype = variable.value.dtype();
            f.update(&variable.path, &storage.round(&next, dtype, variable, Role::Value));
        }
    }
}

/// Reports that a variable cannot decay: it is a point of a manifold, which has no zero to decay
/// to.
#[track_caller]
fn no_decay(f: &FunctionBuilder, variable: &Variable) {
    let error = diagnostic!(
        "weight decay of `{}` ({}) is undefined: a manifold has no zero (its tangent is {})",
        variable.path,
        variable.value.ty(),
        variable.gradient.ty()
    )
    .at(Location::caller(), "updated here")
    .help("exclude the variable with `AdamW::decay_where`, or set the weight decay to 0");
    f.scope().fail(&error);
}

/// The dtype in which a variable's update is computed.
fn wide(tensor: &Tensor) -> DType {
    if tensor.dtype().is_half() { DType::F32 } else { tensor.dtype() }
}

/// The number of this step, counted from 1, as i32. Also updates the counter.
#[track_caller]
fn count(f: &mut FunctionBuilder, name: &str) -> Tensor {
    let path = format!("{name}.step");
    let zero = Tensor::variable(TensorType::scalar(DType::I32), Initializer::Zeros);
    let step = f.state(&path, zero) + 1;
    f.update(&path, &step);
    step
}
