//! The command: arguments in, a table and a record out.

use crate::case::{Case, catalogue, catalogue_of_cpu};
use crate::harness::{Contender, measure};
use crate::machine::Machine;
use crate::native::Native;
use crate::process::{Process, serve};
use crate::record::{Absent, FORMAT, Record, Settings};
use crate::resident::Local;
use crate::table::markdown;
use clap::{Args, Parser, Subcommand};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use wengert::core::diagnostic::Kind;
use wengert::{Device, DeviceOptions, Diagnostic, Result, Session};

/// Measures Wengert and merges the records of measurements.
#[derive(Debug, Parser)]
#[command(name = "wengert-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Kernels, products and training steps on a device; prints a table and can write a record
    Gpu {
        /// The device: cuda:0, emulator, cpu
        #[arg(long, default_value = "cuda:0")]
        device: String,
        #[command(flatten)]
        measured: Measured,
    },
    /// Chains, products and training steps on the CPU, at its extents, beside plain loops
    Cpu {
        #[command(flatten)]
        measured: Measured,
    },
    /// Merges records of several contenders to one markdown table
    Table {
        /// Records, as `gpu --json` and `bench/peers/gpu.py --json` write them
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Prints all cases as JSON, which is what `bench/peers/cases.json` holds
    Cases,
    /// Answers requests for measurements on standard input, as part of another `wengert-bench`
    Serve {
        /// The device
        #[arg(long)]
        device: String,
        /// Cases of small extents
        #[arg(long)]
        small: bool,
    },
}

/// What is measured, and how.
#[derive(Debug, Args)]
struct Measured {
    /// Small extents and few, short rounds: to see that everything runs, not for figures
    #[arg(long)]
    small: bool,
    /// Only cases whose name contains one of these
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Samples of each case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Writes a record to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The day, for the record
    #[arg(long)]
    date: Option<String>,
    /// Another contender, as a command that answers requests, e.g. "python3 bench/peers/gpu.py --serve jax"
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
}

/// How a command ended that has nothing more to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Good.
    Good = 0,
    /// Something that was to be measured failed, or its result was wrong.
    Failed = 1,
    /// Wrong usage or bad input.
    BadInput = 2,
    /// The device is not there.
    Device = 3,
}

/// Why a command did not do what it was asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// What to tell.
    pub diagnostic: Diagnostic,
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        let status = match diagnostic.kind {
            Kind::Mistake => Status::BadInput,
            Kind::Device => Status::Device,
        };
        Failure { status, diagnostic }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Diagnostic::new(format!("cannot write the output: {error}")).into()
    }
}

/// Runs the command. Results go to `out`, progress to `err`.
pub fn run(cli: &Cli, out: &mut dyn Write, err: &mut dyn Write) -> std::result::Result<Status, Failure> {
    match &cli.command {
        Task::Gpu { device, measured } => {
            measure_all(device.parse()?, vec![], &catalogue(measured.small), measured, out, err)
        }
        Task::Cpu { measured } => {
            let loops: Box<dyn Contender> = Box::new(Native::new(threads()?));
            let cases = catalogue_of_cpu(measured.small);
            measure_all(Device::Cpu, vec![loops], &cases, measured, out, err)
        }
        Task::Table { files } => {
            let records = files.iter().map(|file| Record::read(file)).collect::<Result<Vec<_>>>()?;
            write!(out, "{}", markdown(&records))?;
            Ok(Status::Good)
        }
        Task::Cases => {
            write!(out, "{}", cases_json())?;
            Ok(Status::Good)
        }
        Task::Serve { device, small } => {
            let mut contender = Local::new("wengert", device.parse()?, DeviceOptions::default());
            let cases = [catalogue(*small), catalogue_of_cpu(*small)].concat();
            serve(&mut contender, &cases, &mut io::stdin().lock(), out)?;
            Ok(Status::Good)
        }
    }
}

/// The catalogues as JSON, a case a line.
pub fn cases_json() -> String {
    let list = |cases: Vec<Case>| {
        let lines =
            cases.iter().map(|case| serde_json::to_string(case).expect("cases are strings and numbers"));
        format!("[\n  {}\n ]", lines.collect::<Vec<_>>().join(",\n  "))
    };
    let lists = [
        ("full", catalogue(false)),
        ("small", catalogue(true)),
        ("cpu", catalogue_of_cpu(false)),
        ("cpu_small", catalogue_of_cpu(true)),
    ];
    let lists = lists.map(|(name, cases)| format!(" \"{name}\": {}", list(cases)));
    format!("{{\n{}\n}}\n", lists.join(",\n"))
}

/// Measures cases on a device, by this library and by `others`.
fn measure_all(
    device: Device,
    others: Vec<Box<dyn Contender>>,
    cases: &[Case],
    measured: &Measured,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> std::result::Result<Status, Failure> {
    // Whether the device is there is found out once, not once for each case.
    Session::open(device)?;
    let chosen: Vec<&Case> = cases
        .iter()
        .filter(|c| measured.only.is_empty() || measured.only.iter().any(|text| c.id.contains(text.as_str())))
        .collect();
    if chosen.is_empty() {
        return Err(Diagnostic::new(format!("no case has a name with {:?}", measured.only))
            .help("`wengert-bench cases` lists them")
            .into());
    }
    let mut settings = if measured.small { Settings::SMALL } else { Settings::FULL };
    settings.rounds = measured.rounds.map_or(settings.rounds, |rounds| rounds as usize);
    let mut record = Record {
        format: FORMAT,
        tool: format!("wengert-bench {}", env!("CARGO_PKG_VERSION")),
        date: measured.date.clone(),
        commit: option_env!("WENGERT_COMMIT").map(str::to_owned),
        machine: Machine::here(),
        settings,
        measurements: Vec::new(),
        failed: Vec::new(),
        absent: Vec::new(),
    };
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Local::new("wengert", device, DeviceOptions::default()))];
    if matches!(device, Device::Cuda(_)) {
        let options = DeviceOptions { capture: false, ..DeviceOptions::default() };
        contenders.push(Box::new(Local::new(WITHOUT_CAPTURE, device, options)));
        let options = DeviceOptions { fast_products: true, ..DeviceOptions::default() };
        contenders.push(Box::new(Local::new(FAST, device, options)));
    }
    contenders.extend(others);
    for peer in &measured.peer {
        let mut words = peer.split_whitespace();
        let Some(program) = words.next() else {
            return Err(Diagnostic::new("a peer is a command, this one is empty").into());
        };
        let mut command = Command::new(program);
        command.args(words).args(["--device", &device.to_string()]);
        command.args(measured.small.then_some("--small"));
        enter(command, peer, &mut contenders, &mut record)?;
    }
    let mut groups: Vec<&str> = Vec::new();
    for case in &chosen {
        if !groups.contains(&case.group.as_str()) {
            groups.push(&case.group);
        }
    }
    for group in groups {
        let of_group: Vec<&Case> = chosen.iter().copied().filter(|c| c.group == group).collect();
        let wants = |contender: &dyn Contender, case: &Case| match contender.name() {
            // Capture saves launches, so it is compared where launches are what a case costs.
            WITHOUT_CAPTURE => case.group == "steps",
            // In f32 it would round operands to tf32, which is another result.
            FAST => case.group == "gemm bf16",
            "rust loop" => Native::knows(case),
            _ => true,
        };
        // If nobody reads the progress, there is still the record.
        let mut progress = |line: &str| drop(writeln!(err, "{group}: {line}"));
        let (measurements, failed) = measure(&mut contenders, &of_group, &settings, &wants, &mut progress);
        record.measurements.extend(measurements);
        record.failed.extend(failed);
    }
    if let Some(path) = &measured.json {
        record.write(path)?;
    }
    let is_good = record.failed.is_empty();
    write!(out, "{}", markdown(&[record]))?;
    Ok(if is_good { Status::Good } else { Status::Failed })
}

/// The name of this library without captured graphs.
const WITHOUT_CAPTURE: &str = "wengert (no capture)";

/// The name of this library with products and epilogues as cuBLASLt likes them.
const FAST: &str = "wengert (fast products)";

/// Threads of plain loops: as many as the library takes.
fn threads() -> Result<usize> {
    let Ok(text) = std::env::var("WENGERT_THREADS") else {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    };
    text.parse().map_err(|_| Diagnostic::new(format!("WENGERT_THREADS is `{text}`, not a number of threads")))
}

/// Starts a contender in a process (`shown` is its command); one that is not there is noted in the record.
fn enter(
    command: Command,
    shown: &str,
    contenders: &mut Vec<Box<dyn Contender>>,
    record: &mut Record,
) -> Result<()> {
    match Process::start(command)? {
        Ok(process) => {
            record.machine.libraries.extend(process.libraries().clone());
            contenders.push(Box::new(process));
        }
        Err(why) => record.absent.push(Absent { contender: shown.into(), why }),
    }
    Ok(())
}
