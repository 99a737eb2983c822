//! The command: parses arguments, prints a table and writes a record.

use crate::buckets;
use crate::case::{Case, catalogue, catalogue_of_cpu, catalogue_of_memory, random_chains};
use crate::compile::graphs::Form;
use crate::compile::{FLAT, SIZES, Scaling, passes_of, summary};
use crate::compiled_loop::{measure_random_chains, multiple_of_loops};
use crate::gpt2;
use crate::gpu_model;
use crate::harness::Contender;
use crate::memory::command::Asked;
use crate::native::Native;
use crate::process::serve;
use crate::profile::profile;
use crate::ranks;
use crate::record::Record;
use crate::resident::Local;
use crate::spin::spin;
use crate::starts::start;
use crate::suite::{Choice, IN_F32, ONE_THREAD, Own, Run};
use crate::table::markdown;
use crate::yardstick::YARDSTICK;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use wengert::command::{Outcome, Status};
use wengert::{Device, DeviceOptions, Diagnostic, Result, atomic};

/// Measures Wengert and merges the records of measurements.
#[derive(Debug, Parser)]
#[command(name = "wengert-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measures kernels, products and training steps on a device; prints a table and can write a
    /// record
    Gpu {
        /// The device: cuda:0, emulator, cpu
        #[arg(long, default_value = "cuda:0")]
        device: String,
        /// Only cases of these groups, by their names in records
        #[arg(long, value_name = "NAME")]
        group: Vec<String>,
        #[command(flatten)]
        measured: Measured,
    },
    /// Runs training steps of GPT-2 with 124 million parameters; checks that the loss falls, and
    /// times a step
    Gpt2(gpt2::Asked),
    /// Times a training step on several ranks with small collectives joined, and without
    Buckets(buckets::Asked),
    /// Predicts the GPU suite, G1 to G7, on a GPU that is not at hand, kernel by kernel
    GpuModel(gpu_model::Asked),
    /// Measures the table of C1 to C13, C15 and C16 on the CPU: products, chains, training steps,
    /// inference, starts, products of bf16, updates in place, decoding, imported models, networks
    /// in mixed precision; each contender runs in its own process
    Cpu {
        /// Only these rows of the table: C1 to C6, C10 to C13, C15, C16, or C7, C8 or C9 for starts
        #[arg(long, value_name = "LABEL")]
        suite: Vec<String>,
        /// Measures this library on one thread, too
        #[arg(long)]
        one_thread: bool,
        /// Measures this library on two ranks of one thread each, too: training steps
        #[arg(long)]
        two_ranks: bool,
        /// Number of processes that spin during the measurement, each on one core
        #[arg(
            long,
            value_name = "N",
            default_value_t = 0,
            value_parser = clap::value_parser!(u32).range(..=1024)
        )]
        spinning: u32,
        #[command(flatten)]
        measured: Measured,
    },
    /// Spins until the end of standard input
    #[command(hide = true)]
    Spin,
    /// Measures random chains on the CPU against loops that rustc compiles for them
    Chains {
        /// Seed of the chains, which is part of the cases' names; the default is the current time
        #[arg(long)]
        seed: Option<u64>,
        #[command(flatten)]
        measured: Measured,
    },
    /// Measures starts only (C7 to C9): time and memory of a fresh process up to the end of its
    /// first training step
    Starts {
        #[command(flatten)]
        measured: Measured,
    },
    /// Reports the memory of training steps, which are compiled and not run: arena, bound, naive
    /// order, and the figures of other compilers
    Memory(Asked),
    /// Profiles cases on the CPU, kernel by kernel
    Profile {
        /// Only these rows of the table: C1 to C6, C13, C15, C16
        #[arg(long, value_name = "LABEL")]
        suite: Vec<String>,
        /// Only cases whose name contains one of these texts
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
        /// Small extents
        #[arg(long)]
        small: bool,
        /// Runs of each case
        #[arg(
            long,
            value_name = "N",
            default_value = "10",
            value_parser = clap::value_parser!(u32).range(1..)
        )]
        runs: u32,
        /// Number of kernels listed
        #[arg(long, value_name = "N", default_value = "30")]
        kernels: usize,
    },
    /// Measures compile time of graphs of 1,000, 10,000 and 100,000 equations, by pass; fails if
    /// the times per equation differ by more than a factor of 2
    Compile {
        /// Only these shapes: chain, layers, training, sum, concatenation, loop, loops
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Number of equations, instead of the three sizes; can be repeated
        #[arg(long, value_name = "N")]
        equations: Vec<usize>,
        /// Rounds, of which the fastest counts
        #[arg(long, value_name = "N", default_value_t = 3)]
        rounds: usize,
    },
    /// Merges records of several contenders into one markdown table
    Table {
        /// Records, written by `--json` of other commands and of `bench/peers/measure.py`
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        shown: Shown,
    },
    /// Prints all cases as JSON, the content of `bench/peers/cases.json`; or writes the programs of
    /// the CPU's cases for `graphrun`
    Cases {
        /// Writes a .graph file of each program into this folder instead
        #[arg(long, value_name = "FOLDER")]
        save: Option<PathBuf>,
        /// Only programs of these rows of the table: C1 to C12, C15, C16
        #[arg(long, value_name = "LABEL", requires = "save")]
        suite: Vec<String>,
        /// Only programs of cases whose name contains one of these texts
        #[arg(long, value_name = "TEXT", requires = "save")]
        only: Vec<String>,
        /// Small extents
        #[arg(long, requires = "save")]
        small: bool,
    },
    /// Answers requests for measurements on standard input, for another `wengert-bench`
    Serve {
        /// The device
        #[arg(long)]
        device: String,
        /// Cases of small extents
        #[arg(long)]
        small: bool,
        /// Contender that answers
        #[arg(long, value_enum, default_value = "wengert")]
        contender: Who,
        /// Answers no requests: starts this case and reports the cost of the start
        #[arg(long, value_name = "CASE")]
        start: Option<String>,
        /// Compilation cache of a start; this library keeps none
        #[arg(long, value_name = "FOLDER")]
        cache: Option<PathBuf>,
    },
}

/// A contender that is part of this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Who {
    /// This library.
    Wengert,
    /// Plain loops, compiled by rustc.
    RustLoop,
    /// This library on one thread.
    OneThread,
    /// This library on two ranks of one thread each.
    TwoRanks,
    /// This library, with cases in mixed precision in f32.
    F32,
    /// This library, as a measure of the machine's speed.
    Yardstick,
}

/// Options of a measurement.
#[derive(Debug, Args)]
struct Measured {
    /// Small extents and few, short rounds: checks that everything runs, without meaningful figures
    #[arg(long)]
    small: bool,
    /// Only cases whose name contains one of these texts
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Samples of each case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Measures even if other processes keep the machine busy
    #[arg(long)]
    busy: bool,
    /// Writes a record to this file, rewritten after each group of cases
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
    /// Date of the record
    #[arg(long)]
    date: Option<String>,
    /// Command that answers requests for another contender, e.g.
    /// "python3 bench/peers/measure.py --serve jax"
    #[arg(long, value_name = "COMMAND")]
    peer: Vec<String>,
}

impl Measured {
    /// The run for these arguments.
    ///
    /// Error: an output file cannot be written. This is checked before the run, which can take half
    /// an hour.
    fn run(&self, device: Device, own: Own) -> Result<Run<'_>> {
        let Measured { small, busy, rounds, date, peer, json, shown, .. } = self;
        for path in [json, &shown.csv, &shown.svg].into_iter().flatten() {
            atomic::can_write(path)?;
        }
        Ok(Run {
            device,
            own,
            small: *small,
            busy: *busy,
            one_thread: false,
            two_ranks: false,
            spinning: 0,
            rounds: rounds.map(|rounds| rounds as usize),
            date: date.clone(),
            peers: peer,
            json: json.as_deref(),
        })
    }
}

/// Further outputs of records, besides the printed table.
#[derive(Debug, Args)]
struct Shown {
    /// Writes all figures to this file, one per line
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws a plot to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the command. Results go to `out`, progress to `err`.
pub fn run(cli: &Cli, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
    match &cli.command {
        Task::Gpt2(asked) => asked.run(out),
        Task::Buckets(asked) => asked.run(out),
        Task::GpuModel(asked) => asked.run(out),
        Task::Gpu { device, group, measured } => {
            let (device, mut cases) = (device.parse()?, catalogue(measured.small));
            if let Some(unknown) =
                group.iter().find(|name| !cases.iter().any(|case| case.group == **name))
            {
                let mut groups: Vec<&str> = cases.iter().map(|case| case.group.as_str()).collect();
                groups.dedup();
                return Err(Diagnostic::new(format!("there is no group `{unknown}`"))
                    .help(format!("groups are {}", groups.join(", ")))
                    .into());
            }
            cases.retain(|case| group.is_empty() || group.contains(&case.group));
            let choice = Choice::of(&cases, &measured.only, &[], false)?;
            measure(measured.run(device, Own::Here)?, &choice, measured, out, err)
        }
        Task::Cpu { suite, one_thread, two_ranks, spinning, measured } => {
            let cases = catalogue_of_cpu(measured.small);
            let choice = Choice::of(&cases, &measured.only, suite, true)?;
            let run = measured.run(Device::Cpu, Own::Processes)?;
            let (one_thread, two_ranks) = (*one_thread, *two_ranks);
            let run = Run { one_thread, two_ranks, spinning: *spinning as usize, ..run };
            measure(run, &choice, measured, out, err)
        }
        Task::Spin => spin(),
        Task::Chains { seed, measured } => {
            let now =
                || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            let seed = seed.unwrap_or_else(now);
            let cases = random_chains(seed, measured.small);
            let wanted = |case: &&Case| {
                measured.only.is_empty()
                    || measured.only.iter().any(|text| case.id.contains(text.as_str()))
            };
            let chosen: Vec<&Case> = cases.iter().filter(wanted).collect();
            let run = measured.run(Device::Cpu, Own::Here)?;
            let mut progress = |line: &str| drop(writeln!(err, "{line}"));
            let record = measure_random_chains(&run, &chosen, threads()?, &mut progress)?;
            let status = finish(&record, measured, out)?;
            if let Some((multiple, count)) = multiple_of_loops(&record) {
                writeln!(
                    out,
                    "\nGeometric mean over {count} chains: {multiple:.3} × the compiled loop."
                )?;
            }
            Ok(status)
        }
        Task::Starts { measured } => {
            let cases = catalogue_of_cpu(measured.small);
            let choice =
                Choice::of(&cases, &measured.only, &["C7", "C8", "C9"].map(str::to_owned), true)?;
            measure(measured.run(Device::Cpu, Own::Processes)?, &choice, measured, out, err)
        }
        Task::Memory(asked) => asked.run(out, err),
        Task::Profile { suite, only, small, runs, kernels } => {
            let cases = catalogue_of_cpu(*small);
            for case in Choice::of(&cases, only, suite, false)?.cases() {
                profile(case, Device::Cpu, u64::from(*runs))?.show(*kernels, out)?;
            }
            Ok(Status::Good)
        }
        Task::Compile { only, equations, rounds } => scaling(only, equations, *rounds, out, err),
        Task::Table { files, shown } => {
            let records =
                files.iter().map(|file| Record::read(file)).collect::<Result<Vec<_>>>()?;
            show(&records, shown, out)?;
            Ok(Status::Good)
        }
        Task::Cases { save: None, .. } => {
            write!(out, "{}", cases_json())?;
            Ok(Status::Good)
        }
        Task::Cases { save: Some(folder), suite, only, small } => {
            std::fs::create_dir_all(folder)?;
            let cases = catalogue_of_cpu(*small);
            for case in Choice::of(&cases, only, suite, false)?.cases() {
                let file = folder.join(format!("{}.graph", case.file_name()));
                case.make()?.program.save(&file)?;
                writeln!(out, "{}: {}", case.id, file.display())?;
            }
            Ok(Status::Good)
        }
        Task::Serve { device, small, contender, start: started, cache: _ } => {
            let (device, cases) =
                (device.parse()?, [catalogue(*small), catalogue_of_cpu(*small)].concat());
            if let Some(id) = started {
                let case = cases.iter().find(|case| case.id == *id);
                let case =
                    case.ok_or_else(|| Diagnostic::new(format!("there is no case `{id}`")))?;
                start(case, device, out)?;
                return Ok(Status::Good);
            }
            let mut contender: Box<dyn Contender> = match contender {
                Who::Wengert => Box::new(Local::new("wengert", device, DeviceOptions::default())),
                Who::OneThread => {
                    let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
                    Box::new(Local::new(ONE_THREAD, device, options))
                }
                Who::TwoRanks => {
                    ranks::serve(device, &cases, &mut io::stdin().lock(), out)?;
                    return Ok(Status::Good);
                }
                Who::F32 => Box::new(Local::new(IN_F32, device, DeviceOptions::default()).in_f32()),
                Who::Yardstick => Box::new(Local::new(YARDSTICK, device, DeviceOptions::default())),
                Who::RustLoop => Box::new(Native::new(threads()?)),
            };
            serve(contender.as_mut(), &cases, &mut io::stdin().lock(), out)?;
            Ok(Status::Good)
        }
    }
}

/// The catalogues as JSON, one case per line.
pub fn cases_json() -> String {
    let list = |cases: Vec<Case>| {
        let lines = cases
            .iter()
            .map(|case| serde_json::to_string(case).expect("cases are strings and numbers"));
        format!("[\n  {}\n ]", lines.collect::<Vec<_>>().join(",\n  "))
    };
    let lists = [
        ("full", catalogue(false)),
        ("small", catalogue(true)),
        ("cpu", catalogue_of_cpu(false)),
        ("cpu_small", catalogue_of_cpu(true)),
        ("memory", catalogue_of_memory(false)),
        ("memory_small", catalogue_of_memory(true)),
    ];
    let lists = lists.map(|(name, cases)| format!(" \"{name}\": {}", list(cases)));
    format!("{{\n{}\n}}\n", lists.join(",\n"))
}

/// Measures how compile time grows, and prints it.
fn scaling(
    only: &[String],
    equations: &[usize],
    rounds: usize,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Outcome {
    let known = |name: &String| Form::ALL.iter().any(|form| form.name() == name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        return Err(Diagnostic::new(format!("there are no graphs called `{unknown}`")).into());
    }
    let sizes = if equations.is_empty() { &SIZES[..] } else { equations };
    let wanted = |form: &Form| only.is_empty() || only.iter().any(|name| name == form.name());
    let mut all = Vec::new();
    for form in Form::ALL.into_iter().filter(wanted) {
        // If the progress cannot be printed, the table still is.
        drop(writeln!(err, "{}: {sizes:?} equations", form.name()));
        let scaling = Scaling::measure(form, sizes, rounds)?;
        write!(out, "{}", passes_of(&scaling))?;
        all.push(scaling);
    }
    write!(out, "{}", summary(&all))?;
    Ok(if all.iter().all(|scaling| scaling.spread() <= FLAT) {
        Status::Good
    } else {
        Status::Failed
    })
}

/// Measures the selected cases, and prints the results.
fn measure(
    run: Run<'_>,
    choice: &Choice<'_>,
    measured: &Measured,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Outcome {
    // If the progress cannot be printed, the record is still made.
    let record = run.measure(choice, &mut |line| drop(writeln!(err, "{line}")))?;
    finish(&record, measured, out)
}

/// Prints the measurements of a record.
fn finish(record: &Record, measured: &Measured, out: &mut dyn Write) -> Outcome {
    show(std::slice::from_ref(record), &measured.shown, out)?;
    Ok(if record.failed.is_empty() { Status::Good } else { Status::Failed })
}

/// Prints the table, and writes the requested files.
fn show(records: &[Record], shown: &Shown, out: &mut dyn Write) -> Outcome<()> {
    write!(out, "{}", markdown(records))?;
    if let Some(path) = &shown.csv {
        atomic::write_bytes(path, crate::csv::text(records)?.as_bytes())?;
    }
    if let Some(path) = &shown.svg {
        atomic::write_bytes(path, crate::plot::svg(records).as_bytes())?;
    }
    Ok(())
}

/// Threads of plain loops: as many as the library's.
fn threads() -> Result<usize> {
    let Ok(text) = std::env::var("WENGERT_THREADS") else {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    };
    text.parse().map_err(|_| {
        Diagnostic::new(format!("WENGERT_THREADS is `{text}`, not a number of threads"))
    })
}
