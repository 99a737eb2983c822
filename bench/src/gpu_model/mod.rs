//! `wengert-bench gpu-model`: the GPU suite on a GPU that is not at hand, by the model of
//! [`wengert::device::predicted`], and beside it what a profiler measured there.
//! `wengert-bench gpu-model attention` has attention beside Triton's ([`attention`]), and
//! `wengert-bench gpu-model published` compares the model with published speeds of other kernels
//! ([`published`]).

pub mod attention;
mod measured;
mod on_device;
pub mod published;
mod suite;

pub use suite::{Entry, suite};

use clap::{Args, Subcommand};
use measured::Measured;
use std::io::Write;
use std::path::PathBuf;
use wengert::command::{Outcome, Status};
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{Card, HEADER, Options, Predicted, architecture, card, predict};
use wengert::{Device, Diagnostic, bind, diagnostic, pipeline, target};

/// Options of `gpu-model`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Asked {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only these programs: G1 to G7, or one of several, such as G6.2
    labels: Vec<String>,
    /// The GPU: a100, a100-40gb, a6000, b200, h100, h200, l4, rtx4090, rtx5090
    #[arg(long, value_name = "GPU", default_value = "h200")]
    machine: String,
    /// Blocks of each launch that the emulator runs, at least
    #[arg(long, value_name = "N", default_value_t = 1)]
    blocks: u64,
    /// Only kernels of this library, none of cuBLASLt
    #[arg(long)]
    no_library: bool,
    /// Number of kernels listed for each program
    #[arg(long, value_name = "N", default_value_t = 20)]
    kernels: usize,
    /// Predict nothing: run each program twice on this device, for `ncu` to measure
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["measured", "no_library"])]
    run_on: Option<Device>,
    /// Compare the program with a record that `ncu --csv` made of it with `--run-on`
    #[arg(long, value_name = "CSV")]
    measured: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compares the model with published speeds of kernels that are not ours
    Published(published::Asked),
    /// Compares attention with Triton's on Hopper, both by the model
    Attention(attention::Asked),
}

impl Asked {
    /// Prints a table for each program.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        match &self.task {
            Some(Task::Published(asked)) => return asked.run(out),
            Some(Task::Attention(asked)) => return asked.run(out),
            None => {}
        }
        let all = suite();
        let asked = self.entries(&all)?;
        if let Some(device) = self.run_on {
            for entry in asked {
                on_device::run(&entry.program()?, device)?;
                writeln!(out, "{} {}: 2 runs on {device}", entry.id, entry.name)?;
            }
            return Ok(Status::Good);
        }
        // Read before the predictions, which take minutes.
        let measured = self.measured.as_deref().map(Measured::read).transpose()?;
        if measured.is_some() && asked.len() != 1 {
            return Err(diagnostic!(
                "a record is of one program, and {} are asked for",
                asked.len()
            )
            .help(format!("name one: {}", ids(&asked)))
            .into());
        }
        let card = card(&self.machine)?;
        let tools = Tools::find()?;
        for entry in asked {
            let found = self.predict(entry, card, &tools)?;
            writeln!(out, "## {} {}\n", entry.id, entry.name)?;
            self.print(&found, out)?;
            if let Some(measured) = &measured {
                let (rows, lines) = measured.table(&found)?;
                writeln!(out)?;
                table(out, &rows)?;
                for line in lines {
                    writeln!(out, "\n{line}")?;
                }
            }
            writeln!(out)?;
        }
        Ok(Status::Good)
    }

    /// The programs that are asked for.
    ///
    /// Error: there is no such program.
    fn entries<'a>(&self, all: &'a [Entry]) -> Result<Vec<&'a Entry>, Diagnostic> {
        let is_called = |entry: &Entry, label: &str| entry.label == label || entry.id == label;
        for label in &self.labels {
            if !all.iter().any(|entry| is_called(entry, label)) {
                let all: Vec<&Entry> = all.iter().collect();
                return Err(diagnostic!("no program of the suite is called `{label}`")
                    .help(format!("there are {}", ids(&all))));
            }
        }
        let is_asked = |entry: &&Entry| {
            self.labels.is_empty() || self.labels.iter().any(|label| is_called(entry, label))
        };
        Ok(all.iter().filter(is_asked).collect())
    }

    fn predict(
        &self,
        entry: &Entry,
        card: &'static Card,
        tools: &Tools,
    ) -> wengert::Result<Predicted> {
        let (program, compiled) = (entry.program()?, pipeline::Options::default());
        let target = target(&architecture(card)?.name())?;
        let plan = pipeline::compile(&program, "step", &bind!(), &target, &compiled)?;
        let options = Options { blocks: self.blocks, library: !self.no_library, waves: true };
        predict(&plan, card, options, tools)
    }

    fn print(&self, found: &Predicted, out: &mut dyn Write) -> std::io::Result<()> {
        let total = found.seconds();
        let launches: u64 = found.rows.iter().map(|row| row.times).sum();
        let bytes = found.rows.iter().filter(|row| row.occupancy.is_some()).map(|row| {
            let (read, written) = row.device_memory;
            row.times as f64 * (read + written) as f64
        });
        writeln!(
            out,
            "{:.3} ms on {}, {launches} launches; own kernels move {:.2} GB\n",
            1e3 * total,
            found.card.product,
            bytes.sum::<f64>() / 1e9
        )?;
        let listed = found.rows.iter().take(self.kernels).map(|row| row.cells(total));
        let rows: Vec<_> = std::iter::once(HEADER.map(str::to_owned)).chain(listed).collect();
        table(out, &rows)?;
        if let Some(rest) = found.rows.len().checked_sub(self.kernels).filter(|n| *n > 0) {
            writeln!(out, "\n{rest} more kinds of launches")?;
        }
        for why in &found.unknown {
            writeln!(out, "\nnot predicted: {why}")?;
        }
        Ok(())
    }
}

/// A table of Markdown; the first row is its header.
fn table<const N: usize>(out: &mut dyn Write, rows: &[[String; N]]) -> std::io::Result<()> {
    for (n, row) in rows.iter().enumerate() {
        writeln!(out, "| {} |", row.join(" | "))?;
        if n == 0 {
            writeln!(out, "|{}", "---|".repeat(N))?;
        }
    }
    Ok(())
}

fn ids(entries: &[&Entry]) -> String {
    entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(", ")
}
