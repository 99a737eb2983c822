//! Replaces composites by their decompositions.

use wengert_core::graph::build::Scope;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Compute;
use wengert_core::{Diagnostic, Location, Op, Result, Target, Tensor};

/// How often a decomposition may decompose again: regions within regions are taken out one layer at a time.
const DEPTH: usize = 128;

/// The function without composites and unclaimed calls, and how many were replaced (at most `fuel`).
pub(crate) fn decompose(mut function: Function, target: &Target, fuel: u64) -> Result<(Function, u64)> {
    let mut spent = 0;
    for _ in 0..DEPTH {
        let Some(next) = once(&function, target, fuel - spent)? else { return Ok((function, spent)) };
        spent += next.1;
        function = next.0;
        if spent == fuel {
            return Ok((function, spent));
        }
    }
    Err(Diagnostic::new(format!("@{}: a decomposition does not come to an end", function.name)))
}

/// How an equation is computed.
fn compute<'a>(body: &Body, equation: &'a Equation) -> Compute<'a> {
    equation.op.compute(&body.types(&equation.operands), &body.types(&equation.results), &equation.regions)
}

/// True if an equation has to be replaced. Literals are asked for no facet.
fn is_composite(body: &Body, equation: &Equation, target: &Target) -> bool {
    if matches!(equation.op, Op::Constant(_)) {
        return false;
    }
    match compute(body, equation) {
        Compute::Decompose(_) => true,
        Compute::Call(call) => !target.claims(&call),
        _ => false,
    }
}

/// Replaces each composite once; nothing if there is none.
fn once(function: &Function, target: &Target, fuel: u64) -> Result<Option<(Function, u64)>> {
    let body = &function.body;
    let composites: Vec<usize> = (0..body.equations.len())
        .filter(|n| is_composite(body, &body.equations[*n], target))
        .take(usize::try_from(fuel).unwrap_or(usize::MAX))
        .collect();
    if composites.is_empty() {
        return Ok(None);
    }
    Ok(Some((replaced(function, &composites)?, composites.len() as u64)))
}

/// The function with the regions of some equations in place of the equations.
pub(crate) fn inline_regions(function: &Function, which: impl Fn(&Equation) -> bool) -> Result<Function> {
    let equations = function.body.equations.iter().enumerate();
    let chosen: Vec<usize> = equations.filter(|(_, e)| which(e)).map(|(n, _)| n).collect();
    replaced(function, &chosen)
}

/// The function with the decompositions of some equations in their place.
fn replaced(function: &Function, composites: &[usize]) -> Result<Function> {
    let body = &function.body;
    let scope = Scope::new(function.locations.clone());
    let mut tensors: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
    scope.enter(|| -> Result<()> {
        for value in &body.inputs {
            tensors[*value] = Some(scope.input(body.ty(*value).clone()));
        }
        let mut composites = composites.iter().peekable();
        for (n, equation) in body.equations.iter().enumerate() {
            let operands: Vec<Tensor> = equation
                .operands
                .iter()
                .map(|v| tensors[*v].clone().expect("the verifier found each value defined before its use"))
                .collect();
            let results = if composites.next_if_eq(&&n).is_some() {
                match equation.regions.is_empty() {
                    true => {
                        let rule = format!("decompose({})", equation.op.name());
                        scope.derived(equation.location, rule, || expand(body, equation, &operands))?
                    }
                    // A region's equations have locations of their own.
                    false => expand(body, equation, &operands)?,
                }
            } else {
                let location: Location = function.locations.get(equation.location).clone();
                Scope::emit(equation.op.clone(), &operands, equation.regions.clone(), location)?
            };
            for (value, tensor) in equation.results.iter().zip(results) {
                if let Some(error) = tensor.error() {
                    return Err(error.clone().context(equation.op.name()));
                }
                assert_eq!(
                    tensor.ty(),
                    body.ty(*value),
                    "{} decomposes to what it infers",
                    equation.op.name()
                );
                tensors[*value] = Some(tensor);
            }
        }
        Ok(())
    })?;
    let outputs: Vec<Tensor> = body
        .outputs
        .iter()
        .map(|v| tensors[*v].clone().expect("the verifier found each output defined"))
        .collect();
    let closure = scope.close(&outputs)?;
    let replaced = Function { body: closure.body, locations: scope.locations(), ..function.clone() };
    Ok(replaced.renumber())
}

/// The results of a composite by other ops.
fn expand(body: &Body, equation: &Equation, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    match compute(body, equation) {
        Compute::Decompose(rule) => Ok(rule(operands)),
        Compute::Call(_) => Err(Diagnostic::new(format!("`{}` has no decomposition", equation.op.name()))
            .help("compile for a target that claims the call")),
        _ => unreachable!("only composites are expanded"),
    }
}
