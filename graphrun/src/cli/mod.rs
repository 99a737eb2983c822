//! The arguments. Their documentation is the text of the help, so brackets are not links.
#![allow(rustdoc::broken_intra_doc_links)]

mod bench;
mod data;
mod derivatives;
mod documents;
pub mod examples;
mod find_rate;
mod isolate;
mod monitoring;
mod onnx;
mod profile;
mod report;
mod reports;
mod run;
mod scale;

use crate::policy::{FunctionsArgs, PrecisionArgs};
pub use bench::*;
use clap::{Args, Parser, Subcommand};
pub use data::*;
pub use derivatives::*;
pub use documents::*;
pub use find_rate::*;
pub use isolate::*;
pub use monitoring::*;
pub use onnx::*;
pub use profile::*;
pub use report::*;
pub use reports::*;
pub use run::*;
pub use scale::*;
use std::ffi::OsString;
use std::path::PathBuf;
use wengert::data::inflate::InflateLimit;

/// The exit statuses, printed at the end of the help.
const STATUSES: &str = "\
Exit status:
    0    success
    1    the command ran, and its result is negative: a check or comparison failed, or
         training diverged
    2    wrong usage or bad input, or a file cannot be written
    3    a device failed or is missing, or there is not enough memory
  129, 130, 143
         training was ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM; --resume continues it";

/// Runs, trains, differentiates and inspects graph files.
#[derive(Parser, Debug)]
#[command(name = "graphrun", version, about, max_term_width = 110, after_help = STATUSES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Log more to the error stream: -v progress, -vv details, -vvv everything. RUST_LOG overrides
    /// it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Write a timeline of the command to a .json or .pftrace file: passes of the compiler, steps,
    /// kernels by thread, memory. Perfetto shows both kinds, and Chrome's own viewer the first.
    #[arg(long, global = true, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw no view of training and of long phases on the terminal, as where the error stream is no
    /// terminal.
    #[arg(long, global = true)]
    pub plain: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a function on given inputs and print, write or compare its outputs.
    Run(RunArgs),
    /// Train a program by the recipe in its file.
    Train(TrainArgs),
    /// Evaluate a model on a data set by the recipe in its file.
    Evaluate(EvaluateArgs),
    /// Print what a data set holds.
    Data(DataCommandArgs),
    /// Compile a function for a target and write its plan.
    Compile(CompileArgs),
    /// Print the contents of a file: functions, and variables as a tree of modules, with sizes.
    Inspect(InspectArgs),
    /// Import an ONNX model: its graph becomes a function, its initializers parameters.
    Import(ImportArgs),
    /// Add trained updates of low rank (LoRA) to the weights, for the model without updates.
    Merge(MergeArgs),
    /// Export a function as an ONNX model: its parameters become initializers.
    Export(ExportArgs),
    /// Print a program at a stage of compilation.
    Dump(DumpArgs),
    /// Write the gradient of a function: a graph in, a graph out.
    Grad(GradArgs),
    /// Write the forward derivative of a function: a graph in, a graph out.
    Jvp(WrtArgs),
    /// Write a function vectorized over a batch of examples: a graph in, a graph out.
    Vmap(VmapArgs),
    /// Write the Jacobian of a function: a graph in, a graph out.
    Jacobian(JacobianArgs),
    /// Write the Hessian of a function: a graph in, a graph out.
    Hessian(HessianArgs),
    /// Write the Hessian-vector product of a function: a graph in, a graph out.
    Hvp(HessianArgs),
    /// Write the derivatives of a function along a curve, up to an order: a graph in, a graph out.
    Jet(JetArgs),
    /// Write a function with residuals as further outputs, and the linear program that takes them:
    /// a graph in, a graph of two functions out.
    Linearize(WrtArgs),
    /// Write the transpose of a linear function: a graph in, a graph out.
    Transpose(WrtArgs),
    /// Check functions: verifier, derivatives against finite differences, devices against the
    /// interpreter.
    Check(CheckArgs),
    /// Find the first equation that makes a NaN or an infinity.
    Nan(NanArgs),
    /// Shrink a failing function to a minimal one that fails in the same way: a graph in, a graph
    /// out.
    Reduce(ReduceArgs),
    /// List the differences of two programs or two plans.
    Diff(DiffArgs),
    /// Certify the precision of a function: for each output, a bound of its error, a first-order
    /// estimate, and the observed error.
    Precision(CertificateArgs),
    /// Run the filetests of a folder.
    Test(TestArgs),
    /// Report the memory of a function and the cost of using less, or assign offsets to buffers: a
    /// table of live ranges and sizes in, the table with offsets out.
    Memory(MemoryArgs),
    /// Write a page about a function: its graph, kernels, memory, budgets, precision, and training
    /// runs.
    Report(ReportArgs),
    /// List the ops, or explain one.
    Ops(OpsArgs),
    /// List the devices of this machine.
    Devices(DevicesArgs),
    /// Measure the run time of a function: percentiles, rates beside the machine's peaks, and a
    /// comparison with another function or other options in turns.
    Bench(BenchArgs),
    /// Predict the time of each kernel on a GPU that is not at hand, and name what limits it.
    Profile(ProfileArgs),
    /// Plan a training step for ranks that are not here: memory of a rank, bytes on each link,
    /// predicted time and efficiency.
    Scale(ScaleArgs),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Print the manual page of a command, or write all pages to a folder.
    Manual(ManualArgs),
}

/// The function, an argument of several commands.
#[derive(Args, Clone, Debug)]
pub struct FunctionArgs {
    /// A .graph, .ir, .plan or .onnx file, and the function in it. The function may be omitted if
    /// the file has only one, or only one beside those of its recipe, or if the command takes all
    /// functions by default.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// What a model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Bind a dimension variable. Variables in the shapes of given tensors are bound by the
    /// tensors.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
}

/// The values of inputs and variables, options of several commands.
#[derive(Args, Clone, Debug)]
pub struct ValueArgs {
    /// Tensor for an input or a variable: @f.npy, @f.npz[k], @f.safetensors[k], @f.csv,
    /// "2x2xf32=1 2 3 4", random:SEED, zeros. A dtype after a file converts it: @f.npy:f32.
    #[arg(long = "input", value_name = "NAME=SPEC")]
    pub inputs: Vec<OsString>,
    /// Values of the variables (parameters and state): a .safetensors or .npz file, or a folder of
    /// .npy files.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Seed of the keys without an --input, and of inputs that are random because they have no
    /// value.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// A function, its inputs and the precision: what a command checks or searches.
#[derive(Args, Clone, Debug)]
pub struct CaseArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The inputs and variables. Inputs without a value are random.
    #[command(flatten)]
    pub values: ValueArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
}

/// Options of the commands that read data.
#[derive(Args, Clone, Debug)]
pub struct ReadingArgs {
    /// Limit on the inflated size of one compressed file: 1048576, 3MiB, 16GiB. The default is 256
    /// MiB plus 64 times the size of the file.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_decompressed: Option<u64>,
}

impl ReadingArgs {
    /// The limit as a type of the library.
    pub fn limit(&self) -> InflateLimit {
        self.max_decompressed.map_or_else(InflateLimit::default, InflateLimit::bytes)
    }
}

/// The device and its choices, options of several commands.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// Device: cpu, cuda[:N], emulator (GPU kernels on the CPU), interpreter.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// CPU: number of threads. The default is the number in the environment variable
    /// WENGERT_THREADS, else that of the processors which the process may use. The bits of results
    /// are the same for any number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    /// GPUs: file of the fastest cuBLASLt algorithms. The same file gives the same bits.
    #[arg(long, value_name = "FILE")]
    pub tuning: Option<PathBuf>,
    /// GPUs: measure the products that the tuning file lacks, and add them to it.
    #[arg(long, requires = "tuning")]
    pub autotune: bool,
    /// GPUs: allow cuBLASLt to round f32 to tf32, and to add a residual in f32 before a bias.
    /// Results are less exact.
    #[arg(long)]
    pub fast_products: bool,
    /// The bits of a row do not depend on the number of rows that are computed with it: of examples
    /// of a batch, of tokens of a prompt. This costs time where there are few rows.
    #[arg(long)]
    pub batch_invariant: bool,
    /// The elementary functions.
    #[command(flatten)]
    pub functions: FunctionsArgs,
    /// GPUs: launch each kernel separately, without a captured CUDA graph.
    #[arg(long)]
    pub no_capture: bool,
    /// Limit on the total memory of a function: bytes, or 3MiB, 1.5GiB. To stay within it, kernels
    /// are recomputed instead of keeping their results. The bits of results are the same.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Limit on the operations of one run of a .plan file. A run that exceeds it is an error. A
    /// step counts as 1024 operations. Each scalar instruction, multiplication, addition and group
    /// of eight copied bytes adds one.
    #[arg(long, value_name = "N", default_value_t = wengert::format::plan::WORK_LIMIT)]
    pub work_limit: u64,
}

/// Parses bytes: a number, or a number with a binary unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let wrong =
        || format!("`{text}` is not a number of bytes: write 1048576, 3KiB, 1.5MiB or 2GiB");
    let number = number.trim();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let value = value * (1u64 << shift) as f64;
    let good = shift > 0 && value.is_finite() && (0.0..9e18).contains(&value);
    if good { Ok(value.round() as u64) } else { Err(wrong()) }
}

/// Parses a finite number above 0.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("it is a number above 0, such as 0.01".into()),
    }
}
