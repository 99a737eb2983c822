//! The `graphrun` command; see the library of the same name.
#![forbid(unsafe_code)]

use clap::Parser;
use graphrun::cli::Cli;
use graphrun::{Console, run};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = ["warn", "info", "debug", "trace"][usize::from(cli.verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time().init();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let bars = err.is_terminal();
    let mut console = Console { bars, ..Console::new(&mut out, &mut err) };
    ExitCode::from(run(&cli, &mut console) as u8)
}
