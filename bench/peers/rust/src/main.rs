//! Rust libraries as contenders of `wengert-bench`. `wengert-peers --serve NAME` answers its
//! requests; with `--start CASE --cache FOLDER` it starts a case instead, like
//! `bench/peers/measure.py`.

// If some of the features are off, some shared code is unused.
#![cfg_attr(
    not(all(feature = "burn", feature = "candle", feature = "luminal", feature = "tract")),
    allow(dead_code)
)]

#[cfg(feature = "burn")]
mod burn;
#[cfg(feature = "candle")]
mod candle;
mod case;
mod drawing;
#[cfg(feature = "luminal")]
mod luminal;
mod network;
mod parity;
mod plain;
mod protocol;
#[cfg(feature = "tract")]
mod tract;

#[cfg(not(any(feature = "burn", feature = "candle", feature = "luminal", feature = "tract")))]
compile_error!(
    "without a library there is nothing to measure: burn, candle, luminal and tract are features"
);

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use protocol::Contender;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread::available_parallelism;

/// The contenders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Name {
    #[cfg(feature = "burn")]
    Burn,
    #[cfg(feature = "candle")]
    Candle,
    #[cfg(feature = "luminal")]
    Luminal,
    #[cfg(feature = "tract")]
    Tract,
}

/// Answers requests for measurements of a library on standard input, for `wengert-bench`
#[derive(Debug, Parser)]
#[command(name = "wengert-peers", version)]
struct Arguments {
    /// Contender that answers
    #[arg(long, value_enum, required_unless_present = "list")]
    serve: Option<Name>,
    /// Lists the contenders, their versions, and the cases of `wengert-bench cpu` that each leaves
    /// out, with the reasons
    #[arg(long)]
    list: bool,
    /// The device; all contenders run on the CPU
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Cases of small extents; without effect, because their distinct names are always known
    #[arg(long)]
    small: bool,
    /// Answers no requests: starts this case and reports the cost of the start
    #[arg(long, value_name = "CASE", requires = "cache")]
    start: Option<String>,
    /// Compilation cache of a start; unused, because no contender here compiles
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

/// Environment variables that thread pools read before they count the cores. Some pools count cores
/// that this process must not use.
const THREADS: [&str; 2] = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if THREADS.iter().any(|name| std::env::var_os(name).is_none()) {
        return again();
    }
    let (cases, mut out) = (case::catalogue(), io::stdout());
    let Some(name) = arguments.serve else { return list(&mut out) };
    if arguments.device != "cpu" {
        return protocol::absent("measured on CPUs only", &mut out);
    }
    let contender = contender(name);
    let Some(id) = arguments.start else {
        return protocol::serve(contender.as_ref(), &cases, &mut io::stdin().lock(), &mut out);
    };
    let case = cases.iter().find(|case| case.id == id);
    protocol::start(
        contender.as_ref(),
        case.with_context(|| format!("there is no case `{id}`"))?,
        &mut out,
    )
}

fn contender(name: Name) -> Box<dyn Contender> {
    match name {
        #[cfg(feature = "burn")]
        Name::Burn => Box::new(burn::Burn),
        #[cfg(feature = "candle")]
        Name::Candle => Box::new(candle::Candle),
        #[cfg(feature = "luminal")]
        Name::Luminal => Box::new(luminal::Luminal),
        #[cfg(feature = "tract")]
        Name::Tract => Box::new(tract::Tract::with_all_cores()),
    }
}

/// Lists the contenders.
fn list(out: &mut dyn Write) -> Result<()> {
    let of_table = case::lists().remove("cpu").context("the catalogue has the table's cases")?;
    for contender in Name::value_variants().iter().map(|name| contender(*name)) {
        let libraries =
            contender.libraries().into_iter().map(|(name, version)| format!("{name} {version}"));
        let libraries = libraries.collect::<Vec<_>>().join(", ");
        let mut without: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in &of_table {
            if let Some(why) = contender.without(case) {
                without.entry(why).or_default().push(&case.id);
            }
        }
        match without.is_empty() {
            true => writeln!(out, "{} ({libraries}): all cases of f32", contender.name())?,
            false => writeln!(out, "{} ({libraries}), cases of f32 without", contender.name())?,
        }
        for (why, cases) in without {
            writeln!(out, "    {}: {why}", cases.join(", "))?;
        }
    }
    Ok(())
}

/// Executes this program again in the same process, with the number of threads in the environment.
fn again() -> Result<()> {
    let threads = available_parallelism().map_or(1, usize::from).to_string();
    let program = std::env::current_exe().context("the program that runs cannot be found again")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    for name in THREADS.iter().filter(|name| std::env::var_os(name).is_none()) {
        command.env(name, &threads);
    }
    Err(command.exec()).context("this program cannot be started again")
}

/// The version of a library in `Cargo.lock`.
///
/// # Panics
///
/// If `Cargo.lock` does not contain the library.
fn version_of(library: &str) -> String {
    let lines = include_str!("../Cargo.lock").lines();
    let mut behind = lines.skip_while(|line| *line != format!("name = \"{library}\"")).skip(1);
    let version = behind.next().and_then(|line| line.strip_prefix("version = \""));
    let version = version.and_then(|line| line.strip_suffix('"'));
    version.expect("libraries that are used are locked, a version behind each name").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepares and runs every case of small extents. Preparing compares its result.
    #[test]
    fn small_cases_are_right() {
        let cases = case::lists().remove("cpu_small").expect("the catalogue has small cases");
        for contender in Name::value_variants().iter().map(|name| contender(*name)) {
            let mut count = 0;
            for case in cases.iter().filter(|case| contender.takes_part(case)) {
                let prepared = contender.prepare(case).and_then(|mut prepared| (prepared.run)());
                prepared
                    .unwrap_or_else(|error| panic!("{}, {}: {error:#}", contender.name(), case.id));
                count += 1;
            }
            assert!(count > 8, "{} takes part in {count} cases", contender.name());
        }
    }

    #[test]
    fn versions_are_those_of_the_lock() {
        assert!(version_of("clap").starts_with("4."));
    }
}
