//! `gate FOLDER [OUT]`: assembles every `*.ptx` of a folder for every architecture, prints the
//! table, and writes `gate.md` and `gate.json` to OUT (else to FOLDER). Exit status: 0 all
//! passed, 1 a failure, 2 wrong usage or no ptxas.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use wengert_ci::gate::{Allowed, Report, Source, assemble};
use wengert_core::{Diagnostic, Result};

fn main() -> ExitCode {
    match run() {
        Ok(report) if report.passed() => ExitCode::SUCCESS,
        Ok(report) => {
            for failure in &report.failures {
                eprintln!("{failure}");
            }
            ExitCode::from(1)
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<Report> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (folder, out) = match &arguments[..] {
        [folder] => (folder, folder),
        [folder, out] => (folder, out),
        _ => return Err(Diagnostic::new("usage: gate FOLDER [OUT]")),
    };
    let report = assemble(&Source::read_folder(folder)?, &Allowed::of_the_repository()?)?;
    report.write(out)?;
    write!(std::io::stdout(), "{}", report.markdown())
        .map_err(|e| Diagnostic::new(format!("cannot print: {e}")))?;
    Ok(report)
}
