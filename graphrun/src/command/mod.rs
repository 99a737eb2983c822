//! The commands, one file each.

pub mod bench;
pub mod check;
pub mod compile;
pub mod completions;
pub mod data;
pub mod derive;
pub mod devices;
pub mod diff;
pub mod dump;
pub mod evaluate;
pub mod export;
mod find_rate;
mod frontier;
pub mod import;
pub mod inspect;
mod kernel_times;
pub mod manual;
pub mod memory;
pub mod merge;
mod monitoring;
pub mod nan;
pub mod ops;
pub mod precision;
pub mod profile;
mod ranks;
pub mod reduce;
pub mod report;
pub mod run;
pub mod scale;
pub mod test;
pub mod train;
pub mod vmap;

use crate::cli::Command;
use crate::console::{Console, Outcome};

/// Runs a command.
pub(crate) fn dispatch(command: &Command, console: &mut Console<'_>) -> Outcome {
    match command {
        Command::Run(args) => run::run(args, console),
        Command::Train(args) => train::run(args, console),
        Command::Evaluate(args) => evaluate::run(args, console),
        Command::Data(args) => data::run(args, console),
        Command::Compile(args) => compile::run(args, console),
        Command::Import(args) => import::run(args, console),
        Command::Merge(args) => merge::run(args, console),
        Command::Export(args) => export::run(args, console),
        Command::Inspect(args) => inspect::run(args, console),
        Command::Dump(args) => dump::run(args, console),
        Command::Grad(args) => derive::grad(args, console),
        Command::Jvp(args) => derive::jvp(args, console),
        Command::Vmap(args) => vmap::vmap(args, console),
        Command::Jacobian(args) => derive::jacobian(args, console),
        Command::Hessian(args) => derive::hessian(args, console),
        Command::Hvp(args) => derive::hvp(args, console),
        Command::Jet(args) => derive::jet(args, console),
        Command::Linearize(args) => derive::linearize(args, console),
        Command::Transpose(args) => derive::transpose(args, console),
        Command::Check(args) => check::run(args, console),
        Command::Nan(args) => nan::run(args, console),
        Command::Reduce(args) => reduce::run(args, console),
        Command::Diff(args) => diff::run(args, console),
        Command::Precision(args) => precision::run(args, console),
        Command::Test(args) => test::run(args, console),
        Command::Report(args) => report::run(args, console),
        Command::Ops(args) => ops::run(args, console),
        Command::Devices(args) => devices::run(args, console),
        Command::Memory(args) => memory::run(args, console),
        Command::Bench(args) => bench::run(args, console),
        Command::Profile(args) => profile::run(args, console),
        Command::Scale(args) => scale::run(args, console),
        Command::Completions(args) => completions::run(args, console),
        Command::Manual(args) => manual::run(args, console),
    }
}
