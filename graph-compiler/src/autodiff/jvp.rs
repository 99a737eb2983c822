//! Forward mode: a body on pairs of a primal and a tangent.
//!
//! Each equation is emitted on the primals, then its rule on the tangents. The kinds of rules:
//!
//! - *zero*: the results have no tangents;
//! - *linear*: the op itself on the tangents. If only one of several operands has a tangent, the
//!   op restricted to that operand is used, which is the transpose of its transpose: for `add`
//!   the identity, for `sub` a negation, for `concatenate` a `pad`. So no zeros are made for the
//!   others, and no op needs a second rule. If several but not all have a tangent, zeros stand
//!   for the rest;
//! - *multilinear*: the product rule, the sum over operands of the op with that operand replaced
//!   by its tangent;
//! - *nonlinear*, *linear in some*: the op's own jvp rule;
//! - *composite*: the decomposition is run in place of the op, so that primal and derivative
//!   share its intermediate values. The same holds for ops that state a decomposition for this
//!   purpose, and for tangents that are ops of their own.

use super::activity::Activity;
use super::trace::trace;
use super::transpose::transpose;
use super::values::types;
use super::{control, current_scope, custom, plus, sound, unpoisoned, varying_as};
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::Compute;
use wengert_core::op::derivative::{
    Custom, DecompositionRule, Derivative, Jvp, Transpose, TransposeOperand, TransposeRule,
};
use wengert_core::{IdVec, Literal, Result, Scalar, Tensor, TensorType};

/// Outputs of a body with their tangents; `None` is zero.
pub type Duals = (Vec<Tensor>, Vec<Option<Tensor>>);

/// Runs `body` on `primals` and `tangents` (one for each input; `None` is zero). Returns its
/// outputs, with tangents for the `wanted` ones.
///
/// Equations go to the innermost scope among those of their operands. The body's locations must
/// be those of the current scope's function, as they are for closures traced in it.
pub fn jvp(
    body: &Body,
    primals: &[Tensor],
    tangents: &[Option<Tensor>],
    wanted: &[bool],
) -> Result<Duals> {
    run(body, primals, tangents, wanted, false)
}

/// [`jvp`]. With `linearizing`, tangents that are known by their transpose only stay
/// `transposed`.
pub(super) fn run(
    body: &Body,
    primals: &[Tensor],
    tangents: &[Option<Tensor>],
    wanted: &[bool],
    linearizing: bool,
) -> Result<Duals> {
    assert_eq!(primals.len(), body.inputs.len(), "jvp: one primal for each input");
    assert_eq!(
        tangents.len(),
        body.inputs.len(),
        "jvp: one tangent for each input, or its absence"
    );
    let scope = current_scope()?;
    let activity = Activity::of(body, wanted);
    let mut values: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
    let mut derivatives = values.clone();
    for ((input, primal), tangent) in body.inputs.iter().zip(primals).zip(tangents) {
        values[*input] = Some(primal.clone());
        if activity.differentiated[*input] {
            derivatives[*input] = tangent.clone();
        }
    }
    for equation in &body.equations {
        if !equation.results.iter().any(|v| activity.live[*v]) {
            continue;
        }
        let operands: Vec<Tensor> = equation
            .operands
            .iter()
            .map(|v| values[*v].clone().expect("a body defines values before their use"))
            .collect();
        let wanted = equation.results.iter().any(|v| activity.differentiated[*v]);
        let tangents: Vec<Option<Tensor>> =
            equation.operands.iter().map(|v| derivatives[*v].clone().filter(|_| wanted)).collect();
        let is_wanted = |v: &ValueId| activity.differentiated[*v] && body.ty(*v).dtype.is_float();
        let each: Vec<bool> = equation.results.iter().map(is_wanted).collect();
        let (results, tangents) =
            differentiate(&scope, body, equation, &operands, &tangents, &each, linearizing)?;
        for ((value, result), tangent) in equation.results.iter().zip(results).zip(tangents) {
            values[*value] = Some(result);
            if activity.differentiated[*value] {
                derivatives[*value] = tangent;
            }
        }
    }
    let outputs =
        body.outputs.iter().map(|v| values[*v].clone().expect("a body defines its outputs"));
    let tangents =
        body.outputs.iter().zip(wanted).map(|(v, w)| derivatives[*v].clone().filter(|_| *w));
    Ok((outputs.collect(), tangents.collect()))
}

/// Results and tangents of one equation.
fn differentiate(
    scope: &Scope,
    body: &Body,
    equation: &Equation,
    operands: &[Tensor],
    tangents: &[Option<Tensor>],
    wanted: &[bool],
    linearizing: bool,
) -> Result<Duals> {
    let location = scope.location(equation.location);
    let op = &equation.op;
    let rule = op.derivative();
    let active = tangents.iter().any(Option::is_some);
    if active && matches!(rule, Derivative::Composite) {
        let types = (types(operands), body.types(&equation.results));
        let rule = format!("decompose({})", op.name());
        let decomposition =
            scope.derived(equation.location, rule, || decompose(equation, &types.0, &types.1))?;
        return run(&decomposition, operands, tangents, &vec![true; types.1.len()], linearizing);
    }
    let by = match rule {
        Derivative::Decomposed(decomposition) => Some(decomposition),
        Derivative::Tangent(tangent) => Some(tangent.decomposition),
        _ => None,
    };
    if let (true, Some(decomposition)) = (active, by) {
        let body = decomposed(scope, equation, decomposition, &types(operands))?;
        return run(&body, operands, tangents, &vec![true; equation.results.len()], linearizing);
    }
    if let Derivative::Custom(Custom::Transposed { tangents: count }) = rule {
        assert!(!active && !linearizing, "a linear program is run as it is, or transposed");
        let results = custom::expand(scope, equation, operands, count)?;
        return Ok((results, vec![None; equation.results.len()]));
    }
    if active && rule.is_by_regions() {
        custom::refuse_float8(scope, body, equation)?;
        return control::differentiate(scope, equation, operands, tangents, wanted, linearizing);
    }
    let results = Scope::emit(op.clone(), operands, equation.regions.clone(), location)?;
    if !active {
        let none = vec![None; results.len()];
        return Ok((results, none));
    }
    if let Derivative::Opaque = rule {
        return Err(custom::opaque_error(scope, equation));
    }
    if let Derivative::Custom(rule) = rule {
        let tangents =
            custom::tangents(scope, equation, rule, operands, &results, tangents, linearizing)?;
        return Ok((results, tangents));
    }
    let tangents = scope.derived(equation.location, format!("jvp({})", op.name()), || {
        let tangents = match rule {
            Derivative::Zero
            | Derivative::Composite
            | Derivative::Decomposed(_)
            | Derivative::Tangent(_)
            | Derivative::Custom(_)
            | Derivative::Control
            | Derivative::Checkpoint
            | Derivative::Function
            | Derivative::Opaque => vec![None; results.len()],
            Derivative::Linear(_) | Derivative::SignedSum(_) => {
                let transpose = rule.linear().expect("both kinds are linear");
                duals_of_linear(equation, transpose, operands, &types(&results), tangents)?
            }
            Derivative::Multilinear(_) => multilinear(equation, operands, tangents)?,
            Derivative::Nonlinear(jvp) | Derivative::LinearIn(_, jvp, _) => {
                jvp(&Jvp { op, operands, results: &results, tangents, regions: &equation.regions })
            }
        };
        let varying = tangents.into_iter().zip(&results).map(|(t, r)| Some(varying_as(t?, r.ty())));
        sound(varying.collect())
    })?;
    for (result, tangent) in results.iter().zip(&tangents) {
        if let Some(tangent) = tangent {
            assert_eq!(
                result.ty(),
                tangent.ty(),
                "the jvp of {} gives a tangent of its result's type",
                op.name()
            );
        }
    }
    Ok((results, tangents))
}

/// The body of a composite, for operands of these types.
///
/// It is closed: it is recorded in a region, which also keeps equations without operands (masks,
/// zeros).
pub(super) fn decompose(
    equation: &Equation,
    operands: &[TensorType],
    results: &[TensorType],
) -> Result<Body> {
    let op = &equation.op;
    let Compute::Decompose(rule) = op.compute(operands, results, &equation.regions) else {
        panic!("{} is composite, so its compute facet is a decomposition", op.name())
    };
    control::region(operands, |operands| Ok(rule(operands)))
}

/// The body that replaces an equation for differentiation.
pub(super) fn decomposed(
    scope: &Scope,
    equation: &Equation,
    decomposition: DecompositionRule,
    operands: &[TensorType],
) -> Result<Body> {
    let op = &equation.op;
    scope.derived(equation.location, format!("decompose({})", op.name()), || {
        control::region(operands, |operands| Ok(decomposition(op, &equation.regions, operands)))
    })
}

/// Results of a linear op for tangents some of which may be zero.
pub(super) fn duals_of_linear(
    equation: &Equation,
    rule: TransposeRule,
    operands: &[Tensor],
    results: &[TensorType],
    tangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let floats = operands.iter().filter(|t| t.dtype().is_float()).count();
    let mut present = tangents.iter().enumerate().filter_map(|(i, t)| t.as_ref().map(|t| (i, t)));
    let first = present.next().expect("the rule is asked where there is a tangent");
    if floats > 1 && present.next().is_none() {
        return restricted(equation, rule, operands, results, first.0, first.1);
    }
    let operands: Vec<Tensor> = operands
        .iter()
        .zip(tangents)
        .map(|(operand, tangent)| match tangent {
            Some(tangent) => Ok(tangent.clone()),
            None if operand.dtype().is_float() => zeros(operand.ty()),
            None => Ok(operand.clone()),
        })
        .collect::<Result<_>>()?;
    apply(equation, &operands)
}

/// The op as a linear map of operand `which` alone: the transpose of its transpose.
fn restricted(
    equation: &Equation,
    rule: TransposeRule,
    operands: &[Tensor],
    types: &[TensorType],
    which: usize,
    tangent: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let mut zero = false;
    let adjoint = trace(types, |cotangents| {
        let operand = |(i, t): (usize, &Tensor)| match i == which {
            true => TransposeOperand::Linear(t.ty().clone()),
            false => TransposeOperand::Known(t.clone()),
        };
        let operands: Vec<_> = operands.iter().enumerate().map(operand).collect();
        let cotangents: Vec<_> = cotangents.iter().cloned().map(Some).collect();
        let transpose = Transpose {
            op: &equation.op,
            operands: &operands,
            results: types,
            cotangents: &cotangents,
        };
        let result = rule(&transpose).swap_remove(which);
        zero = result.is_none();
        result.into_iter().collect()
    })?;
    if zero {
        return Ok(vec![None; types.len()]);
    }
    transpose(&adjoint.body, types.len(), &adjoint.captures, &[Some(tangent.clone())])
}

fn multilinear(
    equation: &Equation,
    operands: &[Tensor],
    tangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let mut sums: Vec<Option<Tensor>> = vec![None; equation.results.len()];
    for (i, tangent) in tangents.iter().enumerate() {
        let Some(tangent) = tangent else { continue };
        let mut operands = operands.to_vec();
        operands[i] = tangent.clone();
        for (sum, term) in sums.iter_mut().zip(apply(equation, &operands)?) {
            *sum = plus(sum.take(), term)?;
        }
    }
    Ok(sums)
}

/// The equation's op on other operands. Results that are not floats have no tangent.
pub(super) fn apply(equation: &Equation, operands: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    let results = Scope::emit(
        equation.op.clone(),
        operands,
        equation.regions.clone(),
        wengert_core::Location::Unknown,
    )?;
    Ok(results.into_iter().map(|t| t.dtype().is_float().then_some(t)).collect())
}

/// The tensors, with zeros for those that are missing.
pub(super) fn with_zeros<'t>(
    tensors: impl IntoIterator<Item = Option<Tensor>>,
    types: impl IntoIterator<Item = &'t TensorType>,
) -> Result<Vec<Tensor>> {
    tensors.into_iter().zip(types).map(|(t, ty)| t.map_or_else(|| zeros(ty), Ok)).collect()
}

/// Zeros of a type.
pub fn zeros(ty: &TensorType) -> Result<Tensor> {
    let zero = Tensor::constant(Literal::full(&[], Scalar::zero(ty.dtype)));
    let zeros = if ty.rank() == 0 { zero } else { zero.broadcast_in_dim(ty.shape.clone(), &[]) };
    let zeros = varying_as(zeros, ty);
    unpoisoned([&zeros]).map(|()| zeros)
}
