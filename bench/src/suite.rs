//! A benchmark run: the check of the machine, the contenders, and the record.
//!
//! On the CPU each contender is a separate process, including this library and the plain loops, so
//! that threads, caches and allocators of one do not affect another. Each group of cases begins
//! with new processes, for two reasons. Allocators rarely return the memory of earlier cases, and
//! all contenders of a large case are in memory at once. A contender that crashed takes part again
//! in the next group. On a GPU this library stays in the measuring process, where its settings can
//! be chosen.

use crate::busy;
use crate::case::{Case, FOLDER, Float, Kind, has_models};
use crate::harness::{Contender, measure};
use crate::machine::Machine;
use crate::process::Process;
use crate::record::{Absent, FORMAT, Record, Settings};
use crate::resident::Local;
use crate::spin::Spinning;
use crate::starts::{self, Starter};
use crate::yardstick::{YARDSTICK, yardsticks};
use std::env;
use std::path::Path;
use std::process::Command;
use wengert::{Device, DeviceOptions, Diagnostic, Result, Session, diagnostic};

/// Labels of the table whose figures are starts.
const STARTS: [&str; 3] = ["C7", "C8", "C9"];

/// The label of imported models, which are measured if they are there.
const OF_MODELS: &str = "C13";

/// Rounds of starts of the largest case. Smaller cases are started for their memory only, which
/// hardly varies.
const ROUNDS_OF_STARTS: usize = 2;

/// The name of this library without captured graphs.
const WITHOUT_CAPTURE: &str = "wengert (no capture)";

/// The name of this library with cuBLASLt's fastest products.
const FAST: &str = "wengert (fast products)";

/// The name of this library on one thread.
pub(crate) const ONE_THREAD: &str = "wengert (1 thread)";

/// The name of this library on cases in mixed precision, but in f32.
pub(crate) const IN_F32: &str = "wengert (f32)";

/// The label of a group, `C3` of `C3 GPT`; None for groups without a label.
pub fn label(group: &str) -> Option<&str> {
    let word = group.split(' ').next()?;
    let number = word.strip_prefix('C')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(word)
}

/// The selected cases of a run.
#[derive(Debug)]
pub struct Choice<'a> {
    /// All cases of the catalogue.
    all: &'a [Case],
    /// Cases to time.
    cases: Vec<&'a Case>,
    /// Cases to start.
    starts: Vec<&'a Case>,
}

impl<'a> Choice<'a> {
    /// The cases whose names contain one of `only`, in groups with one of these labels; an empty
    /// list selects all. With `with_starts`, transformers are also started, if a label of starts
    /// is selected.
    ///
    /// Errors: an unknown label; no case is left.
    pub fn of(
        cases: &'a [Case],
        only: &[String],
        labels: &[String],
        with_starts: bool,
    ) -> Result<Choice<'a>> {
        let known = |wanted: &String| {
            STARTS.contains(&wanted.as_str())
                || cases.iter().any(|c| label(&c.group) == Some(wanted))
        };
        if let Some(unknown) = labels.iter().find(|wanted| !known(wanted)) {
            return Err(Diagnostic::new(format!("no row of the table is called `{unknown}`"))
                .help("rows are C1 to C13, C15 and C16; those of C4 are not among small extents"));
        }
        let named = |case: &&Case| {
            only.is_empty() || only.iter().any(|text| case.id.contains(text.as_str()))
        };
        let of_label = |case: &&Case| {
            labels.is_empty() || labels.iter().any(|wanted| label(&case.group) == Some(wanted))
        };
        let is_there = |case: &&Case| !matches!(case.kind, Kind::Imported { .. }) || has_models();
        if !has_models() && labels.iter().any(|label| label == OF_MODELS) {
            return Err(diagnostic!("{OF_MODELS} needs models: {FOLDER} names no folder")
                .help("run `python bench/peers/imported_models.py FOLDER`, and set the variable"));
        }
        let is_started =
            labels.is_empty() || labels.iter().any(|wanted| STARTS.contains(&wanted.as_str()));
        let all = || cases.iter().filter(named);
        let choice = Choice {
            all: cases,
            cases: all().filter(of_label).filter(is_there).collect(),
            starts: all().filter(|c| with_starts && is_started && starts::can_start(c)).collect(),
        };
        if choice.cases.is_empty() && choice.starts.is_empty() {
            return Err(Diagnostic::new(format!("no case has a name with {only:?}"))
                .help("`wengert-bench cases` lists them"));
        }
        Ok(choice)
    }

    /// The cases to time.
    pub fn cases(&self) -> impl Iterator<Item = &'a Case> {
        self.cases.iter().copied()
    }
}

/// The process in which this library runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// In this process.
    Here,
    /// In a separate process, and the plain loops in another.
    Processes,
}

/// A run with its settings.
#[derive(Debug)]
pub struct Run<'a> {
    /// The device.
    pub device: Device,
    /// The process in which this library runs.
    pub own: Own,
    /// Few, short rounds.
    pub small: bool,
    /// Measures even on a busy machine.
    pub busy: bool,
    /// This library on one thread is a further contender.
    pub one_thread: bool,
    /// This library on two ranks of one thread each is a further contender.
    pub two_ranks: bool,
    /// Processes that spin beside the measurement.
    pub spinning: usize,
    /// Number of rounds, if not the default.
    pub rounds: Option<usize>,
    /// The date.
    pub date: Option<String>,
    /// Commands of peers.
    pub peers: &'a [String],
    /// The file that the record is written to.
    pub json: Option<&'a Path>,
}

impl Run<'_> {
    /// Measures.
    ///
    /// Errors: the device is absent, the machine is busy, a contender does not start, the record
    /// cannot be written. Later failures are in the record.
    pub fn measure(&self, choice: &Choice<'_>, progress: &mut dyn FnMut(&str)) -> Result<Record> {
        // The device is checked once, not once per case.
        Session::open(self.device)?;
        let mut record = self.begin()?;
        let _spinning = Spinning::start(self.spinning)?;
        let mut groups: Vec<&str> = Vec::new();
        for case in &choice.cases {
            if !groups.contains(&case.group.as_str()) {
                groups.push(&case.group);
            }
        }
        for group in groups {
            let of_group: Vec<&Case> =
                choice.cases.iter().copied().filter(|c| c.group == group).collect();
            let mut told = |line: &str| progress(&format!("{group}: {line}"));
            let mixed = of_group.iter().any(|case| case.dtype == Float::Mixed);
            let mut contenders = self.contenders(mixed, &mut record)?;
            let beside = match self.own {
                Own::Processes => yardsticks(&of_group, choice.all),
                Own::Here => Vec::new(),
            };
            if !beside.is_empty() {
                enter(&self.own_starter(YARDSTICK)?, &mut contenders, &mut record)?;
            }
            let is_beside = |case: &Case| beside.iter().any(|other| std::ptr::eq(other, case));
            let wants = |contender: &dyn Contender, case: &Case| {
                (contender.name() == YARDSTICK) == is_beside(case) && wants(contender, case)
            };
            // Yardsticks come first. This library is the next contender, so no case is timed
            // between the two.
            let entered: Vec<&Case> = beside.iter().chain(of_group).collect();
            let (measurements, failed) =
                measure(&mut contenders, &entered, &record.settings, &wants, &mut told);
            record.measurements.extend(measurements);
            record.failed.extend(failed);
            self.keep(&record)?;
        }
        if !choice.starts.is_empty() {
            self.start(choice, &mut record, progress)?;
            self.keep(&record)?;
        }
        Ok(record)
    }

    /// Writes the record, if requested. It is called after each long part, so that an interrupted
    /// run loses no finished results.
    pub(crate) fn keep(&self, record: &Record) -> Result<()> {
        self.json.map_or(Ok(()), |path| record.write(path))
    }

    /// The record of a run before any measurement.
    pub(crate) fn begin(&self) -> Result<Record> {
        let mut settings = match (self.small, self.own) {
            (true, _) => Settings::SMALL,
            (false, Own::Processes) => Settings::TABLE,
            (false, Own::Here) if matches!(self.device, Device::Cuda(_)) => Settings::GPU,
            (false, Own::Here) => Settings::FULL,
        };
        settings.rounds = self.rounds.unwrap_or(settings.rounds);
        settings.spinning = self.spinning;
        // Other processes on the CPU do not affect a GPU, and times at small extents do not matter.
        let is_looked_at = self.device == Device::Cpu && !self.small;
        Ok(Record {
            format: FORMAT,
            tool: format!("wengert-bench {}", env!("CARGO_PKG_VERSION")),
            date: self.date.clone(),
            commit: option_env!("WENGERT_COMMIT").map(str::to_owned),
            machine: Machine::here(),
            settings,
            busy: if is_looked_at { busy::look(self.busy)? } else { None },
            measurements: Vec::new(),
            starts: Vec::new(),
            footprints: Vec::new(),
            failed: Vec::new(),
            absent: Vec::new(),
        })
    }

    /// All contenders that take part; absent ones are noted in the record. `mixed`: cases are in
    /// mixed precision.
    fn contenders(&self, mixed: bool, record: &mut Record) -> Result<Vec<Box<dyn Contender>>> {
        let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
        match self.own {
            Own::Processes => {
                let one_thread = self.one_thread.then_some("one-thread");
                let two_ranks = self.two_ranks.then_some("two-ranks");
                let in_f32 = mixed.then_some("f32");
                let others = one_thread.into_iter().chain(two_ranks).chain(in_f32);
                for who in ["wengert", "rust-loop"].into_iter().chain(others) {
                    enter(&self.own_starter(who)?, &mut contenders, record)?;
                }
            }
            Own::Here => {
                let mut add = |name: &str, options: DeviceOptions| {
                    contenders.push(Box::new(Local::new(name, self.device, options)));
                };
                add("wengert", DeviceOptions::default());
                if matches!(self.device, Device::Cuda(_)) {
                    add(
                        WITHOUT_CAPTURE,
                        DeviceOptions { capture: false, ..DeviceOptions::default() },
                    );
                    add(FAST, DeviceOptions { fast_products: true, ..DeviceOptions::default() });
                }
            }
        }
        for peer in self.peers {
            enter(&self.starter(peer)?, &mut contenders, record)?;
        }
        Ok(contenders)
    }

    /// The command of a peer on this run's device.
    pub(crate) fn starter(&self, peer: &str) -> Result<Starter> {
        let mut words = peer.split_whitespace().map(str::to_owned);
        let program = words
            .next()
            .ok_or_else(|| Diagnostic::new("a peer is a command, this one is empty"))?;
        Ok(Starter { program, arguments: words.chain(self.arguments()).collect() })
    }

    /// The command of a contender within this program.
    fn own_starter(&self, who: &str) -> Result<Starter> {
        let program = env::current_exe().map_err(|e| {
            Diagnostic::new(format!("the program that runs cannot be found again: {e}"))
        })?;
        let serve = ["serve", "--contender", who].map(str::to_owned).into_iter();
        let arguments = serve.chain(self.arguments()).collect();
        Ok(Starter { program: program.to_string_lossy().into_owned(), arguments })
    }

    fn arguments(&self) -> impl Iterator<Item = String> {
        let small = self.small.then(|| "--small".to_owned());
        ["--device".to_owned(), self.device.to_string()].into_iter().chain(small)
    }

    /// Starts this library and the peers.
    fn start(
        &self,
        choice: &Choice<'_>,
        record: &mut Record,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut starters = vec![self.own_starter("wengert")?];
        for peer in self.peers {
            starters.push(self.starter(peer)?);
        }
        let largest = choice.starts.iter().map(|case| case.work.elements).max();
        let rounds = |case: &Case| match Some(case.work.elements) == largest {
            true => self.rounds.unwrap_or(ROUNDS_OF_STARTS).min(ROUNDS_OF_STARTS),
            false => 1,
        };
        let cases: Vec<(&Case, usize)> =
            choice.starts.iter().map(|case| (*case, rounds(case))).collect();
        let found =
            starts::measure(&starters, &cases, &mut |line| progress(&format!("starts: {line}")))?;
        record.machine.libraries.extend(found.libraries);
        record.starts.extend(found.starts);
        record.failed.extend(found.failed);
        for absent in found.absent {
            if !record.absent.contains(&absent) {
                record.absent.push(absent);
            }
        }
        Ok(())
    }
}

/// Whether a contender takes part in a case.
fn wants(contender: &dyn Contender, case: &Case) -> bool {
    match contender.name() {
        // Capture saves launches, so it is compared where launches dominate.
        WITHOUT_CAPTURE => case.group == "steps",
        // In f32 it would round operands to tf32, which gives another result.
        FAST => case.group == "gemm bf16",
        _ => true,
    }
}

/// Starts a contender in a process; an absent one is noted in the record.
fn enter(
    starter: &Starter,
    contenders: &mut Vec<Box<dyn Contender>>,
    record: &mut Record,
) -> Result<()> {
    let mut command = Command::new(&starter.program);
    command.args(&starter.arguments);
    match Process::start(command)? {
        Ok(process) => {
            record.machine.libraries.extend(process.libraries().clone());
            contenders.push(Box::new(process));
        }
        Err(why) => {
            let absent = Absent { contender: starter.shown(), why };
            if !record.absent.contains(&absent) {
                record.absent.push(absent);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{catalogue, catalogue_of_cpu};

    #[test]
    fn nothing_rests_on_a_gpu() {
        let run = |device| Run {
            device,
            own: Own::Here,
            small: false,
            busy: false,
            one_thread: false,
            two_ranks: false,
            spinning: 0,
            rounds: None,
            date: None,
            peers: &[],
            json: None,
        };
        assert_eq!(run(Device::Cuda(0)).begin().unwrap().settings, Settings::GPU);
        assert_eq!(run(Device::Emulator).begin().unwrap().settings, Settings::FULL);
    }

    #[test]
    fn groups_have_labels() {
        assert_eq!([label("C3 GPT"), label("C10 halves")], [Some("C3"), Some("C10")]);
        assert_eq!([label("memory"), label("C"), label("Cx y"), label("")], [None; 4]);
        assert!(catalogue(true).iter().all(|case| label(&case.group).is_none()));
    }

    #[test]
    fn what_is_chosen_is_measured() {
        let cases = catalogue_of_cpu(false);
        let of = |only: &[&str], labels: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
            Choice::of(&cases, &owned(only), &owned(labels), true)
        };
        let counts = |only: &[&str], labels: &[&str]| {
            let choice = of(only, labels).unwrap();
            (choice.cases.len(), choice.starts.len())
        };
        let is_there = |case: &&Case| !matches!(case.kind, Kind::Imported { .. }) || has_models();
        assert_eq!(counts(&[], &[]), (cases.iter().filter(is_there).count(), 2));
        assert_eq!(counts(&[], &["C3"]), (1, 0));
        assert_eq!(counts(&[], &["C8"]), (0, 2));
        assert_eq!(counts(&["C768"], &["C4", "C7"]), (1, 1));
        assert!(of(&["nothing"], &[]).unwrap_err().message.contains("no case has a name"));
        assert!(of(&[], &["C14"]).unwrap_err().message.contains("`C14`"));
        assert!(has_models() || of(&[], &["C13"]).unwrap_err().message.contains(FOLDER));
    }
}
