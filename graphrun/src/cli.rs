//! The arguments. Their documentation is the help, in which brackets are brackets.
#![allow(rustdoc::broken_intra_doc_links)]

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use wengert::data::inflate::InflateLimit;

/// What scripts ask for, at the end of the help.
const STATUSES: &str = "\
Exit status:
    0    the command did what it was asked
    1    it did, and the answer is no: a check or comparison failed, or training diverged
    2    wrong usage or bad input, or a file cannot be written
    3    a device failed or is not there, or there is not enough memory
  129, 130, 143    training was ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM; --resume goes on with it";

/// Runs, trains, differentiates and inspects graph files.
#[derive(Parser, Debug)]
#[command(name = "graphrun", version, about, max_term_width = 110, after_help = STATUSES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log more to the error stream: -v progress, -vv details, -vvv everything. RUST_LOG overrides it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a function on given inputs and print, write or compare its outputs.
    Run(RunArgs),
    /// Train a program by the recipe in its file.
    Train(TrainArgs),
    /// Compile a function for a target and write its plan.
    Compile(CompileArgs),
    /// Print a program at a stage of compilation.
    Dump(DumpArgs),
    /// Write the gradient of a function: a graph in, a graph out.
    Grad(GradArgs),
    /// Write the forward derivative of a function: a graph in, a graph out.
    Jvp(JvpArgs),
    /// Write a function on a batch of examples: a graph in, a graph out.
    Vmap(VmapArgs),
    /// Write the Jacobian of a function: a graph in, a graph out.
    Jacobian(JacobianArgs),
    /// Write the Hessian of a function: a graph in, a graph out.
    Hessian(HessianArgs),
    /// Write the product of a function's Hessian with a tangent: a graph in, a graph out.
    Hvp(HessianArgs),
    /// Write the derivatives of a function along a curve, up to an order: a graph in, a graph out.
    Jet(JetArgs),
    /// Write a function with what its linear program reads, and that program: a graph in, a graph of two functions out.
    Linearize(JvpArgs),
    /// Write the transpose of a linear function: a graph in, a graph out.
    Transpose(TransposeArgs),
    /// Check functions: verifier, derivatives against differences, devices against the interpreter.
    Check(CheckArgs),
    /// Run the filetests of a folder.
    Test(TestArgs),
    /// Say what memory a function needs and what less would cost, or give buffers offsets: a table of lifespans and sizes in, the table with offsets out.
    Memory(MemoryArgs),
    /// List the ops, or explain one.
    Ops(OpsArgs),
    /// List the devices of this machine.
    Devices(DevicesArgs),
}

/// What several commands take: which function.
#[derive(Args, Debug)]
pub struct FunctionArgs {
    /// A .graph, .ir or .plan file, and the function in it; the function may be left out if there is just one.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Bind a dimension variable; those in the shapes of given tensors bind themselves.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
}

/// What several commands take: where values come from.
#[derive(Args, Clone, Debug)]
pub struct ValueArgs {
    /// A tensor for an input (or variable): @f.npy, @f.npz[k], @f.safetensors[k], @f.csv, "2x2xf32=1 2 3 4", random:SEED, zeros.
    #[arg(long = "input", value_name = "NAME=SPEC")]
    pub inputs: Vec<OsString>,
    /// Values of the variables (parameters and state): a .safetensors or .npz file, or a folder of .npy files.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Seed of the keys that no --input gives.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Limits on what is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// What all commands take that read data.
#[derive(Args, Clone, Debug)]
pub struct ReadingArgs {
    /// Most bytes that one compressed file may inflate to: 1048576, 3MiB, 16GiB. Without it 256 MiB and 64 times the size of the file.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_decompressed: Option<u64>,
}

impl ReadingArgs {
    /// The limit as a type of the library.
    pub fn limit(&self) -> InflateLimit {
        self.max_decompressed.map_or_else(InflateLimit::default, InflateLimit::bytes)
    }
}

/// What several commands take: on which device.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// cpu, cuda[:N], emulator (GPU kernels on the CPU), interpreter.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// GPUs: a file that says which of cuBLASLt's algorithms were quickest; the same file gives the same bits.
    #[arg(long, value_name = "FILE")]
    pub tuning: Option<PathBuf>,
    /// GPUs: measure the products that the tuning file lacks, and note them there.
    #[arg(long, requires = "tuning")]
    pub autotune: bool,
    /// GPUs: let cuBLASLt round f32 to tf32 and do whole epilogues its own way; results are less exact.
    #[arg(long)]
    pub fast_products: bool,
    /// GPUs: launch each kernel by itself, not as a captured graph.
    #[arg(long)]
    pub no_capture: bool,
    /// Most memory that a function may take, all told: bytes, or 3MiB, 1.5GiB. Where its plan would take more, kernels run again instead of keeping what they have made; the bits
    /// of results are the same.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Most operations that one run of a .plan file may take; a run that takes more is an error. A step takes 1024, besides a scalar instruction, a
    /// multiplication, an addition or eight copied bytes each.
    #[arg(long, value_name = "N", default_value_t = wengert::format::plan::WORK_LIMIT)]
    pub work_limit: u64,
}

/// Arguments of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Which function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// On what.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Write an output (or a state that was replaced) to a file: .npy, .npz, .safetensors, .csv. `-` prints it in full.
    /// Outputs that name one .npz or .safetensors file are written to it together.
    #[arg(long = "output", value_name = "NAME=PATH")]
    pub outputs: Vec<OsString>,
    /// Write all variables, as they are after the run, to a .safetensors or .npz file.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare an output with a file (or a SPEC as for --input); exit status 1 if they differ.
    #[arg(long = "expect", value_name = "NAME=PATH")]
    pub expects: Vec<OsString>,
    /// Relative tolerance of --expect; with both tolerances 0, bits must be equal.
    #[arg(long, default_value_t = 0.0, value_parser = tolerance)]
    pub rtol: f64,
    /// Absolute tolerance of --expect.
    #[arg(long, default_value_t = 0.0, value_parser = tolerance)]
    pub atol: f64,
    /// Where.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Run so many times, and tell what each kernel took: its time a run, its share, its bytes and operations a second. On the CPU.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..))]
    pub profile: Option<u64>,
    /// End with an error if an index or a label is out of range, instead of clamping it (`gather`) or giving NaN (a loss).
    #[arg(long)]
    pub check_indices: bool,
    /// Print the outputs as JSON.
    #[arg(long)]
    pub json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("a tolerance is a number of at least 0".into()),
    }
}

/// Arguments of `train`.
#[derive(Args, Debug)]
pub struct TrainArgs {
    /// A .graph file with a recipe.
    #[arg(value_name = "FILE")]
    pub file: OsString,
    /// The arrays that the recipe names: an .npz or .safetensors file, a .csv table, or a folder of .npy files.
    #[arg(long, value_name = "DATA")]
    pub data: PathBuf,
    /// How many steps, counted from the beginning of the run (also with --resume).
    #[arg(long, conflicts_with = "epochs", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// How many epochs, counted likewise.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,
    /// Folder for checkpoints, log and trained weights.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Go on from the folder's newest checkpoint; if that is damaged, from the one before.
    #[arg(long)]
    pub resume: bool,
    /// Values of variables to start with: a .safetensors or .npz file. It names variables of the program only, and all of
    /// the model's.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Let --params have unknown names, which are left out, and lack variables, which begin as usual.
    #[arg(long)]
    pub partial: bool,
    /// Train on data with NaN and infinities.
    #[arg(long)]
    pub allow_non_finite: bool,
    /// Train on indices and labels for which there is no row or class.
    #[arg(long)]
    pub allow_out_of_range: bool,
    /// Limits on what is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Where.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print events and the final report as JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `compile`.
#[derive(Args, Debug)]
pub struct CompileArgs {
    /// Which function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// Where to write the plan.
    #[arg(short, long, value_name = "OUT.plan")]
    pub out: PathBuf,
    /// What to compile for: cpu, or a GPU's architecture: sm_80, sm_86, sm_89, sm_90, sm_100, sm_120.
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// Most memory that the plan may take, all told: bytes, or 3MiB, 1.5GiB, or `none` for as much as it takes. With several, the file has a plan for each, and who loads it takes the fastest that
    /// fits.
    #[arg(long = "memory-budget", value_name = "BYTES", value_delimiter = ',', value_parser = budget)]
    pub memory_budgets: Vec<Budget>,
}

/// A memory budget; `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Budget(pub Option<u64>);

fn budget(text: &str) -> Result<Budget, String> {
    if text == "none" { Ok(Budget(None)) } else { Ok(Budget(Some(bytes(text)?))) }
}

/// Stages of compilation.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The program as it is written, verified.
    Graph,
    /// After the passes over graphs: what is computed, bit for bit.
    Opt,
    /// Kernels: nests, and what calls and nests read and write.
    Nests,
    /// What runs when on which bytes.
    Plan,
    /// The kernels of a plan for a GPU, as PTX.
    Ptx,
}

/// Arguments of `dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// Which function; without one, all.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// Up to which stage.
    #[arg(long, value_enum, default_value = "graph")]
    pub stage: Stage,
    /// What to compile for: cpu, sm_80 and the like; for --stage ptx, sm_90 if nothing is said.
    #[arg(long)]
    pub target: Option<String>,
    /// With --stage opt: stop after this pass.
    #[arg(long, value_name = "PASS")]
    pub after: Option<String>,
    /// Let a pass make N changes and no more, to find the change that does harm.
    #[arg(long = "fuel", value_name = "PASS=N", value_delimiter = ',')]
    pub fuels: Vec<String>,
    /// With --stage graph or opt: print the location of every equation, and the table of locations.
    #[arg(long)]
    pub locs: bool,
    /// With --stage nests: print what each kernel costs.
    #[arg(long)]
    pub cost: bool,
    /// With --stage plan: print how much memory it takes, and when most.
    #[arg(long)]
    pub memory: bool,
    /// With --stage plan or ptx: most memory that the plan may take, all told.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Print the recipe of a .graph file, too.
    #[arg(long)]
    pub recipe: bool,
}

/// What all commands take that differentiate.
#[derive(Args, Debug)]
pub struct WrtArgs {
    /// Which function.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Inputs to differentiate with respect to: names, or the beginnings of key paths.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub wrt: Vec<String>,
    /// Where to write it: .ir or .graph; printed without this.
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
}

/// Arguments of `grad`.
#[derive(Args, Debug)]
pub struct GradArgs {
    /// Of what.
    #[command(flatten)]
    pub what: WrtArgs,
    /// The output to differentiate, if there are several scalars.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Give the value as an output, too.
    #[arg(long)]
    pub value: bool,
    /// Take the output's cotangent as an input (a vjp); then the output needs not be a scalar.
    #[arg(long)]
    pub seed: bool,
    /// Write two functions: the forward run, whose last outputs are residuals, and the backward run, which takes them and the output's
    /// cotangent. The residuals are listed.
    #[arg(long, conflicts_with_all = ["value", "seed"])]
    pub split: bool,
}

/// Arguments of `jvp` and `linearize`.
#[derive(Args, Debug)]
pub struct JvpArgs {
    /// Of what.
    #[command(flatten)]
    pub what: WrtArgs,
}

/// Arguments of `jacobian`.
#[derive(Args, Debug)]
pub struct JacobianArgs {
    /// Of what.
    #[command(flatten)]
    pub what: WrtArgs,
    /// The output to differentiate, if there are several of floats.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Give the value as an output, too.
    #[arg(long)]
    pub value: bool,
    /// By forward mode, column by column: for functions of few numbers. Without it by reverse mode, row by row.
    #[arg(long)]
    pub forward: bool,
}

/// Arguments of `hessian` and `hvp`.
#[derive(Args, Debug)]
pub struct HessianArgs {
    /// Of what.
    #[command(flatten)]
    pub what: WrtArgs,
    /// The output to differentiate, if there are several scalars.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Give value and gradient as outputs, too.
    #[arg(long)]
    pub value: bool,
}

/// Arguments of `jet`.
#[derive(Args, Debug)]
pub struct JetArgs {
    /// Of what.
    #[command(flatten)]
    pub what: WrtArgs,
    /// The highest order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub order: u8,
}

/// Arguments of `transpose`.
#[derive(Args, Debug)]
pub struct TransposeArgs {
    /// Of what; the function must be linear in the inputs that are named, together.
    #[command(flatten)]
    pub what: WrtArgs,
}

/// Arguments of `vmap`.
#[derive(Args, Debug)]
pub struct VmapArgs {
    /// Which function.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Inputs that have a value for each example, with the axis along which these lie: names, or the beginnings of key paths. The
    /// examples share all others.
    #[arg(long = "in", value_name = "NAME:AXIS", value_delimiter = ',', required = true, value_parser = axis_of)]
    pub inputs: Vec<(String, usize)>,
    /// How many examples there are: a number, or a dimension variable; B, or B2 and so on where the function has one of that name.
    #[arg(long, value_name = "B|N")]
    pub size: Option<String>,
    /// The axis along which the examples lie in outputs.
    #[arg(long, value_name = "AXIS", default_value_t = 0)]
    pub out_axis: usize,
    /// Where to write it: .ir or .graph; printed without this.
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
}

fn axis_of(text: &str) -> Result<(String, usize), String> {
    let (name, axis) = text.rsplit_once(':').unwrap_or((text, "0"));
    let axis = axis.parse().map_err(|_| format!("`{axis}` is no axis: write `{name}:0`"))?;
    Ok((name.into(), axis))
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Which function; without one, all.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// On what; inputs that are not given are random.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `test`.
#[derive(Args, Debug)]
pub struct TestArgs {
    /// Folders, searched with all below them, or single files.
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
    /// A .graph or .ir file and the function in it, or a .csv table of buffers, one a line: id, lower, upper (the first moment at which the buffer lives no more), size; and
    /// alignment, offset (where it must lie), alias (whose bytes it shares), where there is such a column.
    #[arg(value_name = "FILE[@FUNC]|PROBLEM.csv")]
    pub problem: OsString,
    /// Find offsets with which no buffer ends above this: bytes, or 3KiB, 3MiB, 3GiB; exit status 1 if there are none or none is found. Of a function: the buffers of its arena.
    #[arg(long, value_name = "BYTES", group = "goal", value_parser = bytes)]
    pub capacity: Option<u64>,
    /// Find offsets that end as low as possible.
    #[arg(long, group = "goal")]
    pub minimize: bool,
    /// Of a function: list plans from the least memory it can run in to what it takes as it is, with what they cost.
    #[arg(long, group = "goal")]
    pub frontier: bool,
    /// With --frontier: most plans beside the one that takes most.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub points: u64,
    /// With --frontier: run each plan so many times on the CPU, in turns, and list the median of its times; inputs that are not given are random.
    #[arg(long, value_name = "RUNS", requires = "frontier", value_parser = clap::value_parser!(u64).range(1..))]
    pub measure: Option<u64>,
    /// Of a function: what to compile for: cpu, sm_80 and the like.
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// Of a function: bind a dimension variable.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
    /// On what, with --measure.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Write the table with offsets; with --frontier, all plans to one .plan file, of which the fastest is taken that fits.
    #[arg(short, long, value_name = "SOLUTION.csv|OUT.plan")]
    pub out: Option<PathBuf>,
    /// Draw the arena over time, or time over memory.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// States that the exact search may look at, all together, of which heuristics before it have some, too; the same effort gives the same result.
    #[arg(long, value_name = "STATES", default_value_t = 1_000_000)]
    pub effort: u64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Bytes, as a number or with a binary unit.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let wrong = || format!("`{text}` is no number of bytes: write 1048576, 3KiB, 1.5MiB or 2GiB");
    let number = number.trim();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let value = value * (1u64 << shift) as f64;
    let good = shift > 0 && value.is_finite() && (0.0..9e18).contains(&value);
    if good { Ok(value.round() as u64) } else { Err(wrong()) }
}

/// Arguments of `ops`.
#[derive(Args, Debug)]
pub struct OpsArgs {
    /// The op to explain; without it, all are listed.
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
