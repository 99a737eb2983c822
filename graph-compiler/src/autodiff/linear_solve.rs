//! Derivatives of `custom_linear_solve`: those of the system, by the same solver.
//!
//! From A(k)·x = b follows Ȧ·x + A·ẋ = ḃ, so ẋ solves a system with the same map, whose
//! right-hand side is ḃ less the change of the map at x. That change is the tangent of the map's
//! region along k with x fixed, made by the driver like any other. The new equation is linear in
//! its right-hand side. Its transpose is the equation with the transposed map and its solver. So
//! in every mode and order each derivative adds one system, and no solver is differentiated.

use super::jvp::{self, with_zeros, zeros};
use super::{Activity, emit_one};
use wengert_core::build::Scope;
use wengert_core::graph::{Equation, Region};
use wengert_core::op::{Binary, Unary};
use wengert_core::{Diagnostic, Location, Op, Result, Tensor};

/// Whether the solution depends on each operand: right-hand sides, and operands of the map. The
/// solution does not depend on operands of solvers alone (a first guess, a preconditioner, a
/// factorization).
pub(super) fn matters(equation: &Equation, captures: usize) -> Vec<bool> {
    let map = &equation.regions[0];
    let inside = Activity::of(map, &vec![true; map.outputs.len()]).differentiated;
    let count = equation.operands.len() - captures;
    map.inputs.iter().enumerate().map(|(i, v)| i < count || inside[*v]).collect()
}

/// Tangents of the solution.
pub(super) fn tangents(
    scope: &Scope,
    equation: &Equation,
    captures: usize,
    operands: &[Tensor],
    results: &[Tensor],
    tangents: &[Option<Tensor>],
    linearizing: bool,
) -> Result<Vec<Option<Tensor>>> {
    let count = operands.len() - captures;
    let (of_b, of_captures) = tangents.split_at(count);
    let mut moved = vec![None; count];
    if of_captures.iter().any(Option::is_some) {
        let point: Vec<Tensor> = results.iter().chain(&operands[count..]).cloned().collect();
        let fixed = std::iter::repeat_n(None, count);
        let along: Vec<Option<Tensor>> = fixed.chain(of_captures.iter().cloned()).collect();
        moved = jvp::run(&equation.regions[0], &point, &along, &vec![true; count], linearizing)?.1;
    }
    if of_b.iter().chain(&moved).all(Option::is_none) {
        return Ok(vec![None; count]);
    }
    scope.derived(equation.location, "jvp(custom_linear_solve)", || {
        let mut right = Vec::new();
        for ((b, moved), x) in of_b.iter().zip(moved).zip(results) {
            right.push(match (b, moved) {
                (Some(b), Some(moved)) => emit_one(Binary::Sub.into(), &[b.clone(), moved])?,
                (Some(b), None) => b.clone(),
                (None, Some(moved)) => emit_one(Unary::Neg.into(), &[moved])?,
                (None, None) => zeros(x.ty())?,
            });
        }
        right.extend(operands[count..].iter().cloned());
        let solved =
            Scope::emit(equation.op.clone(), &right, equation.regions.clone(), Location::Unknown)?;
        Ok(solved.into_iter().map(Some).collect())
    })
}

/// Cotangents of an equation's operands, some of whose right-hand sides are linear. The
/// transposed system is solved for the cotangents of the solution. `operands` holds the known
/// ones.
pub(super) fn adjoint(
    scope: &Scope,
    equation: &Equation,
    captures: usize,
    operands: &[Option<Tensor>],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let regions =
        transposed(equation).map_err(|d| d.at(scope.origin(equation.location), "the system"))?;
    let count = operands.len() - captures;
    if operands[count..].iter().any(Option::is_none) {
        return Err(not_linear().at(scope.origin(equation.location), "the system"));
    }
    scope.derived(equation.location, "transpose(custom_linear_solve)", || {
        let region = &equation.regions[0];
        let types = region.inputs.iter().map(|v| region.ty(*v));
        let mut right = with_zeros(cotangents.iter().cloned(), types)?;
        right.extend(operands[count..].iter().flatten().cloned());
        let solved = Scope::emit(equation.op.clone(), &right, regions, Location::Unknown)?;
        let of =
            |(known, cotangent): (&Option<Tensor>, Tensor)| known.is_none().then_some(cotangent);
        let mut all: Vec<Option<Tensor>> = operands.iter().zip(solved).map(of).collect();
        all.resize(operands.len(), None);
        Ok(all)
    })
}

/// Checks that an equation is linear in the marked operands.
pub(super) fn verify(equation: &Equation, captures: usize, linear: &[bool]) -> Result<()> {
    match linear[linear.len() - captures..].contains(&true) {
        true => Err(not_linear()),
        false => transposed(equation).map(|_| ()),
    }
}

fn not_linear() -> Diagnostic {
    Diagnostic::new(
        "the solution of a system is linear in the right-hand side, not in the map's coefficients",
    )
    .help("transpose linear functions only; `vjp` linearizes first")
}

/// The regions that solve the transposed system.
fn transposed(equation: &Equation) -> Result<Vec<Region>> {
    let Op::CustomLinearSolve(op) = &equation.op else {
        unreachable!("the rule is that of `custom_linear_solve`")
    };
    let regions = op.transposed(&equation.regions).ok_or_else(|| {
        Diagnostic::new("reverse mode needs to solve the transposed system, and nobody said how")
            .help(
                "give `custom_linear_solve` a transposed solver, or say that the map is symmetric; \
                 or use forward mode",
            )
    })?;
    Ok(regions.into_iter().cloned().collect())
}
