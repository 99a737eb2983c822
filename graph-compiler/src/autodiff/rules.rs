//! User-defined derivative rules for closures, and surgery on derivatives.
//!
//! [`custom_jvp`] and [`custom_vjp`] run a closure and record in the graph how it is
//! differentiated. [`with_derivative`] keeps a value and changes its cotangent. [`call`] emits a
//! closure as one call of a named function. [`opaque`] forbids differentiation. The rules are
//! saved in files, and survive `vmap` and derivatives of any order.
//!
//! Tensors that a closure captures are constants to its rule. A derivative with respect to a
//! captured value is an error that names both places: pass the value as part of the argument, or
//! cut it off by [`Tensor::stop_gradient`].

use super::values::{leaves, poison, tangent_of, types, with_tensors};
use super::{current_scope, unpoisoned};
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, ValueId};
use wengert_core::op::{Checkpoint, CustomJvp, CustomVjp, FunctionCall, FunctionName, Op};
use wengert_core::{Diagnostic, Differentiable, Location, Result, Tensor, TensorType};

/// A closure with a rule for its tangents: y = f(x) and ẏ = rule(x, y, ẋ).
///
/// The rule stands for Df(x)·ẋ; this is not checked. It must be linear in ẋ for reverse mode,
/// which transposes it. Integers and bools have zero tangents, and the rule's components for them
/// are ignored. Higher derivatives differentiate the rule, and apply it again where they
/// differentiate y.
///
/// ```
/// # use wengert_core::build::FunctionBuilder;
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::{operators::grad, rules::custom_jvp};
/// // ln(1 + eˣ), whose derivative is computed without eˣ.
/// let softplus = |x: &Tensor| {
///     custom_jvp(x, |x| x.exp().log1p(), |x, _, t| t.scaled_by(&x.logistic()))
/// };
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F64));
///     f.output("slope", grad(&x, softplus));
/// })?;
/// assert_eq!(interpret::run(&f, &[Literal::from(800.0f64)])?[0], Literal::from(1.0f64));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_jvp<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
    rule: impl FnOnce(&M, &O, &M::TangentVector) -> O::TangentVector,
) -> O {
    custom_jvp_named("", at, f, rule)
}

/// [`custom_jvp`] of a closure with a name, which appears in errors and text.
///
/// # Panics
///
/// If the name is not valid: letters, digits, `_` and `.`, not starting with a digit.
#[track_caller]
pub fn custom_jvp_named<M: Differentiable, O: Differentiable>(
    name: &str,
    at: &M,
    f: impl FnOnce(&M) -> O,
    rule: impl FnOnce(&M, &O, &M::TangentVector) -> O::TangentVector,
) -> O {
    assert!(
        name.is_empty() || wengert_core::text::is_name(name),
        "`{name}` is not a valid function name"
    );
    let caller = Location::caller();
    let arguments = leaves(at);
    let (output, function) = traced(at, &arguments, f);
    let results = function.and_then(|mut function| {
        let (given, made) = (types(&arguments), function.body.types(&function.body.outputs));
        let taken: Vec<TensorType> =
            given.iter().chain(&made).cloned().chain(floats(&given)).collect();
        let mut tangents = region(&taken, |v| {
            let (x, v) = v.split_at(given.len());
            let (y, t) = v.split_at(made.len());
            let (x, y) = (with_tensors(at, x), with_tensors(&output, y));
            let t = caller.attribute(|| tangent_of(&x, &spread(t, &given)));
            only_floats(leaves(&rule(&x, &y, &t)), &made)
        })?;
        // Both regions take the captures of either as their last inputs.
        let captured_by_rule = std::mem::take(&mut tangents.captures);
        require(&mut function, &captured_by_rule);
        let inputs = tangents.body.inputs.split_off(taken.len());
        let values = function.captures.iter().map(|capture| {
            match captured_by_rule.iter().position(|t| t.is_same(capture)) {
                Some(i) => inputs[i],
                None => tangents.body.values.push(capture.ty().clone()),
            }
        });
        let values: Vec<ValueId> = values.collect();
        tangents.body.inputs.splice(given.len()..given.len(), values);
        let op =
            CustomJvp { captures: function.captures.len(), function: FunctionName(name.into()) };
        emit(
            op.into(),
            arguments,
            function.captures,
            vec![function.body, tangents.body],
            caller.clone(),
        )
    });
    finish(&output, results, caller)
}

/// A closure with a forward and a backward half: (y, r) = forward(x) and x̄ = backward(r, ȳ). The
/// backward half stands for Df(x)ᵀ·ȳ; this is not checked.
///
/// The residuals r are the values that the backward half reads of the forward half. Only they are
/// kept, and they are computed only if a derivative is requested. Forward mode is the transpose
/// of the backward half. It needs the backward half to be linear in ȳ; reverse mode does not.
/// Where ȳ is a symbolic zero, nothing is computed from it. The backward half's components for
/// integers and bools are ignored.
///
/// ```
/// # use wengert_core::build::FunctionBuilder;
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::{operators::grad, rules::custom_vjp};
/// // tanh, keeping its result.
/// let tanh = |x: &Tensor| {
///     custom_vjp(
///         x,
///         |x| (x.tanh(), x.tanh()),
///         |y: &Tensor, ct: &Tensor| ct.scaled_by(&(1.0 - y.square())),
///     )
/// };
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F64));
///     f.output("slope", grad(&x, tanh));
/// })?;
/// assert_eq!(interpret::run(&f, &[Literal::from(0.0f64)])?[0], Literal::from(1.0f64));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_vjp<M: Differentiable, O: Differentiable, R: Differentiable>(
    at: &M,
    forward: impl FnOnce(&M) -> (O, R),
    backward: impl FnOnce(&R, &O::TangentVector) -> M::TangentVector,
) -> O {
    let caller = Location::caller();
    let arguments = leaves(at);
    let ((output, residuals), halves) = traced(at, &arguments, forward);
    let results = halves.and_then(|mut forward| {
        let (given, count) = (types(&arguments), leaves(&output).len());
        let all = forward.body.types(&forward.body.outputs);
        let (made, kept) = all.split_at(count);
        let taken: Vec<TensorType> = kept.iter().cloned().chain(floats(made)).collect();
        let mut backward = region(&taken, |v| {
            let (r, ct) = v.split_at(kept.len());
            let y = with_tensors(&output, &leaves(&output));
            let ct = caller.attribute(|| tangent_of(&y, &spread(ct, made)));
            only_floats(leaves(&backward(&with_tensors(&residuals, r), &ct)), &given)
        })?;
        // A capture of the backward half becomes a residual: the forward half captures it and
        // returns it.
        let captured = std::mem::take(&mut backward.captures);
        backward.body.inputs[kept.len()..].rotate_right(captured.len());
        let handed_on = require(&mut forward, &captured);
        forward.body.outputs.extend(handed_on);
        let op = CustomVjp {
            captures: forward.captures.len(),
            function: FunctionName::default(),
            residuals: kept.len() + captured.len(),
        };
        emit(
            op.into(),
            arguments,
            forward.captures,
            vec![forward.body, backward.body],
            caller.clone(),
        )
    });
    finish(&output, results, caller)
}

/// The value unchanged, with its cotangent passed through `change` in reverse mode: clipped,
/// scaled, replaced.
///
/// This changes the derivative of the code that computed the value. A change that is not linear
/// has no forward mode.
///
/// ```
/// # use wengert_core::build::FunctionBuilder;
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::{operators::grad, rules::with_derivative};
/// let clipped = |x: &Tensor| with_derivative(x, |ct| ct.clamp(-1.0, 1.0));
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F32));
///     f.output("slope", grad(&x, |x| clipped(x) * 5.0));
/// })?;
/// assert_eq!(interpret::run(&f, &[Literal::from(2.0f32)])?[0], Literal::from(1.0f32));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn with_derivative<M: Differentiable>(
    at: &M,
    change: impl FnOnce(&M::TangentVector) -> M::TangentVector,
) -> M {
    custom_vjp(at, |m| (with_tensors(m, &leaves(m)), ()), |(), ct| change(ct))
}

/// A closure as one call of a named function. Its derivative is that of its body.
#[track_caller]
pub fn call<M: Differentiable, O: Differentiable>(
    name: &str,
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> O {
    call_of(
        FunctionCall { function: FunctionName(name.into()), opaque: false },
        at,
        f,
        Location::caller(),
    )
}

/// A closure for which reverse mode keeps only its arguments (captures included) and the values
/// that `policy` names. The rest is recomputed when it is needed. Values and derivatives keep
/// their bits, with one exception: the function's contributions to a cotangent are added up
/// before contributions from outside.
///
/// For nested checkpoints, the recomputation of the outer one keeps the values that the inner
/// policy names.
///
/// ```
/// # use wengert_core::build::FunctionBuilder;
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::{operators::grad, rules::checkpoint};
/// # use wengert_core::op::Checkpoint;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F64));
///     let block = |x: &Tensor| checkpoint(Checkpoint::nothing(), x, |x| x.sin().exp());
///     f.output("slope", grad(&x, |x| block(&block(x))));
/// })?;
/// let slope = interpret::run(&f, &[Literal::from(0.0f64)])?[0].get(0).to_f64();
/// assert_eq!(slope, 1.0f64.sin().exp() * 1.0f64.cos());
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn checkpoint<M: Differentiable, O: Differentiable>(
    policy: Checkpoint,
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> O {
    let caller = Location::caller();
    let arguments = leaves(at);
    let (output, function) = traced(at, &arguments, f);
    let results = function
        .and_then(|f| emit(policy.into(), arguments, f.captures, vec![f.body], caller.clone()));
    finish(&output, results, caller)
}

/// A closure that must not be differentiated. A derivative through it is an error, unless it is
/// cut off by [`Tensor::stop_gradient`] or given a rule by [`custom_vjp`].
#[track_caller]
pub fn opaque<M: Differentiable, O: Differentiable>(
    name: &str,
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> O {
    call_of(
        FunctionCall { function: FunctionName(name.into()), opaque: true },
        at,
        f,
        Location::caller(),
    )
}

fn call_of<M: Differentiable, O: Differentiable>(
    op: FunctionCall,
    at: &M,
    f: impl FnOnce(&M) -> O,
    caller: Location,
) -> O {
    let arguments = leaves(at);
    let (output, function) = traced(at, &arguments, f);
    let named = match wengert_core::text::is_name(&op.function.0) {
        true => function,
        false => Err(Diagnostic::new(format!("`{}` is not a valid function name", op.function.0))
            .help("use letters, digits, `_` and `.`, not starting with a digit")),
    };
    let results =
        named.and_then(|f| emit(op.into(), arguments, f.captures, vec![f.body], caller.clone()));
    finish(&output, results, caller)
}

/// Runs a closure in a region; the tensors of the returned value belong to that region.
fn traced<M: Differentiable, O: Differentiable>(
    at: &M,
    arguments: &[Tensor],
    f: impl FnOnce(&M) -> O,
) -> (O, Result<Closure>) {
    if let Err(error) = current_scope().and_then(|_| unpoisoned(arguments)) {
        return (f(at), Err(error));
    }
    let mut output = None;
    let closure = region(&types(arguments), |x| {
        let returned = f(&with_tensors(at, x));
        let tensors = leaves(&returned);
        output = Some(returned);
        tensors
    });
    (output.expect("there is a current scope, so the closure has been run"), closure)
}

/// The closure of `f` on inputs of these types, in a body of its own.
fn region(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Closure> {
    let scope = current_scope()?.region();
    let inputs: Vec<Tensor> =
        types.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let outputs = scope.enter(|| f(&inputs));
    unpoisoned(&outputs)?;
    scope.close(&outputs)
}

/// The values that stand for outer tensors in a closure. Tensors that it does not capture yet
/// become captures.
fn require(closure: &mut Closure, tensors: &[Tensor]) -> Vec<ValueId> {
    let mut values = Vec::new();
    for tensor in tensors {
        let first = closure.body.inputs.len() - closure.captures.len();
        values.push(match closure.captures.iter().position(|c| c.is_same(tensor)) {
            Some(i) => closure.body.inputs[first + i],
            None => {
                let value = closure.body.values.push(tensor.ty().clone());
                closure.body.inputs.push(value);
                closure.captures.push(tensor.clone());
                value
            }
        });
    }
    values
}

pub(super) fn emit(
    op: Op,
    arguments: Vec<Tensor>,
    captures: Vec<Tensor>,
    regions: Vec<Body>,
    caller: Location,
) -> Result<Vec<Tensor>> {
    let operands: Vec<Tensor> = arguments.into_iter().chain(captures).collect();
    let regions = regions.into_iter().map(|body| body.renumber().into()).collect();
    Scope::emit(op, &operands, regions, caller)
}

/// The closure's result, with these tensors or poison.
pub(super) fn finish<O: Differentiable>(
    output: &O,
    results: Result<Vec<Tensor>>,
    caller: Location,
) -> O {
    let results = results.unwrap_or_else(|error| {
        vec![
            poison(&error.within(&caller, "the function with a rule is here"));
            leaves(output).len()
        ]
    });
    with_tensors(output, &results)
}

fn floats(types: &[TensorType]) -> impl Iterator<Item = TensorType> + '_ {
    types.iter().filter(|ty| ty.dtype.is_float()).cloned()
}

/// One component for each type: the given tensors in order for floats, `None` for the others.
fn spread(floats: &[Tensor], types: &[TensorType]) -> Vec<Option<Tensor>> {
    let mut floats = floats.iter();
    types.iter().map(|ty| ty.dtype.is_float().then(|| floats.next().cloned()).flatten()).collect()
}

/// The components of the float types.
fn only_floats(components: Vec<Tensor>, types: &[TensorType]) -> Vec<Tensor> {
    components
        .into_iter()
        .zip(types)
        .filter(|(_, ty)| ty.dtype.is_float())
        .map(|(t, _)| t)
        .collect()
}
