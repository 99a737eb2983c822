//! Differential operators on closures over anything [`Differentiable`].
//!
//! They are used inside a function that is being built: the closure is traced once on fresh values, differentiated, and value and
//! derivatives are emitted into the enclosing function. What the closure captures is constant to it. Operators nest to any order.
//!
//! A mistake yields poisoned tensors that carry the error, as everywhere in the builder; the function's `finish` returns it.

pub use super::jacobian::{
    Outputs, grad_and_hvp, gvp, hessian, hessian_blocks, hvp, jacfwd, jacrev, value_and_jacfwd,
    value_and_jacrev, value_grad_and_hessian,
};
pub use super::jet::{jet, nth_derivative};
use super::trace::trace_at;
pub use super::wrt::{grad_wrt, value_and_grad_wrt};
use super::{Linear, Linearized, current_scope, jvp as jvp_of_body, linearize as linearize_body};
use std::marker::PhantomData;
use wengert_core::graph::build::{Closure, Entered, Scope};
use wengert_core::{
    Diagnostic, Differentiable, KeyPath, Literal, Location, Result, Scalar, Tensor, TensorType,
};

/// The gradient of a scalar-valued closure.
#[track_caller]
pub fn grad<M: Differentiable>(at: &M, f: impl FnOnce(&M) -> Tensor) -> M::TangentVector {
    value_and_grad(at, f).1
}

/// Value and gradient of a scalar-valued closure. The gradient of an integer is zero.
#[track_caller]
pub fn value_and_grad<M: Differentiable>(at: &M, f: impl FnOnce(&M) -> Tensor) -> (Tensor, M::TangentVector) {
    let (value, (), gradient) = value_aux_and_grad(at, |m| (f(m), ()));
    (value, gradient)
}

/// Value and gradient of a closure that returns more than the scalar that is differentiated, e.g. a metric.
#[track_caller]
pub fn value_aux_and_grad<M: Differentiable, A: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> (Tensor, A),
) -> (Tensor, A, M::TangentVector) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let active = traced.floats();
    gradient(at, traced, Ok(active))
}

/// Value and gradient of a traced closure's first output with respect to the tensors that are active.
#[track_caller]
pub(super) fn gradient<M: Differentiable, A: Differentiable>(
    at: &M,
    traced: Traced<(Tensor, A)>,
    active: Result<Vec<bool>>,
) -> (Tensor, A, M::TangentVector) {
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        let active = active?;
        needs_scalar("grad", closure)?;
        let outputs = closure.body.outputs.len();
        let wanted: Vec<bool> = (0..outputs).map(|i| i == 0).collect();
        let linearized = traced.linearize_wrt(&active, &wanted)?;
        let one = Scalar::one(closure.body.ty(closure.body.outputs[0]).dtype);
        let one = Tensor::constant(Literal::full(&[], one));
        let seeds: Vec<_> = wanted.iter().map(|w| w.then(|| one.clone())).collect();
        let cotangents = linearized.linear.transpose(&seeds)?;
        warn_of_zeros(at, &active, &cotangents);
        Ok((linearized.outputs, cotangents))
    });
    let (outputs, cotangents) = settle(result, &traced.output, at, Location::caller());
    let (value, aux) = with_tensors(&traced.output, &outputs);
    (value, aux, tangent_of(at, &cotangents))
}

/// Checks that the first output of a closure is a scalar of floats.
pub(super) fn needs_scalar(operator: &str, closure: &Closure) -> Result<()> {
    let output = closure.body.outputs[0];
    let ty = closure.body.ty(output);
    let error = match (ty.rank(), ty.dtype.is_float()) {
        (0, true) => return Ok(()),
        (_, true) => not_scalar(operator, "the closure's", ty),
        _ => Diagnostic::new(format!(
            "{operator} needs an output of floats; the closure's is {ty}: {} has no derivative",
            ty.dtype
        )),
    };
    let made = closure.body.equations.iter().find(|e| e.results.contains(&output));
    Err(match (made, Scope::current()) {
        (Some(equation), Some(scope)) => {
            error.at(scope.locations().origin(equation.location).clone(), "the output is made here")
        }
        _ => error,
    })
}

/// An output has more than one number.
pub(super) fn not_scalar(operator: &str, output: &str, ty: &TensorType) -> Diagnostic {
    let mend = match operator {
        "grad" => "Reduce it with `.sum()` or use `jacrev`",
        _ => "Reduce it with `.sum()`",
    };
    Diagnostic::new(format!("{operator} needs a scalar output; {output} has shape {ty}. {mend}"))
}

/// The value of a closure, and its derivative in the direction `along`.
#[track_caller]
pub fn jvp<M: Differentiable, O: Differentiable>(
    at: &M,
    along: &M::TangentVector,
    f: impl FnOnce(&M) -> O,
) -> (O, O::TangentVector) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        let mut tangents = components_of(at, along);
        fit("tangent", at, &tangents)?;
        for (primal, tangent) in traced.primals.iter().zip(&mut tangents) {
            tangent.take_if(|_| !primal.dtype().is_float());
        }
        let mut primals = traced.primals.clone();
        primals.extend(closure.captures.iter().cloned());
        tangents.resize(primals.len(), None);
        jvp_of_body(&closure.body, &primals, &tangents, &vec![true; closure.body.outputs.len()])
    });
    let (outputs, tangents) = settle(result, &traced.output, &traced.output, Location::caller());
    let output = with_tensors(&traced.output, &outputs);
    let tangent = tangent_of(&output, &tangents);
    (output, tangent)
}

/// A linear function from cotangents of a value to cotangents of what it was computed from.
pub type Pullback<'m, M, O> =
    Box<dyn Fn(&<O as Differentiable>::TangentVector) -> <M as Differentiable>::TangentVector + 'm>;

/// The value of a closure, and its pullback: the gradient from any cotangent of the value. The value is not computed again by the
/// pullback, which may be called more than once.
#[track_caller]
pub fn vjp<'m, M: Differentiable + 'm, O: Differentiable + 'm>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, Pullback<'m, M, O>) {
    let caller = Location::caller();
    let (output, differential) = linearize(at, f);
    (output, Box::new(move |cotangent| differential.pull_back_at(cotangent, caller.clone())))
}

/// The value of a closure, and its derivative there as a linear map.
#[track_caller]
pub fn linearize<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, Differential<M, O>) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let result = traced
        .closure
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|closure| traced.linearize(&vec![true; closure.body.outputs.len()]));
    let (outputs, linear) = match result {
        Ok(Linearized { outputs, linear }) => (outputs, Ok(linear)),
        Err(error) => {
            let error = error.at(Location::caller(), "differentiated here");
            (vec![poison(&error); traced.output.tensors().len()], Err(error))
        }
    };
    let output = with_tensors(&traced.output, &outputs);
    let differential = Differential {
        linear,
        at: with_tensors(at, &traced.primals),
        output: with_tensors(&traced.output, &outputs),
        function: PhantomData,
    };
    (output, differential)
}

/// The transpose of a linear closure: cotangents of its argument from those of its value. `like` says what the argument is like; its
/// values do not matter. A closure that is not linear is an error, with the operation that is to blame.
#[track_caller]
pub fn transpose<'m, M: Differentiable + 'm, O: Differentiable + 'm>(
    like: &M,
    f: impl FnOnce(&M) -> O,
) -> Pullback<'m, M, O> {
    let caller = Location::caller();
    let _entered = enter_scope_of(like);
    let traced = Traced::of(like, f);
    let linear = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        if let Some(other) = traced.primals.iter().find(|t| !t.dtype().is_float()) {
            return Err(Diagnostic::new(format!("a function of {} is not linear", other.ty()))
                .help("capture integers and bools instead of passing them in"));
        }
        let scope = current_scope()?;
        super::transpose::verify_linear(&closure.body, traced.primals.len(), |id| scope.location(id))?;
        let outputs = closure.body.types(&closure.body.outputs).into_iter().enumerate();
        Ok(Linear {
            body: closure.body.clone(),
            residuals: closure.captures.clone(),
            inputs: traced.primals.iter().map(|t| (t.ty().clone(), true)).collect(),
            outputs: outputs.map(|(i, ty)| (ty, Some(i))).collect(),
        })
    });
    let differential = Differential {
        linear,
        at: with_tensors(like, &traced.primals),
        output: traced.output,
        function: PhantomData,
    };
    Box::new(move |cotangent| differential.pull_back_at(cotangent, caller.clone()))
}

/// The derivative of a function at a point: a linear map from tangents of the point to tangents of the value.
pub struct Differential<M: Differentiable, O: Differentiable> {
    linear: Result<Linear>,
    pub(super) at: M,
    pub(super) output: O,
    function: PhantomData<fn(M) -> O>,
}

impl<M: Differentiable, O: Differentiable> Differential<M, O> {
    /// The tangent of the value along `tangent`.
    #[track_caller]
    pub fn push_forward(&self, tangent: &M::TangentVector) -> O::TangentVector {
        let _entered = enter_scope_of(&self.at);
        let tangents = components_of(&self.at, tangent);
        let fits = || fit("tangent", &self.at, &tangents);
        let result = self.linear.clone().and_then(|l| fits().and_then(|()| l.apply(&tangents)));
        let caller = Location::caller();
        tangent_of(&self.output, &settle(result.map(|t| (vec![], t)), &self.output, &self.output, caller).1)
    }

    /// The cotangent of the point from one of the value.
    #[track_caller]
    pub fn pull_back(&self, cotangent: &O::TangentVector) -> M::TangentVector {
        self.pull_back_at(cotangent, Location::caller())
    }

    /// An error is located at `caller`.
    fn pull_back_at(&self, cotangent: &O::TangentVector, caller: Location) -> M::TangentVector {
        let _entered = enter_scope_of(&self.at);
        let cotangents = components_of(&self.output, cotangent);
        let fits = || fit("cotangent", &self.output, &cotangents);
        let result = self.linear.clone().and_then(|l| fits().and_then(|()| l.transpose(&cotangents)));
        tangent_of(&self.at, &settle(result.map(|t| (vec![], t)), &self.output, &self.at, caller).1)
    }

    /// The linear program with its residuals, or why there is none.
    pub fn linear(&self) -> Result<&Linear> {
        self.linear.as_ref().map_err(Clone::clone)
    }
}

/// A closure that has been run on fresh values.
pub(super) struct Traced<O> {
    pub primals: Vec<Tensor>,
    /// What it returned; the tensors in it belong to the closure's scope.
    pub output: O,
    pub closure: Result<Closure>,
}

impl<O: Differentiable> Traced<O> {
    #[track_caller]
    pub fn of<M: Differentiable>(at: &M, f: impl FnOnce(&M) -> O) -> Self {
        let primals: Vec<Tensor> = at.tensors().into_iter().map(|(_, t)| t).collect();
        let usable = current_scope().and_then(|_| {
            let unusable = |t: &&Tensor| t.literal().is_none() && t.traced_value().is_err();
            primals.iter().find(unusable).map_or(Ok(()), |t| t.traced_value().map(|_| ()))
        });
        if let Err(error) = usable {
            // The closure's result is needed for the shape of the answer; its tensors are not.
            return Traced { primals, output: f(at), closure: Err(error.at(Location::caller(), "")) };
        }
        let mut output = None;
        let closure = trace_at(&primals, |inputs| {
            let returned = f(&with_tensors(at, inputs));
            let tensors = returned.tensors().into_iter().map(|(_, t)| t).collect();
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

    /// With respect to all floats.
    pub fn linearize(&self, wanted: &[bool]) -> Result<Linearized> {
        self.linearize_wrt(&self.floats(), wanted)
    }

    /// With respect to the active tensors.
    pub fn linearize_wrt(&self, active: &[bool], wanted: &[bool]) -> Result<Linearized> {
        let closure = self.closure.as_ref().map_err(Clone::clone)?;
        if !active.contains(&true) {
            let error = Diagnostic::new("there are no floats to differentiate with respect to")
                .help("integers and bools have no derivative");
            let first = self.primals.first();
            let made = first.and_then(|t| Some((t.defined_at()?, format!("{} is made here", t.ty()))));
            return Err(match made {
                Some((location, what)) => error.at(location, what),
                None => error,
            });
        }
        linearize_body(closure, &self.primals, active, wanted)
    }
}

/// Checks that tangents or cotangents have the types of the values that they belong to.
pub(super) fn fit(what: &str, value: &impl Differentiable, given: &[Option<Tensor>]) -> Result<()> {
    let tensors = value.tensors();
    if tensors.len() != given.len() {
        return Err(Diagnostic::new(format!("{} {what}s given for {} tensors", given.len(), tensors.len()))
            .help("a tangent vector has a tensor for each tensor of its value"));
    }
    for ((path, tensor), given) in tensors.iter().zip(given) {
        let Some(given) = given else { continue };
        if let Some(error) = given.error().or(tensor.error()) {
            return Err(error.clone());
        }
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

/// The result, or poison for each tensor of `output` and of `point`. The function's builder learns of the error.
pub(super) fn settle(
    result: Result<(Vec<Tensor>, Vec<Option<Tensor>>)>,
    output: &impl Differentiable,
    point: &impl Differentiable,
    caller: Location,
) -> (Vec<Tensor>, Vec<Option<Tensor>>) {
    let error = match result {
        Ok(result) => return result,
        Err(error) => error.at(caller, "differentiated here"),
    };
    let poison = poison(&error);
    (vec![poison.clone(); output.tensors().len()], vec![Some(poison); point.tensors().len()])
}

pub(crate) fn poison(error: &Diagnostic) -> Tensor {
    if let Some(scope) = Scope::current() {
        scope.fail(error);
    }
    Tensor::poisoned(error.clone())
}

/// The same value with other tensors.
pub(crate) fn with_tensors<T: Differentiable>(value: &T, tensors: &[Tensor]) -> T {
    let mut tensors = tensors.iter();
    value.map_tensors(&KeyPath::default(), &mut |_, _| {
        tensors.next().expect("a value has as many tensors each time it is visited").clone()
    })
}

/// The tangent vector with these components; `None` is zero.
pub(super) fn tangent_of<T: Differentiable>(point: &T, components: &[Option<Tensor>]) -> T::TangentVector {
    let mut components = components.iter();
    point.tangent(&KeyPath::default(), &mut |_, t| match components.next() {
        Some(Some(component)) => component.clone(),
        _ => t.zeros_like(),
    })
}

/// The components of a tangent vector of `value`.
pub(super) fn components_of<T: Differentiable>(value: &T, tangent: &T::TangentVector) -> Vec<Option<Tensor>> {
    let mut components = Vec::new();
    value.components(tangent, &mut |t| components.push(Some(t.clone())));
    components
}

/// Makes the scope of the tensors of `value` the current one, if none is, or one that has nothing to do with it: tensors with values are
/// differentiated outside of any function.
pub(super) fn enter_scope_of(value: &impl Differentiable) -> Option<Entered> {
    let scope = value.tensors().iter().find_map(|(_, t)| t.scope().cloned())?;
    let current = Scope::current().filter(|c| c.is_within(&scope) || scope.is_within(c));
    current.is_none().then(|| scope.entered())
}

fn warn_of_zeros(at: &impl Differentiable, active: &[bool], cotangents: &[Option<Tensor>]) {
    let missing = cotangents.iter().zip(active).map(|(cotangent, active)| cotangent.is_none() && *active);
    for ((path, tensor), _) in at.tensors().iter().zip(missing).filter(|(_, missing)| *missing) {
        let at = tensor.defined_at().unwrap_or_default();
        tracing::warn!("result does not depend on `%{path}` (made at {at}): its gradient is zero");
    }
}
