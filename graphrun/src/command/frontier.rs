//! `graphrun memory --frontier`: the cost of a function in less memory than its default.

use crate::cli::MemoryArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::{Source, check_bound};
use crate::values::gather;
use serde_json::json;
use std::time::Instant;
use wengert::core::Verified;
use wengert::core::plan::{Bytes, Plan};
use wengert::data::spec::Spec;
use wengert::memory::{Point, frontier_picture};
use wengert::pipeline::{self, Options};
use wengert::{Device, Diagnostic, Session, atomic, diagnostic, format, target};

/// Lists the plans.
pub fn run(args: &MemoryArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::read_with(&args.problem, &args.model, &args.binds, console)?
        .in_precision(&args.precision)?;
    let (program, function) = (&source.file()?.program, source.function()?);
    let target = target(&args.target)?;
    if args.measure.is_some() && args.target != "cpu" {
        return Err(Diagnostic::new("plans are measured on the CPU only")
            .help("leave out --target, or --measure")
            .into());
    }
    if args.out.as_ref().is_some_and(|out| out.extension().is_none_or(|e| e != "plan")) {
        return Err(Diagnostic::new("plans are written to a .plan file")
            .help("give `-o OUT.plan`")
            .into());
    }
    if args.out.is_some() && args.points >= format::plan::MOST as u64 {
        let most = format::plan::MOST;
        return Err(diagnostic!("a .plan file holds {most} plans at most")
            .help(format!("give `--points {}`, or fewer", most - 1))
            .into());
    }
    for path in args.out.iter().chain(&args.svg) {
        atomic::can_write(path)?;
    }
    let signature = source.signature()?;
    let given = match args.measure {
        None => None,
        Some(_) => {
            let fill = Spec::Random(args.values.seed);
            Some(gather(&source, &signature, &args.values, &args.binds, Some(&fill))?.make()?)
        }
    };
    let binding = match &given {
        Some(given) => given.binding.clone(),
        None => source.binding(&args.binds)?,
    };
    let options = Options::default();
    check_bound(function, &binding)?;
    let planned =
        pipeline::frontier(program, &function.name, &binding, &target, &options, args.points)?;
    let mut points: Vec<Point> = planned.iter().map(Point::of).collect();
    let plans: Vec<Verified<Plan>> = planned.into_iter().map(|planned| planned.plan).collect();
    if let (Some(runs), Some(given)) = (args.measure, &given) {
        let mut session = Session::open(Device::Cpu)?;
        session.set_variables(&given.variables)?;
        let times = measure(&mut session, &plans, runs, &given.inputs())?;
        points.iter_mut().zip(times).for_each(|(point, time)| point.measured = Some(time));
    }
    if let Some(path) = &args.out {
        let falling: Vec<Verified<Plan>> = plans.into_iter().rev().collect();
        format::plan::write_all(path, &falling)?;
    }
    if let Some(path) = &args.svg {
        atomic::write_bytes(path, frontier_picture(&points).as_bytes())?;
    }
    if args.json {
        let points: Vec<serde_json::Value> = points.iter().map(to_json).collect();
        console
            .line(json!({ "function": function.name, "target": args.target, "points": points }))?;
    } else {
        console.text(table(&points))?;
    }
    Ok(Status::Good)
}

/// The median time of each plan, measured in turns.
fn measure(
    session: &mut Session,
    plans: &[Verified<Plan>],
    runs: u64,
    inputs: &[(&str, &wengert::Literal)],
) -> Outcome<Vec<f64>> {
    let mut times = vec![Vec::new(); plans.len()];
    let mut compiled = Vec::new();
    for plan in plans {
        let mut one = session.load_plan(plan.clone())?;
        // The first run touches new memory and is not timed.
        one.run(inputs)?;
        compiled.push(one);
    }
    for _ in 0..runs {
        for (one, times) in compiled.iter_mut().zip(&mut times) {
            let start = Instant::now();
            one.run(inputs)?;
            times.push(start.elapsed().as_secs_f64());
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    Ok(times.into_iter().map(|times| times[times.len() / 2]).collect())
}

/// A plan of the frontier as JSON.
pub(super) fn to_json(point: &Point) -> serde_json::Value {
    json!({
        "bytes": point.bytes,
        "arena": point.arena,
        "kernels_again": point.repeated,
        "operations": point.operations[0],
        "operations_again": point.operations[1],
        "predicted_seconds": point.predicted,
        "measured_seconds": point.measured,
    })
}

fn table(points: &[Point]) -> String {
    let mut text = String::new();
    let Some(last) = points.last() else { return text };
    let measured = points.iter().any(|p| p.measured.is_some());
    text += &format!(
        "{:>12} {:>12} {:>8} {:>14} {:>16} {:>14} {:>8}",
        "in all", "arena", "of it", "kernels again", "more operations", "predicted ms", "more"
    );
    text += if measured { "  measured ms     more\n" } else { "\n" };
    // Rounding first: a value that rounds to zero has no sign.
    let percent = |part: f64| format!("{:.1} %", (1000.0 * part).round() / 10.0 + 0.0);
    for point in points {
        text += &format!(
            "{:>12} {:>12} {:>8} {:>14} {:>16} {:>14.3} {:>8}",
            Bytes(point.bytes).to_string(),
            Bytes(point.arena).to_string(),
            percent(point.arena as f64 / last.arena.max(1) as f64),
            point.repeated,
            percent(point.added_operations()),
            1e3 * point.predicted,
            percent(point.predicted / last.predicted - 1.0),
        );
        if let (Some(time), Some(base)) = (point.measured, last.measured) {
            text += &format!(" {:>12.3} {:>8}", 1e3 * time, percent(time / base - 1.0));
        }
        text.push('\n');
    }
    text
}
