//! `graphrun precision`: what is known about the errors of a function's outputs.

use crate::cli::CertificateArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::draw_case;
use crate::source::Source;
use crate::table::{Table, grouped};
use serde_json::{Value, json};
use wengert::certificate::{Certificate, Contribution, Figure, Kept, KeptEquation, Norm, Output};
use wengert::core::graph::OutputRole;
use wengert::{Binding, Device, DeviceOptions, Diagnostic, Evaluation};

/// Certifies the function. Inputs without a value are random, and unbound dimension variables are
/// small.
pub fn run(args: &CertificateArgs, console: &mut Console<'_>) -> Outcome {
    let mut source = Source::of(&args.case.function, console)?;
    let device: Device = args.device.parse()?;
    let approximate_functions = args.functions.approximate_functions;
    let options = &DeviceOptions { approximate_functions, ..DeviceOptions::default() };
    let mut kept = None;
    if let Some(within) = args.within {
        let policy = args.case.precision.policy()?.ok_or_else(|| {
            Diagnostic::new("--precision f32 rounds nothing to halves, so --within has no choice")
                .help("give --precision bf16 or f16")
        })?;
        let function = source.function()?;
        let drawn = draw_case(&source, &args.case)?;
        let (program, binding) = (&source.file()?.program, &drawn.given.binding);
        // Mistakes of the exceptions are those of the whole program.
        policy.apply_to_program(program)?;
        let name = &function.name;
        let on = Evaluation::new(device, program, name, binding, &drawn.inputs).with(options);
        kept = Some(on.keep(&policy, within)?);
    }
    source = match &kept {
        Some(kept) => source.under(&kept.policy)?,
        None => source.in_precision(&args.case.precision)?,
    };
    let function = source.function()?;
    let drawn = draw_case(&source, &args.case)?;
    let (name, binding) = (&function.name, &drawn.given.binding);
    let program = &source.file()?.program;
    let on = Evaluation::new(device, program, name, binding, &drawn.inputs).with(options);
    let certificate = on.certify()?;
    if args.json {
        let mut json = to_json(name, binding, &certificate, args.top);
        json["kept"] = kept.as_ref().map_or(Value::Null, |kept| kept_json(name, kept));
        console.line(json)?;
    } else {
        let with = if binding.is_empty() { String::new() } else { format!(" with {binding}") };
        console.line(format_args!("@{name}{with}, observed on {device}"))?;
        if let (Some(kept), Some(within)) = (&kept, args.within) {
            print_kept(name, kept, within, console)?;
        }
        print(&certificate, args.top, console)?;
    }
    Ok(Status::Good)
}

fn print_kept(name: &str, kept: &Kept, within: f64, console: &mut Console<'_>) -> Outcome<()> {
    let (without, with, given) = (kept.without, kept.with, kept.given);
    if kept.equations.is_empty() {
        return console.line(format_args!(
            "within {within:e}: no equation needs f32; the observed error is {with:.1e}, and \
             {given:.1e} without the policy"
        ));
    }
    console.line(format_args!(
        "within {within:e}: {} of {} equations stay in f32; the observed error is {with:.1e}, \
         {without:.1e} with none of them, {given:.1e} without the policy",
        kept.equations.len(),
        kept.candidates
    ))?;
    let mut table = Table::new(3, ["kept", "op", "source", "relative", "cost"]);
    for equation in &kept.equations {
        table.row([
            format!("{name}:{}", equation.number),
            equation.op.to_owned(),
            equation.location.to_string(),
            format!("{:.1e}", equation.part),
            grouped(equation.cost),
        ]);
    }
    console.text(table)?;
    console.line(format_args!("--keep-f32-equation {}", option(name, kept)))
}

/// The kept equations as an option takes them.
fn option(name: &str, kept: &Kept) -> String {
    let texts: Vec<String> =
        kept.equations.iter().map(|equation| format!("{name}:{}", equation.number)).collect();
    texts.join(",")
}

fn kept_json(name: &str, kept: &Kept) -> Value {
    let equation = |e: &KeptEquation| {
        json!({
            "equation": format!("{name}:{}", e.number), "op": e.op,
            "source": e.location.to_string(), "relative": number(e.part), "cost": e.cost,
        })
    };
    let equations: Vec<Value> = kept.equations.iter().map(equation).collect();
    json!({
        "equations": equations, "candidates": kept.candidates, "with": number(kept.with),
        "without": number(kept.without), "given": number(kept.given),
    })
}

fn print(certificate: &Certificate, top: usize, console: &mut Console<'_>) -> Outcome<()> {
    for output in &certificate.outputs {
        print_output(output, console)?;
    }
    if certificate.outputs.is_empty() {
        console.line("no output holds floats")?;
    }
    if let Some(why) = &certificate.no_estimate {
        console.line(format_args!("no first-order estimate: {why}"))?;
    }
    let most: Vec<&Contribution> = certificate.contributions.iter().take(top).collect();
    if most.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(3, ["contributes most", "source", "to", "relative", "share"]);
    for contribution in most {
        table.row([
            contribution.op.to_owned(),
            contribution.location.to_string(),
            contribution.output.clone(),
            format!("{:.1e}", contribution.part.relative),
            format!("{:.1}%", 100.0 * contribution.share),
        ]);
    }
    console.text(table)
}

fn print_output(output: &Output, console: &mut Console<'_>) -> Outcome<()> {
    let state = if output.role == OutputRole::State { "state " } else { "" };
    let observed = &output.observed;
    console.line(format_args!(
        "{state}{}: {}, greatest magnitude {:.3e}",
        output.name, output.ty, observed.magnitude
    ))?;
    let figure = |Figure { absolute, relative }: Figure| {
        format!("{absolute:.1e} absolute, {relative:.1e} relative")
    };
    console.line(match &output.worst_case {
        Ok(bound) => format!("  worst-case bound      {}", figure(*bound)),
        Err(lost) => {
            format!(
                "  worst-case bound      none: it is lost in `{}` at {}",
                lost.op, lost.location
            )
        }
    })?;
    if let Some((estimate, norm)) = output.first_order {
        let of = if norm == Norm::Euclidean { ", in norm" } else { "" };
        let text = match estimate.absolute.is_finite() {
            true => format!("{}{of}", figure(estimate)),
            false => "none: a value or a derivative is infinite or NaN".into(),
        };
        console.line(format_args!("  first-order estimate  {text}"))?;
    }
    let greatest = Figure { absolute: observed.greatest, relative: observed.relative() };
    console.line(format_args!("  observed error        {}", figure(greatest)))?;
    if output.first_order.is_some_and(|(_, norm)| norm == Norm::Euclidean) {
        let norm = Figure { absolute: observed.norm, relative: observed.relative_norm() };
        console.line(format_args!("                        {}, in norm", figure(norm)))?;
    }
    if observed.zeros > 0.0 {
        let percent = 100.0 * observed.zeros;
        console
            .line(format_args!("  underflow             {percent:.2}% of the elements are 0"))?;
    }
    Ok(())
}

/// A number, or a string for an infinity or NaN.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!(value.to_string()) }
}

fn figure(Figure { absolute, relative }: Figure) -> Value {
    json!({ "absolute": number(absolute), "relative": number(relative) })
}

/// The certificate as JSON, with the `top` equations that contribute most.
pub(super) fn to_json(
    name: &str,
    binding: &Binding,
    certificate: &Certificate,
    top: usize,
) -> Value {
    let bound: serde_json::Map<String, Value> =
        binding.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let outputs: Vec<Value> = certificate.outputs.iter().map(output_json).collect();
    let contribution = |c: &Contribution| {
        json!({
            "op": c.op, "source": c.location.to_string(), "derived": c.described,
            "output": c.output, "part": figure(c.part), "share": number(c.share),
        })
    };
    let contributions: Vec<Value> =
        certificate.contributions.iter().take(top).map(contribution).collect();
    json!({
        "function": name, "binding": bound, "outputs": outputs,
        "no_estimate": certificate.no_estimate.as_ref().map(ToString::to_string),
        "contributions": contributions,
    })
}

fn output_json(output: &Output) -> Value {
    let observed = &output.observed;
    let greatest = Figure { absolute: observed.greatest, relative: observed.relative() };
    let norm = Figure { absolute: observed.norm, relative: observed.relative_norm() };
    let (worst_case, lost) = match &output.worst_case {
        Ok(bound) => (figure(*bound), Value::Null),
        Err(lost) => {
            let source = lost.location.to_string();
            (Value::Null, json!({ "op": lost.op, "source": source }))
        }
    };
    let estimate = output.first_order.map(|(estimate, norm)| {
        let norm = if norm == Norm::Euclidean { "euclidean" } else { "greatest" };
        json!({ "error": figure(estimate), "norm": norm })
    });
    json!({
        "name": output.name, "is_state": output.role == OutputRole::State,
        "type": output.ty.to_string(), "magnitude": number(observed.magnitude),
        "worst_case": worst_case, "lost": lost, "first_order": estimate,
        "observed": {
            "greatest": figure(greatest), "norm": figure(norm), "zeros": number(observed.zeros),
        },
    })
}
