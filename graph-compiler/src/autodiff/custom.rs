//! Functions with derivative rules of their own: how the drivers handle `custom_jvp`,
//! `custom_vjp` and the ops derived from them.
//!
//! A rule is a region. Differentiation runs it in place of the driver's own rule. Support for
//! every order and both modes has three consequences.
//!
//! - The results of a differentiated `custom_jvp` or `custom_vjp` are again that op's, so that an
//!   outer derivative also uses the rule.
//! - A `custom_vjp` has no tangents, only cotangents. Its tangent in a linear program is the op
//!   `transposed`: the map whose transpose is the backward half. Reverse mode transposes it and
//!   obtains the backward half itself, which may do anything with its cotangents (clip them,
//!   say). Forward mode needs the transpose, so there the backward half must be linear in its
//!   cotangents; otherwise there is an error that names the operation.
//! - A symbolic zero cotangent stays one on its way through a backward half ([`run`]): values
//!   multiplied by it are not computed.

use super::jvp::{duals_of_linear, with_zeros, zeros};
use super::transpose::{transpose, verify_linear};
use super::{Activity, control, current_scope, linear_solve};
use std::collections::HashSet;
use wengert_core::build::Scope;
use wengert_core::build::inline;
use wengert_core::graph::{Body, Equation, Region, ValueId};
use wengert_core::op::derivative::{Custom, Derivative};
use wengert_core::op::{Op, Transposed};
use wengert_core::{DType, Diagnostic, IdVec, Result, Tensor};

/// Tangents of a differentiated equation's results, at least one of whose `tangents` is present.
///
/// With `linearizing`, tangents of a `custom_vjp` may stay `transposed`.
pub(super) fn tangents(
    scope: &Scope,
    equation: &Equation,
    rule: Custom,
    operands: &[Tensor],
    results: &[Tensor],
    tangents: &[Option<Tensor>],
    linearizing: bool,
) -> Result<Vec<Option<Tensor>>> {
    let captures = match rule {
        Custom::Jvp { captures } | Custom::Vjp { captures } => captures,
        Custom::LinearSolve { captures } => {
            return linear_solve::tangents(
                scope,
                equation,
                captures,
                operands,
                results,
                tangents,
                linearizing,
            );
        }
        Custom::Transposed { .. } => {
            unreachable!("`transposed` is replaced before tangents of it are asked for")
        }
    };
    let count = operands.len() - captures;
    if let Some(captured) = (count..operands.len()).find(|i| tangents[*i].is_some()) {
        return Err(captured_error(scope, equation, &operands[captured]));
    }
    let floats = || (0..count).filter(|i| operands[*i].dtype().is_float());
    let given = match rule {
        Custom::Jvp { .. } => {
            let mut taken: Vec<Option<Tensor>> =
                operands.iter().chain(results).cloned().map(Some).collect();
            taken.extend(floats().map(|i| tangents[i].clone()));
            run(&equation.regions[1], &taken, Purpose::Forwards)?
        }
        _ => {
            let [forward, backward] = equation.regions.as_slice() else {
                unreachable!("two regions")
            };
            let residuals = residuals(forward, operands, results)?;
            // Only cotangents of arguments with a tangent are kept, so that the map has no other
            // tangents.
            let mut backward = backward.to_body();
            let present: Vec<bool> = floats().map(|i| tangents[i].is_some()).collect();
            backward.outputs = control::kept(&backward.outputs, &present);
            Activity::prune(&mut backward);
            let varying: Vec<Tensor> = floats().filter_map(|i| tangents[i].clone()).collect();
            match linearizing {
                true => {
                    let op = Transposed { tangents: varying.len() };
                    let operands: Vec<Tensor> = residuals.into_iter().chain(varying).collect();
                    let location = scope.location(equation.location);
                    Scope::emit(op.into(), &operands, vec![backward.into()], location)?
                        .into_iter()
                        .map(Some)
                        .collect()
                }
                false => transposed(scope, &backward, &residuals, &varying)?,
            }
        }
    };
    let mut given = given.into_iter();
    let of = |result: &Tensor| result.dtype().is_float().then(|| given.next().flatten()).flatten();
    Ok(results.iter().map(of).collect())
}

/// Whether the rule of a `custom_jvp` uses the tangent of each operand. Captures have no tangent
/// in the rule; they count as used, and [`tangents`] reports an error for them.
pub(super) fn matters(equation: &Equation, captures: usize) -> Vec<bool> {
    let rule = &equation.regions[1];
    let live = Activity::live(rule);
    let count = equation.operands.len() - captures;
    // The rule takes the operands, the results, and a tangent for each float among the arguments.
    let mut tangents = rule.inputs[equation.operands.len() + equation.results.len()..].iter();
    let float = |i: usize| rule.ty(rule.inputs[i]).dtype.is_float();
    let of = |i: usize| i >= count || (float(i) && tangents.next().is_some_and(|v| live[*v]));
    (0..equation.operands.len()).map(of).collect()
}

/// The residuals of the forward half. A residual that is also a result is read as the result,
/// which the op's own rule differentiates.
fn residuals(forward: &Body, operands: &[Tensor], results: &[Tensor]) -> Result<Vec<Tensor>> {
    let (given, kept) = forward.outputs.split_at(results.len());
    let mut forward = Body { outputs: kept.to_vec(), ..forward.clone() };
    Activity::prune(&mut forward);
    let values = inline(&forward, operands)?;
    let choose = |(value, tensor): (&ValueId, Tensor)| match given.iter().position(|g| g == value) {
        Some(i) => results[i].clone(),
        None => tensor,
    };
    Ok(kept.iter().zip(values).map(choose).collect())
}

/// The results of a `transposed` equation in forward mode, by the transpose of its region.
pub(super) fn expand(
    scope: &Scope,
    equation: &Equation,
    operands: &[Tensor],
    tangents: usize,
) -> Result<Vec<Tensor>> {
    let (residuals, tangents) = operands.split_at(operands.len() - tangents);
    let results = transposed(scope, &equation.regions[0], residuals, tangents)?;
    let region = &equation.regions[0];
    with_zeros(results, region.inputs[residuals.len()..].iter().map(|v| region.ty(*v)))
}

/// Aᵀ·t, where the body computes A·ȳ from the residuals, then ȳ.
fn transposed(
    scope: &Scope,
    backward: &Body,
    residuals: &[Tensor],
    tangents: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let mut body = backward.clone();
    body.inputs.rotate_left(residuals.len());
    let linear = body.inputs.len() - residuals.len();
    verify_linear(&body, linear, |id| scope.origin(id)).map_err(|mut d| {
        d.message = format!(
            "forward mode of a `custom_vjp` is the transpose of its backward half: {}",
            d.message
        );
        d.help("give the function a `custom_jvp`, or use reverse mode only")
    })?;
    let tangents: Vec<Option<Tensor>> = tangents.iter().cloned().map(Some).collect();
    transpose(&body, linear, residuals, &tangents)
}

/// Cotangents of a `transposed` equation's operands. Runs the backward half.
pub(super) fn adjoint(
    equation: &Equation,
    residuals: Vec<Tensor>,
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let count = residuals.len();
    let taken: Vec<Option<Tensor>> =
        residuals.into_iter().map(Some).chain(cotangents.iter().cloned()).collect();
    let mut results = vec![None; count];
    results.extend(run(&equation.regions[0], &taken, Purpose::Forwards)?);
    Ok(results)
}

/// The kind of program that [`run`] emits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    /// An ordinary program.
    Forwards,
    /// A part of a linear program that may still be transposed: `transposed` stays.
    Linear,
}

/// Runs a body on inputs some of which are symbolic zeros (`None`). Results that are zero because
/// of them stay symbolic zeros.
///
/// An op that is linear in its zero operands has a zero result. If only some operands of a sum
/// are zero, it is the sum of the others. For any other op, zeros are materialized.
///
/// An ordinary program has no `transposed`: each, at any depth, is replaced by the
/// transpose of its region.
pub(super) fn run(
    body: &Body,
    inputs: &[Option<Tensor>],
    purpose: Purpose,
) -> Result<Vec<Option<Tensor>>> {
    let scope = current_scope()?;
    let live = Activity::live(body);
    let mut values: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
    for (input, tensor) in body.inputs.iter().zip(inputs) {
        values[*input] = tensor.clone();
    }
    for equation in &body.equations {
        if !equation.results.iter().any(|v| live[*v]) {
            continue;
        }
        let operands: Vec<Option<Tensor>> =
            equation.operands.iter().map(|v| values[*v].clone()).collect();
        for (value, result) in
            equation.results.iter().zip(results(&scope, body, equation, &operands, purpose)?)
        {
            values[*value] = result;
        }
    }
    Ok(body.outputs.iter().map(|v| values[*v].clone()).collect())
}

fn results(
    scope: &Scope,
    body: &Body,
    equation: &Equation,
    operands: &[Option<Tensor>],
    purpose: Purpose,
) -> Result<Vec<Option<Tensor>>> {
    let is_zero = |i: &usize| operands[*i].is_none();
    let is_float = |i: &usize| body.ty(equation.operands[*i]).dtype.is_float();
    let all = || 0..operands.len();
    let zero = all().any(|i| is_zero(&i))
        && match equation.op.derivative() {
            Derivative::Linear(_) | Derivative::SignedSum(_) => {
                all().filter(is_float).all(|i| is_zero(&i))
            }
            Derivative::Multilinear(_) => true,
            Derivative::LinearIn(allowed, ..) => allowed.iter().any(is_zero),
            Derivative::Tangent(tangent) => (operands.len() - (tangent.linear)(operands.len())
                ..operands.len())
                .all(|i| is_zero(&i)),
            Derivative::Custom(Custom::Transposed { tangents }) => {
                (operands.len() - tangents..operands.len()).all(|i| is_zero(&i))
            }
            Derivative::Custom(Custom::LinearSolve { captures }) => {
                (0..operands.len() - captures).all(|i| is_zero(&i))
            }
            _ => false,
        };
    if zero {
        return Ok(vec![None; equation.results.len()]);
    }
    let materialise = |(i, t): (usize, &Option<Tensor>)| match t {
        Some(t) => Ok(t.clone()),
        None => zeros(body.ty(equation.operands[i])),
    };
    let location = scope.location(equation.location);
    if let Some(rule) = equation.op.derivative().linear()
        && all().filter(is_float).any(|i| is_zero(&i))
    {
        let full: Vec<Tensor> =
            operands.iter().enumerate().map(materialise).collect::<Result<_>>()?;
        let types = body.types(&equation.results);
        let tangents: Vec<_> =
            all().map(|i| operands[i].clone().filter(|_| is_float(&i))).collect();
        return duals_of_linear(equation, rule, &full, &types, &tangents);
    }
    let operands: Vec<Tensor> =
        operands.iter().enumerate().map(materialise).collect::<Result<_>>()?;
    let results = match equation.op.derivative() {
        _ if purpose == Purpose::Linear => {
            Scope::emit(equation.op.clone(), &operands, equation.regions.clone(), location)?
        }
        Derivative::Custom(Custom::Transposed { tangents }) => {
            expand(scope, equation, &operands, tangents)?
        }
        _ => {
            let regions = equation.regions.iter().map(expanded).collect::<Result<Vec<Region>>>()?;
            Scope::emit(equation.op.clone(), &operands, regions, location)?
        }
    };
    Ok(results.into_iter().map(Some).collect())
}

/// A region without `transposed`.
fn expanded(region: &Region) -> Result<Region> {
    if !has_transposed(region, &mut HashSet::new()) {
        return Ok(region.clone());
    }
    let made = control::region(&region.types(&region.inputs), |inputs| {
        let inputs: Vec<Option<Tensor>> = inputs.iter().cloned().map(Some).collect();
        let outputs = run(region, &inputs, Purpose::Forwards)?;
        with_zeros(outputs, region.outputs.iter().map(|v| region.ty(*v)))
    })?;
    Ok(made.renumber().into())
}

/// Whether it contains a `transposed`, at any depth. Shared regions are searched once.
fn has_transposed(region: &Region, seen: &mut HashSet<usize>) -> bool {
    if !seen.insert(region.address()) {
        return false;
    }
    let mut has = |e: &Equation| {
        matches!(e.op, Op::Transposed(_))
            || e.regions.iter().any(|inner| has_transposed(inner, seen))
    };
    region.equations.iter().any(&mut has)
}

/// The name of an equation's function in errors.
pub(super) fn function_name(op: &Op) -> String {
    let name = match op {
        Op::FunctionCall(call) => &call.function.0,
        Op::CustomJvp(custom) => &custom.function.0,
        Op::CustomVjp(custom) => &custom.function.0,
        other => return format!("`{}`", other.name()),
    };
    if name.is_empty() {
        format!("the function of a `{}`", op.name())
    } else {
        format!("`@{name}`")
    }
}

/// The error for a derivative through an opaque function.
pub(super) fn opaque_error(scope: &Scope, equation: &Equation) -> Diagnostic {
    if let Op::ConvertElementType(op) = &equation.op {
        return float8_error(scope, equation, op.dtype);
    }
    Diagnostic::new(format!(
        "cannot differentiate through {}: it is opaque",
        function_name(&equation.op)
    ))
    .at(scope.origin(equation.location), "called here")
    .help("Give it a `custom_vjp` or mark it `stop_gradient`")
}

/// Error: a loop or branch with tangents has results of 8-bit floats, which may depend on a
/// conversion within it.
pub(super) fn refuse_float8(scope: &Scope, body: &Body, equation: &Equation) -> Result<()> {
    let mut dtypes = equation.results.iter().map(|v| body.ty(*v).dtype);
    match dtypes.find(|dtype| dtype.is_float8()) {
        Some(dtype) => Err(float8_error(scope, equation, dtype)),
        None => Ok(()),
    }
}

fn float8_error(scope: &Scope, equation: &Equation, dtype: DType) -> Diagnostic {
    let name = equation.op.name();
    Diagnostic::new(format!("`{name}` has no derivative: it results in {dtype}"))
        .at(scope.origin(equation.location), "differentiated here")
        .help(
            "convert a constant, such as `x.stop_gradient()`. To train through the rounding, add \
             the difference as a constant: `&x + (rounded - &x).stop_gradient()`",
        )
}

fn captured_error(scope: &Scope, equation: &Equation, captured: &Tensor) -> Diagnostic {
    let error = Diagnostic::new(format!(
        "the rule of {} captures a value that is differentiated, of which it knows no derivative",
        function_name(&equation.op)
    ))
    .at(scope.origin(equation.location), "the rule is given here")
    .help("pass the value as an argument, or cut it off by `stop_gradient`");
    match captured.defined_at() {
        Some(at) => error.at(at, format!("captured: {}", captured.ty())),
        None => error,
    }
}
