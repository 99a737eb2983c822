//! Runs a function through the pipeline. The value after each pass is compared with the value
//! before it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wengert_compiler::certificate::{Bounded, Bounds, worst_case};
use wengert_compiler::kernels::Kernels;
use wengert_compiler::kernels::interpret::{self as kernels, Execute};
use wengert_compiler::pipeline::{Keeps, Options, compile_kernels, passes, plan_kernels};
use wengert_compiler::precision::Precision;
use wengert_compiler::rewrite::{self, Rule};
use wengert_core::call::Call;
use wengert_core::graph::{Function, InputRole, OutputRole, verify};
use wengert_core::interpret::{self, Array};
use wengert_core::plan;
use wengert_core::target::Approximations;
use wengert_core::{Binding, Literal, Result, Scalar, Target};
use wengert_testing::naive;

/// Counts of the comparisons.
#[derive(Default)]
pub struct Seen {
    /// For each pass or rule, how many functions it changed while it kept the bits, or kept the
    /// value within the bound.
    pub compared: BTreeMap<String, usize>,
    /// How many comparisons of passes that round differently were impossible, since some element
    /// has no bound.
    pub doubtful: usize,
}

impl Seen {
    fn note(&mut self, pass: &str) {
        *self.compared.entry(pass.to_owned()).or_default() += 1;
    }
}

/// Runs a function through every pass. The error names the pass that changes the result. With
/// `bounds`, the inputs are small enough that passes that round differently are compared too.
pub fn check(
    function: &Function,
    inputs: &[Literal],
    target: &Target,
    bounds: bool,
    seen: &mut Seen,
) -> std::result::Result<(), String> {
    let running = RefCell::new(String::from("?"));
    let checked = catch_unwind(AssertUnwindSafe(|| {
        through(function, inputs, target, bounds, seen, &running)
    }));
    checked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("pass `{}` panics: {}", running.borrow(), text.unwrap_or_default()))
    })
}

fn through(
    function: &Function,
    inputs: &[Literal],
    target: &Target,
    bounds: bool,
    seen: &mut Seen,
    running: &RefCell<String>,
) -> std::result::Result<(), String> {
    let name = |pass: &str| pass.clone_into(&mut running.borrow_mut());
    let fault = |pass: &str, error: &dyn std::fmt::Display| format!("pass `{pass}`: {error}");
    name("interpret");
    let mut before = function.clone();
    let mut wanted = interpret::run(function, inputs).map_err(|e| fault("interpret", &e))?;
    name("a pass over graphs");
    let options = Options { keep_stages: true, ..Options::default() };
    let compiled = compile_kernels(function, target, &options).map_err(|e| fault("compile", &e))?;
    for (pass, after) in compiled.stages {
        if after == before {
            continue;
        }
        name(pass);
        let found = interpret::run(&after, inputs).map_err(|e| fault(pass, &e))?;
        let keeps = passes().iter().find(|p| p.name == pass).map_or(Keeps::Bits, |p| p.keeps);
        match keeps {
            Keeps::Bits => {
                same_bits(&wanted, &found).map_err(|e| fault(pass, &e))?;
                seen.note(pass);
            }
            Keeps::Value if bounds => match (bounded(&before, inputs), bounded(&after, inputs)) {
                (Some(was), Some(is)) => {
                    same_value(&was, &is).map_err(|e| fault(pass, &e))?;
                    within(&is, &found).map_err(|e| fault(pass, &e))?;
                    seen.note(pass);
                }
                _ => seen.doubtful += 1,
            },
            Keeps::Value => {}
        }
        (before, wanted) = (after, found);
    }
    // From here on, functions of reals are approximated, and sums have their trees. First, each
    // equation alone:
    let compile = |fuse: bool, addends: bool, followers: bool, pads: bool| {
        let row_alignment = if pads { target.row_alignment } else { 1 };
        let target = Target { addends, followers, row_alignment, ..target.clone() };
        compile_kernels(&before, &target, &Options { fuse, ..Options::default() })
    };
    name("lower");
    let lowered = compile(false, false, false, false).map_err(|e| fault("lower", &e))?;
    if lowered.function != before {
        // The number of fixpoint rounds is bounded. Some functions would still shrink in another
        // round.
        return Ok(());
    }
    let mut wanted =
        run(&lowered.kernels, inputs, &mut naive::execute).map_err(|e| fault("lower", &e))?;
    match bounded(&before, inputs).filter(|_| bounds) {
        Some(value) => {
            within(&value, &wanted).map_err(|e| fault("lower", &e))?;
            seen.note("lower");
        }
        None => seen.doubtful += usize::from(bounds),
    }
    let mut kernels = lowered.kernels;
    for (pass, addends, followers, pads) in [
        ("fuse", false, false, false),
        ("addends", true, false, false),
        ("follow", true, true, false),
        ("pad", true, true, true),
    ] {
        name(pass);
        if addends && !target.addends || followers && !target.followers {
            continue;
        }
        let next = compile(true, addends, followers, pads).map_err(|e| fault(pass, &e))?.kernels;
        if next == kernels {
            continue;
        }
        let found = run(&next, inputs, &mut naive::execute).map_err(|e| fault(pass, &e))?;
        same_bits(&wanted, &found).map_err(|e| format!("{}\n{next}", fault(pass, &e)))?;
        seen.note(pass);
        (kernels, wanted) = (next, found);
    }
    name("plan");
    // The interpreter of plans uses the reference of a call, which fixes no order of sums.
    let mut meaning = |call: &Call, operands: &[Literal]| -> Result<Vec<Literal>> {
        Ok(call.references(operands)?.iter().map(|r| r.literal()).collect())
    };
    let wanted = run(&kernels, inputs, &mut meaning).map_err(|e| fault("plan", &e))?;
    planned(&kernels, inputs, target, &wanted).map_err(|e| fault("plan", &e))?;
    seen.note("plan");
    Ok(())
}

/// The kernels as a plan, on memories of bytes.
fn planned(
    kernels: &Kernels,
    inputs: &[Literal],
    target: &Target,
    wanted: &[Literal],
) -> std::result::Result<(), String> {
    let plan =
        plan_kernels(kernels, target, &Binding::new(), None).map_err(|e| e.to_string())?.plan;
    let given = |role: InputRole| matches!(role, InputRole::Input | InputRole::Key);
    let ports = kernels.inputs.iter().zip(inputs);
    let read: Vec<Literal> =
        ports.clone().filter(|((i, _), _)| given(i.role)).map(|(_, l)| l.clone()).collect();
    let held: BTreeMap<&str, &Literal> = ports
        .filter(|((i, _), _)| !given(i.role))
        .map(|((i, _), l)| (i.name.as_str(), l))
        .collect();
    let variables: Vec<Option<Literal>> =
        plan.variables.iter().map(|v| v.before.map(|_| (*held[v.name.as_str()]).clone())).collect();
    let found = plan::interpret(&plan, &read, &variables).map_err(|e| format!("{e}\n{plan}"))?;
    let mut outputs = found.outputs.into_iter();
    let results: Vec<Literal> = kernels
        .outputs
        .iter()
        .map(|(output, ..)| match output.role {
            OutputRole::Output => outputs.next().expect("a plan has the outputs of its kernels"),
            OutputRole::State => {
                let n = plan.variables.iter().position(|v| v.name == output.name);
                found.variables[n.expect("a plan has the variables of its kernels")].clone()
            }
        })
        .collect();
    same_bits(wanted, &results).map_err(|e| format!("{e}\n{plan}"))
}

/// Applies the policy of bf16. Returns an error if the result is not within the bound of its
/// error, or if the bounds of both functions do not meet.
pub fn check_precision(
    function: &Function,
    inputs: &[Literal],
    seen: &mut Seen,
) -> std::result::Result<(), String> {
    let fault = |e: &dyn std::fmt::Display| format!("precision: {e}");
    let after = Precision::bf16().apply(function).map_err(|e| fault(&e))?;
    let found = interpret::run(&after, inputs).map_err(|e| fault(&e))?;
    for (n, found) in found.iter().enumerate() {
        if found.ty() != *function.output_type(n) {
            return Err(fault(&format!("output {n} is {}", found.ty())));
        }
    }
    let halves = |function: &Function| {
        function.body.values.iter().filter(|(_, ty)| ty.dtype.is_half()).count()
    };
    match (bounded(function, inputs), bounded(&after, inputs)) {
        (Some(was), Some(is)) => {
            let shown = |e: String| fault(&format!("{e}\n{after}"));
            same_value(&was, &is).map_err(shown)?;
            within(&is, &found).map_err(shown)?;
            if halves(&after) > halves(function) {
                seen.note("precision");
            }
        }
        _ => seen.doubtful += 1,
    }
    Ok(())
}

/// Applies one rule alone, wherever it matches. Returns an error if it changes the result.
pub fn check_rule(
    rule: &Rule,
    function: &Function,
    inputs: &[Literal],
    wanted: &[Literal],
    seen: &mut Seen,
) -> std::result::Result<(), String> {
    let fault = |e: &dyn std::fmt::Display| format!("rule `{}`: {e}", rule.name);
    let (after, applied) = rewrite::apply(rule, function.clone());
    if applied == 0 {
        return Ok(());
    }
    verify(&after).map_err(|e| fault(&e))?;
    let found = interpret::run(&after, inputs).map_err(|e| fault(&e))?;
    seen.note(rule.name);
    same_bits(wanted, &found).map_err(|e| fault(&format!("{e}\n{after}")))
}

fn run(kernels: &Kernels, inputs: &[Literal], execute: &mut Execute<'_>) -> Result<Vec<Literal>> {
    kernels::interpret(kernels, inputs, execute)
}

fn bounded(function: &Function, inputs: &[Literal]) -> Option<Vec<Array<Bounded>>> {
    worst_case(function, inputs, Approximations::None)
        .ok()
        .filter(Bounds::is_complete)
        .map(|bounds| bounds.outputs)
}

/// Asserts equal bits. Any two NaNs are equal.
fn same_bits(wanted: &[Literal], found: &[Literal]) -> std::result::Result<(), String> {
    for (output, (w, f)) in wanted.iter().zip(found).enumerate() {
        if w.ty() != f.ty() {
            return Err(format!("output {output} is {}, before it was {}", f.ty(), w.ty()));
        }
        let same = |x: Scalar, y: Scalar| x == y || x.to_f64().is_nan() && y.to_f64().is_nan();
        if let Some(at) = (0..w.len()).find(|at| !same(w.get(*at), f.get(*at))) {
            return Err(format!(
                "element {at} of output {output} is {}, before it was {}",
                f.get(at),
                w.get(at)
            ));
        }
    }
    Ok(())
}

/// Asserts that both results agree within the sum of their bounds.
fn same_value(was: &[Array<Bounded>], is: &[Array<Bounded>]) -> std::result::Result<(), String> {
    for (output, (was, is)) in was.iter().zip(is).enumerate() {
        for (at, (was, is)) in was.cells.iter().zip(is.cells.iter()).enumerate() {
            let near = match (was, is) {
                (interpret::Cell::Real(x), interpret::Cell::Real(y)) => {
                    is_near(x.value, y.value, x.error() + y.error())
                }
                (x, y) => x == y,
            };
            if !near {
                return Err(format!(
                    "element {at} of output {output} means {is:?}, before it meant {was:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Asserts that the computed result is within the bound of the exact one.
fn within(meant: &[Array<Bounded>], found: &[Literal]) -> std::result::Result<(), String> {
    for (output, (meant, found)) in meant.iter().zip(found).enumerate() {
        for (at, (meant, found)) in meant.cells.iter().zip(found.scalars()).enumerate() {
            let near = match meant {
                interpret::Cell::Real(x) => is_near(x.value, found.to_f64(), x.error()),
                interpret::Cell::Bits(x) => Some(*x) == found.to_i64(),
            };
            if !near {
                return Err(format!(
                    "element {at} of output {output} is {found}, and means {meant:?}"
                ));
            }
        }
    }
    Ok(())
}

fn is_near(x: f64, y: f64, bound: f64) -> bool {
    x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= bound
}
