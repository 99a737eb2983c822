//! Conversion between user values and tensors. A value is taken apart into its tensors, and a
//! closure is run on fresh ones. The result is put together again: as a value, as its tangent
//! vector, or as poison on an error.

use super::trace::trace_at;
use super::{Linearized, current_scope, linearize, unpoisoned};
use wengert_core::build::{Closure, Entered, Scope};
use wengert_core::{Diagnostic, Differentiable, KeyPath, Location, Result, Tensor, TensorType};

/// A closure that has been run on fresh values.
pub(super) struct Traced<O> {
    pub primals: Vec<Tensor>,
    /// The closure's result; its tensors belong to the closure's scope.
    pub output: O,
    pub closure: Result<Closure>,
}

impl<O: Differentiable> Traced<O> {
    #[track_caller]
    pub fn of<M: Differentiable>(at: &M, f: impl FnOnce(&M) -> O) -> Self {
        let primals: Vec<Tensor> = leaves(at);
        let usable = current_scope().and_then(|_| {
            let unusable = |t: &&Tensor| t.literal().is_none() && t.traced_value().is_err();
            primals.iter().find(unusable).map_or(Ok(()), |t| t.traced_value().map(|_| ()))
        });
        if let Err(error) = usable {
            // Report this error to the function before errors that follow from it.
            let error = error.within(&Location::caller(), "differentiated here");
            poison(&error);
            // Only the structure of the closure's result is needed, not its tensors.
            return Traced { primals, output: f(at), closure: Err(error) };
        }
        let mut output = None;
        let closure = trace_at(&primals, |inputs| {
            let returned = f(&with_tensors(at, inputs));
            let tensors = leaves(&returned);
            output = Some(returned);
            tensors
        });
        let output = output.expect("there is a current scope, so the closure has been run");
        Traced { primals, output, closure }
    }

    /// For each tensor of the argument whether it has a derivative.
    pub fn floats(&self) -> Vec<bool> {
        self.primals.iter().map(|t| t.dtype().is_float()).collect()
    }

    /// Linearizes with respect to all floats.
    pub fn linearize(&self, wanted: &[bool]) -> Result<Linearized> {
        self.linearize_wrt(&self.floats(), wanted)
    }

    /// Linearizes with respect to the active tensors.
    pub fn linearize_wrt(&self, active: &[bool], wanted: &[bool]) -> Result<Linearized> {
        let closure = self.closure.as_ref().map_err(Clone::clone)?;
        if !active.contains(&true) {
            let error = Diagnostic::new("there are no floats to differentiate with respect to")
                .help("integers and bools have no derivative");
            let first = self.primals.first();
            let made =
                first.and_then(|t| Some((t.defined_at()?, format!("{} is made here", t.ty()))));
            return Err(match made {
                Some((location, what)) => error.at(location, what),
                None => error,
            });
        }
        linearize(closure, &self.primals, active, wanted)
    }
}

/// Checks that tangents or cotangents have the types of their values.
pub(super) fn fit(what: &str, value: &impl Differentiable, given: &[Option<Tensor>]) -> Result<()> {
    let tensors = value.tensors();
    if tensors.len() != given.len() {
        return Err(Diagnostic::new(format!(
            "{} {what}s given for {} tensors",
            given.len(),
            tensors.len()
        ))
        .help("a tangent vector has a tensor for each tensor of its value"));
    }
    for ((path, tensor), given) in tensors.iter().zip(given) {
        let Some(given) = given else { continue };
        unpoisoned([given, tensor])?;
        if given.ty() == tensor.ty() {
            continue;
        }
        let name = if path.as_str().is_empty() { String::new() } else { format!(" for `{path}`") };
        let error = Diagnostic::new(format!(
            "the {what}{name} has type {}, the value has {}",
            given.ty(),
            tensor.ty()
        ))
        .help(format!("a {what} has the dtype and shape of its value"));
        let at = |t: &Tensor| t.defined_at().unwrap_or_default();
        return Err(error
            .at(at(given), format!("the {what} is made here"))
            .at(at(tensor), "the value is made here"));
    }
    Ok(())
}

/// The result, or poison for each tensor of `output` and of `point`. The error is reported to the
/// function's builder.
pub(super) fn settle(
    result: Result<(Vec<Tensor>, Vec<Option<Tensor>>)>,
    output: &impl Differentiable,
    point: &impl Differentiable,
    caller: Location,
) -> (Vec<Tensor>, Vec<Option<Tensor>>) {
    let error = match result {
        Ok(result) => return result,
        Err(error) => error.within(&caller, "differentiated here"),
    };
    let poison = poison(&error);
    (vec![poison.clone(); output.tensors().len()], vec![Some(poison); point.tensors().len()])
}

/// The tensors of a value.
pub(crate) fn leaves(value: &impl Differentiable) -> Vec<Tensor> {
    value.tensors().into_iter().map(|(_, tensor)| tensor).collect()
}

/// Types of tensors.
pub(super) fn types(tensors: &[Tensor]) -> Vec<TensorType> {
    tensors.iter().map(|t| t.ty().clone()).collect()
}

pub(crate) fn poison(error: &Diagnostic) -> Tensor {
    if let Some(scope) = Scope::current() {
        scope.fail(error);
    }
    Tensor::poisoned(error.clone())
}

/// The same structure with other tensors.
pub(crate) fn with_tensors<T: Differentiable>(value: &T, tensors: &[Tensor]) -> T {
    let mut tensors = tensors.iter();
    value.map_tensors(&KeyPath::default(), &mut |_, _| {
        tensors.next().expect("a value has as many tensors each time it is visited").clone()
    })
}

/// The tangent vector with these components; `None` is zero.
#[track_caller]
pub(super) fn tangent_of<T: Differentiable>(
    point: &T,
    components: &[Option<Tensor>],
) -> T::TangentVector {
    let caller = Location::caller();
    let mut components = components.iter();
    point.tangent(&KeyPath::default(), &mut |_, t| match components.next() {
        Some(Some(component)) => component.clone(),
        _ => caller.attribute(|| t.zeros_like()),
    })
}

/// The components of a tangent vector of `value`.
pub(super) fn components_of<T: Differentiable>(
    value: &T,
    tangent: &T::TangentVector,
) -> Vec<Option<Tensor>> {
    let mut components = Vec::new();
    value.components(tangent, &mut |t| components.push(Some(t.clone())));
    components
}

/// Enters the scope of the tensors of `value`, if there is no current scope, or an unrelated one.
/// Tensors with values can be differentiated outside of any function.
pub(super) fn enter_scope_of(value: &impl Differentiable) -> Option<Entered> {
    let scope = value.tensors().iter().find_map(|(_, t)| t.scope().cloned())?;
    let current = Scope::current().filter(|c| c.is_within(&scope) || scope.is_within(c));
    current.is_none().then(|| scope.entered())
}

/// Warns of variables that the result does not depend on, which is often a mistake.
pub(super) fn warn_of_zeros(
    at: &impl Differentiable,
    active: &[bool],
    cotangents: &[Option<Tensor>],
    caller: &Location,
) {
    let missing =
        cotangents.iter().zip(active).map(|(cotangent, active)| cotangent.is_none() && *active);
    for ((path, tensor), _) in at.tensors().iter().zip(missing).filter(|(_, missing)| *missing) {
        let variable = match path.as_str() {
            "" => "the variable".into(),
            path => format!("`%{path}`"),
        };
        let warning =
            Diagnostic::new(format!("result does not depend on {variable}: its gradient is zero"))
                .at(tensor.defined_at().unwrap_or_default(), "made here")
                .at(caller.clone(), "differentiated here");
        tracing::warn!("{warning}");
    }
}
