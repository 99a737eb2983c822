//! The `wengert-bench` command; see the library of the same crate.
#![forbid(unsafe_code)]

use clap::Parser;
use std::io::{self, Write};
use std::process::ExitCode;
use wengert_bench::cli::{Cli, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let status = run(&cli, &mut out, &mut err).unwrap_or_else(|failure| {
        if let Some(diagnostic) = &failure.diagnostic {
            // If the error stream is closed, the error cannot be shown.
            let _ = writeln!(err, "error: {diagnostic}");
        }
        failure.status
    });
    ExitCode::from(status as u8)
}
