//! Predicted times of a function on a GPU that is not at hand.
//!
//! ```text
//! plan ─► lowered: PTX, launches ─┬─► tools: ptxas, nvdisasm ─► machine code ─┐
//!                                 └─► sample: emulated blocks ─► counts ──────┴─► model ─► seconds
//! ```
//!
//! The walk over the plan gives its launches ([`launches`]). Launches of one kernel on memory of
//! the same sizes are one row, however often they run. The machine code of every kernel comes from
//! NVIDIA's tools ([`tools`]), which need no GPU. The emulator runs a sample of each row's blocks
//! and counts ([`sample`]). `wengert_machine` joins the two and predicts.
//!
//! **Memory of a sample** is of its own, and holds zeros. Nothing is computed that has a meaning,
//! so the time of a kernel whose work depends on data is that on zeros: all lookups of a `gather`
//! read row 0, a sort meets a sorted array. A loop whose trip count is data is an error.
//!
//! **Traffic with device memory.** The caches of a sample are empty when it begins. Sectors that
//! are fetched for the first time grow with the grid up to the bytes of the arguments, since blocks
//! may share them. Sectors that are fetched again grow with the grid.
//!
//! **Kernels of others** ([`foreign`]) are predicted in the same way from their PTX and a launch.
//!
//! **Products of cuBLASLt** have no code here. They are predicted by their operations and bytes
//! ([`products`]).

mod code;
pub mod foreign;
mod launches;
mod products;
mod sample;
pub mod tools;

pub use code::{Facts, KernelCode, MachineCode, machine_code};

use launches::Launches;
use tools::Tools;
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result, Verified, diagnostic};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::assembly::machine;
use wengert_cuda::driver::blas::Rules;
use wengert_cuda::executable::library_by_rule;
use wengert_cuda::lowered::{LoweredPlan, no_library};
pub use wengert_machine::card::Card;
use wengert_machine::occupancy::Occupancy;
use wengert_machine::predict::Resource;

/// How a plan is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Blocks of each launch that the emulator runs, at least; whole waves of resident blocks run.
    pub blocks: u64,
    /// Products are left to cuBLASLt where its rules permit.
    pub library: bool,
    /// Whole waves of resident blocks run. Otherwise just so many blocks do: the counts of a block
    /// are the same, but the traffic with L2 and device memory is that of a few blocks alone, and
    /// so are the times that depend on it.
    pub waves: bool,
}

impl Default for Options {
    /// A wave of each launch; cuBLASLt where its rules permit.
    fn default() -> Self {
        Options { blocks: 1, library: true, waves: true }
    }
}

/// A predicted plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// The card.
    pub card: &'static Card,
    /// The launches, the longest first.
    pub rows: Vec<Row>,
    /// Copies between buffers, and their bytes.
    pub copies: (u64, u64),
    /// Kernels, with the reason why they are not predicted.
    pub unknown: Vec<String>,
}

/// Launches of one kernel on memory of the same sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The kernel's name in the module, or the product's extents.
    pub kernel: String,
    /// The nest or call that it belongs to.
    pub origin: String,
    /// Number of launches in a run.
    pub times: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Bytes of registers that are stored to and loaded from local memory.
    pub spills: (u32, u32),
    /// Resident blocks of a multiprocessor; `None` for a product of the library.
    pub occupancy: Option<Occupancy>,
    /// Bytes of the memory that its arguments take.
    pub memory: u64,
    /// Bytes between L2 and device memory in a launch: read, written.
    pub device_memory: (u64, u64),
    /// Sectors of 32 bytes for each request of global memory.
    pub sectors: f64,
    /// Warp instructions of a launch.
    pub instructions: f64,
    /// Seconds of a launch.
    pub seconds: f64,
    /// The resource that takes the longest.
    pub limiter: Resource,
    /// The part of the counts that the machine code does not explain; 0 if all fit.
    pub misfit: f64,
}

impl Predicted {
    /// Seconds of all launches and copies.
    pub fn seconds(&self) -> f64 {
        let (times, bytes) = self.copies;
        // A copy reads and writes.
        let copies = 2.0 * bytes as f64 / self.card.dram_achievable()
            + times as f64 * self.card.graph_gap.value;
        self.rows.iter().map(|row| row.times as f64 * row.seconds).sum::<f64>() + copies
    }
}

/// Names of the columns of [`Row::cells`].
pub const HEADER: [&str; 12] = [
    "kernel", "limit", "times", "us", "share %", "blocks", "regs", "spill", "occ %", "read MB",
    "write MB", "sectors",
];

impl Row {
    /// The row as cells of a table, for a run of `total` seconds: kernel, limiter, launches,
    /// microseconds of a launch, share of the run, blocks, registers of a thread, bytes of spills,
    /// occupancy, megabytes read and written, sectors of a request.
    pub fn cells(&self, total: f64) -> [String; 12] {
        let (read, written) = self.device_memory;
        let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
        let share = 100.0 * self.times as f64 * self.seconds / total.max(f64::MIN_POSITIVE);
        [
            self.kernel.clone(),
            self.limiter.name().to_owned(),
            self.times.to_string(),
            format!("{:.2}", self.seconds * 1e6),
            format!("{share:.1}"),
            self.blocks.to_string(),
            self.registers.to_string(),
            (self.spills.0 + self.spills.1).to_string(),
            self.occupancy.map_or(String::new(), |found| found.percent().to_string()),
            megabytes(read),
            megabytes(written),
            format!("{:.1}", self.sectors),
        ]
    }
}

/// Predicts a plan. Its target must be the architecture of the card.
///
/// Errors: the plan is for another architecture; a tool of NVIDIA is missing or fails; a loop's
/// trip count depends on data; the emulator reports a fault.
pub fn predict(
    plan: &Verified<Plan>,
    card: &'static Card,
    options: Options,
    tools: &Tools,
) -> Result<Predicted> {
    let architecture = architecture(card)?;
    if plan.target.name != architecture.name() {
        return Err(diagnostic!(
            "the plan of @{} is for {}, and {} is {}",
            plan.function,
            plan.target.name,
            card.product,
            architecture.name()
        )
        .help(format!("compile it for {}", architecture.name())));
    }
    let lowered = match options.library {
        true => LoweredPlan::new(plan, architecture, &mut library_by_rule(Rules::STRICT))?,
        false => LoweredPlan::new(plan, architecture, &mut no_library)?,
    };
    let Launches { launches, products, copies } = launches::of(&lowered)?;
    let mut rows = Vec::new();
    let mut unknown = Vec::new();
    if !launches.is_empty() {
        let code = tools.code(&lowered.ptx, &machine(&lowered.ptx, architecture))?;
        let sampler = sample::Sampler::new(&lowered, &code, card, options)?;
        for (recorded, times) in &launches {
            match sampler.row(recorded, *times)? {
                Ok(row) => rows.push(row),
                Err(why) => unknown.push(why),
            }
        }
    }
    for (question, times) in products {
        rows.push(products::row(&lowered.library[question], times, card));
    }
    let total = |row: &Row| row.times as f64 * row.seconds;
    rows.sort_by(|a, b| total(b).total_cmp(&total(a)).then_with(|| a.kernel.cmp(&b.kernel)));
    Ok(Predicted { card, rows, copies, unknown })
}

/// The architecture of a card, among those that kernels are compiled for.
///
/// Errors: kernels are not compiled for it.
pub fn architecture(card: &Card) -> Result<Architecture> {
    let name = format!("sm_{}", card.architecture.number);
    Architecture::from_name(&name)
        .map_err(|_| diagnostic!("kernels are not compiled for {name}, which {} is", card.product))
}

/// The card with this name.
///
/// Errors: it is not in the table; the help lists the names.
pub fn card(name: &str) -> Result<&'static Card> {
    Card::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Card::all().iter().map(|card| card.name).collect();
        Diagnostic::new(format!("no figures of a GPU `{name}` are known"))
            .help(format!("there are {}", names.join(", ")))
    })
}
