//! Timing in turns.
//!
//! An *entrant* is a case by a contender. All entrants of a group are prepared (compiled, data in
//! place, result compared), then warmed up, which also determines the number of runs in a sample.
//! Then come the rounds: in each, every entrant gives one sample of many runs and one of a single
//! run. The order of every other round is reversed, and each pair of rounds begins with another
//! entrant. So none always runs after the same neighbour, and all equally often after themselves,
//! with a part of their data still in the caches. Before its sample an entrant runs once untimed:
//! its threads have slept and the caches hold another entrant's data, unlike in a program that
//! trains or answers requests.

use crate::case::Case;
use crate::parity::Parity;
use crate::record::{Failed, Measurement, Settings};
use crate::statistics::Spread;
use std::thread::sleep;
use std::time::Duration;
use wengert::Result;

/// A system that computes cases: this library on a device, or another one.
pub trait Contender {
    /// Its name in records.
    fn name(&self) -> &str;

    /// Its device.
    fn device(&self) -> String;

    /// True if it can compute the case; otherwise the case is skipped.
    fn takes_part(&self, _case: &Case) -> bool {
        true
    }

    /// Prepares a case, and compares its result with a plain loop.
    ///
    /// Errors: the case cannot be compiled or run, or its result is wrong.
    fn prepare(&mut self, case: &Case) -> Result<Parity>;

    /// Seconds of `runs` consecutive runs, until the device has finished them all. The case is
    /// prepared.
    fn time(&mut self, case: &Case, runs: u64) -> Result<f64>;

    /// Frees the case's resources.
    fn release(&mut self, case: &Case);
}

/// Seconds of rest before a sample on a CPU. By then, busy-waiting threads of other contenders
/// have gone to sleep; those of Intel's OpenMP, which PyTorch uses, wait for 200 ms. On a GPU an
/// idle contender computes nothing.
const REST: f64 = 0.3;

/// Most runs in a sample: the queue of a device is finite.
const MOST_RUNS: f64 = 5000.0;

/// Least number of rounds of a slow group; with fewer, percentiles are meaningless.
const LEAST_ROUNDS: usize = 7;

impl Settings {
    /// For publication: 21 samples of 20 ms, after 100 ms of warm-up.
    pub const FULL: Settings = Settings {
        rounds: 21,
        sample_seconds: 0.02,
        warm_up_seconds: 0.1,
        group_seconds: None,
        rest_seconds: REST,
        spinning: 0,
    };

    /// For a GPU, which is often available only for minutes: the same without rests, and a
    /// group's rounds take at most about 30 seconds.
    pub const GPU: Settings =
        Settings { group_seconds: Some(30.0), rest_seconds: 0.0, ..Settings::FULL };

    /// For the CPU's table: the same, with a group's rounds limited to about 40 seconds.
    pub const TABLE: Settings = Settings { group_seconds: Some(40.0), ..Settings::FULL };

    /// For smoke tests: 3 samples of one run.
    pub const SMALL: Settings =
        Settings { rounds: 3, sample_seconds: 0.0, warm_up_seconds: 0.0, ..Settings::FULL };

    /// Runs in a sample for a case with runs of `seconds`.
    fn runs(&self, seconds: f64) -> u64 {
        (self.sample_seconds / seconds.max(1e-9)).ceil().clamp(1.0, MOST_RUNS) as u64
    }

    /// Number of rounds for a group with rounds of `seconds`.
    fn rounds(&self, seconds: f64) -> usize {
        let fitting = self.group_seconds.map(|all| (all / seconds.max(1e-9)) as usize);
        fitting.map_or(self.rounds, |fitting| fitting.max(LEAST_ROUNDS).min(self.rounds))
    }
}

/// A case by a contender during measurement.
struct Entrant<'a> {
    contender: usize,
    case: &'a Case,
    parity: Parity,
    runs: u64,
    /// Time of a run after warm-up.
    seconds: f64,
    times: Vec<f64>,
    latencies: Vec<f64>,
    failure: Option<String>,
}

/// Measures the cases of one group by all contenders. `wants` decides which contender takes part
/// in which case; `progress` receives one line per step.
pub fn measure(
    contenders: &mut [Box<dyn Contender>],
    cases: &[&Case],
    settings: &Settings,
    wants: &dyn Fn(&dyn Contender, &Case) -> bool,
    progress: &mut dyn FnMut(&str),
) -> (Vec<Measurement>, Vec<Failed>) {
    let mut failed = Vec::new();
    let mut entrants = Vec::new();
    for case in cases {
        for (i, contender) in contenders.iter_mut().enumerate() {
            if !contender.takes_part(case) || !wants(contender.as_ref(), case) {
                continue;
            }
            progress(&format!("{}: preparing {}", contender.name(), case.id));
            let of_case =
                entrants.iter().find(|e: &&Entrant| e.case.id == case.id).map(|e| e.parity);
            let ready = contender.prepare(case).and_then(|parity| {
                of_case
                    .map_or(Ok(()), |first| parity.agree(&first, case.dtype.bound_of_losses()))?;
                Ok((parity, warm(contender, case, settings)?))
            });
            match ready {
                Ok((parity, (runs, seconds))) => entrants.push(Entrant {
                    contender: i,
                    case,
                    parity,
                    runs,
                    seconds,
                    times: Vec::new(),
                    latencies: Vec::new(),
                    failure: None,
                }),
                Err(error) => {
                    contender.release(case);
                    let contender = contender.name().to_owned();
                    failed.push(Failed {
                        case: case.id.clone(),
                        contender,
                        why: error.to_string(),
                    });
                }
            }
        }
    }
    let rests = settings.sample_seconds > 0.0 && settings.rest_seconds > 0.0;
    let rested = if rests { entrants.len() as f64 * settings.rest_seconds } else { 0.0 };
    let timed: f64 = entrants.iter().map(|e| e.seconds * (e.runs + 2) as f64).sum();
    let rounds = settings.rounds(timed + rested);
    for round in 0..rounds {
        progress(&format!("round {} of {rounds}, {} entrants", round + 1, entrants.len()));
        let mut order: Vec<&mut Entrant> = entrants.iter_mut().collect();
        let first = round / 2 % order.len().max(1);
        order.rotate_left(first);
        if round % 2 == 1 {
            order.reverse();
        }
        for entrant in order.into_iter().filter(|e| e.failure.is_none()) {
            let contender = &mut contenders[entrant.contender];
            let mut warmed = Ok(0.0);
            if rests {
                sleep(Duration::from_secs_f64(settings.rest_seconds));
            }
            if settings.sample_seconds > 0.0 {
                warmed = contender.time(entrant.case, 1);
            }
            let sample = warmed.and_then(|_| contender.time(entrant.case, entrant.runs));
            // A sample of one run is also its latency.
            let alone = |many| match entrant.runs {
                1 => Ok((many, many)),
                _ => Ok((many, contender.time(entrant.case, 1)?)),
            };
            match sample.and_then(alone) {
                Ok((many, one)) => {
                    entrant.times.push(many / entrant.runs as f64);
                    entrant.latencies.push(one);
                }
                Err(error) => entrant.failure = Some(error.to_string()),
            }
        }
    }
    let mut measurements = Vec::new();
    for entrant in entrants {
        let contender = &mut contenders[entrant.contender];
        contender.release(entrant.case);
        let (case, name) = (entrant.case, contender.name().to_owned());
        let spreads = (Spread::of(&entrant.times), Spread::of(&entrant.latencies));
        match (entrant.failure, spreads) {
            (None, (Some(time), Some(latency))) => measurements.push(Measurement {
                case: case.id.clone(),
                group: case.group.clone(),
                contender: name,
                device: contender.device(),
                work: case.work,
                reference: case.reference.clone(),
                runs: entrant.runs,
                time,
                latency,
                rounds: entrant.times,
                parity: entrant.parity,
            }),
            (failure, _) => {
                let why = failure.unwrap_or_else(|| "no round was timed".into());
                failed.push(Failed { case: case.id.clone(), contender: name, why });
            }
        }
    }
    (measurements, failed)
}

/// Runs a case until it is warm. Returns the number of runs in a sample, and the time of a run.
fn warm(
    contender: &mut Box<dyn Contender>,
    case: &Case,
    settings: &Settings,
) -> Result<(u64, f64)> {
    let mut times = Vec::new();
    while times.len() < 3 || times.iter().sum::<f64>() < settings.warm_up_seconds {
        times.push(contender.time(case, 1)?);
    }
    // The first runs differ from later ones, and single runs are slower than consecutive ones, so
    // the sample is timed once more.
    let single = times[times.len() / 2..].iter().copied().fold(f64::INFINITY, f64::min);
    let runs = settings.runs(single);
    if runs == 1 {
        return Ok((1, single));
    }
    let seconds = contender.time(case, runs)? / runs as f64;
    Ok((settings.runs(seconds), seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Kind, catalogue};
    use std::cell::RefCell;
    use std::rc::Rc;
    use wengert::Diagnostic;

    /// Runs take scripted times, by its own clock; every call is recorded.
    struct Scripted {
        name: &'static str,
        seconds: f64,
        calls: Rc<RefCell<Vec<String>>>,
        breaks_at: Option<usize>,
    }

    impl Contender for Scripted {
        fn name(&self) -> &str {
            self.name
        }

        fn device(&self) -> String {
            "script".into()
        }

        fn prepare(&mut self, case: &Case) -> Result<Parity> {
            if matches!(case.kind, Kind::Empty) && self.name == "b" {
                return Err(Diagnostic::new("not supported"));
            }
            Ok(Parity { compared: 1, worst: 0.0, bound: 1.0, losses: None })
        }

        fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
            self.calls.borrow_mut().push(format!("{} {} {runs}", self.name, case.id));
            if self.breaks_at.is_some_and(|n| self.calls.borrow().len() > n) {
                return Err(Diagnostic::new("broken"));
            }
            Ok(self.seconds * runs as f64)
        }

        fn release(&mut self, case: &Case) {
            self.calls.borrow_mut().push(format!("{} {} released", self.name, case.id));
        }
    }

    fn contenders(
        calls: &Rc<RefCell<Vec<String>>>,
        breaks_at: Option<usize>,
    ) -> Vec<Box<dyn Contender>> {
        let make = |name, seconds, breaks_at| -> Box<dyn Contender> {
            Box::new(Scripted { name, seconds, calls: calls.clone(), breaks_at })
        };
        vec![make("a", 0.001, None), make("b", 0.004, breaks_at)]
    }

    #[test]
    fn entrants_are_timed_in_turns_and_failures_are_told() {
        let cases = catalogue(true);
        let two: Vec<&Case> = cases
            .iter()
            .filter(|c| matches!(c.kind, Kind::Empty | Kind::Sum { .. }))
            .take(2)
            .collect();
        let (summed, empty) = match two[0].kind {
            Kind::Empty => (two[1], two[0]),
            _ => (two[0], two[1]),
        };
        let calls = Rc::default();
        let settings = Settings { warm_up_seconds: 0.0, rounds: 3, ..Settings::FULL };
        let (measured, failed) =
            measure(&mut contenders(&calls, None), &two, &settings, &|_, _| true, &mut |_| {});
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].contender.as_str(), failed[0].why.as_str()), ("b", "not supported"));
        assert_eq!(failed[0].case, empty.id);
        let found = |name: &str| {
            let m = measured.iter().find(|m| m.contender == name && m.case == summed.id).unwrap();
            (m.runs, m.time.median, m.latency.median, m.time.samples)
        };
        assert_eq!(found("a"), (20, 0.001, 0.001, 3));
        assert_eq!(found("b"), (5, 0.004, 0.004, 3));

        // After the warm-up come the rounds: the second in reverse, the third from the second
        // entrant on. Each sample has a run before it and another after it.
        let calls = calls.borrow();
        let summed_by = |name: &str, runs: u64| format!("{name} {} {runs}", summed.id);
        let samples: Vec<&String> =
            calls.iter().filter(|c| [summed_by("a", 20), summed_by("b", 5)].contains(c)).collect();
        let (a, b) = (summed_by("a", 20), summed_by("b", 5));
        // One sample of each is for calibration.
        assert_eq!(samples[2..], [&a, &b, &b, &a, &a, &b]);
        let single = summed_by("a", 1);
        let around =
            calls.windows(3).filter(|w| w[1] == a && w[0] == single && w[2] == single).count();
        assert_eq!(around, 3);
        assert_eq!(calls.iter().filter(|c| c.ends_with("released")).count(), 4);
    }

    /// The GPU stages `bench` and `peers`: the entrants of each group, timed with these settings
    /// and compiled in 22 ms per module, fit the limit of their step.
    #[test]
    fn groups_fit_their_steps_on_a_gpu() {
        /// Greatest number of this library's contenders on a GPU: with and without capture, with
        /// fast products.
        const MOST_OWN: usize = 3;
        const MODULE: f64 = 0.022;
        // A case's data are drawn and its result is compared on the CPU, which takes less than
        // half a second except for the large networks, and two seconds for arrays of 0.1 GB.
        const CASE: f64 = 0.5;
        const LARGE_CASE: f64 = 2.1;
        assert_eq!(Settings::GPU.rest_seconds, 0.0);
        let steps = include_str!("../../ci/gpu/steps");
        let cases = catalogue(false);
        let mut found = 0;
        for line in steps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (group, only, of_case) = match (line.split_once(" bench "), words[..].last()) {
                (Some((_, asked)), _) => {
                    let asked = asked.trim();
                    let group = asked
                        .strip_prefix('\'')
                        .map_or_else(|| asked.split(' ').next(), |rest| rest.split('\'').next());
                    (group.unwrap(), "", CASE)
                }
                (None, Some(dtype)) if line.contains(" bench_memory ") => {
                    ("memory", *dtype, LARGE_CASE)
                }
                _ => continue,
            };
            let limit: f64 = words[1].parse().unwrap();
            let count = cases.iter().filter(|c| c.group == group && c.id.contains(only)).count();
            assert!(count > 0, "{line}: there is no such group");
            // Case and fence; warm-up; then rounds of a sample and two single runs, one of which
            // may take as long as a sample.
            let Settings { rounds, sample_seconds, warm_up_seconds, .. } = Settings::GPU;
            let own = match group {
                "steps" | "gemm bf16" => MOST_OWN,
                _ => 1,
            };
            let of_entrant = 2.0 * MODULE + of_case + warm_up_seconds + 2.0 * sample_seconds;
            let round = count as f64 * own as f64 * 3.0 * sample_seconds;
            let seconds =
                (count * own) as f64 * of_entrant + round * Settings::GPU.rounds(round) as f64;
            assert!(
                rounds >= Settings::GPU.rounds(round) && seconds < limit,
                "{line}: {seconds:.0} s"
            );
            found += 1;
        }
        assert!(found >= 9, "{found} groups");
    }

    #[test]
    fn long_groups_get_fewer_rounds() {
        let rounds = |seconds| Settings::TABLE.rounds(seconds);
        assert_eq!((rounds(0.01), rounds(4.0), rounds(100.0)), (21, 10, LEAST_ROUNDS));
        assert_eq!(Settings::FULL.rounds(100.0), 21);
        assert_eq!(Settings { rounds: 2, ..Settings::TABLE }.rounds(100.0), 2);
    }

    #[test]
    fn what_breaks_between_rounds_is_a_failure() {
        let cases = catalogue(true);
        let one: Vec<&Case> =
            cases.iter().filter(|c| matches!(c.kind, Kind::Sum { .. })).take(1).collect();
        let settings = Settings { rounds: 5, ..Settings::SMALL };
        let calls = Rc::default();
        let (measured, failed) =
            measure(&mut contenders(&calls, Some(12)), &one, &settings, &|_, _| true, &mut |_| {});
        assert_eq!((measured.len(), failed.len()), (1, 1));
        assert_eq!((failed[0].contender.as_str(), failed[0].why.as_str()), ("b", "broken"));
        let only_b = |c: &dyn Contender, _: &Case| c.name() == "b";
        let (measured, failed) =
            measure(&mut contenders(&Rc::default(), None), &one, &settings, &only_b, &mut |_| {});
        assert_eq!((measured.len(), measured[0].contender.as_str(), failed.len()), (1, "b", 0));
    }
}
