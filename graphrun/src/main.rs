//! The `graphrun` command; see the library of the same name.
#![forbid(unsafe_code)]

use clap::FromArgMatches;
use graphrun::cli::{Cli, examples};
use graphrun::live::{Live, Phases};
use graphrun::trace::Recorder;
use graphrun::{Console, Status, run};
use std::io;
use std::process::ExitCode;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt, registry};

fn main() -> ExitCode {
    let matches = examples::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let live = Live::new(cli.plain);
    let mut console = Console { live: live.clone(), ..Console::new(&mut out, &mut err) };
    let recorder = match cli.trace.as_deref().map(Recorder::new).transpose() {
        Ok(recorder) => recorder,
        Err(error) => return ExitCode::from(console.report(&error.into()) as u8),
    };
    let level = ["warn", "info", "debug", "trace"][usize::from(cli.verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let stderr = live.clone();
    let log = fmt::layer().with_writer(move || stderr.stderr()).without_time().with_filter(filter);
    let shown = live.is_shown().then(|| Phases::new(&live).filtered());
    let sampled = live.is_shown().then(|| live.sampler().filtered());
    let recorded = recorder.clone().map(Recorder::filtered);
    registry().with(log).with(recorded).with(shown).with(sampled).init();
    let mut status = {
        let name = matches.subcommand_name();
        let _command = tracing::debug_span!("command", name).entered();
        run(&cli, &mut console)
    };
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
