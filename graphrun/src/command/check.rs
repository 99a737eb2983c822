//! `graphrun check`: verifier, derivatives against differences, devices against the interpreter.

use crate::cli::CheckArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::draw;
use crate::source::Source;
use serde_json::{Value, json};
use wengert::check::{self, Finding};
use wengert::core::diagnostic::Kind;
use wengert::core::graph::Function;
use wengert::{Binding, Device};

/// Checks the functions. Inputs without a value are random, and unbound dimension variables are
/// small.
pub fn run(args: &CheckArgs, console: &mut Console<'_>) -> Outcome {
    // Reading includes verification.
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let known = source.binding(&args.function.binds)?;
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
    let drawn = draw(source, function, known, &args.values, single)?;
    let (bound, given, inputs) = (drawn.function, drawn.given, drawn.inputs);
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
