//! Arguments of the commands that print, check and test.

use super::{CaseArgs, FunctionArgs, ModelArgs, ValueArgs, bytes, positive};
use crate::policy::{FunctionsArgs, PrecisionArgs};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A .graph, .ir, .onnx, .plan or .safetensors file. Of a program, the function; the default is
    /// all functions.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// What a model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Bind a dimension variable, on which sizes depend. The default is 1.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Stages of compilation.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The program as written, verified.
    Graph,
    /// The program after the graph passes, which fix the bits of its results.
    Opt,
    /// The kernels: nests and calls, with the tensors that they read and write.
    Nests,
    /// The plan: the steps in order, and the bytes that each uses.
    Plan,
    /// The kernels of a plan for a GPU, as PTX.
    Ptx,
    /// The machine code of these kernels (SASS), by ptxas and nvdisasm of the CUDA toolkit.
    Kernels,
}

/// Arguments of `dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The function. The default is all functions.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The elementary functions.
    #[command(flatten)]
    pub functions: FunctionsArgs,
    /// Stage of compilation to print.
    #[arg(long, value_enum, default_value = "graph")]
    pub stage: Stage,
    /// Target: cpu, or a GPU architecture such as sm_80. The default is cpu, or sm_90 with --stage
    /// ptx or kernels.
    #[arg(long)]
    pub target: Option<String>,
    /// With --stage opt: print the program after the last run of this pass.
    #[arg(long, value_name = "PASS")]
    pub after: Option<String>,
    /// Limit a pass to N changes, to find a faulty change by bisection.
    #[arg(long = "fuel", value_name = "PASS=N", value_delimiter = ',')]
    pub fuels: Vec<String>,
    /// With --stage graph or opt: print the location of every equation, and the table of locations.
    #[arg(long)]
    pub locs: bool,
    /// With --stage nests: print the cost of each kernel. With --stage kernels: print registers,
    /// occupancy, spills, widths of accesses and instructions of each.
    #[arg(long)]
    pub cost: bool,
    /// With --stage plan: print the plan's memory use and its peak.
    #[arg(long)]
    pub memory: bool,
    /// With --stage plan and a GPU's target: print how each product is computed, by cuBLASLt or by
    /// own kernels, and the bytes that kernels beside the products move.
    #[arg(long)]
    pub products: bool,
    /// With --stage plan, ptx or kernels: limit on the total memory of the plan.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Also print the recipe of a .graph file.
    #[arg(long)]
    pub recipe: bool,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The function, its inputs and the precision.
    #[command(flatten)]
    pub case: CaseArgs,
    /// Narrow a failed check down: to a change of a pass, to the first equation whose value differs
    /// on the device, or to the equation whose derivative is wrong. With --precision, also to the
    /// first equation whose value the policy changes beyond the tolerance.
    #[arg(long)]
    pub bisect: bool,
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `precision`.
#[derive(Args, Debug)]
pub struct CertificateArgs {
    /// The function, its inputs and the precision.
    #[command(flatten)]
    pub case: CaseArgs,
    /// Device whose results are compared: cpu, cuda[:N], emulator, interpreter.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// The elementary functions.
    #[command(flatten)]
    pub functions: FunctionsArgs,
    /// With --precision: find the cheapest set of equations to keep in f32 for an observed error of
    /// at most E, relative to the greatest magnitude of each output. The certificate is that of the
    /// function with these equations in f32.
    #[arg(long, value_name = "E", requires = "precision", value_parser = positive)]
    pub within: Option<f64>,
    /// Number of equations to list, those that contribute most to the estimates.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print the certificate as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `test`.
#[derive(Args, Debug)]
pub struct TestArgs {
    /// Folders, searched recursively, or single files.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Rewrite the expected output of the cases that fail.
    #[arg(long)]
    pub bless: bool,
}

/// Arguments of `memory`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("goal").required(true))]
pub struct MemoryArgs {
    /// A .graph, .ir or .onnx file and the function in it, or a .csv table with one buffer per row.
    /// Its columns are id, lower, upper (the exclusive end of the live range) and size. Optional
    /// columns are alignment, offset (a fixed offset) and alias (the buffer whose bytes it shares).
    #[arg(value_name = "FILE[@FUNC]|PROBLEM.csv")]
    pub problem: OsString,
    /// What a model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Find offsets that fit in this capacity: bytes, or 3KiB, 3MiB, 3GiB. Exit status 1 if none
    /// exist or none are found. For a function, the buffers are those of its arena.
    #[arg(long, value_name = "BYTES", group = "goal", value_parser = bytes)]
    pub capacity: Option<u64>,
    /// Find offsets that minimize the highest end of a buffer.
    #[arg(long, group = "goal")]
    pub minimize: bool,
    /// For a function: list plans from its least memory to its default memory, with their costs.
    #[arg(long, group = "goal")]
    pub frontier: bool,
    /// With --frontier: limit on the number of plans besides the one with the most memory.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 12,
        value_parser = clap::value_parser!(u64).range(1..=64),
    )]
    pub points: u64,
    /// With --frontier: run each plan RUNS times on the CPU, in turns, and list its median time.
    /// Inputs without a value are random.
    #[arg(
        long,
        value_name = "RUNS",
        requires = "frontier",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    pub measure: Option<u64>,
    /// For a function: target, cpu or a GPU architecture such as sm_80.
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// For a function: bind a dimension variable.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
    /// The inputs and variables, with --measure.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Write the table with offsets. With --frontier, write all plans to one .plan file; a run uses
    /// the fastest that fits.
    #[arg(short, long, value_name = "SOLUTION.csv|OUT.plan")]
    pub out: Option<PathBuf>,
    /// Draw the arena over time. With --frontier, draw time over memory.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Limit on the states that the heuristics and the exact search visit in total. The same limit
    /// gives the same result.
    #[arg(long, value_name = "STATES", default_value_t = 1_000_000)]
    pub effort: u64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ops`.
#[derive(Args, Debug)]
pub struct OpsArgs {
    /// Op to explain. The default is to list all ops.
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `devices`.
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
