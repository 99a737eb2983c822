//! Tables of one or several records.

mod footprints;
mod starts;

use crate::busy;
use crate::floor::{Floors, LOOP, in_turns, is_reference};
use crate::ranks::{DDP, TWO_RANKS};
use crate::record::{Measurement, Record};
use crate::statistics::{geometric_mean, paired};
use crate::suite::{IN_F32, ONE_THREAD, label};
use crate::yardstick::is_yardstick;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The contender whose figures the others are compared with.
const OURS: &str = "wengert";

/// All figures of some records as markdown tables, with the machines above them and failures and
/// absent contenders below.
///
/// A row is a case. Each contender has a column with the median of its time and half the distance
/// between its tenth and ninetieth percentiles. `floor` is a lower bound of the time
/// ([`Floors`]), `of floor` the displayed time relative to it, round by round. Rates are this
/// library's, or the fastest contender's if it has none. The share of bandwidth is relative to the
/// best bandwidth of any contender in the case's reference. `ratio` is the time of the fastest
/// other contender divided by this library's, round by round: above 1, this library is faster.
/// Plain loops are a floor and no contender.
pub fn markdown(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        text.push_str(&heading(record));
    }
    let measurements: Vec<&Measurement> =
        records.iter().flat_map(|r| &r.measurements).filter(|m| !is_yardstick(m)).collect();
    if !measurements.is_empty() {
        text.push_str(&times(records, &measurements));
    }
    text.push_str(&starts::markdown(records));
    text.push_str(&footprints::markdown(records));
    for absent in records.iter().flat_map(|r| &r.absent) {
        _ = writeln!(text, "\n{}: {}.", absent.contender, absent.why);
    }
    for failed in records.iter().flat_map(|r| &r.failed) {
        let why = failed.why.replace('\n', " ");
        _ = writeln!(text, "\nFailed: {} by {}: {why}", failed.case, failed.contender);
    }
    text
}

/// The table of timed cases.
fn times(records: &[Record], measurements: &[&Measurement]) -> String {
    let floors = Floors::of(records);
    let contenders = in_order(measurements.iter().map(|m| m.contender.as_str()));
    let cases = in_order(measurements.iter().map(|m| m.case.as_str()));
    let bandwidths = bandwidths(measurements);
    let has_labels = measurements.iter().any(|m| label(&m.group).is_some());
    let mut header =
        String::from(if has_labels { "| suite | case | floor |" } else { "| case | floor |" });
    let mut rule = String::from(if has_labels { "|---|---|---:|" } else { "|---|---:|" });
    for contender in &contenders {
        _ = write!(header, " {contender} |");
        rule.push_str("---:|");
    }
    let mut text = format!(
        "\n{header} of floor | latency | ns/element | GB/s | of bandwidth | GFLOP/s | ratio |\n\
         {rule}---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let mut ratios = Vec::new();
    // Ratios to this library with other settings, and of another library on two ranks to it there.
    let others = [(ONE_THREAD, "one thread"), (TWO_RANKS, "two ranks"), (IN_F32, "f32")];
    let mut to_others = others.map(|of| (of, Vec::new()));
    let mut on_ranks = Vec::new();
    for case in cases {
        let of_case: Vec<&Measurement> =
            measurements.iter().copied().filter(|m| m.case == case).collect();
        let fastest = |ours: bool| {
            let some =
                of_case.iter().filter(|m| is_ours(&m.contender) == ours && m.contender != LOOP);
            some.min_by(|a, b| a.time.median.total_cmp(&b.time.median))
        };
        let ours = of_case.iter().find(|m| m.contender == OURS).or(fastest(true));
        let Some(shown) = ours.or(fastest(false)).or(of_case.first()) else { continue };
        let floor = floors.of_case(shown);
        if has_labels {
            _ = write!(text, "| {} ", label(&shown.group).unwrap_or_default());
        }
        _ = write!(text, "| {case} | {} |", floor.map_or(String::new(), duration));
        for contender in &contenders {
            match of_case.iter().find(|m| m.contender == *contender) {
                Some(m) => {
                    _ = write!(
                        text,
                        " {} ±{:.0}% |",
                        duration(m.time.median),
                        100.0 * m.time.relative()
                    )
                }
                None => text.push_str(" |"),
            }
        }
        let rates = Rates::of(shown);
        let reference = shown.reference.as_ref().and_then(|r| bandwidths.get(r.as_str()));
        let share =
            reference.map_or(String::new(), |best| format!("{:.0}%", 100.0 * rates.bytes / best));
        let others = of_case.iter().filter(|m| !is_ours(&m.contender) && m.contender != LOOP);
        let ratio =
            ours.and_then(|ours| others.map(|m| ratio(records, m, ours)).min_by(f64::total_cmp));
        ratios.extend(ratio);
        for ((contender, _), found) in &mut to_others {
            let other = of_case.iter().find(|m| m.contender == *contender);
            found.extend(ours.zip(other).map(|(ours, other)| self::ratio(records, other, ours)));
        }
        let [two_ranks, ddp] =
            [TWO_RANKS, DDP].map(|of| of_case.iter().find(|m| m.contender == of));
        on_ranks.extend(two_ranks.zip(ddp).map(|(ours, ddp)| self::ratio(records, ddp, ours)));
        let flops = if shown.work.flops > 0 { figures(rates.flops / 1e9) } else { String::new() };
        _ = writeln!(
            text,
            " {} | {} | {} | {} | {share} | {flops} | {} |",
            floors.multiple(shown).map_or(String::new(), |multiple| format!("{multiple:.2}")),
            duration(shown.latency.median),
            figures(1e9 * rates.seconds_per_element),
            figures(rates.bytes / 1e9),
            ratio.map_or(String::new(), |r| format!("{r:.2}")),
        );
    }
    if let Some(mean) = geometric_mean(&ratios) {
        _ = writeln!(
            text,
            "\nGeometric mean of {} ratios to the fastest other contender: {mean:.2}.",
            ratios.len()
        );
    }
    for ((_, name), found) in to_others {
        let Some(mean) = geometric_mean(&found) else { continue };
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        _ = writeln!(
            text,
            "\nGeometric mean of {} ratios to {name}: {mean:.2}, the least {least:.2}.",
            found.len()
        );
    }
    if let Some(mean) = geometric_mean(&on_ranks) {
        _ = writeln!(
            text,
            "\nGeometric mean of {} ratios of {DDP} to two ranks: {mean:.2}.",
            on_ranks.len()
        );
    }
    text
}

/// The ratio of two times. If they were timed in turns, it is the median of the ratios of their
/// rounds, since the machine's speed varies more between minutes than between consecutive
/// samples.
fn ratio(records: &[Record], one: &Measurement, other: &Measurement) -> f64 {
    let pairs =
        if in_turns(records, one, other) { paired(&one.rounds, &other.rounds) } else { None };
    pairs.map_or(one.time.median / other.time.median, |ratios| ratios.median)
}

/// The rates of a measurement.
struct Rates {
    seconds_per_element: f64,
    /// Bytes per second.
    bytes: f64,
    /// Operations per second.
    flops: f64,
}

impl Rates {
    fn of(m: &Measurement) -> Rates {
        let seconds = m.time.median;
        Rates {
            seconds_per_element: seconds / m.work.elements.max(1) as f64,
            bytes: m.work.bytes as f64 / seconds,
            flops: m.work.flops as f64 / seconds,
        }
    }
}

/// This library with any setting: `wengert`, `wengert (no capture)`.
pub(crate) fn is_ours(contender: &str) -> bool {
    contender.split(' ').next() == Some(OURS)
}

/// The best bandwidth of any contender in each case that is a reference.
fn bandwidths<'a>(measurements: &[&'a Measurement]) -> BTreeMap<&'a str, f64> {
    let mut found = BTreeMap::new();
    for m in measurements.iter().filter(|m| is_reference(m)) {
        let Some(reference) = m.reference.as_deref() else { continue };
        let best = found.entry(reference).or_insert(0.0f64);
        *best = best.max(Rates::of(m).bytes);
    }
    found
}

/// The distinct names, in the order of their first appearance, this library's first.
pub(crate) fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    let (mut ours, others): (Vec<&str>, Vec<&str>) = seen.into_iter().partition(|n| is_ours(n));
    ours.extend(others);
    ours
}

/// Machine and date, in one line.
fn heading(record: &Record) -> String {
    let machine = &record.machine;
    let mut parts = vec![record.tool.clone()];
    parts.extend(record.date.clone());
    parts.extend(record.commit.as_ref().map(|c| format!("commit {c}")));
    parts.extend(in_order(machine.gpus.iter().map(String::as_str)).into_iter().map(str::to_owned));
    parts.extend(machine.driver.as_ref().map(|d| format!("driver {d}")));
    parts.extend(machine.cpu.clone());
    parts.extend(machine.threads.map(|t| format!("{t} threads")));
    parts.extend(machine.libraries.iter().map(|(name, version)| format!("{name} {version}")));
    let settings = &record.settings;
    parts.push(format!("{} rounds of {:.0} ms", settings.rounds, 1e3 * settings.sample_seconds));
    match settings.spinning {
        0 => {}
        1 => parts.push("**beside a process that spins**".into()),
        n => parts.push(format!("**beside {n} processes that spin**")),
    }
    if let Some(busy) = record.busy.filter(|busy| busy.cores > busy::MOST) {
        parts.push(format!("**on a busy machine** (others used {:.2} cores)", busy.cores));
    }
    format!("- {}\n", parts.join(", "))
}

/// Three significant figures: `1.23`, `12.3`, `1234`.
fn figures(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// Seconds with a suitable unit.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", figures(s)),
        s if s >= 1e-3 => format!("{} ms", figures(1e3 * s)),
        s => format!("{} µs", figures(1e6 * s)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::parity::Parity;
    use crate::record::{Absent, FORMAT, Failed, Settings, Work};
    use crate::statistics::Spread;

    fn measurement(contender: &str, case: &str, seconds: f64, work: Work) -> Measurement {
        let time = Spread {
            samples: 3,
            min: seconds,
            p10: 0.9 * seconds,
            median: seconds,
            p90: 1.1 * seconds,
        };
        let latency = Spread { median: seconds + 1e-5, ..time };
        Measurement {
            case: case.into(),
            group: "g".into(),
            contender: contender.into(),
            device: "cuda:0".into(),
            work,
            reference: (work.flops == 0).then(|| "copy f32 64M".into()),
            runs: 10,
            time,
            latency,
            rounds: Vec::new(),
            parity: Parity { compared: 1, worst: 0.0, bound: 0.0, losses: None },
        }
    }

    pub(crate) fn record(tool: &str, measurements: Vec<Measurement>) -> Record {
        let gpus = vec!["NVIDIA H200".to_owned(); 2];
        Record {
            format: FORMAT,
            tool: tool.into(),
            date: Some("2026-01-02".into()),
            commit: Some("abc".into()),
            machine: Machine { gpus, driver: Some("580.1".into()), ..Machine::default() },
            settings: Settings::FULL,
            busy: None,
            starts: vec![],
            footprints: vec![],
            measurements,
            failed: vec![],
            absent: vec![],
        }
    }

    #[test]
    fn records_become_one_table() {
        let stream = |arrays: u64| Work { elements: 1 << 26, bytes: arrays << 28, flops: 0 };
        let product = Work { elements: 1 << 20, bytes: 12 << 20, flops: 1 << 31 };
        let ours = record(
            "ours",
            vec![
                measurement("wengert", "copy f32 64M", 200e-6, stream(2)),
                measurement("wengert", "copy plain f32 64M", 125e-6, stream(2)),
                measurement("wengert", "gelu(x+b)+r f32 64M", 300e-6, stream(4)),
                measurement("wengert (no capture)", "gemm f32 1024", 60e-6, product),
                measurement("wengert", "gemm f32 1024", 50e-6, product),
            ],
        );
        let mut theirs = record(
            "theirs",
            vec![
                measurement("torch", "gelu(x+b)+r f32 64M", 900e-6, stream(4)),
                measurement("torch.compile", "gelu(x+b)+r f32 64M", 450e-6, stream(4)),
                measurement("torch", "gemm f32 1024", 25e-6, product),
                measurement("torch", "only theirs", 1.5, product),
            ],
        );
        theirs.absent.push(Absent { contender: "jax".into(), why: "not installed".into() });
        theirs.failed.push(Failed {
            case: "sum".into(),
            contender: "torch".into(),
            why: "out of\nmemory".into(),
        });
        let text = markdown(&[ours, theirs]);
        let expected = "\
- ours, 2026-01-02, commit abc, NVIDIA H200, driver 580.1, 21 rounds of 20 ms
- theirs, 2026-01-02, commit abc, NVIDIA H200, driver 580.1, 21 rounds of 20 ms

| case | floor | wengert | wengert (no capture) | torch | torch.compile | of floor | latency | ns/element | GB/s | of bandwidth | GFLOP/s | ratio |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| copy f32 64M |  | 200 µs ±10% | | | |  | 210 µs | 0.0030 | 2684 | 62% |  |  |
| copy plain f32 64M |  | 125 µs ±10% | | | |  | 135 µs | 0.0019 | 4295 | 100% |  |  |
| gelu(x+b)+r f32 64M |  | 300 µs ±10% | | 900 µs ±10% | 450 µs ±10% |  | 310 µs | 0.0045 | 3579 | 83% |  | 1.50 |
| gemm f32 1024 |  | 50.0 µs ±10% | 60.0 µs ±10% | 25.0 µs ±10% | |  | 60.0 µs | 0.0477 | 252 |  | 42950 | 0.50 |
| only theirs |  | | | 1.50 s ±10% | |  | 1.50 s | 1431 | 0.0084 |  | 1.43 |  |

Geometric mean of 2 ratios to the fastest other contender: 0.87.

jax: not installed.

Failed: sum by torch: out of memory
";
        assert_eq!(text, expected);
    }

    /// On a CPU the plain loop is the floor and no contender; a network's floor combines the best
    /// product and the largest copy.
    #[test]
    fn the_cpus_table_has_labels_and_floors() {
        let on_cpu = |contender: &str, group: &str, case: &str, seconds, bytes, flops| {
            let work = Work { elements: 1 << 20, bytes, flops };
            let mut m = measurement(contender, case, seconds, work);
            (m.device, m.group) = ("cpu".into(), group.into());
            m.reference = (flops == 0).then(|| "copy f32 16M".into());
            m
        };
        let mut measured = record(
            "ours",
            vec![
                on_cpu("wengert", "C1 products", "gemm f32 1024", 0.010, 1 << 20, 5_000_000_000),
                on_cpu("jax", "C1 products", "gemm f32 1024", 0.020, 1 << 20, 5_000_000_000),
                on_cpu("wengert", "C2 chains", "copy f32 16M", 0.002, 100_000_000, 0),
                on_cpu("rust loop", "C2 chains", "copy f32 16M", 0.001, 100_000_000, 0),
                on_cpu("wengert", "C3 GPT", "step gpt", 0.300, 1_000_000_000, 50_000_000_000),
            ],
        );
        measured.busy = Some(busy::Busy { cores: 1.5, load: 2.0 });
        let text = markdown(&[measured]);
        let rows: Vec<&str> =
            text.lines().filter(|l| l.starts_with("| C") || l.starts_with("- ")).collect();
        assert!(rows[0].ends_with("**on a busy machine** (others used 1.50 cores)"), "{}", rows[0]);
        assert_eq!(
            rows[1..],
            [
                "| C1 | gemm f32 1024 | 10.0 ms | 10.0 ms ±10% | 20.0 ms ±10% | | 1.00 | \
                 10.0 ms | 9.54 | 0.1049 |  | 500 | 2.00 |",
                "| C2 | copy f32 16M | 1.00 ms | 2.00 ms ±10% | | 1.00 ms ±10% | 2.00 | \
                 2.01 ms | 1.91 | 50.0 | 50% |  |  |",
                "| C3 | step gpt | 110 ms | 300 ms ±10% | | | 2.73 | \
                 300 ms | 286 | 3.33 |  | 167 |  |",
            ]
        );
    }

    /// The ratio is of samples of the same round, not of medians from different minutes.
    #[test]
    fn ratios_are_of_rounds() {
        let work = Work { elements: 1, bytes: 1, flops: 1 };
        let of = |contender, rounds: &[f64]| {
            let time = Spread::of(rounds).unwrap();
            let measured = measurement(contender, "gemm f32 1024", time.median, work);
            Measurement { time, rounds: rounds.to_vec(), ..measured }
        };
        let ours = of("wengert", &[1.0, 1.0, 4.0, 4.0, 4.0]);
        let theirs = of("jax", &[1.5, 1.5, 6.0, 1.2, 1.2]);
        let ratio_of = |records: &[Record]| {
            let text = markdown(records);
            let row = text.lines().find(|l| l.starts_with("| gemm")).unwrap();
            row.trim_end_matches(" |").rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(ratio_of(&[record("one", vec![ours.clone(), theirs.clone()])]), "1.50");
        // Rounds of different runs are not paired.
        assert_eq!(ratio_of(&[record("one", vec![ours]), record("two", vec![theirs])]), "0.38");
    }

    #[test]
    fn figures_are_three() {
        assert_eq!(
            [0.0, 0.0123, 1.0, 9.996, 99.96, 12345.0].map(figures),
            ["0.00", "0.0123", "1.00", "10.0", "100", "12345"]
        );
        assert_eq!([2.0, 0.0015, 1e-6].map(duration), ["2.00 s", "1.50 ms", "1.00 µs"]);
    }
}
