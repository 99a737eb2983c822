//! The search for an equation with a wrong derivative.

use super::{Case, ENTRIES, Fault, RuleFault, is_given};
use crate::check::{self, Differentiate, Finding};
use crate::isolate::Origin;
use crate::isolate::cut::part;
use wengert_core::graph::{Equation, ValueId};
use wengert_core::{Id, Result, diagnostic};

/// The equation whose derivative is wrong, where derivatives are made by `by`. `None` if the
/// derivatives of the function agree with differences, or cannot be compared with them.
///
/// Errors: the function cannot be differentiated or evaluated.
pub fn rule(case: &Case, seed: u64, by: &dyn Differentiate) -> Result<Option<Fault>> {
    match check::derivatives_by(by, &case.function, &case.inputs, seed)? {
        Finding::Bad(message) => Ok(Some(Fault::Rule(rule_within(case, seed, by, message)?))),
        Finding::Good(_) | Finding::Skipped(_) => Ok(None),
    }
}

fn rule_within(
    case: &Case,
    seed: u64,
    by: &dyn Differentiate,
    message: String,
) -> Result<RuleFault> {
    let function = &case.function;
    let body = &function.body;
    let record = case.record()?;
    let fault = |equation: &Equation, message, alone| RuleFault {
        origin: Origin::of(equation, &function.locations),
        frames: vec![],
        message,
        alone,
    };
    let check = |case: &Case| match check::derivatives_by(by, &case.function, &case.inputs, seed) {
        Ok(Finding::Bad(message)) => Some(message),
        // An equation that has no derivative, or none at these values, is not at fault.
        _ => None,
    };
    let count = body.equations.len();
    for (number, equation) in body.equations.iter().enumerate() {
        let has_float = |v: &ValueId| body.ty(*v).dtype.is_float();
        if !equation.operands.iter().any(has_float) || !equation.results.iter().any(has_float) {
            continue;
        }
        let kept: Vec<bool> = (0..count).map(|n| n == number || is_given(body, n)).collect();
        let results: Vec<(String, ValueId)> =
            equation.results.iter().map(|v| (format!("p{}", v.index()), *v)).collect();
        let Some(message) = check(&part(case, &record, &kept, &results)) else { continue };
        if !equation.regions.is_empty() {
            for (frame, inner) in case.entries(number, ENTRIES)? {
                if let Some(message) = check(&inner) {
                    let mut found = rule_within(&inner, seed, by, message)?;
                    found.frames.insert(0, frame);
                    return Ok(found);
                }
            }
        }
        return Ok(fault(equation, message, true));
    }
    // Every equation alone is right: the least prefix that is wrong.
    let prefix = |end: usize| {
        let kept: Vec<bool> = (0..count).map(|n| n < end).collect();
        let used_later = |v: &ValueId| {
            body.outputs.contains(v) || body.equations[end..].iter().any(|e| e.operands.contains(v))
        };
        let results =
            body.equations[..end].iter().flat_map(|e| &e.results).filter(|v| used_later(v));
        let named: Vec<(String, ValueId)> =
            results.map(|v| (format!("p{}", v.index()), *v)).collect();
        check(&part(case, &record, &kept, &named))
    };
    let (mut right, mut bad, mut message) = (0, count, message);
    while right + 1 < bad {
        let middle = (right + bad) / 2;
        match prefix(middle) {
            Some(found) => (bad, message) = (middle, found),
            None => right = middle,
        }
    }
    match body.equations.get(bad.saturating_sub(1)) {
        Some(equation) => Ok(fault(equation, message, false)),
        None => Err(diagnostic!("@{} has no equation", function.name)),
    }
}
