//! One step of any optimiser: what its rule does not say.
//!
//! A [`Rule`] gives the move of one variable. The step around it is the same for all optimisers:
//! it counts, applies [groups](super::Groups), weight decay and the schedule of the rate, and moves
//! the model.

use super::settings::Settings;
use super::storage::{Moment, Role, Storage};
use super::{Groups, Rate};
use std::collections::BTreeMap;
use wengert_core::build::FunctionBuilder;
use wengert_core::{
    DType, Differentiable, Dim, Initializer, KeyPath, Location, Result, Tensor, TensorType,
    diagnostic,
};

/// What weight decay is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decay {
    /// The gradient of weight_decay · |p|²/2, which is added to the gradient.
    Gradient,
    /// A move before the step, of −rate · weight_decay · p.
    Decoupled,
}

/// What distinguishes one optimiser from another.
pub(super) trait Rule {
    fn settings(&self) -> &Settings;

    fn decay(&self) -> Decay;

    /// The move of a variable, in the dtype of the arithmetic. Also updates its moments.
    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor;

    /// Whether it depends on the number of the step, though its rate does not.
    fn counts(&self) -> bool {
        true
    }

    /// Checks its numbers.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The optimiser of the variables that it does not take.
    fn rest(&self) -> Option<&dyn Rule> {
        None
    }

    /// Whether it takes a variable, or leaves it to the rest.
    fn takes(&self, _variable: &Variable) -> bool {
        true
    }
}

/// A variable of a model with its gradient.
pub(super) struct Variable {
    /// Its path in the function's state.
    pub path: String,
    /// Its path in the model.
    pub key: KeyPath,
    pub value: Tensor,
    pub gradient: Tensor,
    /// Its number among the variables.
    pub index: u32,
}

impl Variable {
    /// The dtype in which its update is computed.
    pub fn wide(&self) -> DType {
        wide(&self.value)
    }
}

/// A variable whose turn it is in a step.
pub(super) struct Turn<'a> {
    variable: &'a Variable,
    name: &'a str,
    storage: &'a Storage,
    rate: Rate,
    step: Option<&'a Tensor>,
    /// The variable's value, in the dtype of the arithmetic.
    pub value: Tensor,
    /// Its gradient, in the dtype of the arithmetic.
    pub gradient: Tensor,
}

/// State of a variable that is not stored in halves.
pub(super) struct State {
    path: String,
    pub value: Tensor,
}

impl Turn<'_> {
    /// The number of the step, counted from 1, as i32.
    pub fn step(&self) -> &Tensor {
        self.step.expect("the rule counts steps")
    }

    /// `tensor` times the variable's rate in this step.
    pub fn times_rate(&self, tensor: &Tensor) -> Tensor {
        self.rate.times(tensor, self.step)
    }

    /// Declares a moment: zeros with the shape of the gradient. The moments of a variable have
    /// different numbers.
    pub fn moment(&self, f: &mut FunctionBuilder, what: &str, number: u32) -> Moment {
        self.storage.moment(f, [self.name, what], number, self.variable)
    }

    /// Sets the next value of a moment.
    pub fn update(&self, f: &mut FunctionBuilder, moment: &Moment, next: &Tensor) {
        self.storage.update(f, moment, self.variable, next);
    }

    /// Declares state of another shape, zeros in the dtype of the arithmetic.
    pub fn state(&self, f: &mut FunctionBuilder, what: &str, shape: &[Dim]) -> State {
        let path = format!("{}.{what}.{}", self.name, self.variable.path);
        let ty = self.gradient.ty().with_shape(shape.to_vec());
        let value = f.state(&path, Tensor::variable(ty, Initializer::Zeros));
        State { path, value }
    }

    /// Sets the next value of a state.
    pub fn keep(&self, f: &mut FunctionBuilder, state: &State, next: &Tensor) {
        f.update(&state.path, next);
    }
}

/// Updates a model by a rule. Errors are reported by the function, at the caller's line.
#[track_caller]
pub(super) fn step<M: Differentiable>(
    rule: &dyn Rule,
    f: &mut FunctionBuilder,
    model: &M,
    gradient: &M::TangentVector,
) {
    let user = Location::caller().attributed();
    let settings = rule.settings();
    let faults = [Some(rule), rule.rest()].into_iter().flatten().map(|rule| rule.check());
    for fault in faults.filter_map(Result::err) {
        f.scope().fail(&fault.at(Location::caller(), "updated here"));
    }
    let rate = settings.rate.declared(f, &settings.name);
    let rest = rule.rest().map(|rest| {
        let Settings { rate, name, .. } = rest.settings();
        (rest, rate.declared(f, name))
    });
    let counts = rule.counts() || !rate.is_constant();
    let count = counts.then(|| count(f, &settings.name));
    if settings.reports_rate {
        rate.report(f, count.as_ref());
    }
    let variables = variables(f, model, gradient);
    let groups: Vec<&Groups> =
        [Some(rule), rule.rest()].into_iter().flatten().map(|r| &r.settings().groups).collect();
    let paths = || variables.iter().map(|variable| variable.path.as_str());
    groups.iter().for_each(|groups| groups.check(f, paths()));
    let (mut decays, mut moves) = (Vec::new(), Vec::new());
    let mut is_moved = Vec::new();
    for variable in &variables {
        let (chosen, groups) = match &rest {
            Some((rest, rate)) if !rule.takes(variable) => ((*rest, rate), &groups[..]),
            _ => ((rule, &rate), &groups[..1]),
        };
        let Some([decay, travel]) = turn(f, settings, chosen, groups, count.as_ref(), variable)
        else {
            return;
        };
        is_moved.push(travel.is_some());
        // Adding −0 changes no bit, not even the sign of 0, and compiles to nothing.
        let none = |tensor: Option<Tensor>| {
            tensor.unwrap_or_else(|| variable.gradient.convert(variable.wide()).full_like(-0.0))
        };
        decays.push(none(decay));
        moves.push(none(travel));
    }
    if !variables.is_empty() && !is_moved.contains(&true) {
        let error = diagnostic!("all variables are frozen, so there is nothing to update")
            .at(Location::caller(), "updated here")
            .help("freeze fewer: `Groups::freeze`");
        f.scope().fail(&error);
    }
    drop(user);
    let is_decoupled =
        |rule: &dyn Rule| rule.decay() == Decay::Decoupled && rule.settings().weight_decay != 0.0;
    let steps = match is_decoupled(rule) || rule.rest().is_some_and(is_decoupled) {
        true => vec![decays, moves],
        false => vec![moves],
    };
    advance(f, model, gradient, &variables, &is_moved, &steps, &settings.storage);
}

/// Moves of a variable by the decay and by the rule, neither if it is frozen. `None` if it cannot
/// decay, which the function reports.
fn turn(
    f: &mut FunctionBuilder,
    settings: &Settings,
    (rule, rate): (&dyn Rule, &Rate),
    groups: &[&Groups],
    step: Option<&Tensor>,
    variable: &Variable,
) -> Option<[Option<Tensor>; 2]> {
    let own = rule.settings();
    let ty = variable.value.ty();
    if groups.iter().any(|groups| groups.freezes(&variable.path)) {
        return Some([None, None]);
    }
    let factor: f64 = groups.iter().map(|groups| groups.rate(&variable.path)).product();
    let decays =
        own.weight_decay != 0.0 && groups.iter().all(|groups| groups.decays(&variable.path, ty));
    let dtype = variable.wide();
    let value = variable.value.convert(dtype);
    let mut gradient = variable.gradient.convert(dtype);
    if decays && value.ty() != gradient.ty() && gradient.error().is_none() {
        no_decay(f, variable);
        return None;
    }
    if decays && rule.decay() == Decay::Gradient {
        gradient = gradient + &value * own.weight_decay;
    }
    let (name, storage, rate) = (&own.name, &settings.storage, rate.scaled(factor));
    let turn = Turn { variable, name, storage, rate, step, value, gradient };
    let travel = rule.travel(f, &turn);
    let decay = (decays && rule.decay() == Decay::Decoupled)
        .then(|| -turn.times_rate(&(&turn.value * own.weight_decay)));
    Some([decay, Some(travel)])
}

/// The float variables of a model with their gradients. A tensor that is not state of the
/// function is an error, which the function reports.
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

/// Moves `model` by each of `steps` in order, and makes the result the next values of those
/// variables that are moved. A step has one tensor for each variable, of the dtype that [`wide`]
/// gives.
#[track_caller]
fn advance<M: Differentiable>(
    f: &mut FunctionBuilder,
    model: &M,
    gradient: &M::TangentVector,
    variables: &[Variable],
    is_moved: &[bool],
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
        if let Some(i) = place.filter(|i| is_moved[*i]) {
            let variable = &variables[i];
            let dtype = variable.value.dtype();
            f.update(&variable.path, &storage.round(&next, dtype, variable, Role::Value));
        }
    }
}

/// Reports that a variable cannot decay: it is a point of a manifold, which has no zero to decay
/// to.
fn no_decay(f: &FunctionBuilder, variable: &Variable) {
    let error = diagnostic!(
        "weight decay of `{}` ({}) is undefined: a manifold has no zero (its tangent is {})",
        variable.path,
        variable.value.ty(),
        variable.gradient.ty()
    )
    .at(Location::caller(), "updated here")
    .help("exclude the variable with `decay_where`, or set the weight decay to 0");
    f.scope().fail(&error);
}

/// The dtype in which a variable's update is computed.
fn wide(tensor: &Tensor) -> DType {
    if tensor.dtype().is_half() { DType::F32 } else { tensor.dtype() }
}

/// The number of this step, counted from 1, as i32. Also updates the counter.
fn count(f: &mut FunctionBuilder, name: &str) -> Tensor {
    let path = format!("{name}.step");
    let zero = Tensor::variable(TensorType::scalar(DType::I32), Initializer::Zeros);
    let step = f.state(&path, zero) + 1;
    f.update(&path, &step);
    step
}
