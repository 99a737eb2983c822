//! Checks that other processes leave the machine idle for a measurement.
//!
//! Another process costs a program of two threads much more than its share of the CPU: if it delays
//! one thread, the other thread waits as well. So a measurement is refused if other processes use
//! more than [`MOST`] of a core. The user can override the refusal; the record notes the CPU use.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};
use wengert::{Diagnostic, Result};

/// Greatest allowed CPU use of others, in cores.
pub const MOST: f64 = 0.1;

/// Duration of the observation.
const WATCHED: Duration = Duration::from_millis(500);

/// Ticks per second in `/proc`: always 100 on Linux, whatever its internal clock.
const TICKS: f64 = 100.0;

/// CPU use of others before a measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Busy {
    /// Cores that other processes, the kernel and other guests of the host used.
    pub cores: f64,
    /// Runnable processes, averaged over the last minute.
    pub load: f64,
}

/// Observes the machine for half a second. None where there is no `/proc`.
///
/// Error: others use more than [`MOST`] of a core, and `anyway` is false.
pub fn look(anyway: bool) -> Result<Option<Busy>> {
    let Some(before) = Ticks::now() else { return Ok(None) };
    let start = Instant::now();
    sleep(WATCHED);
    let Some(after) = Ticks::now() else { return Ok(None) };
    let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text)).unwrap_or(0.0);
    let used = Used::between(&before, &after, start.elapsed().as_secs_f64());
    used.judge(load, anyway).map(Some)
}

/// Ticks used since the machine started.
struct Ticks {
    /// Busy ticks of the machine, including those of other guests of the host.
    all: u64,
    /// Name and ticks of each process except this one.
    processes: BTreeMap<u32, (String, u64)>,
    /// Ticks of this process.
    own: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        let all = of_machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            // A process may have ended since the folder was read.
            let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
            processes.extend(of_process(&text).map(|found| (id, found)));
        }
        let own = processes.remove(&std::process::id()).map_or(0, |(_, ticks)| ticks);
        Some(Ticks { all, processes, own })
    }
}

/// The busy ticks in the text of `/proc/stat`: user, nice, system, irq, softirq and steal; not
/// idle or iowait.
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, irq, softirq, stolen, ..] = ticks[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq + stolen)
}

/// Name and ticks in the text of `/proc/*/stat`. The name is in parentheses, and may contain
/// some.
fn of_process(text: &str) -> Option<(String, u64)> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    // After the name comes the third field; the ticks of user and system are the fourteenth and
    // fifteenth.
    let mut ticks = after.split_whitespace().skip(11);
    let mut next = || ticks.next().and_then(|word| word.parse::<u64>().ok());
    Some((name.to_owned(), next()? + next()?))
}

/// The first number in the text of `/proc/loadavg`.
fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// CPU use between two observations.
struct Used {
    cores: f64,
    /// By process, the greatest first.
    processes: Vec<(String, f64)>,
}

impl Used {
    fn between(before: &Ticks, after: &Ticks, seconds: f64) -> Used {
        let cores = |from: u64, to: u64| to.saturating_sub(from) as f64 / TICKS / seconds;
        let own = cores(before.own, after.own);
        let of_process = |(id, (name, ticks)): (&u32, &(String, u64))| {
            let from = before.processes.get(id).map_or(0, |(_, ticks)| *ticks);
            (name.clone(), cores(from, *ticks))
        };
        let mut processes: Vec<_> = after.processes.iter().map(of_process).collect();
        processes.retain(|(_, cores)| *cores > 0.0);
        processes.sort_by(|a, b| b.1.total_cmp(&a.1));
        Used { cores: (cores(before.all, after.all) - own).max(0.0), processes }
    }

    fn judge(&self, load: f64, anyway: bool) -> Result<Busy> {
        let Used { cores, processes } = self;
        if *cores <= MOST || anyway {
            return Ok(Busy { cores: *cores, load });
        }
        let greatest = processes.iter().take(5).map(|(name, cores)| format!("{name} {cores:.2}"));
        let of_whom = match processes.is_empty() {
            true => "no single process; perhaps other guests of the host".to_owned(),
            false => greatest.collect::<Vec<_>>().join(", "),
        };
        Err(Diagnostic::new(format!(
            "the machine is busy: others use {cores:.2} cores, {MOST} are allowed \
             ({of_whom}; load {load})"
        ))
        .help("measure when it is idle, or with `--busy`, and the record says that it was not"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let text = "cpu  100 20 30 4000 500 6 7 80 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(of_machine(text), Some(100 + 20 + 30 + 6 + 7 + 80));
        assert_eq!(of_machine("intr 5\n"), None);
        let text = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 31 12 0 0 20 0 1 0 5";
        assert_eq!(of_process(text), Some(("a (b) c".into(), 43)));
        assert_eq!(of_process("42 (a) S 1"), None);
        assert_eq!((load("0.52 0.4 0.3 1/99 5\n"), load("")), (Some(0.52), None));
    }

    #[test]
    fn a_busy_machine_is_refused() {
        let of = |all, rustc, own| Ticks {
            all,
            processes: [(7, ("rustc".to_owned(), rustc)), (8, ("idle".to_owned(), 5))].into(),
            own,
        };
        let used = Used::between(&of(1000, 10, 50), &of(1090, 85, 60), 0.5);
        assert!((used.cores - 1.6).abs() < 1e-12);
        let error = used.judge(2.5, false).unwrap_err();
        assert!(error.message.contains("others use 1.60 cores"), "{error}");
        assert!(error.message.contains("(rustc 1.50; load 2.5)"), "{error}");
        assert_eq!(used.judge(2.5, true).unwrap(), Busy { cores: 1.6, load: 2.5 });
        // This process's own CPU use is excluded.
        let quiet = Used::between(&of(1000, 10, 50), &of(1054, 11, 103), 0.5);
        assert!(quiet.judge(0.1, false).unwrap().cores < MOST);
        // CPU time of other guests of the host belongs to no process of this machine.
        let stolen = Used::between(&of(1000, 10, 50), &of(1050, 10, 50), 0.5);
        assert!(stolen.judge(0.1, false).unwrap_err().message.contains("other guests"));
    }

    /// On Linux the observation succeeds.
    #[test]
    fn this_machine_is_watched() {
        let found = look(true).unwrap();
        assert_eq!(found.is_some(), cfg!(target_os = "linux"));
        assert!(found.is_none_or(|busy| busy.cores >= 0.0));
    }
}
