//! `graphrun check`: verifier, derivatives against differences, devices against the interpreter.

use crate::cli::CheckArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, bindings};
use crate::values::gather;
use serde_json::{Value, json};
use std::ffi::OsStr;
use wengert::check::{self, Finding};
use wengert::core::diagnostic::Kind;
use wengert::core::graph::Function;
use wengert::data::spec::Spec;
use wengert::signature::Signature;
use wengert::{Binding, Device, Literal, Scalar, indices, os_text};

/// Checks the functions. Inputs without a value are random, and unbound dimension variables are
/// small.
pub fn run(args: &CheckArgs, console: &mut Console<'_>) -> Outcome {
    // Reading includes verification.
    let source = Source::read(&args.function.file, console)?;
    let known = bindings(&args.function.binds)?;
    let functions = source.functions(&known)?;
    let mut status = Status::Good;
    let mut reports = Vec::new();
    let single = functions.len() == 1;
    for function in functions {
        let (binding, findings) = check_function(&source, function, &known, args, single)?;
        if findings.iter().any(|(_, finding)| matches!(finding, Finding::Bad(_))) {
            status = Status::Failed;
        }
        if args.json {
            reports.push(to_json(function, &binding, &findings));
            continue;
        }
        let with = if binding.is_empty() { String::new() } else { format!(" with {binding}") };
        console.line(format_args!("@{}{with}", function.name))?;
        for (_, finding) in &findings {
            console.line(match finding {
                Finding::Good(what) => format!("  good: {what}"),
                Finding::Skipped(why) => format!("  skipped: {why}"),
                Finding::Bad(what) => format!("  BAD: {what}"),
            })?;
        }
    }
    if args.json {
        console.line(Value::Array(reports))?;
    }
    Ok(status)
}

type Findings = Vec<(String, Finding)>;

fn check_function(
    source: &Source,
    function: &Function,
    known: &Binding,
    args: &CheckArgs,
    single: bool,
) -> Outcome<(Binding, Findings)> {
    let verified = Finding::Good("the verifier accepts it".into());
    let mut findings = vec![("verifier".to_string(), verified)];
    let mut binds: Vec<String> = Vec::new();
    let mut values = args.values.clone();
    if !single {
        // A value by name applies to the functions that have such an input.
        values
            .inputs
            .retain(|text| name_of(text).is_some_and(|name| function.input_index(name).is_some()));
    }
    // Variables that tensors determine must stay unbound here; others get different small
    // numbers.
    let given = |i: usize| {
        let name = function.inputs[i].name.as_str();
        values.inputs.iter().any(|text| name_of(text) == Some(name)) || values.params.is_some()
    };
    let mut free = function.variables();
    for i in (0..function.inputs.len()).filter(|i| given(*i)) {
        let mut solved = std::collections::BTreeSet::new();
        function.input_type(i).shape.iter().for_each(|d| d.collect_variables(&mut solved));
        free.retain(|name| !solved.contains(name));
    }
    for (name, value) in known.iter().filter(|(name, _)| function.variables().contains(*name)) {
        binds.push(format!("{name}={value}"));
    }
    for (i, name) in free.iter().filter(|name| known.get(name).is_none()).enumerate() {
        binds.push(format!("{name}={}", i + 2));
    }
    let signature = Signature::of_function(function);
    let mut given =
        gather(source, &signature, &values, &binds, Some(&Spec::Random(args.values.seed)))?
            .make()?;
    let bound = function.bind(&given.binding)?;
    // Random values that are used as indices are reduced into range; the user's values are
    // checked.
    let ranges = indices::bounds(&bound);
    for (name, value) in &mut given.inputs {
        let is_given = values.inputs.iter().any(|text| name_of(text) == Some(name.as_str()));
        if let Some(range) = ranges.get(name.as_str()).filter(|range| !is_given && range.count > 0)
        {
            *value = below(value, range.count)?;
        }
    }
    let inputs = given.in_order(&signature);
    findings.push((
        "derivatives".into(),
        match check::derivatives(&bound, &inputs, args.values.seed) {
            Ok(finding) => finding,
            // From the interpreter: there is not enough memory.
            Err(error) if error.kind == Kind::Device => return Err(error.into()),
            Err(error) => Finding::Skipped(error.message),
        },
    ));
    if let Some(finding) = check::indices(&bound, &inputs)? {
        findings.push(("indices".into(), finding));
    }
    for device in Device::all().into_iter().filter(|d| *d != Device::Interpreter) {
        let finding =
            check::device(device, &source.file()?.program, &function.name, &given.binding, &inputs);
        findings.push((
            device.to_string(),
            finding.unwrap_or_else(|error| Finding::Bad(error.to_string())),
        ));
    }
    Ok((given.binding, findings))
}

/// Reduces integers to 0..count.
fn below(literal: &Literal, count: i64) -> Outcome<Literal> {
    let number = |s: Scalar| Scalar::from_i64(s.dtype(), s.to_i64().unwrap_or(0).rem_euclid(count));
    let values: Vec<Scalar> = literal.scalars().map(number).collect();
    Ok(Literal::from_scalars(literal.dtype(), literal.shape(), &values)?)
}

/// The name of a `NAME=SPEC`.
fn name_of(text: &OsStr) -> Option<&str> {
    os_text::split_once(text, b'=').map_or(Some(text), |(name, _)| Some(name))?.to_str()
}

fn to_json(function: &Function, binding: &Binding, findings: &Findings) -> Value {
    let checks: Vec<Value> = findings
        .iter()
        .map(|(name, finding)| {
            let (verdict, message) = match finding {
                Finding::Good(message) => ("good", message),
                Finding::Skipped(message) => ("skipped", message),
                Finding::Bad(message) => ("bad", message),
            };
            json!({ "check": name, "verdict": verdict, "message": message })
        })
        .collect();
    let bound: serde_json::Map<String, Value> =
        binding.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    json!({ "function": function.name, "binding": bound, "checks": checks })
}
