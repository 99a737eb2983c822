//! Probes become outputs.
//!
//! A `probe` says that a value is watched. When a function is compiled, what there is to be seen is made a further output of it, named
//! `probe.` + kind + `.` + name, and the op itself is gone. So watching has no effect on anything: it is scheduled, planned and certified
//! like every other result. A probe within a region makes the op that runs the region be replaced by it.

use crate::calls;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, Output, OutputRole, ValueId};
use wengert_core::op::{IsFinite, Op, Probe, ProbeKind, Reduce, ReduceKind};
use wengert_core::{Diagnostic, Location, Result};

/// With what the names of outputs begin that are probes.
pub const PREFIX: &str = "probe.";

/// What an output of a compiled function tells, if it is a probe: its kind, and the name that the user gave it.
pub fn of_output(name: &str) -> Option<(ProbeKind, &str)> {
    let (kind, name) = name.strip_prefix(PREFIX)?.split_once('.')?;
    ProbeKind::ALL.into_iter().find(|k| k.name() == kind).map(|kind| (kind, name))
}

/// A function whose probes are outputs, and where each of them was made, by the output's name. The function is bound.
///
/// Several probes of one name are told apart by a number.
pub fn expose(mut function: Function) -> Result<(Function, BTreeMap<String, Location>)> {
    let holds_probe = |e: &Equation| e.op.control().is_none() && e.regions.iter().any(|r| has_probe(r));
    while let Some(inlined) = calls::inline_regions(&function, holds_probe)? {
        function = inlined;
    }
    if let Some(equation) = function.body.equations.iter().find(|e| e.regions.iter().any(|r| has_probe(r))) {
        let name = equation.op.name();
        return Err(Diagnostic::new(format!("@{}: a value within `{name}` is watched", function.name))
            .at(function.locations.origin(equation.location).clone(), "the control flow is here")
            .help("return the value from the closure, and watch it outside"));
    }
    let mut places = BTreeMap::new();
    if !has_probe(&function.body) {
        return Ok((function, places));
    }
    let mut stands_for: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut watched: Vec<(Output, ValueId)> = Vec::new();
    let Function { body, outputs, locations, .. } = &mut function;
    let equations = std::mem::take(&mut body.equations);
    for mut equation in equations {
        let replace = |value: &mut ValueId| *value = *stands_for.get(value).unwrap_or(value);
        equation.operands.iter_mut().for_each(replace);
        let Op::Probe(probe) = &equation.op else {
            body.equations.push(equation);
            continue;
        };
        let value = equation.operands[0];
        stands_for.insert(equation.results[0], value);
        let shown = match probe.kind {
            ProbeKind::Print => value,
            ProbeKind::Finite => {
                let finite = push(body, IsFinite {}.into(), value, &equation);
                let axes = 0..body.ty(finite).rank();
                push(body, Reduce::new(ReduceKind::And, axes).into(), finite, &equation)
            }
        };
        let taken = |name: &str| outputs.iter().chain(watched.iter().map(|(o, _)| o)).any(|o| o.name == name);
        let name = output_name(probe, taken);
        places.insert(name.clone(), locations.origin(equation.location).clone());
        watched.push((Output { name, role: OutputRole::Output }, shown));
    }
    body.outputs.iter_mut().for_each(|value| *value = *stands_for.get(value).unwrap_or(value));
    for (output, value) in watched {
        outputs.push(output);
        body.outputs.push(value);
    }
    Ok((function.renumber(), places))
}

/// True if an equation is a probe, or runs one.
pub(crate) fn watches(equation: &Equation) -> bool {
    matches!(equation.op, Op::Probe(_)) || equation.regions.iter().any(|region| has_probe(region))
}

fn has_probe(body: &Body) -> bool {
    body.equations.iter().any(watches)
}

fn output_name(probe: &Probe, taken: impl Fn(&str) -> bool) -> String {
    let plain = format!("{PREFIX}{}.{}", probe.kind.name(), probe.name);
    let numbered = (2..).map(|n| format!("{plain}.{n}"));
    std::iter::once(plain.clone()).chain(numbered).find(|name| !taken(name)).expect("some number is free")
}

/// Adds an equation of one result where a probe was.
fn push(body: &mut Body, op: Op, operand: ValueId, probe: &Equation) -> ValueId {
    let ty = op.infer(&[body.ty(operand).clone()], &[]).expect("the probe's operand is of floats").remove(0);
    let result = body.values.push(ty);
    let location = probe.location;
    body.equations.push(Equation {
        op,
        operands: vec![operand],
        results: vec![result],
        regions: vec![],
        location,
    });
    result
}
