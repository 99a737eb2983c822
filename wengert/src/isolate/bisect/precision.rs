//! The search for the first equation whose value a precision policy changes.

use super::{Case, Fault, PrecisionFault, deviation, interpret, wrong_output};
use crate::isolate::Origin;
use wengert_core::graph::Equation;
use wengert_core::{Literal, LocationTable, Result};

/// The first equation whose value differs between a function and the same function under a
/// precision policy, if an output differs beyond the tolerance. Equations are matched by op and
/// source line, in order.
///
/// Errors: those of the interpreter.
pub fn precision(before: &Case, after: &Case) -> Result<Option<Fault>> {
    let expected = interpret(&before.function, &before.inputs)?;
    let found = interpret(&after.function, &after.inputs)?;
    let convert = |found: &Literal, expected: &Literal| found.convert(expected.dtype());
    let found: Vec<Literal> =
        found.iter().zip(&expected).map(|(found, expected)| convert(found, expected)).collect();
    let Some(output) = wrong_output(before, &expected, &found)? else { return Ok(None) };
    let (values, changed) = (before.record()?, after.record()?);
    let place =
        |e: &Equation, table: &LocationTable| (e.op.name(), table.origin(e.location).clone());
    let mut rest = after.function.body.equations.iter();
    let mut last = None;
    for equation in &before.function.body.equations {
        let wanted = place(equation, &before.function.locations);
        let mut ahead = rest.clone();
        let Some(same) = ahead.find(|e| place(e, &after.function.locations) == wanted) else {
            continue;
        };
        rest = ahead;
        last = Some(equation);
        for (x, y) in equation.results.iter().zip(&same.results) {
            let (Some(x), Some(y)) = (values.get(*x), changed.get(*y)) else { continue };
            if x.shape() != y.shape() {
                continue;
            }
            let name = format!("the result of `{}`", equation.op.name());
            if let Some((_, deviation)) = deviation([name], &[convert(y, x)], [x])? {
                let origin = Origin::of(equation, &before.function.locations);
                return Ok(Some(Fault::Precision(PrecisionFault { origin, deviation })));
            }
        }
    }
    // Only the rounding of the outputs themselves is left.
    Ok(last.map(|equation| {
        let origin = Origin::of(equation, &before.function.locations);
        Fault::Precision(PrecisionFault { origin, deviation: output })
    }))
}
