//! A closure as a Wengert list: traced, printed, differentiated, compiled and called. Also a
//! computation that records its list as it runs. `src/wengert_list.rs` has the code.
//!
//!     cargo run -p python-free-examples --example wengert_list

#![allow(clippy::print_stdout)] // The example prints its results.

use python_free_examples::command::run;
use python_free_examples::wengert_list::report;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(example)
}

fn example() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", report()?);
    Ok(())
}
