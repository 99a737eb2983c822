//! Which equations to keep in f32: the cheapest set for an error that the user names.
//!
//! A policy of mixed precision rounds the operands and results of some equations to halves. An
//! equation is *worth* keeping in f32 by its part in the first-order estimate, divided by its cost.
//! The cost is the larger of two numbers, those of the bytes that halves save and of the
//! multiplications on halves.
//!
//! 1. Equations are sorted by worth. The first n of them are kept, where n is the least of a
//!    bisection for which the observed error is within what is asked.
//! 2. Members are dropped, those of the least worth first, while the error stays within. This is
//!    repeated until no member can be dropped, so the set is *minimal by inclusion*. A cheaper set
//!    that is not a part of it may exist: errors cancel, so finding the cheapest of all sets would
//!    take a run for each set.
//!
//! Every decision is made by a run. The estimate only decides the order.

use super::first_order::{Estimate, Norm, first_order};
use super::observed::{Deviation, reference, relative};
use crate::precision::{Precision, Traced};
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function};
use wengert_core::op::Compute;
use wengert_core::{Binding, DType, Literal, Location, LocationId, LocationTable, Op, Result};
use wengert_core::{TensorType, diagnostic};

/// An equation that is kept in f32.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptEquation {
    /// Its number: see [`Precision::keep_equation`].
    pub number: usize,
    /// The name of its op.
    pub op: &'static str,
    /// The line that a person wrote.
    pub location: Location,
    /// Its part in the estimate of the output on which it is greatest, relative to the magnitude of
    /// that output.
    pub part: f64,
    /// The larger of the bytes that halves would save and the multiplications on halves.
    pub cost: u64,
}

/// The equations that keep the error of a function within what is asked.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The policy with them as exceptions.
    pub policy: Precision,
    /// The equations, by number.
    pub equations: Vec<KeptEquation>,
    /// Number of equations that the policy without exceptions gives halves.
    pub candidates: usize,
    /// The observed error of the function under the policy without the exceptions.
    pub without: f64,
    /// The observed error with them.
    pub with: f64,
    /// The observed error of the function as it is given.
    pub given: f64,
}

/// A machine: it computes the outputs of a function from inputs.
pub type Run<'a> = dyn FnMut(&Function, &[Literal]) -> Result<Vec<Literal>> + 'a;

/// The cheapest set of equations, minimal by inclusion, that the policy has to keep in f32 for an
/// observed error of at most `within`. `run` computes the outputs of a function without dimension
/// variables on a machine, from inputs of its types.
///
/// The error is the greatest over all outputs in floats of the greatest absolute error, divided by
/// the greatest magnitude of the output. It is relative to the function in f64. Parameters that the
/// policy stores in halves are rounded to them first, so that rounding is no part of the error.
/// Roundings of states and results to such dtypes are.
///
/// # Errors
/// The policy is not for the function; not even the function without halves is within the error; an
/// equation has no derivative, so that nothing can be sorted; those of `run` and of the
/// interpreter.
pub fn keep(
    function: &Function,
    binding: &Binding,
    policy: &Precision,
    inputs: &[Literal],
    within: f64,
    run: &mut Run<'_>,
) -> Result<Kept> {
    if !policy.is_for(&function.name) {
        return Err(diagnostic!("the policy is not for @{}", function.name)
            .help("--within chooses equations of a function that the policy is for"));
    }
    let bound = function.bind(binding)?;
    let inputs = &taken(&bound, &taken(&policy.apply(function)?, inputs));
    let exact = reference(&bound, inputs)?;
    let mut error_of = |function: &Function| -> Result<f64> {
        let found = run(function, &taken(function, inputs))?;
        let floats = (0..found.len()).filter(|n| found[*n].dtype().is_float());
        floats.map(|n| Ok(Deviation::of(&found[n], &exact[n])?.relative())).try_fold(
            0.0f64,
            |greatest, error: Result<f64>| {
                let error = error?;
                Ok(greatest.max(if error.is_nan() { f64::INFINITY } else { error }))
            },
        )
    };
    let given = error_of(&bound)?;
    let mut error_with = |numbers: &[usize]| -> Result<f64> {
        error_of(&keeping(policy, function, numbers).apply(function)?.bind(binding)?)
    };
    let without = error_with(&[])?;
    if without <= within {
        let (policy, equations) = (policy.clone(), vec![]);
        return Ok(Kept { policy, equations, candidates: 0, without, with: without, given });
    }
    let traced = policy.apply_traced(function)?;
    let mut candidates = candidates(&traced, binding, inputs, &exact)?;
    let worth = |equation: &KeptEquation| equation.part / equation.cost.max(1) as f64;
    candidates.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.number.cmp(&b.number)));
    let numbers: Vec<usize> = candidates.iter().map(|equation| equation.number).collect();
    let all = error_with(&numbers)?;
    if all > within {
        return Err(diagnostic!(
            "@{}: an error of {within:e} is out of reach: it is {all:.1e} with every equation in \
             f32, and {given:.1e} without the policy",
            function.name
        )
        .help("ask for a larger error, or compute the function in f64"));
    }
    let mut kept = prefix(&numbers, within, &mut error_with)?;
    let mut with = error_with(&kept)?;
    // From the last on, which has the least worth.
    loop {
        let before = kept.len();
        for at in (0..kept.len()).rev() {
            let mut fewer = kept.clone();
            fewer.remove(at);
            let error = error_with(&fewer)?;
            if error <= within {
                (kept, with) = (fewer, error);
            }
        }
        if kept.len() == before {
            break;
        }
    }
    let policy = keeping(policy, function, &kept);
    let count = candidates.len();
    let mut equations: Vec<KeptEquation> =
        candidates.into_iter().filter(|equation| kept.contains(&equation.number)).collect();
    equations.sort_by_key(|equation| equation.number);
    Ok(Kept { policy, equations, candidates: count, without, with, given })
}

/// The inputs in the dtypes in which a function takes them.
fn taken(function: &Function, inputs: &[Literal]) -> Vec<Literal> {
    let of = |(n, input): (usize, &Literal)| input.convert(function.input_type(n).dtype);
    inputs.iter().enumerate().map(of).collect()
}

/// The policy with more exceptions.
fn keeping(policy: &Precision, function: &Function, numbers: &[usize]) -> Precision {
    numbers.iter().fold(policy.clone(), |policy, n| policy.keep_equation(&function.name, *n))
}

/// The shortest prefix found by doubling and bisection for which the error is within. All of them
/// together are.
fn prefix(
    numbers: &[usize],
    within: f64,
    error_with: &mut dyn FnMut(&[usize]) -> Result<f64>,
) -> Result<Vec<usize>> {
    let (mut low, mut high) = (0, 1);
    while high < numbers.len() && error_with(&numbers[..high])? > within {
        (low, high) = (high, 2 * high);
    }
    high = high.min(numbers.len());
    // `low` is not within, `high` is.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match error_with(&numbers[..middle])? <= within {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(numbers[..high].to_vec())
}

/// The equations to which the policy gives halves, with their parts and costs.
fn candidates(
    traced: &Traced,
    binding: &Binding,
    inputs: &[Literal],
    exact: &[wengert_core::interpret::Array<f64>],
) -> Result<Vec<KeptEquation>> {
    let Traced { before, after, origins } = traced;
    let tagged = tagged(after).bind(binding)?;
    let estimates = first_order(&tagged, &taken(&tagged, inputs)).map_err(|error| {
        error.context(format_args!("@{}: equations cannot be sorted", before.name))
    })?;
    let mut parts = vec![0.0; tagged.body.equations.len()];
    let magnitudes = exact.iter().enumerate().map(|(n, array)| {
        let estimate = estimates.outputs[n].as_ref()?;
        let squares = array.cells.iter().map(|cell| cell.real() * cell.real());
        Some(match estimate.norm {
            Norm::Greatest => squares.fold(0.0, f64::max).sqrt(),
            Norm::Euclidean => squares.sum::<f64>().sqrt(),
        })
    });
    for (estimate, magnitude) in estimates.outputs.iter().zip(magnitudes) {
        let (Some(Estimate { parts: of, .. }), Some(magnitude)) = (estimate, magnitude) else {
            continue;
        };
        let mut sums = vec![0.0; parts.len()];
        for (rounding, part) in estimates.roundings.iter().zip(of) {
            if let Some(at) =
                equation_of(&tagged, rounding.location).filter(|_| rounding.dtype.is_half())
            {
                sums[at] += part;
            }
        }
        for (part, sum) in parts.iter_mut().zip(sums) {
            *part = f64::max(*part, relative(sum, magnitude));
        }
    }
    let mut found: BTreeMap<usize, (f64, u64)> = BTreeMap::new();
    for (at, equation) in tagged.body.equations.iter().enumerate() {
        let owners = owners(&tagged.body, origins, at);
        for owner in &owners {
            found.entry(*owner).or_default().0 += parts[at] / owners.len() as f64;
        }
        if !is_conversion(equation) {
            found.entry(origins[at]).or_default().1 += cost(&tagged.body, equation);
        }
    }
    let of = |(number, (part, cost)): (usize, (f64, u64))| {
        let equation = &before.body.equations[number];
        let location = before.locations.origin(equation.location).clone();
        KeptEquation { number, op: equation.op.name(), location, part, cost }
    };
    Ok(found.into_iter().filter(|(_, (part, cost))| *part > 0.0 || *cost > 0).map(of).collect())
}

/// The function with a location for each equation, in place of its own: the line is the number of
/// the equation, from 1.
fn tagged(function: &Function) -> Function {
    let mut locations = LocationTable::default();
    let mut function = function.clone();
    for (number, equation) in function.body.equations.iter_mut().enumerate() {
        let line = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let location = locations.intern(Location::source("equation", line, 1));
        relocate(equation, location);
    }
    for input in &mut function.inputs {
        input.location = LocationId(0);
    }
    Function { locations, ..function }
}

fn relocate(equation: &mut Equation, location: LocationId) {
    equation.location = location;
    for region in &mut equation.regions {
        let mut body: Body = std::mem::take(region).into_body();
        body.equations.iter_mut().for_each(|equation| relocate(equation, location));
        *region = body.into();
    }
}

/// The number of the equation with a location.
fn equation_of(tagged: &Function, location: LocationId) -> Option<usize> {
    match tagged.locations.get(location) {
        Location::Source { line, .. } => (*line as usize).checked_sub(1),
        _ => None,
    }
}

fn is_conversion(equation: &Equation) -> bool {
    matches!(equation.op, Op::ConvertElementType(_))
}

/// The equations of the old body for which one of the new body rounds: its readers, if it converts
/// an operand for them.
fn owners(body: &Body, origins: &[usize], at: usize) -> Vec<usize> {
    let equation = &body.equations[at];
    let makes = |value| body.equations[..at].iter().rposition(|e| e.results.contains(value));
    let is_own = equation
        .operands
        .first()
        .and_then(makes)
        .is_some_and(|producer| origins[producer] == origins[at]);
    if !is_conversion(equation) || is_own {
        return vec![origins[at]];
    }
    let mut readers: Vec<usize> = (at + 1..body.equations.len())
        .filter(|reader| {
            body.equations[*reader].operands.iter().any(|value| equation.results.contains(value))
        })
        .map(|reader| origins[reader])
        .collect();
    readers.dedup();
    if readers.is_empty() { vec![origins[at]] } else { readers }
}

/// The larger of the bytes that halves save and the multiplications on halves.
fn cost(body: &Body, equation: &Equation) -> u64 {
    let is_half = |ty: &TensorType| ty.dtype.is_half();
    let (operands, results) = (body.types(&equation.operands), body.types(&equation.results));
    let halves = operands.iter().chain(&results).filter(|ty| is_half(ty));
    let saved = halves.map(|ty| ty.elements().unwrap_or(0) as u64 * DType::BF16.size() as u64);
    let within: u64 = equation
        .regions
        .iter()
        .map(|region| region.equations.iter().map(|e| cost(region, e)).sum::<u64>())
        .sum();
    let takes_halves = operands.iter().any(is_half);
    let call = takes_halves.then(|| equation.op.compute(&operands, &results, &equation.regions));
    let multiplications = match call {
        Some(Compute::Call(call) | Compute::CallOrDecompose(call, _)) => call.flops() / 2,
        _ => 0,
    };
    saved.sum::<u64>().max(multiplications).saturating_add(within)
}
