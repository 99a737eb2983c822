//! A wrong result narrowed down to the pass, the derivative rule or the equation at fault.
//!
//! The interpreter defines the right values. A result is wrong if it differs from the
//! interpreter's beyond the tolerance of [`check::deviation`].
//!
//! - [`pass`] finds a faulty pass. Passes spend fuel, one unit for each change. The first stage
//!   that the interpreter finds wrong names the pass, and the least fuel with a wrong result the
//!   change.
//! - [`kernel`] finds the first equation whose value differs on a device: by a binary search over
//!   the equations in program order, whose live values become outputs. It enters loops, branches
//!   and calls with the values that a run has there.
//! - [`device`] does both: first the passes, then the kernels.
//! - [`rule`] finds the equation with a wrong derivative: each equation is checked alone against
//!   differences, at the values of the run.
//! - [`precision`] finds the first equation whose value a precision policy changes beyond the
//!   tolerance.
//!
//! Passes, devices and derivatives are parameters, so that tests plant faults in them. A binary
//! search finds the transition from right to wrong; if there are several faults, it finds one.
//!
//! ```
//! use wengert::isolate::bisect::{self, Fault};
//! use wengert::isolate::cut::Case;
//! use wengert::isolate::walk::{Flow, Visit, walk};
//! use wengert::{Literal, core::graph::{Function, parse_program}};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[2]) -> (f32[]) {
//!     %0: f32[2] = tanh %x
//!     %1: f32[2] = mul %0, %0
//!     %2: f32[] = reduce_sum %1 {axes=[0]}
//!     return %2
//! }";
//! let program = parse_program(text, "f.ir")?;
//! let case = Case::plain(program.get("f")?, &[Literal::from_vec(&[2], vec![1.0f32, 2.0])?])?;
//! // A device whose products are wrong.
//! let device = |function: &Function, inputs: &[Literal]| -> wengert::Result<Vec<Literal>> {
//!     let mut visitor = |visit: Visit<'_>| {
//!         if visit.equation.op.name() == "mul" {
//!             visit.results[0] = visit.operands[0].clone();
//!         }
//!         Flow::Continue(())
//!     };
//!     Ok(walk(function, inputs, &mut visitor)?.expect("the visitor never ends the walk"))
//! };
//! let Some(Fault::Kernel(fault)) = bisect::kernel(&case, &device)? else { panic!("it is wrong") };
//! assert_eq!(fault.origin.location.to_string(), "f.ir:3:18");
//! assert!(fault.alone);
//! # Ok(())
//! # }
//! ```

use super::cut::{Case, part};
use super::diff::{self, Change};
use super::walk::Frame;
use super::{Origin, index};
use crate::check::{self, Differentiate, Finding};
use crate::pipeline;
use std::collections::BTreeMap;
use std::fmt;
use wengert_core::graph::{Equation, Function, Program, ValueId};
use wengert_core::{Binding, Id, Literal, LocationTable, Result, Scalar, Target, TensorType};

/// Evaluates a function without dimension variables on values for its inputs.
pub type Run<'a> = dyn Fn(&Function, &[Literal]) -> Result<Vec<Literal>> + 'a;

/// A function after a pass.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The pass.
    pub pass: String,
    /// The function after it.
    pub function: Function,
}

/// Passes over functions, with fuel.
pub trait Passes {
    /// The function after each run of a pass, in order. A pass makes at most as many changes as
    /// `fuel` says for its name, and any number without an entry.
    ///
    /// Errors: the target lacks something that the function needs.
    fn stages(&self, function: &Function, fuel: &BTreeMap<String, u64>) -> Result<Vec<Stage>>;
}

/// The compiler's graph passes for a target.
impl Passes for Target {
    fn stages(&self, function: &Function, fuel: &BTreeMap<String, u64>) -> Result<Vec<Stage>> {
        let options =
            pipeline::Options { fuel: fuel.clone(), keep_stages: true, ..Default::default() };
        let compiled = pipeline::compile_kernels(function, self, &options)?;
        let stages = compiled.stages.into_iter();
        Ok(stages.map(|(pass, function)| Stage { pass: pass.into(), function }).collect())
    }
}

/// An element that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct Deviation {
    /// The output or value that holds it.
    pub value: String,
    /// Its type.
    pub ty: TensorType,
    /// Its index.
    pub index: Vec<usize>,
    /// The wrong element.
    pub found: Scalar,
    /// The interpreter's.
    pub expected: Scalar,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deviation { value, ty, index, found, expected } = self;
        match index.is_empty() {
            true => write!(f, "{value} ({ty}) is {found}, not {expected}"),
            false => write!(f, "element {index:?} of {value} ({ty}) is {found}, not {expected}"),
        }
    }
}

/// The part of a computation at fault.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// A pass.
    Pass(PassFault),
    /// A kernel, named by the equation that it computes.
    Kernel(KernelFault),
    /// A derivative rule, named by the equation to which it is applied.
    Rule(RuleFault),
    /// The rounding of an equation under a precision policy.
    Precision(PrecisionFault),
}

/// A pass that changes the result.
#[derive(Clone, PartialEq, Debug)]
pub struct PassFault {
    /// The pass.
    pub pass: String,
    /// The number of its change that makes the result wrong, counted from 1 over all runs of the
    /// pass. `None` if the result is right with every limited fuel that was tried.
    pub change: Option<u64>,
    /// The result.
    pub deviation: Deviation,
    /// What that change does to the function.
    pub changes: Vec<Change>,
}

/// The first equation whose value differs on a device.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelFault {
    /// The equation.
    pub origin: Origin,
    /// The constructs around it, outermost first.
    pub frames: Vec<Frame>,
    /// Its value.
    pub deviation: Deviation,
    /// Whether the equation is wrong when it is compiled alone.
    pub alone: bool,
    /// If not, the equations in front of it with which it must be compiled.
    pub together: Vec<Origin>,
}

/// An equation whose derivative is wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleFault {
    /// The equation.
    pub origin: Origin,
    /// The constructs around it, outermost first.
    pub frames: Vec<Frame>,
    /// How the derivative is wrong.
    pub message: String,
    /// Whether the derivative of the equation alone is wrong. If not, it is the last of the
    /// equations that are needed.
    pub alone: bool,
}

/// The first equation whose value a policy changes.
#[derive(Clone, PartialEq, Debug)]
pub struct PrecisionFault {
    /// The equation.
    pub origin: Origin,
    /// Its value under the policy and without.
    pub deviation: Deviation,
}

impl Fault {
    /// The equation at fault. For a pass, the first that it removes, adds or changes.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Fault::Pass(fault) => {
                let first = |of: fn(&Change) -> Option<&Origin>| fault.changes.iter().find_map(of);
                let removed = first(|change| match change {
                    Change::Removed(item) => item.origin.as_ref(),
                    _ => None,
                });
                let added = first(|change| match change {
                    Change::Added(item) => item.origin.as_ref(),
                    _ => None,
                });
                let changed = first(|change| match change {
                    Change::Changed { from, .. } => from.origin.as_ref(),
                    _ => None,
                });
                removed.or(added).or(changed)
            }
            Fault::Kernel(fault) => Some(&fault.origin),
            Fault::Rule(fault) => Some(&fault.origin),
            Fault::Precision(fault) => Some(&fault.origin),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = |f: &mut fmt::Formatter<'_>, frames: &[Frame]| {
            frames.iter().try_for_each(|frame| write!(f, "\n  in {frame}"))
        };
        match self {
            Fault::Pass(fault) => {
                let pass = &fault.pass;
                match fault.change {
                    Some(change) => write!(f, "change {change} of pass `{pass}` is at fault")?,
                    None => write!(f, "pass `{pass}` is at fault")?,
                }
                write!(f, ": {}", fault.deviation)?;
                fault.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))?;
                match fault.change {
                    Some(change) => write!(
                        f,
                        "\n  right with `--fuel {pass}={}`, wrong with `--fuel {pass}={change}`",
                        change - 1
                    ),
                    None => Ok(()),
                }
            }
            Fault::Kernel(fault) => {
                write!(
                    f,
                    "no pass is at fault; the first wrong value is that of {}",
                    fault.origin
                )?;
                write!(f, ": {}", fault.deviation)?;
                frames(f, &fault.frames)?;
                match &fault.together[..] {
                    _ if fault.alone => f.write_str("\n  it is wrong when it is compiled alone"),
                    [] => f.write_str("\n  it is right when it is compiled alone"),
                    together => {
                        f.write_str("\n  it is right alone, and wrong when it is compiled with")?;
                        together.iter().try_for_each(|origin| write!(f, "\n    {origin}"))
                    }
                }
            }
            Fault::Rule(fault) => {
                write!(f, "the derivative of {} is wrong: {}", fault.origin, fault.message)?;
                frames(f, &fault.frames)?;
                match fault.alone {
                    true => Ok(()),
                    false => f.write_str("\n  it is right when the equation is alone"),
                }
            }
            Fault::Precision(fault) => {
                let (origin, deviation) = (&fault.origin, &fault.deviation);
                write!(f, "the policy first changes the value of {origin}: {deviation}")
            }
        }
    }
}

/// The first deviation among values with names.
fn deviation<'a>(
    names: impl IntoIterator<Item = String>,
    found: &[Literal],
    expected: impl IntoIterator<Item = &'a Literal>,
) -> Result<Option<(usize, Deviation)>> {
    for (n, ((value, found), expected)) in names.into_iter().zip(found).zip(expected).enumerate() {
        if let Some((flat, found, wanted)) = check::deviation(found, expected)? {
            let (ty, index) = (expected.ty(), index(expected.shape(), flat));
            return Ok(Some((n, Deviation { value, ty, index, found, expected: wanted })));
        }
    }
    Ok(None)
}

/// The first wrong output of a function that replaces the one of the case.
fn wrong_output(case: &Case, expected: &[Literal], found: &[Literal]) -> Result<Option<Deviation>> {
    let names = case.function.outputs.iter().map(|output| format!("output `{}`", output.name));
    Ok(deviation(names, found, expected)?.map(|(_, deviation)| deviation))
}

fn interpret(function: &Function, inputs: &[Literal]) -> Result<Vec<Literal>> {
    let mut all = |_: super::walk::Visit<'_>| super::walk::Flow::Continue(());
    let outputs = super::walk::walk(function, inputs, &mut all)?;
    Ok(outputs.expect("the visitor never ends the walk"))
}

/// Narrows down a wrong result of a device: to a pass, and if all passes are right, to a kernel.
/// `None` if the device is right.
///
/// Errors: those of the device, the passes and the interpreter.
pub fn device(case: &Case, passes: &dyn Passes, run: &Run<'_>) -> Result<Option<Fault>> {
    let expected = interpret(&case.function, &case.inputs)?;
    let found = run(&case.function, &case.inputs)?;
    if wrong_output(case, &expected, &found)?.is_none() {
        return Ok(None);
    }
    match pass(case, passes)? {
        Some(fault) => Ok(Some(fault)),
        None => kernel(case, run),
    }
}

/// The pass that changes the result beyond the tolerance, and its change. `None` if the function
/// after all passes is right.
///
/// Errors: those of the passes and the interpreter.
pub fn pass(case: &Case, passes: &dyn Passes) -> Result<Option<Fault>> {
    let expected = interpret(&case.function, &case.inputs)?;
    let wrong =
        |function: &Function| wrong_output(case, &expected, &interpret(function, &case.inputs)?);
    let stages = passes.stages(&case.function, &BTreeMap::new())?;
    let Some(last) = stages.last() else { return Ok(None) };
    let Some(mut worst) = wrong(&last.function)? else { return Ok(None) };
    // The stages below `right` are right, that of `bad` is wrong.
    let (mut right, mut bad) = (0, stages.len() - 1);
    while right < bad {
        let middle = (right + bad) / 2;
        match wrong(&stages[middle].function)? {
            Some(deviation) => (bad, worst) = (middle, deviation),
            None => right = middle + 1,
        }
    }
    let name = stages[bad].pass.clone();
    let with_fuel = |fuel: u64| passes.stages(&case.function, &[(name.clone(), fuel)].into());
    let is_wrong = |fuel: u64| -> Result<bool> {
        match with_fuel(fuel)?.last() {
            Some(stage) => Ok(wrong(&stage.function)?.is_some()),
            None => Ok(false),
        }
    };
    let fault =
        |change, changes| PassFault { pass: name.clone(), change, deviation: worst, changes };
    const MOST_FUEL: u64 = 1 << 24;
    let (mut right, mut bad) = (0, 1);
    while !is_wrong(bad)? {
        (right, bad) = (bad, bad * 2);
        if bad > MOST_FUEL {
            return Ok(Some(Fault::Pass(fault(None, vec![]))));
        }
    }
    while right + 1 < bad {
        let middle = right + (bad - right) / 2;
        match is_wrong(middle)? {
            true => bad = middle,
            false => right = middle,
        }
    }
    let (before, after) = (with_fuel(bad - 1)?, with_fuel(bad)?);
    let pairs = before.iter().zip(&after);
    let changes = pairs
        .filter(|(a, b)| a.function.body != b.function.body)
        .map(|(a, b)| diff::functions(&a.function, &b.function))
        .find(|changes| !changes.is_empty())
        .unwrap_or_default();
    Ok(Some(Fault::Pass(fault(Some(bad), changes))))
}

/// The most runs of a region that are examined.
const ENTRIES: usize = 32;

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
    let number = definitions[value].unwrap_or(bad - 1);
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

/// Whether an equation is a constant or an iota: it stays beside its users when a function is cut.
fn is_given(body: &wengert_core::graph::Body, number: usize) -> bool {
    let equation = &body.equations[number];
    equation.operands.is_empty() && equation.regions.is_empty()
}

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
        None => Err(wengert_core::diagnostic!("@{} has no equation", function.name)),
    }
}

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

/// Runs functions on a device, each in a session of its own.
pub fn on(device: crate::Device) -> impl Fn(&Function, &[Literal]) -> Result<Vec<Literal>> {
    move |function, inputs| {
        let program = Program::from_functions(vec![function.clone()])?;
        check::run(device, &program, &function.name, &Binding::new(), inputs)
    }
}
