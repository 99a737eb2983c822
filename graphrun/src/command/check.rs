//! `graphrun check`: verifier, derivatives against differences, devices against the interpreter.

use crate::cli::CheckArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::draw;
use crate::source::Source;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wengert::check::{self, Finding};
use wengert::core::diagnostic::Kind;
use wengert::core::graph::Function;
use wengert::isolate::{bisect, cut::Case};
use wengert::{Binding, Device, Evaluation, Session};

/// Checks the functions. Inputs without a value are random, and unbound dimension variables are
/// small.
pub fn run(args: &CheckArgs, console: &mut Console<'_>) -> Outcome {
    // Reading includes verification.
    let source = Source::of_case(&args.case, console)?;
    let known = source.binding(&args.case.function.binds)?;
    let functions = source.functions(&known)?;
    let mut status = Status::Good;
    let mut reports = Vec::new();
    let single = functions.len() == 1;
    for function in functions {
        let (binding, findings) = check_function(&source, function, &known, args, single)?;
        let located = match args.bisect {
            true => locate(&source, function, &known, args, single, &findings, console)?,
            false => Located::new(),
        };
        if findings.iter().any(|(_, finding)| matches!(finding, Finding::Bad(_))) {
            status = Status::Failed;
        }
        if args.json {
            reports.push(to_json(function, &binding, &findings, &located));
            continue;
        }
        let with = if binding.is_empty() { String::new() } else { format!(" with {binding}") };
        console.line(format_args!("@{}{with}", function.name))?;
        for (name, finding) in &findings {
            console.line(match finding {
                Finding::Good(what) => format!("  good: {what}"),
                Finding::Skipped(why) => format!("  skipped: {why}"),
                Finding::Bad(what) => format!("  BAD: {what}"),
            })?;
            print(name, &located, console)?;
        }
        print(POLICY, &located, console)?;
    }
    if args.json {
        console.line(Value::Array(reports))?;
    }
    Ok(status)
}

type Findings = Vec<(String, Finding)>;

/// The faults that were found, by the name of the check.
type Located = BTreeMap<String, String>;

/// The name of the comparison with the function without a policy.
const POLICY: &str = "policy";

fn print(name: &str, located: &Located, console: &mut Console<'_>) -> Outcome<()> {
    let lines = located.get(name).into_iter().flat_map(|text| text.lines());
    lines.into_iter().try_for_each(|line| console.line(format_args!("    {line}")))
}

/// Narrows the failed checks of a function down.
fn locate(
    source: &Source,
    function: &Function,
    known: &Binding,
    args: &CheckArgs,
    single: bool,
    findings: &Findings,
    console: &Console<'_>,
) -> Outcome<Located> {
    let mut located = Located::new();
    let drawn = draw(source, function, known, &args.case.values, single)?;
    let case = Case::plain(&drawn.function, &drawn.inputs)?;
    let failed = findings.iter().filter(|(_, finding)| matches!(finding, Finding::Bad(_)));
    for (name, _) in failed {
        let fault = match name.parse::<Device>() {
            Ok(device) => Session::open(device)
                .and_then(|session| bisect::device(&case, session.target(), &bisect::on(device))),
            Err(_) if name == "derivatives" => {
                bisect::rule(&case, args.case.values.seed, &check::Autodiff)
            }
            // The check of indices names the lookup.
            Err(_) => continue,
        };
        let text = match fault {
            Ok(Some(fault)) => fault.to_string(),
            Ok(None) => "not narrowed down: the function is right when its variables are inputs \
                         and its keys are values"
                .into(),
            Err(error) => format!("not narrowed down: {error}"),
        };
        located.insert(name.clone(), text);
    }
    if args.case.precision.policy()?.is_some() {
        let plain = Source::of(&args.case.function, console)?;
        let without = plain.file()?.program.get(&function.name)?;
        let without = draw(&plain, without, known, &args.case.values, single)?;
        let without = Case::plain(&without.function, &without.inputs)?;
        let text = match bisect::precision(&without, &case)? {
            Some(fault) => fault.to_string(),
            None => "the policy changes no output beyond the tolerance".into(),
        };
        located.insert(POLICY.into(), text);
    }
    Ok(located)
}

fn check_function(
    source: &Source,
    function: &Function,
    known: &Binding,
    args: &CheckArgs,
    single: bool,
) -> Outcome<(Binding, Findings)> {
    let verified = Finding::Good("the verifier accepts it".into());
    let mut findings = vec![("verifier".to_string(), verified)];
    let drawn = draw(source, function, known, &args.case.values, single)?;
    let (bound, given, inputs) = (drawn.function, drawn.given, drawn.inputs);
    findings.push((
        "derivatives".into(),
        match check::derivatives(&bound, &inputs, args.case.values.seed) {
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
        let program = &source.file()?.program;
        let on = Evaluation::new(device, program, &function.name, &given.binding, &inputs);
        let finding = on.compare();
        findings.push((
            device.to_string(),
            finding.unwrap_or_else(|error| Finding::Bad(error.to_string())),
        ));
    }
    Ok((given.binding, findings))
}

fn to_json(
    function: &Function,
    binding: &Binding,
    findings: &Findings,
    located: &Located,
) -> Value {
    let checks: Vec<Value> = findings
        .iter()
        .map(|(name, finding)| {
            let (verdict, message) = match finding {
                Finding::Good(message) => ("good", message),
                Finding::Skipped(message) => ("skipped", message),
                Finding::Bad(message) => ("bad", message),
            };
            let mut report = json!({ "check": name, "verdict": verdict, "message": message });
            if let Some(fault) = located.get(name) {
                report["fault"] = json!(fault);
            }
            report
        })
        .collect();
    let bound: serde_json::Map<String, Value> =
        binding.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let mut report = json!({ "function": function.name, "binding": bound, "checks": checks });
    if let Some(policy) = located.get(POLICY) {
        report[POLICY] = json!(policy);
    }
    report
}
