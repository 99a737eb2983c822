//! `toolkit`: installs the CUDA packages for the tests, if they are missing, and prints their
//! folder.
//!
//! Exit status: 0 if they are installed, 2 if not.

use std::io::Write;
use std::process::ExitCode;

use wengert_ci::toolkit::Toolkit;

fn main() -> ExitCode {
    match Toolkit::find() {
        Ok(toolkit) => {
            // A closed output loses only the printed line: the packages are installed.
            let _ = writeln!(std::io::stdout(), "{}", toolkit.root().display());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
