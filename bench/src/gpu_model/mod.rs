//! `wengert-bench gpu-model`: the GPU suite on a GPU that is not at hand, by the model of
//! [`wengert::device::predicted`]; `wengert-bench gpu-model published` compares the model with
//! published speeds of other kernels ([`published`]).

pub mod published;
mod suite;

pub use suite::{Entry, suite};

use clap::{Args, Subcommand};
use std::io::Write;
use wengert::command::{Outcome, Status};
use wengert::device::predicted::tools::Tools;
use wengert::device::predicted::{HEADER, Options, architecture, card, predict};
use wengert::{Diagnostic, bind, pipeline, target};

/// Options of `gpu-model`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Asked {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only these programs: G1 to G7
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
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compares the model with published speeds of kernels that are not ours
    Published(published::Asked),
}

impl Asked {
    /// Prints a table for each program.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        if let Some(Task::Published(asked)) = &self.task {
            return asked.run(out);
        }
        let all = suite();
        if let Some(unknown) = self.labels.iter().find(|l| !all.iter().any(|e| e.label == **l)) {
            return Err(Diagnostic::new(format!("no program of the suite is called `{unknown}`"))
                .help("there are G1 to G7")
                .into());
        }
        let card = card(&self.machine)?;
        let tools = Tools::find()?;
        let target = target(&architecture(card)?.name())?;
        let options = Options { blocks: self.blocks, library: !self.no_library, waves: true };
        let is_asked = |entry: &&Entry| {
            self.labels.is_empty() || self.labels.iter().any(|label| label == entry.label)
        };
        for entry in all.iter().filter(is_asked) {
            let program = entry.program()?;
            let compiled = pipeline::Options::default();
            let plan = pipeline::compile(&program, "step", &bind!(), &target, &compiled)?;
            let found = predict(&plan, card, options, &tools)?;
            let total = found.seconds();
            let launches: u64 = found.rows.iter().map(|row| row.times).sum();
            let bytes = found.rows.iter().filter(|row| row.occupancy.is_some()).map(|row| {
                let (read, written) = row.device_memory;
                row.times as f64 * (read + written) as f64
            });
            writeln!(out, "## {} {}\n", entry.label, entry.name)?;
            writeln!(
                out,
                "{:.3} ms on {}, {launches} launches; own kernels move {:.2} GB\n",
                1e3 * total,
                card.product,
                bytes.sum::<f64>() / 1e9
            )?;
            writeln!(out, "| {} |", HEADER.join(" | "))?;
            writeln!(out, "|{}", "---|".repeat(HEADER.len()))?;
            for row in found.rows.iter().take(self.kernels) {
                writeln!(out, "| {} |", row.cells(total).join(" | "))?;
            }
            if let Some(rest) = found.rows.len().checked_sub(self.kernels).filter(|n| *n > 0) {
                writeln!(out, "\n{rest} more kinds of launches")?;
            }
            for why in &found.unknown {
                writeln!(out, "\nnot predicted: {why}")?;
            }
            writeln!(out)?;
        }
        Ok(Status::Good)
    }
}
