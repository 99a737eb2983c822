//! `wengert-bench gpu-model published`: the model against published speeds of kernels that are not
//! ours.
//!
//! Each [`Row`] has a speed that somebody published for a kernel on a GPU, and a text of the same
//! algorithm that was written here from its description: CUDA C++ that nvcc compiles, or Triton,
//! whose PTX is kept. The model predicts its speed as it does for kernels of this library. No
//! figure of the model is fitted to these speeds, so their difference is a finding.
//!
//! What a row cannot have in common with the publication is said in the documentation of its file:
//! versions of compilers, clocks, and sizes that were made smaller where the speed does not depend
//! on them. `docs/gpu-model.md` has the table, and an explanation for each row that is far off.

mod groups;
mod sgemm;
mod streams;
mod sums;
pub(super) mod triton;
mod warps;

use clap::Args;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;
use wengert::command::{Outcome, Status};
use wengert::device::predicted::card;
use wengert::device::predicted::foreign::{Argument, Foreign, Launch, Prediction, Sample};
use wengert::device::predicted::tools::Tools;
use wengert::{Diagnostic, Result};

/// A published speed, and a kernel to be compared with it.
pub struct Row {
    /// The kernel, in words.
    pub kernel: &'static str,
    /// Name of the card.
    pub card: &'static str,
    /// The published speed.
    pub published: f64,
    /// Its unit.
    pub unit: Unit,
    /// Where it was published: title, section, version.
    pub source: &'static str,
    /// The text of the kernel.
    pub code: Code,
    /// The launches that do the work.
    pub runs: Vec<Run>,
    /// Bytes or operations that the publication counts.
    pub amount: f64,
}

/// Unit of a speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// 10⁹ bytes a second.
    Gigabytes,
    /// 10¹² operations a second.
    Teraflops,
}

/// The text of kernels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Code {
    /// CUDA C++ for a target such as `sm_90a`: names and texts of the source and what it includes.
    Cuda(&'static [(&'static str, &'static str)], &'static str),
    /// PTX for a target.
    Ptx(&'static str, &'static str),
}

/// A launch of a kernel.
pub struct Run {
    /// The kernel's name.
    pub entry: &'static str,
    /// The launch by its number of steps.
    pub launch: Box<dyn Fn(u32) -> Launch>,
    /// Steps of two samples and of the whole launch, if it is a long loop of equal steps.
    pub steps: Option<[u32; 3]>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.kernel, self.card)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.entry)
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Gigabytes => "GB/s",
            Unit::Teraflops => "TFLOP/s",
        }
    }

    fn value(self) -> f64 {
        match self {
            Unit::Gigabytes => 1e9,
            Unit::Teraflops => 1e12,
        }
    }
}

impl Code {
    /// Compiles and assembles it.
    ///
    /// Errors: nvcc or ptxas is missing or refuses it.
    pub fn assemble(&self, tools: &Tools) -> Result<Foreign> {
        match self {
            Code::Cuda(files, target) => {
                Foreign::new(&tools.compile(files, target)?, target, tools)
            }
            Code::Ptx(text, target) => Foreign::new(text, target, tools),
        }
    }
}

impl Run {
    /// A launch that is sampled as it is.
    fn whole(entry: &'static str, launch: Launch) -> Run {
        Run { entry, launch: Box::new(move |_| launch.clone()), steps: None }
    }

    /// A launch that is a long loop: the steps of two samples, and those of the whole.
    pub(super) fn stepped(
        entry: &'static str,
        steps: [u32; 3],
        launch: impl Fn(u32) -> Launch + 'static,
    ) -> Run {
        Run { entry, launch: Box::new(launch), steps: Some(steps) }
    }

    /// The work of the whole launch.
    ///
    /// Errors: those of [`Foreign::sample`].
    pub fn sample(&self, module: &Foreign, name: &str) -> Result<Sample> {
        let card = card(name)?;
        let sample = |steps: u32| module.sample(self.entry, &(self.launch)(steps), card);
        let Some([short, long, all]) = self.steps else { return sample(0) };
        let (a, b) = (sample(short)?, sample(long)?);
        Ok(a.extended(short.into(), &b, long.into(), all.into()))
    }
}

/// A grid and block of one dimension without shared memory.
fn line(blocks: u32, threads: u32, arguments: Vec<Argument>) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared: 0, arguments }
}

/// Every row.
pub fn rows() -> Vec<Row> {
    let tables = [
        streams::rows(),
        sums::rows(),
        sgemm::rows(),
        warps::rows(),
        groups::rows(),
        triton::rows(),
    ];
    tables.into_iter().flatten().collect()
}

/// Options of `gpu-model published`.
#[derive(Debug, Args)]
pub struct Asked {
    /// Only kernels and cards whose names contain one of these words
    words: Vec<String>,
    /// The times of all resources as well
    #[arg(long)]
    resources: bool,
}

impl Asked {
    /// Prints the table.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Outcome {
        let is_asked = |row: &Row| {
            let name = format!("{row:?}");
            self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
        };
        let rows: Vec<Row> = rows().into_iter().filter(is_asked).collect();
        if rows.is_empty() {
            return Err(Diagnostic::new("no published kernel has such a name")
                .help("without words, all are listed")
                .into());
        }
        let tools = Tools::find()?;
        let mut modules: BTreeMap<Code, Foreign> = BTreeMap::new();
        writeln!(out, "| kernel | card | published | predicted | ratio | limit | source |")?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for row in &rows {
            if let Entry::Vacant(place) = modules.entry(row.code) {
                place.insert(row.code.assemble(&tools)?);
            }
            self.row(row, &modules[&row.code], out)?;
        }
        Ok(Status::Good)
    }

    fn row(&self, row: &Row, module: &Foreign, out: &mut dyn Write) -> Outcome<()> {
        let card = card(row.card)?;
        let mut notes = Vec::new();
        let (mut seconds, mut longest, mut limit) = (0.0, 0.0, "");
        for run in &row.runs {
            let sample = run.sample(module, row.card)?;
            let found = sample.predict(card);
            seconds += found.seconds;
            if found.seconds > longest {
                (longest, limit) = (found.seconds, found.limiter.name());
            }
            notes.push(note(run.entry, &sample, &found));
        }
        let predicted = row.amount / seconds / row.unit.value();
        writeln!(
            out,
            "| {} | {} | {} {unit} | {} {unit} | {:.2} | {limit} | {} |",
            row.kernel,
            row.card,
            digits(row.published),
            digits(predicted),
            predicted / row.published,
            row.source,
            unit = row.unit.name(),
        )?;
        for note in notes.iter().filter(|_| self.resources) {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }
}

/// A number with three digits that count.
pub(super) fn digits(value: f64) -> String {
    match value {
        v if v >= 99.5 => format!("{v:.0}"),
        v if v >= 9.95 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The times of all resources of a launch, and what they follow from.
fn note(entry: &str, sample: &Sample, found: &Prediction) -> String {
    let work = &sample.work;
    let times = found.resources.iter().filter(|(_, s)| *s > 0.0);
    let times: Vec<String> = times.map(|(r, s)| format!("{} {:.1}", r.name(), s * 1e6)).collect();
    format!(
        "  {entry}: {:.1} us; {}; {} registers, spills {:?}, {} blocks resident, {} sampled, \
         misfit {:.3}; {:.3e} instructions, {:.3e} wavefronts, L1 {:.3e} sectors, L2 {:.3e} B, \
         DRAM {:.3e} B; a warp alone {:.0} clocks, in flight {:.0} KiB of {:.0} needed",
        found.seconds * 1e6,
        times.join(", "),
        sample.registers,
        sample.spills,
        work.occupancy.blocks,
        sample.sampled,
        sample.misfit,
        work.instructions,
        work.wavefronts,
        work.l1_sectors,
        work.l2_bytes,
        work.dram_bytes,
        work.warp_clocks,
        found.in_flight / 1024.0,
        found.in_flight_needed / 1024.0,
    )
}
