//! The `graphrun` command, as a library that `main` and the filetests call.
//!
//! It is thin: it turns arguments into calls of [`wengert`], and prints the results. Every
//! command is one file in [`command`]. It takes its arguments ([`cli`]) and a [`Console`], and
//! returns an [`Outcome`], whose [`Status`] is the process's exit status. Results go to the
//! console's output; diagnostics and progress bars to its error stream.
#![forbid(unsafe_code)]

pub mod cli;
pub mod command;
pub mod console;
pub mod filetest;
mod interrupt;
mod outputs;
mod source;
mod values;

pub use console::{Console, Failure, Outcome, Status};

use cli::{Cli, Command};
use wengert::Location;

/// Runs a command, reports its failure, if any, and returns the exit status.
pub fn run(cli: &Cli, console: &mut Console<'_>) -> Status {
    // Equations get no Rust locations: they would be lines of this command.
    let _command = Location::Unknown.attributed();
    let outcome = match &cli.command {
        Command::Run(args) => command::run::run(args, console),
        Command::Train(args) => command::train::run(args, console),
        Command::Compile(args) => command::compile::run(args, console),
        Command::Dump(args) => command::dump::run(args, console),
        Command::Grad(args) => command::derive::grad(args, console),
        Command::Jvp(args) => command::derive::jvp(args, console),
        Command::Vmap(args) => command::vmap::vmap(args, console),
        Command::Jacobian(args) => command::derive::jacobian(args, console),
        Command::Hessian(args) => command::derive::hessian(args, console),
        Command::Hvp(args) => command::derive::hvp(args, console),
        Command::Jet(args) => command::derive::jet(args, console),
        Command::Linearize(args) => command::derive::linearize(args, console),
        Command::Transpose(args) => command::derive::transpose(args, console),
        Command::Check(args) => command::check::run(args, console),
        Command::Test(args) => command::test::run(args, console),
        Command::Ops(args) => command::ops::run(args, console),
        Command::Devices(args) => command::devices::run(args, console),
        Command::Memory(args) => command::memory::run(args, console),
    };
    outcome.unwrap_or_else(|failure| console.report(&failure))
}
