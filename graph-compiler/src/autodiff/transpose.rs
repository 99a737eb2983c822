//! Transposition: a linear program run backwards.
//!
//! If a program computes `y = A·x`, its transpose computes `Aᵀ·ȳ`. It goes equation by equation
//! from the last: the cotangents of the results are known, the op's transpose rule gives those of
//! the operands, and where a value is used more than once, they are added. A value without
//! cotangent is a symbolic zero; equations whose results have none are skipped. Instead of a
//! negation, a later addition may become a subtraction: cotangents have signs (`cotangent.rs`).

use super::cotangent::{Cotangent, Sums};
use super::slices::Parts;
use super::{control, current_scope, custom, linear_solve, sound, varying_as};
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::derivative::{
    Custom, Derivative, Sign, TangentRule, Transpose, TransposeOperand, TransposeRule,
};
use wengert_core::{Diagnostic, IdVec, Location, LocationId, Op, Result, Tensor};

/// Cotangents of the first `linear` inputs of `body`, which is linear in them together, from
/// those of its outputs. `known` are the values of the other inputs. `None` is zero.
pub fn transpose(
    body: &Body,
    linear: usize,
    known: &[Tensor],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    assert_eq!(linear + known.len(), body.inputs.len(), "transpose: a value for each known input");
    assert_eq!(
        cotangents.len(),
        body.outputs.len(),
        "transpose: a cotangent for each output, or its absence"
    );
    let scope = current_scope()?;
    let is_linear = linear_values(body, linear);
    let values = known_values(&scope, body, &is_linear, linear, known, cotangents)?;

    let given: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    let mut sums = Sums::new(body, &is_linear, &given);
    for (output, cotangent) in body.outputs.iter().zip(cotangents) {
        let Some(cotangent) = cotangent.as_ref().filter(|_| is_linear[*output]) else { continue };
        sums.give(&scope, *output, Cotangent::plus(cotangent.clone()), LocationId(0))?;
    }
    let mut parts = Parts::new(body, &is_linear);
    // The operand's cotangent from an equation that takes a part, by its own transpose rule.
    let apart = |position: usize, cotangent: Tensor| {
        let equation: &Equation = &body.equations[position];
        let cotangents = vec![Some(Cotangent::plus(cotangent))];
        let given = adjoint(&scope, body, equation, &is_linear, &values, cotangents, || false)?;
        Ok(given.into_iter().next().flatten())
    };
    for (position, equation) in body.equations.iter().enumerate().rev() {
        for value in &equation.results {
            parts.settle(body, &scope, &mut sums, *value, apart)?;
        }
        let cotangents: Vec<Option<Cotangent>> =
            equation.results.iter().map(|v| sums.take(*v)).collect();
        if cotangents.iter().all(Option::is_none) {
            continue;
        }
        if let ([Some(cotangent)], Some(_)) = (cotangents.as_slice(), equation.op.part())
            && cotangent.sign() == Sign::Plus
            && parts.keep(equation.operands[0], position, cotangent.unsigned())
        {
            continue;
        }
        let takes_up = || sums.takes_up(position);
        let results = adjoint(&scope, body, equation, &is_linear, &values, cotangents, takes_up)?;
        for (operand, cotangent) in equation.operands.iter().zip(results) {
            let Some(cotangent) = cotangent.filter(|_| is_linear[*operand]) else { continue };
            sums.give(&scope, *operand, cotangent, equation.location)?;
        }
    }
    for input in &body.inputs[..linear] {
        parts.settle(body, &scope, &mut sums, *input, apart)?;
    }
    let plain = |v: &ValueId| sums.take(*v).map(|sum| sum.plain(&scope)).transpose();
    body.inputs[..linear].iter().map(plain).collect()
}

/// Checks that `body` is linear in its first `linear` inputs together: it applies only linear
/// operations to them, and adds only terms that vanish with them.
pub fn verify_linear(
    body: &Body,
    linear: usize,
    location: impl Fn(LocationId) -> Location,
) -> Result<()> {
    let is_linear = linear_values(body, linear);
    let mut is_zero: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    let affine = || {
        Diagnostic::new("a function that adds a constant is affine, not linear")
            .help("leave the constant out: it does not matter to the transpose")
    };
    for equation in &body.equations {
        let rule = equation.op.derivative();
        if let Op::Constant(constant) = &equation.op {
            is_zero[equation.results[0]] =
                constant.value.splat().is_some_and(|s| s.to_f64() == 0.0);
        }
        // A linear op maps zeros to zeros.
        let mut floats = equation.operands.iter().filter(|v| body.ty(**v).dtype.is_float());
        let vanishes = rule.linear().is_some() && floats.all(|v| is_zero[*v]);
        equation
            .results
            .iter()
            .for_each(|v| is_zero[*v] |= vanishes && !equation.operands.is_empty());
        if !equation.operands.iter().any(|v| is_linear[*v]) {
            continue;
        }
        if rule.is_by_regions() {
            let linear: Vec<bool> = equation.operands.iter().map(|v| is_linear[*v]).collect();
            control::verify(equation, &linear, &location)?;
            continue;
        }
        let at = |d: Diagnostic| d.at(location(equation.location), equation.op.name());
        // The op is linear in these operands together, so the rest of them must vanish with the
        // linear ones.
        let together = match rule {
            Derivative::Custom(Custom::LinearSolve { captures }) => {
                let linear: Vec<bool> = equation.operands.iter().map(|v| is_linear[*v]).collect();
                linear_solve::verify(equation, captures, &linear).map_err(at)?;
                0..equation.operands.len() - captures
            }
            _ => {
                linear_rule(equation, &is_linear).map_err(at)?;
                match rule {
                    Derivative::Tangent(tangent) => {
                        first_tangent(equation, &tangent)..equation.operands.len()
                    }
                    _ if rule.linear().is_some() => 0..equation.operands.len(),
                    _ => 0..0,
                }
            }
        };
        let mut together =
            equation.operands[together].iter().filter(|v| body.ty(**v).dtype.is_float());
        let mixed = together.any(|v| !is_linear[*v] && !is_zero[*v]);
        if mixed {
            return Err(affine().at(location(equation.location), equation.op.name()));
        }
    }
    match body
        .outputs
        .iter()
        .any(|v| body.ty(*v).dtype.is_float() && !is_linear[*v] && !is_zero[*v])
    {
        true => Err(affine()),
        false => Ok(()),
    }
}

/// The values that depend on the linear inputs.
fn linear_values(body: &Body, linear: usize) -> IdVec<ValueId, bool> {
    let mut is_linear: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    body.inputs[..linear].iter().for_each(|v| is_linear[*v] = true);
    for equation in &body.equations {
        if equation.operands.iter().any(|v| is_linear[*v]) {
            equation.results.iter().for_each(|v| is_linear[*v] = true);
        }
    }
    is_linear
}

/// Runs the equations that do not depend on the linear inputs, as far as cotangents need them.
fn known_values(
    scope: &Scope,
    body: &Body,
    is_linear: &IdVec<ValueId, bool>,
    linear: usize,
    known: &[Tensor],
    cotangents: &[Option<Tensor>],
) -> Result<IdVec<ValueId, Option<Tensor>>> {
    let mut needed: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    for (output, cotangent) in body.outputs.iter().zip(cotangents) {
        needed[*output] |= cotangent.is_some() && is_linear[*output];
    }
    for equation in body.equations.iter().rev() {
        if equation.results.iter().any(|v| needed[*v]) {
            equation.operands.iter().for_each(|v| needed[*v] = true);
        }
    }
    let mut values: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
    for (input, tensor) in body.inputs[linear..].iter().zip(known) {
        values[*input] = Some(tensor.clone());
    }
    for equation in &body.equations {
        if !equation.results.iter().any(|v| needed[*v] && !is_linear[*v]) {
            continue;
        }
        let operands: Vec<Tensor> = equation
            .operands
            .iter()
            .map(|v| values[*v].clone().expect("it is known like its result"))
            .collect();
        let location = scope.location(equation.location);
        let results =
            Scope::emit(equation.op.clone(), &operands, equation.regions.clone(), location)?;
        for (value, result) in equation.results.iter().zip(results) {
            values[*value] = Some(result);
        }
    }
    Ok(values)
}

/// Cotangents of one equation's operands. `takes_up` tells whether a minus may be passed on.
fn adjoint(
    scope: &Scope,
    body: &Body,
    equation: &Equation,
    is_linear: &IdVec<ValueId, bool>,
    values: &IdVec<ValueId, Option<Tensor>>,
    cotangents: Vec<Option<Cotangent>>,
    takes_up: impl FnOnce() -> bool,
) -> Result<Vec<Option<Cotangent>>> {
    let op = &equation.op;
    if let (Derivative::SignedSum(signs), [Some(cotangent)]) =
        (op.derivative(), cotangents.as_slice())
    {
        return signed_terms(scope, equation, signs, is_linear, cotangent.clone());
    }
    let minus = cotangents.iter().flatten().all(|c| c.sign() == Sign::Minus);
    let sign =
        if minus && !sees_signs(&op.derivative()) && takes_up() { Sign::Minus } else { Sign::Plus };
    let tensor = |cotangent: Cotangent| match sign {
        Sign::Minus => Ok(cotangent.unsigned().clone()),
        Sign::Plus => cotangent.plain(scope),
    };
    let cotangents: Vec<Option<Tensor>> =
        cotangents.into_iter().map(|c| c.map(tensor).transpose()).collect::<Result<_>>()?;
    let results = unsigned(scope, body, equation, is_linear, values, &cotangents)?;
    Ok(results.into_iter().map(|t| t.map(|t| Cotangent::plus(t).times(sign, equation))).collect())
}

/// Whether an op may run user-defined rules on its cotangents. These need not be linear, so they
/// get cotangents without a separate sign.
pub(super) fn sees_signs(rule: &Derivative) -> bool {
    matches!(rule, Derivative::Custom(_)) || rule.is_by_regions()
}

/// The cotangents of a signed sum's terms: the same tensors with signs, unless that would make
/// more than one negation.
fn signed_terms(
    scope: &Scope,
    equation: &Equation,
    signs: &[Sign],
    is_linear: &IdVec<ValueId, bool>,
    mut cotangent: Cotangent,
) -> Result<Vec<Option<Cotangent>>> {
    let terms = || equation.operands.iter().zip(signs).filter(|(v, _)| is_linear[**v]);
    let count = |sign: Sign| terms().filter(|(_, s)| **s == sign).count();
    if cotangent.sign() == Sign::Minus && count(Sign::Plus) > count(Sign::Minus) + 1 {
        cotangent = Cotangent::plus(cotangent.plain(scope)?);
    }
    let term = |(v, sign): (&ValueId, &Sign)| {
        is_linear[*v].then(|| cotangent.clone().times(*sign, equation))
    };
    Ok(equation.operands.iter().zip(signs).map(term).collect())
}

/// Cotangents of one equation's operands from those of its results, by the op's rule.
fn unsigned(
    scope: &Scope,
    body: &Body,
    equation: &Equation,
    is_linear: &IdVec<ValueId, bool>,
    values: &IdVec<ValueId, Option<Tensor>>,
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let op = &equation.op;
    if let Derivative::Custom(Custom::Transposed { tangents }) = op.derivative() {
        let residuals = &equation.operands[..equation.operands.len() - tangents];
        let residuals =
            residuals.iter().map(|v| values[*v].clone().expect("what is not linear is known"));
        return custom::adjoint(equation, residuals.collect(), cotangents);
    }
    let known = |v: &ValueId| {
        (!is_linear[*v]).then(|| values[*v].clone().expect("what is not linear is known"))
    };
    if let Derivative::Custom(Custom::LinearSolve { captures }) = op.derivative() {
        let operands: Vec<Option<Tensor>> = equation.operands.iter().map(known).collect();
        return linear_solve::adjoint(scope, equation, captures, &operands, cotangents);
    }
    if op.derivative().is_by_regions() {
        let operands: Vec<Option<Tensor>> = equation.operands.iter().map(known).collect();
        return control::adjoint(scope, equation, &operands, cotangents);
    }
    let rule = linear_rule(equation, is_linear)
        .map_err(|d| d.at(scope.location(equation.location), op.name()))?;
    let operands: Vec<TransposeOperand> = equation
        .operands
        .iter()
        .map(|v| match is_linear[*v] {
            true => TransposeOperand::Linear(body.ty(*v).clone()),
            false => {
                TransposeOperand::Known(values[*v].clone().expect("what is not linear is known"))
            }
        })
        .collect();
    let results = body.types(&equation.results);
    scope.derived(equation.location, format!("transpose({})", op.name()), || {
        let given = rule(&Transpose { op, operands: &operands, results: &results, cotangents });
        let varying = given.into_iter().zip(&operands).map(|(t, o)| Some(varying_as(t?, o.ty())));
        sound(varying.collect())
    })
}

/// The first operand in which a tangent op is linear.
fn first_tangent(equation: &Equation, rule: &TangentRule) -> usize {
    equation.operands.len() - (rule.linear)(equation.operands.len())
}

/// The rule by which an equation is transposed, if it is linear in its linear operands.
fn linear_rule(equation: &Equation, is_linear: &IdVec<ValueId, bool>) -> Result<TransposeRule> {
    let mut linear = (0..equation.operands.len()).filter(|i| is_linear[equation.operands[*i]]);
    let (first, only) = (linear.next(), linear.next().is_none());
    let rule = equation.op.derivative();
    if let Some(rule) = rule.linear() {
        return Ok(rule);
    }
    match rule {
        Derivative::Multilinear(rule) if only => Ok(rule),
        Derivative::LinearIn(allowed, _, rule)
            if only && first.is_some_and(|i| allowed.contains(&i)) =>
        {
            Ok(rule)
        }
        Derivative::Tangent(tangent)
            if first.is_some_and(|i| i >= first_tangent(equation, &tangent)) =>
        {
            Ok(tangent.transpose)
        }
        _ => Err(Diagnostic::new(format!(
            "`{}` is not linear here, so it cannot be transposed",
            equation.op.name()
        ))
        .help("transpose linear functions only; `vjp` linearizes first")),
    }
}
