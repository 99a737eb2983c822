//! Probes become outputs.
//!
//! A `probe` reports a value to the run's observer. Compilation turns each probe into a further
//! output of the function, named `probe.` + kind + `.` + name, and removes the op. So a probe has
//! no side effect: its output is scheduled, planned and verified like every other. A probe in the
//! region of a call, a checkpoint or a rule is exposed by inlining the region.
//!
//! A probe in control flow leaves its construct as a further result:
//!
//! | construct | `print` | `finite` |
//! |---|---|---|
//! | loop of n steps | all steps, stacked along a new first axis of extent n | whether the value of every step is finite |
//! | `cond`, `switch` | the value, or zeros where another branch was taken | true where another branch was taken |
//!
//! Whether a step or a branch ran may be known at run time only: in a branch, in a `while`, in a
//! loop whose count is an operand. Then a `print` has a second output, `probe.seen.` + name: a
//! `bool` for each step of the loops around the probe, true where it ran. Where it is false the
//! value is zero. Constructs nest, outer loops first.
//!
//! A `while` without `max_steps` has no stacks. It carries from step to step whether all values
//! so far were finite.
//!
//! Not supported, with an error each: a `print` in a `while` without `max_steps`; a probe in the
//! condition of a `while`, which runs once more than its step; and in the combiner of a `reduce`,
//! which runs on scalars in no fixed order.

use crate::calls;
use crate::rewrite::push;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, Output, OutputRole, ValueId};
use wengert_core::op::{
    Binary, BroadcastInDim, Constant, Control, IsFinite, Op, Probe, ProbeKind, Reduce, ReduceKind,
    Unary,
};
use wengert_core::{
    DType, Diagnostic, Literal, Location, LocationId, LocationTable, Result, Scalar, TensorType,
};

/// The prefix of the names of outputs that belong to probes.
pub const PREFIX: &str = "probe.";

/// The kind of the outputs that report whether a probe ran.
const SEEN: &str = "seen";

/// The content of an output that belongs to a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// The value that the probe reports.
    Value(ProbeKind),
    /// For each step of the loops around the probe, whether it ran.
    Seen,
}

/// The report of an output of a compiled function, and the name that the user gave the probe.
/// `None` for other outputs.
pub fn of_output(name: &str) -> Option<(Report, &str)> {
    let (kind, name) = name.strip_prefix(PREFIX)?.split_once('.')?;
    if kind == SEEN {
        return Some((Report::Seen, name));
    }
    ProbeKind::ALL.into_iter().find(|k| k.name() == kind).map(|kind| (Report::Value(kind), name))
}

/// Turns the probes of a bound function into outputs. Returns the source location of each by the
/// output's name.
///
/// Several probes of one name are distinguished by a number.
pub fn expose(mut function: Function) -> Result<(Function, BTreeMap<String, Location>)> {
    let holds_probe = |e: &Equation| {
        e.op.control().is_none() && !is_combiner(&e.op) && e.regions.iter().any(|r| has_probe(r))
    };
    while let Some(inlined) = calls::inline_regions(&function, holds_probe)? {
        function = inlined;
    }
    let mut places = BTreeMap::new();
    if !has_probe(&function.body) {
        return Ok((function, places));
    }
    let Function { name, body, outputs, locations, .. } = &mut function;
    let watched = taken_out(body, locations).map_err(|d| d.context(format_args!("@{name}")))?;
    for probe in watched {
        let taken = |name: &str| outputs.iter().any(|o| o.name == name);
        let (value, seen) = output_names(&probe.probe, taken);
        places.insert(value.clone(), locations.origin(probe.location).clone());
        outputs.push(Output { name: value, role: OutputRole::Output });
        body.outputs.push(probe.value);
        if let Some(flags) = probe.seen {
            outputs.push(Output { name: seen, role: OutputRole::Output });
            body.outputs.push(flags);
        }
    }
    Ok((function.renumber(), places))
}

/// Whether an equation is a probe, or has one in its regions.
pub(crate) fn watches(equation: &Equation) -> bool {
    matches!(equation.op, Op::Probe(_)) || equation.regions.iter().any(|region| has_probe(region))
}

fn has_probe(body: &Body) -> bool {
    body.equations.iter().any(watches)
}

/// A body without its probes, in regions too: for code that recomputes values that a probe has
/// reported.
pub(crate) fn unwatched(body: &Body) -> Body {
    let mut body = body.clone();
    if !has_probe(&body) {
        return body;
    }
    let mut stands_for: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for mut equation in std::mem::take(&mut body.equations) {
        let replace = |value: &mut ValueId| *value = *stands_for.get(value).unwrap_or(value);
        equation.operands.iter_mut().for_each(replace);
        if matches!(equation.op, Op::Probe(_)) {
            stands_for.insert(equation.results[0], equation.operands[0]);
            continue;
        }
        for region in equation.regions.iter_mut().filter(|region| has_probe(region)) {
            *region = unwatched(region).renumber().into();
        }
        body.equations.push(equation);
    }
    body.outputs.iter_mut().for_each(|value| *value = *stands_for.get(value).unwrap_or(value));
    body
}

fn is_combiner(op: &Op) -> bool {
    matches!(op, Op::ReduceWith(_))
}

/// The names of the outputs of a probe: of its value, and of the steps in which it ran.
fn output_names(probe: &Probe, taken: impl Fn(&str) -> bool) -> (String, String) {
    let numbered = (2..).map(|n| format!("{}.{n}", probe.name));
    let names = std::iter::once(probe.name.clone()).chain(numbered);
    let mut both = names.map(|name| {
        (format!("{PREFIX}{}.{name}", probe.kind.name()), format!("{PREFIX}{SEEN}.{name}"))
    });
    both.find(|(value, seen)| !taken(value) && !taken(seen)).expect("some number is free")
}

/// A probe that has been removed from a body.
struct Watched {
    probe: Probe,
    location: LocationId,
    /// The reported value, in the body from which the probe was removed.
    value: ValueId,
    /// The number of loops between that body and the probe. The first axes of a printed value are
    /// their steps.
    loops: usize,
    /// For each step of these loops whether the probe ran; `None` if it ran in all.
    seen: Option<ValueId>,
}

/// Removes the probes of a body and of its regions. The reported values are values of the body.
fn taken_out(body: &mut Body, locations: &LocationTable) -> Result<Vec<Watched>> {
    let mut stands_for: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut watched = Vec::new();
    for mut equation in std::mem::take(&mut body.equations) {
        let replace = |value: &mut ValueId| *value = *stands_for.get(value).unwrap_or(value);
        equation.operands.iter_mut().for_each(replace);
        if let Op::Probe(probe) = &equation.op {
            let (operand, location) = (equation.operands[0], equation.location);
            stands_for.insert(equation.results[0], operand);
            let value = match probe.kind {
                ProbeKind::Print => operand,
                ProbeKind::Finite => {
                    let finite = push(body, IsFinite {}, &[operand], location);
                    let axes = 0..body.ty(finite).rank();
                    push(body, Reduce::new(ReduceKind::And, axes), &[finite], location)
                }
            };
            watched.push(Watched { probe: probe.clone(), location, value, loops: 0, seen: None });
        } else if watches(&equation) {
            watched.extend(out_of_control_flow(body, equation, locations)?);
        } else {
            body.equations.push(equation);
        }
    }
    body.outputs.iter_mut().for_each(|value| *value = *stands_for.get(value).unwrap_or(value));
    Ok(watched)
}

/// Appends a construct whose regions have had their probes removed. The reported values are
/// further results of it.
fn out_of_control_flow(
    body: &mut Body,
    mut equation: Equation,
    locations: &LocationTable,
) -> Result<Vec<Watched>> {
    let (location, name) = (equation.location, equation.op.name());
    let place = locations.origin(location);
    let refused = |message: &str, help: &str| Err(refusal(name, place, message, help));
    // For a loop: the length of its stacks, and whether all of its steps are sure to run.
    let looped = match equation.op.control() {
        Some(Control::Branch) => None,
        Some(Control::Scan(scan)) => Some((scan.length.clone(), !scan.counted)),
        Some(Control::While(_)) if has_probe(&equation.regions[0]) => {
            let help = "watch the value in the step instead";
            return refused(" in the condition, which runs once more than the step", help);
        }
        Some(Control::While(op)) => match &op.max_steps {
            Some(length) => Some((length.clone(), false)),
            None => return carried_out(body, equation, locations),
        },
        None => {
            let help = "watch the operands or the result instead";
            return refused(", which runs on single elements in no fixed order", help);
        }
    };
    let mut regions: Vec<Body> = equation.regions.iter().map(|region| region.to_body()).collect();
    let mut found: Vec<(usize, Watched)> = Vec::new();
    for (way, region) in regions.iter_mut().enumerate() {
        found.extend(taken_out(region, locations)?.into_iter().map(|probe| (way, probe)));
    }
    let mut given: Vec<Watched> = Vec::new();
    for (way, mut probe) in found {
        let region = &mut regions[way];
        let finite = probe.probe.kind == ProbeKind::Finite;
        if finite {
            // A region that does not run gives zeros, so the negated flag then says that every
            // value was finite.
            probe.value = push(region, Unary::Not, &[probe.value], location);
        }
        let sure = looped.as_ref().is_some_and(|(_, sure)| *sure);
        if !finite && !sure && probe.seen.is_none() {
            let steps = region.ty(probe.value).shape[..probe.loops].to_vec();
            let ty = TensorType::of(DType::Bool, steps);
            probe.seen = Some(filled(region, Scalar::of(true), &ty, location));
        }
        let mut carry_out = |value: ValueId| {
            let ty = regions[way].ty(value).clone();
            for (other, region) in regions.iter_mut().enumerate() {
                // The condition of a loop returns no further outputs.
                if looped.is_some() && other != way {
                    continue;
                }
                let output = if other == way {
                    value
                } else {
                    filled(region, Scalar::zero(ty.dtype), &ty, location)
                };
                region.outputs.push(output);
            }
            let shape =
                looped.iter().map(|(length, _)| length.clone()).chain(ty.shape.iter().cloned());
            let result = body.values.push(ty.with_shape(shape.collect()));
            equation.results.push(result);
            result
        };
        (probe.value, probe.seen) = (carry_out(probe.value), probe.seen.map(&mut carry_out));
        probe.loops += usize::from(looped.is_some() && !finite);
        given.push(probe);
    }
    equation.regions = regions.into_iter().map(|region| region.renumber().into()).collect();
    body.equations.push(equation);
    for probe in given.iter_mut().filter(|probe| probe.probe.kind == ProbeKind::Finite) {
        if looped.is_some() {
            probe.value = push(body, Reduce::new(ReduceKind::Or, [0]), &[probe.value], location);
        }
        probe.value = push(body, Unary::Not, &[probe.value], location);
    }
    Ok(given)
}

/// [`out_of_control_flow`] for a `while` without a bound. The flag that all values so far were
/// finite is a carry.
fn carried_out(
    body: &mut Body,
    mut equation: Equation,
    locations: &LocationTable,
) -> Result<Vec<Watched>> {
    let location = equation.location;
    let [mut condition, mut step] = [0, 1].map(|region| equation.regions[region].to_body());
    let carries = step.outputs.len();
    let mut watched = taken_out(&mut step, locations)?;
    if watched.iter().any(|probe| probe.probe.kind == ProbeKind::Print) {
        let help = "give the loop a bound by `while_at_most`, or watch the result";
        let place = locations.origin(location);
        return Err(refusal(
            equation.op.name(),
            place,
            ", and the number of its steps has no bound",
            help,
        ));
    }
    let ty = TensorType::scalar(DType::Bool);
    for (carry, probe) in (carries..).zip(&mut watched) {
        equation.operands.insert(carry, filled(body, Scalar::of(true), &ty, location));
        condition.inputs.insert(carry, condition.values.push(ty.clone()));
        let so_far = step.values.push(ty.clone());
        step.inputs.insert(carry, so_far);
        let finite = push(&mut step, Binary::And, &[so_far, probe.value], location);
        step.outputs.push(finite);
        probe.value = body.values.push(ty.clone());
        equation.results.push(probe.value);
    }
    equation.regions = [condition, step].map(|region| region.renumber().into()).into();
    body.equations.push(equation);
    Ok(watched)
}

/// The error for a probe that cannot leave its construct.
fn refusal(name: &str, place: &Location, message: &str, help: &str) -> Diagnostic {
    let message = format!("a value within `{name}` is watched{message}");
    Diagnostic::new(message).at(place.clone(), "it is here").help(help)
}

/// Adds a tensor of equal elements.
fn filled(body: &mut Body, number: Scalar, ty: &TensorType, location: LocationId) -> ValueId {
    let value = push(body, Constant { value: Literal::full(&[], number) }, &[], location);
    match ty.rank() {
        0 => value,
        _ => {
            push(body, BroadcastInDim { shape: ty.shape.clone(), dims: vec![] }, &[value], location)
        }
    }
}
