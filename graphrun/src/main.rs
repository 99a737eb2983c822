//! The `graphrun` command; see the library of the same name.
#![forbid(unsafe_code)]

use clap::Parser;
use graphrun::cli::Cli;
use graphrun::trace::Recorder;
use graphrun::{Console, Status, run};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt, registry};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let bars = err.is_terminal();
    let mut console = Console { bars, ..Console::new(&mut out, &mut err) };
    let recorder = match cli.trace.as_deref().map(Recorder::new).transpose() {
        Ok(recorder) => recorder,
        Err(error) => return ExitCode::from(console.report(&error.into()) as u8),
    };
    let level = ["warn", "info", "debug", "trace"][usize::from(cli.verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = fmt::layer().with_writer(io::stderr).without_time().with_filter(filter);
    registry().with(log).with(recorder.clone().map(Recorder::filtered)).init();
    let mut status = run(&cli, &mut console);
    match recorder.map(|recorder| recorder.write()) {
        Some(Ok(written)) => console.note(written),
        // The command's own failure comes first.
        Some(Err(error)) => {
            let failed = console.report(&error.into());
            status = if status == Status::Good { failed } else { status };
        }
        None => {}
    }
    ExitCode::from(status as u8)
}
