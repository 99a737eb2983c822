//! `transport-check`: checks that ranks of this machine, or of a launcher of MPI, exchange the
//! right bytes, how errors look, and how fast they are.
//!
//! ```text
//! transport-check launch RANKS COMMAND    COMMAND in RANKS processes, joined by shared memory
//! transport-check threads RANKS COMMAND   COMMAND in RANKS threads
//! mpirun -n RANKS transport-check COMMAND
//!
//! suite ROUNDS SEED     random operations; every byte is compared
//! measure               latency and bandwidth between ranks 0 and 1
//! fault KIND RANK       a fault of one rank, for tests: what the others report
//! ```
//!
//! Options before the command: `--timeout SECONDS`, `--chunk BYTES` (of one call of MPI),
//! `--check` and `--no-check` (comparison of collectives). Exit status: 0 all is right, 1 an
//! error, 2 wrong arguments.

mod faults;
mod measure;
mod suite;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use wengert_transport::{Communicator, Options, join};

/// What a rank does.
#[derive(Clone, Debug)]
enum Command {
    Suite { rounds: usize, seed: u64 },
    Measure,
    Fault { kind: String, rank: usize },
}

/// Where ranks come from.
#[derive(Clone, Copy, Debug)]
enum Ranks {
    Launch(usize),
    Threads(usize),
    Joined,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((options, ranks, command)) = parse(&arguments) else {
        let usage = "usage: transport-check [--timeout SECONDS] [--chunk BYTES] [--check] \
                     [--no-check] [launch RANKS | threads RANKS] \
                     (suite ROUNDS SEED | measure | fault KIND RANK)";
        report(format_args!("{usage}"));
        return ExitCode::from(2);
    };
    match ranks {
        Ranks::Launch(ranks) => launch(ranks, &arguments),
        Ranks::Threads(ranks) => threads(ranks, &options, &command),
        Ranks::Joined => match join(&options) {
            Ok(world) => status(execute(&world, &command)),
            Err(error) => status(Err(error.to_string())),
        },
    }
}

fn parse(arguments: &[String]) -> Option<(Options, Ranks, Command)> {
    let mut options = Options::default();
    let mut words = arguments.iter().map(String::as_str);
    let mut ranks = Ranks::Joined;
    let command = loop {
        match words.next()? {
            "--timeout" => {
                let seconds = words.next()?.parse().ok()?;
                options.timeout = Duration::try_from_secs_f64(seconds).ok()?;
            }
            "--chunk" => options.mpi_chunk = words.next()?.parse().ok()?,
            "--check" => options.check = true,
            "--no-check" => options.check = false,
            "launch" => ranks = Ranks::Launch(words.next()?.parse().ok()?),
            "threads" => ranks = Ranks::Threads(words.next()?.parse().ok()?),
            "suite" => {
                let rounds = words.next()?.parse().ok()?;
                break Command::Suite { rounds, seed: words.next()?.parse().ok()? };
            }
            "measure" => break Command::Measure,
            "fault" => {
                let kind = words.next()?.to_string();
                break Command::Fault { kind, rank: words.next()?.parse().ok()? };
            }
            _ => return None,
        }
    };
    words.next().is_none().then_some((options, ranks, command))
}

/// Runs the command of one rank.
fn execute(world: &Communicator, command: &Command) -> Result<(), String> {
    match command {
        Command::Suite { rounds, seed } => suite::run(world, *rounds, *seed),
        Command::Measure => measure::run(world),
        Command::Fault { kind, rank } => faults::run(world, kind, *rank),
    }
}

/// Starts this executable for each rank, with the arguments except `launch RANKS`.
#[cfg(target_os = "linux")]
fn launch(ranks: usize, arguments: &[String]) -> ExitCode {
    let at = arguments.iter().position(|word| word == "launch").unwrap_or(0);
    let rest = [&arguments[..at], &arguments[at + 2..]].concat();
    let launcher = wengert_transport::shared::Launcher::spawn_self(ranks, &rest);
    match launcher.and_then(|launcher| launcher.wait()) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            report(format_args!("error: {failure}"));
            ExitCode::from(failure.exit_code())
        }
        Err(error) => status(Err(error.to_string())),
    }
}

#[cfg(not(target_os = "linux"))]
fn launch(_: usize, _: &[String]) -> ExitCode {
    status(Err("processes are joined on Linux only".into()))
}

fn threads(ranks: usize, options: &Options, command: &Command) -> ExitCode {
    let world = match wengert_transport::shared::threads(ranks, options) {
        Ok(world) => world,
        Err(error) => return status(Err(error.to_string())),
    };
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            world.into_iter().map(|rank| scope.spawn(move || execute(&rank, command))).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
            thread.join().unwrap_or_else(|_| Err("the thread of a rank panicked".into()))
        };
        threads.into_iter().map(end).collect()
    });
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    status(if failed.is_empty() { Ok(()) } else { Err(failed.join("\nerror: ")) })
}

fn status(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            report(format_args!("error: {text}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to the standard error, in one piece: ranks share it.
fn report(text: std::fmt::Arguments<'_>) {
    let line = format!("{text}\n");
    // There is nobody to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes a line to the standard output.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), String> {
    let line = format!("{text}\n");
    std::io::stdout().write_all(line.as_bytes()).map_err(|error| error.to_string())
}
