//! `graphrun bench`: the run time of a function, and its comparison with another.

use crate::cli::{BenchArgs, ChoiceArgs, FunctionArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::{Contents, Source, device};
use crate::table::grouped;
use crate::values::{Given, gather};
use serde_json::{Value, json};
use std::time::Instant;
use wengert::data::spec::Spec;
use wengert::measure::{
    Comparison, Contender, Limits, Peaks, Summary, Verdict, Work, in_turns, repeated,
};
use wengert::{Compiled, DType, Device, DeviceOptions, Session, diagnostic};

/// Largest deviation of a ratio from 1 that is called no difference.
const SAME: f64 = 0.02;

/// Measures the function, alone or in turns with another.
pub fn run(args: &BenchArgs, console: &mut Console<'_>) -> Outcome {
    let limits = Limits { precision: args.within, seconds: args.seconds, ..Limits::default() };
    let first = Prepared::new(args, &args.function, &args.choices, console)?;
    if args.compare.is_none() && args.compare_with.is_none() {
        return alone(args, first, &limits, console);
    }
    let file = args.compare.as_ref().unwrap_or(&args.function.file).clone();
    let function = FunctionArgs { file, ..args.function.clone() };
    let choices = args.compare_with.as_ref().map_or(&args.choices, |variant| &variant.choices);
    let mut second = Prepared::new(args, &function, choices, console)?;
    if let Some(variant) = args.compare_with.as_ref().filter(|variant| !variant.text.is_empty()) {
        second.name = format!("{} {}", second.name, variant.text);
    }
    let again = Prepared::new(args, &args.function, &args.choices, console)?;
    compared(args, [first, second, again], &limits, console)
}

/// A function with its inputs, compiled in a session of its own.
struct Prepared {
    name: String,
    device: Device,
    options: DeviceOptions,
    session: Session,
    compiled: Compiled,
    given: Given,
    /// None for a .plan file, whose kernels are compiled already.
    work: Option<Work>,
}

impl Prepared {
    fn new(
        args: &BenchArgs,
        function: &FunctionArgs,
        choices: &ChoiceArgs,
        console: &Console<'_>,
    ) -> Outcome<Prepared> {
        let source = Source::of(function, console)?.in_precision(&choices.precision)?;
        let signature = source.signature()?;
        let (device, options) = device(&choices.device)?;
        let (check_indices, keep_invariants) = (choices.check_indices, choices.keep_invariants);
        let options = DeviceOptions { check_indices, keep_invariants, ..options };
        let fill = Spec::Random(args.values.seed);
        let gathered = gather(&source, &signature, &args.values, &function.binds, Some(&fill))?;
        let mut session = Session::open_with(device, &options)?;
        session.set_variables(&gathered.variables)?;
        let promise = gathered.promise();
        let compiled = source.compile(&mut session, &gathered.binding)?;
        drop(promise);
        compiled.expect_repeats();
        let work = match &source.contents {
            Contents::Program(_) => {
                Some(Work::of(source.function()?, &gathered.binding, session.target())?)
            }
            Contents::Plan(_) => None,
        };
        let name = format!("{}@{}", source.path.display(), signature.name);
        let given = gathered.make()?;
        Ok(Prepared { name, device, options, session, compiled, given, work })
    }

    /// Times consecutive runs until the device has finished them.
    fn contender(&mut self) -> Contender<'_> {
        let inputs = self.given.inputs();
        let (compiled, session) = (&mut self.compiled, &self.session);
        Box::new(move |runs| {
            let began = Instant::now();
            for _ in 0..runs {
                compiled.run(&inputs)?;
            }
            session.finish()?;
            Ok(began.elapsed().as_secs_f64())
        })
    }

    /// The machine's peaks with the choices of this contender.
    fn peaks(&self, args: &BenchArgs) -> Outcome<Option<Peaks>> {
        if args.no_roofline {
            return Ok(None);
        }
        let dtype = match args.choices.precision.precision.as_deref() {
            None | Some("f32") => DType::F32,
            Some(name) => name.parse()?,
        };
        Ok(Peaks::measure(self.device, &self.options, dtype)?)
    }
}

/// Measures one function.
fn alone(
    args: &BenchArgs,
    mut prepared: Prepared,
    limits: &Limits,
    console: &mut Console<'_>,
) -> Outcome {
    let peaks = prepared.peaks(args)?;
    let samples = repeated(&mut prepared.contender(), limits)?;
    let summary = Summary::of(&samples).ok_or_else(|| diagnostic!("no run took a finite time"))?;
    let Prepared { name, device, given, work, .. } = &prepared;
    if let Some(precision) = summary.precision().filter(|precision| *precision > args.within) {
        console.warn(
            &diagnostic!(
                "the median is known to ±{}, not to ±{}",
                percent(precision),
                percent(args.within)
            )
            .help("the machine is noisy: stop other programs, or give more --seconds"),
        );
    }
    if args.json {
        console.line(json!({
            "function": name,
            "device": device.to_string(),
            "binding": given.binding.to_string(),
            "time": to_json(&summary),
            "work": work.map(|work| work_json(&work, summary.median, peaks.as_ref())),
        }))?;
        return Ok(Status::Good);
    }
    console.line(format_args!("{name} on {device} with {{{}}}", given.binding))?;
    let total: f64 = samples.iter().sum();
    let runs = grouped(summary.samples as u64);
    console.line(format_args!("{runs} runs in {total:.2} s, after a warm-up"))?;
    console.line(format_args!("  minimum     {}", duration(summary.min)))?;
    let precision = summary.precision().map(|p| format!("  ±{} (95 %)", percent(p)));
    let median = duration(summary.median);
    console.line(format_args!("  median      {median}{}", precision.unwrap_or_default()))?;
    console.line(format_args!("  p90         {}", duration(summary.p90)))?;
    console.line(format_args!("  p99         {}", duration(summary.p99)))?;
    console.line(format_args!("  throughput  {:>10.1} runs/s", 1.0 / summary.mean))?;
    if let Some(work) = work {
        let Work { operations, bytes } = work;
        let rates = Rates::of(work, summary.median);
        console.line(format_args!(
            "  work        {} operations, {} bytes: {:.1} GFLOP/s, {:.1} GB/s",
            grouped(*operations),
            grouped(*bytes),
            rates.operations / 1e9,
            rates.bytes / 1e9
        ))?;
        if let Some(peaks) = &peaks {
            let by = if work.is_bound_by_memory(peaks) { "memory" } else { "arithmetic" };
            let bound = work.bound(peaks);
            console.line(format_args!(
                "  peaks       {:.1} GFLOP/s (product of {}), {:.1} GB/s (elementwise loop)",
                peaks.operations / 1e9,
                peaks.dtype,
                peaks.bytes / 1e9
            ))?;
            console.line(format_args!(
                "  roofline    {} by {by}; the median is {:.1} times that",
                duration(bound).trim_start(),
                summary.median / bound.max(1e-12)
            ))?;
        }
    }
    Ok(Status::Good)
}

/// Compares two functions; the third is the first again.
fn compared(
    args: &BenchArgs,
    mut prepared: [Prepared; 3],
    limits: &Limits,
    console: &mut Console<'_>,
) -> Outcome {
    let samples = {
        let [first, second, again] = &mut prepared;
        in_turns([first.contender(), second.contender(), again.contender()], limits)?
    };
    let [first, second, again] = &samples;
    let comparison = Comparison::of(first, second, again)
        .ok_or_else(|| diagnostic!("a run took no time, so there is no ratio"))?;
    let verdict = comparison.verdict(SAME);
    if verdict == Verdict::TooNoisy {
        console.warn(
            &diagnostic!(
                "the machine is too noisy to tell: the first against itself differs by up to {}",
                percent(comparison.noise())
            )
            .help("stop other programs, or give more --seconds"),
        );
    }
    let summaries = [Summary::of(first), Summary::of(second)];
    let Comparison { ratio, interval, null: itself, null_interval, rounds } = comparison;
    if args.json {
        let of = |at: usize| {
            json!({
                "function": prepared[at].name,
                "device": prepared[at].device.to_string(),
                "time": summaries[at].as_ref().map(to_json),
            })
        };
        console.line(json!({
            "first": of(0),
            "second": of(1),
            "rounds": rounds,
            "ratio": { "median": ratio, "low": interval.low, "high": interval.high },
            "null": { "median": itself, "low": null_interval.low, "high": null_interval.high },
            "verdict": verdict_name(verdict),
        }))?;
        return Ok(Status::Good);
    }
    for (at, name) in ["first", "second"].into_iter().enumerate() {
        let median = summaries[at].as_ref().map_or(0.0, |summary| summary.median);
        let Prepared { name: of, device, .. } = &prepared[at];
        console.line(format_args!("{name:<8}{}  {of} on {device}", duration(median)))?;
    }
    console.line(format_args!(
        "ratio   {ratio:>8.4}  {:.4} to {:.4} with 95 %, {rounds} rounds in turns",
        interval.low, interval.high
    ))?;
    console.line(format_args!(
        "null    {itself:>8.4}  {:.4} to {:.4}: the first against itself",
        null_interval.low, null_interval.high
    ))?;
    console.line(match verdict {
        Verdict::Faster => {
            format!("the second takes {} less time than the first", percent(1.0 - ratio))
        }
        Verdict::Slower => {
            format!("the second takes {} more time than the first", percent(ratio - 1.0))
        }
        Verdict::Same => format!("the two differ by no more than {}", percent(SAME)),
        Verdict::TooNoisy => "no conclusion".into(),
    })?;
    Ok(Status::Good)
}

/// Amounts of work per second.
struct Rates {
    operations: f64,
    bytes: f64,
}

impl Rates {
    fn of(work: &Work, seconds: f64) -> Rates {
        let rate = |amount: u64| amount as f64 / seconds.max(1e-12);
        Rates { operations: rate(work.operations), bytes: rate(work.bytes) }
    }
}

fn to_json(summary: &Summary) -> Value {
    json!({
        "runs": summary.samples,
        "min": summary.min,
        "median": summary.median,
        "p90": summary.p90,
        "p99": summary.p99,
        "mean": summary.mean,
        "median_low": summary.interval.map(|interval| interval.low),
        "median_high": summary.interval.map(|interval| interval.high),
        "per_second": 1.0 / summary.mean,
    })
}

fn work_json(work: &Work, seconds: f64, peaks: Option<&Peaks>) -> Value {
    let rates = Rates::of(work, seconds);
    json!({
        "operations": work.operations,
        "bytes": work.bytes,
        "operations_per_second": rates.operations,
        "bytes_per_second": rates.bytes,
        "roofline": peaks.map(|peaks| json!({
            "operations_per_second": peaks.operations,
            "bytes_per_second": peaks.bytes,
            "product": peaks.dtype.name(),
            "seconds": work.bound(peaks),
            "bound_by": if work.is_bound_by_memory(peaks) { "memory" } else { "arithmetic" },
        })),
    })
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Same => "same",
        Verdict::TooNoisy => "too noisy",
    }
}

/// Seconds in a unit of their size, in twelve columns.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:>9.3} s "),
        s if s >= 1e-3 => format!("{:>9.3} ms", 1e3 * s),
        s => format!("{:>9.3} µs", 1e6 * s),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
