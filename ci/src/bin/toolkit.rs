//! `toolkit`: installs the CUDA packages that the tests need, unless they are there, and prints their folder.
//!
//! Exit status: 0 they are there, 2 they are not.

use std::io::Write;
use std::process::ExitCode;

use wengert_ci::toolkit::Toolkit;

fn main() -> ExitCode {
    match Toolkit::find() {
        Ok(toolkit) => {
            // A closed output loses the line only: the packages are there.
            let _ = writeln!(std::io::stdout(), "{}", toolkit.root().display());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
