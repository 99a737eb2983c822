//! The search for the first equation whose value differs on a device.

use super::{Case, Deviation, ENTRIES, Fault, KernelFault, Run, deviation, is_given};
use crate::isolate::Origin;
use crate::isolate::cut::part;
use wengert_core::graph::ValueId;
use wengert_core::{Id, Result};

/// The first equation whose value differs on a device. `None` if the device is right.
///
/// An equation alone is computed from the interpreter's operands, so that errors in front of it do
/// not count.
///
/// Errors: those of the device and the interpreter.
pub fn kernel(case: &Case, run: &Run<'_>) -> Result<Option<Fault>> {
    Ok(kernel_within(case, run)?.map(Fault::Kernel))
}

fn kernel_within(case: &Case, run: &Run<'_>) -> Result<Option<KernelFault>> {
    let Case { function, .. } = case;
    let body = &function.body;
    let record = case.record()?;
    let definitions = body.definitions();
    let value_name = |value: ValueId| match definitions[value] {
        Some(number) if body.equations[number].results.len() > 1 => {
            let results = &body.equations[number].results;
            let which = results.iter().position(|v| *v == value).unwrap_or(0);
            format!("result {which} of `{}`", body.equations[number].op.name())
        }
        Some(number) => format!("the result of `{}`", body.equations[number].op.name()),
        None => "an input".into(),
    };
    // The first wrong value if the equations of a range are compiled together.
    let wrong =
        |from: usize, end: usize, values: &[ValueId]| -> Result<Option<(ValueId, Deviation)>> {
            let kept: Vec<bool> = (0..body.equations.len())
                .map(|n| (from..end).contains(&n) || is_given(body, n))
                .collect();
            let named: Vec<(String, ValueId)> =
                values.iter().map(|v| (format!("p{}", v.index()), *v)).collect();
            let cut = part(case, &record, &kept, &named);
            let found = run(&cut.function, &cut.inputs)?;
            let expected = values.iter().map(|v| record.get(*v).expect("every value is recorded"));
            let names = values.iter().map(|v| value_name(*v));
            Ok(deviation(names, &found, expected)?.map(|(n, deviation)| (values[n], deviation)))
        };
    let mut last_use = vec![0; body.values.len()];
    for (number, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| last_use[v.index()] = number);
    }
    body.outputs.iter().for_each(|v| last_use[v.index()] = usize::MAX);
    let prefix = |end: usize| {
        let results = body.equations[..end].iter().flat_map(|e| &e.results);
        let live: Vec<ValueId> = results.copied().filter(|v| last_use[v.index()] >= end).collect();
        match live.is_empty() {
            true => Ok(None),
            false => wrong(0, end, &live),
        }
    };
    let (mut right, mut bad) = (0, body.equations.len());
    let Some((mut value, mut deviation)) = prefix(bad)? else { return Ok(None) };
    while right + 1 < bad {
        let middle = (right + bad) / 2;
        match prefix(middle)? {
            Some(found) => (bad, (value, deviation)) = (middle, found),
            None => right = middle,
        }
    }
    let mut number = definitions[value].unwrap_or(bad - 1);
    // A wrong value in front of it may have no effect on the values that the search has compared.
    let earlier: Vec<ValueId> =
        body.equations[..number].iter().flat_map(|e| e.results.iter().copied()).collect();
    if !earlier.is_empty()
        && let Some((value, _)) = wrong(0, number, &earlier)?
        && let Some(first) = definitions[value]
        && wrong(first, first + 1, &body.equations[first].results)?.is_some()
    {
        number = first;
    }
    let equation = &body.equations[number];
    let mut fault = KernelFault {
        origin: Origin::of(equation, &function.locations),
        frames: vec![],
        deviation,
        alone: false,
        together: vec![],
    };
    if let Some((_, deviation)) = wrong(number, number + 1, &equation.results)? {
        (fault.alone, fault.deviation) = (true, deviation);
        if !equation.regions.is_empty() {
            for (frame, inner) in case.entries(number, ENTRIES)? {
                if let Some(mut found) = kernel_within(&inner, run)? {
                    found.frames.insert(0, frame);
                    return Ok(Some(found));
                }
            }
        }
        return Ok(Some(fault));
    }
    // The shortest range of equations that is wrong together.
    let (mut right, mut bad) = (1, number + 1);
    while right + 1 < bad {
        let middle = right + (bad - right) / 2;
        match wrong(number + 1 - middle, number + 1, &equation.results)? {
            Some(_) => bad = middle,
            None => right = middle,
        }
    }
    let kept: Vec<bool> =
        (0..body.equations.len()).map(|n| (number + 1 - bad..number).contains(&n)).collect();
    let operands: Vec<(String, ValueId)> =
        equation.operands.iter().map(|v| (format!("p{}", v.index()), *v)).collect();
    let before = part(case, &record, &kept, &operands);
    let equations = before.function.body.equations.iter();
    fault.together = equations.map(|e| Origin::of(e, &function.locations)).collect();
    Ok(Some(fault))
}
