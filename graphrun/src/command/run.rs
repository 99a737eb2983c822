//! `graphrun run`: one run of a function.

use super::kernel_times;
use crate::cli::RunArgs;
use crate::console::{Console, Outcome, Status};
use crate::outputs::Targets;
use crate::source::{Source, device, pair};
use crate::tensor_text::TensorText;
use crate::values::{compare, gather, to_json};
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wengert::core::graph::OutputRole;
use wengert::data;
use wengert::data::inflate::InflateLimit;
use wengert::data::spec::{Spec, find};
use wengert::signature::Signature;
use wengert::{Binding, DeviceOptions, Literal, Session, diagnostic, os_text};

/// Runs the function, writes and prints its outputs, and compares them.
pub fn run(args: &RunArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let signature = source.signature()?;
    let (device, choices) = device(&args.device)?;
    let (check_indices, keep_invariants) = (args.check_indices, args.keep_invariants);
    let choices = DeviceOptions { check_indices, keep_invariants, ..choices };
    // All errors of the arguments are found before the run, which may be long.
    let outputs = requests(&signature, "output", &args.outputs)?;
    let targets = Targets::of(&outputs, args.save.as_deref())?;
    let limit = args.values.reading.limit();
    let expects = requests(&signature, "expect", &args.expects)?
        .into_iter()
        .map(|(name, text)| Ok((name, expected(&signature, name, text, limit)?)))
        .collect::<Outcome<Vec<_>>>()?;

    let gathered = gather(&source, &signature, &args.values, &args.function.binds, None)?;
    tracing::info!("running @{} on {device} with {{{}}}", signature.name, gathered.binding);
    let mut session = Session::open_with(device, &choices)?;
    session.set_variables(&gathered.variables)?;
    // Random and zero inputs are generated last, so that the error for too little memory can name
    // a budget.
    let promise = gathered.promise();
    let mut compiled = source.compile(&mut session, &gathered.binding)?;
    drop(promise);
    let given = gathered.make()?;
    let results = match args.profile {
        Some(runs) => {
            let (results, profile) = kernel_times::run(&mut compiled, runs, &given.inputs())?;
            console.note(profile);
            results
        }
        None => compiled.run(&given.inputs())?,
    };
    // A failed run is reported even if none of its outputs is read.
    session.finish()?;
    results
        .probes()
        .iter()
        .filter(|probe| probe.has_report())
        .for_each(|probe| console.note(probe));
    let result = |name: &str| match results.get(name) {
        Ok(literal) => Ok(literal.clone()),
        Err(_) => session.variable(name),
    };

    targets.write(result)?;
    if let Some(path) = &args.save {
        let variables = session.variables()?;
        data::write_all(path, variables.iter().map(|(name, value)| (name.as_str(), value)))?;
    }
    let mut failed = Vec::new();
    for (name, expected) in &expects {
        if let Err(difference) = compare(&result(name)?, expected, args.rtol, args.atol) {
            failed.push((*name, difference));
        }
    }
    if args.json {
        let mut object = Map::new();
        for (name, literal) in results.iter()? {
            object.insert(name.into(), to_json(literal));
        }
        let differences: Map<String, Value> = failed
            .iter()
            .map(|(name, d)| {
                ((*name).into(), json!({ "elements": d.elements, "message": d.message }))
            })
            .collect();
        console.line(json!({ "outputs": object, "differences": differences }))?;
    } else {
        for output in &compiled.signature().outputs {
            let name = output.name.as_str();
            if wengert::probes::of_output(name).is_some() {
                continue;
            }
            match outputs.iter().find(|(n, _)| *n == name) {
                Some((_, path)) if *path == "-" => {
                    console.line(format_args!("{name}={:#}", result(name)?))?;
                }
                Some((_, path)) => {
                    console
                        .line(format_args!("{name} written to {}", Path::new(path).display()))?;
                }
                None if output.role == OutputRole::State => {
                    console.line(format_args!("state {name}: {}", output.ty))?;
                }
                None => {
                    let literal = result(name)?;
                    let text = TensorText { name, literal: &literal };
                    match args.full {
                        true => console.line(format_args!("{text:#}"))?,
                        false => console.line(text)?,
                    }
                }
            }
        }
        for (name, expected) in &expects {
            match failed.iter().find(|(n, _)| n == name) {
                Some((_, difference)) => console
                    .line(format_args!("{name} is not as expected: {}", difference.message))?,
                None => console.line(format_args!("{name} is as expected: {}", expected.ty()))?,
            }
        }
    }
    Ok(if failed.is_empty() { Status::Good } else { Status::Failed })
}

/// `NAME=…` pairs of an option, whose names must be outputs.
fn requests<'a>(
    signature: &Signature,
    option: &str,
    texts: &'a [OsString],
) -> Outcome<Vec<(&'a str, &'a OsStr)>> {
    let mut found: Vec<(&str, &OsStr)> = Vec::new();
    for text in texts {
        let (name, value) = pair(option, text)?;
        if !signature.outputs.iter().any(|o| o.name == name) {
            let names: Vec<String> =
                signature.outputs.iter().map(|o| format!("`{}`", o.name)).collect();
            return Err(diagnostic!("@{}: there is no output `{name}`", signature.name)
                .help(format!("outputs are {}", names.join(", ")))
                .into());
        }
        if found.iter().any(|(n, _)| *n == name) {
            return Err(diagnostic!("`--{option} {name}=…` is given twice").into());
        }
        found.push((name, value));
    }
    Ok(found)
}

/// The expected tensor of `--expect`: from a path, or from a SPEC with a shape of its own.
fn expected(
    signature: &Signature,
    name: &str,
    text: &OsStr,
    limit: InflateLimit,
) -> Outcome<Literal> {
    let output =
        signature.outputs.iter().find(|o| o.name == name).expect("`requests` has found it");
    let ty = &output.ty;
    let is_spec =
        os_text::strip_prefix(text, b'@').is_some() || os_text::split_once(text, b'=').is_some();
    let spec = if is_spec { Spec::parse(text) } else { Spec::file(text) };
    let spec = spec.map_err(|e| e.context(format_args!("--expect {name}")))?;
    // Dimension variables of outputs are solved separately here: a wrong extent is a difference,
    // not an input error.
    let found = find(&[(name, ty)], &[(name, spec)], &mut Binding::new(), limit);
    let made = found.and_then(|mut found| found.swap_remove(0).make());
    Ok(made.map_err(|e| e.context(format_args!("--expect {name}")))?.1)
}
