//! The `graphrun` command, as a library that `main` and the filetests call.
//!
//! It is thin: it turns arguments into calls of [`wengert`], and prints the results. Every
//! command is one file in [`command`]. It takes its arguments ([`cli`]) and a [`Console`], and
//! returns an [`Outcome`], whose [`Status`] is the process's exit status. Results go to the
//! console's output; diagnostics and the view of a run ([`live`]) to its error stream.
#![forbid(unsafe_code)]

pub mod cli;
pub mod command;
pub mod console;
mod drawn;
pub mod filetest;
mod interrupt;
pub mod live;
mod model;
mod module_tree;
mod outputs;
mod policy;
mod report;
mod source;
mod table;
mod tensor_text;
pub mod trace;
mod values;

pub use console::{Console, Failure, Outcome, Status};

use cli::Cli;
use wengert::Location;

/// Runs a command, reports its failure, if any, and returns the exit status.
pub fn run(cli: &Cli, console: &mut Console<'_>) -> Status {
    // Equations get no Rust locations: they would be lines of this command.
    let _command = Location::Unknown.attributed();
    command::dispatch(&cli.command, console).unwrap_or_else(|failure| console.report(&failure))
}
