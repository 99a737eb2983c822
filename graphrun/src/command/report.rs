//! `graphrun report`: one page about a function, with its graph, kernels, memory, budgets, runs and
//! precision.

use super::{frontier, precision};
use crate::cli::ReportArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::{Drawn, draw};
use crate::report;
use crate::source::{Source, check_bound};
use serde_json::{Value, json};
use wengert::anatomy::Anatomy;
use wengert::memory::Point;
use wengert::pipeline::{Bound, Options};
use wengert::train::curves::{self, Curves};
use wengert::{Binding, Device, DeviceOptions, Diagnostic, Evaluation, Session, atomic, target};

/// Most operations of a function whose certificate is computed: the interpreter needs about a
/// second for them.
const CERTIFIED: u64 = 4_000_000;

/// Most points of a curve in the page.
const POINTS: usize = 2000;

/// Number of equations that the certificate lists.
const CONTRIBUTIONS: usize = 20;

/// Writes the page.
pub fn run(args: &ReportArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let (program, function) = (&source.file()?.program, source.function()?);
    let binding = source.binding(&args.function.binds)?;
    let target = target(&args.target)?;
    if args.profile.is_some() && args.target != "cpu" {
        return Err(Diagnostic::new("kernels are timed on the CPU only")
            .help("leave out --target, or --profile")
            .into());
    }
    source.functions(&binding)?;
    check_bound(function, &binding)?;
    atomic::can_write(&args.out)?;
    let bound = Bound::new(function, &binding)?;
    // All errors of the folders are found before the compilation, which may be long.
    let mut runs = Vec::new();
    for folder in &args.runs {
        let mut run = Curves::read(folder)?;
        curves::check_program(folder, &bound.function)?;
        for curve in run.curves.values_mut() {
            *curve = std::mem::take(curve).thinned(POINTS);
        }
        runs.push(run);
    }
    let mut anatomy = Anatomy::of(program, &function.name, &binding, &target)?;
    if let Some(count) = args.profile {
        let drawn = draw(&source, function, &binding, &args.values, true)?;
        measure(&mut anatomy, &drawn, count)?;
    }
    let budgets = bound.frontier(&target, &Options::default(), args.points)?;
    let budgets: Vec<Value> =
        budgets.iter().map(|planned| frontier::to_json(&Point::of(planned))).collect();
    let certificate = certificate(args, &source, &binding, &anatomy)?;
    let name = source.path.display().to_string();
    let data = json!({
        "file": name,
        "version": env!("CARGO_PKG_VERSION"),
        "anatomy": anatomy,
        "budgets": budgets,
        "runs": runs,
        "certificate": certificate,
    });
    let title = format!("{name}@{}", function.name);
    atomic::write_bytes(&args.out, report::page(&title, &data).as_bytes())?;
    console.line(format_args!(
        "{}: {} equations, {} kernels",
        args.out.display(),
        anatomy.equations.len(),
        anatomy.kernels.len()
    ))?;
    Ok(Status::Good)
}

/// Times the kernels.
fn measure(anatomy: &mut Anatomy, drawn: &Drawn, runs: u64) -> Outcome<()> {
    // The plan is of the caller's own program, so its work has no limit.
    let options = DeviceOptions { work_limit: u64::MAX, ..DeviceOptions::default() };
    let mut session = Session::open_with(Device::Cpu, &options)?;
    session.set_variables(&drawn.given.variables)?;
    Ok(anatomy.measure(&mut session, &drawn.given.inputs(), runs)?)
}

/// The certificate of precision, or the reason why there is none.
fn certificate(
    args: &ReportArgs,
    source: &Source,
    binding: &Binding,
    anatomy: &Anatomy,
) -> Outcome<Value> {
    let none = |why: String| Ok(json!({ "none": why }));
    let function = source.function()?;
    let one = |k: &wengert::anatomy::Kernel| k.operations.saturating_mul(k.times);
    let operations = anatomy.kernels.iter().map(one).fold(0, u64::saturating_add);
    if operations > CERTIFIED {
        return none(format!(
            "The certificate is computed by the interpreter, number by number. A report has it for \
             functions of at most {CERTIFIED} operations, and @{} has {operations}. Bind smaller \
             dimensions, or run `graphrun precision`.",
            function.name
        ));
    }
    let program = &source.file()?.program;
    // Without the user's values a function may fail in the interpreter, and has a report anyway.
    let drawn = match draw(source, function, binding, &args.values, true) {
        Ok(drawn) => drawn,
        Err(failure) => return none(reason(failure.diagnostic.as_ref())),
    };
    let (name, binding) = (&function.name, &drawn.given.binding);
    match Evaluation::new(Device::Cpu, program, name, binding, &drawn.inputs).certify() {
        Ok(found) if found.outputs.is_empty() => none("No output holds floats.".into()),
        Ok(found) => Ok(precision::to_json(name, binding, &found, CONTRIBUTIONS)),
        Err(error) => none(reason(Some(&error))),
    }
}

fn reason(error: Option<&Diagnostic>) -> String {
    let text = error.map_or(String::new(), |error| error.message.clone());
    format!("The certificate cannot be computed: {text}.")
}
