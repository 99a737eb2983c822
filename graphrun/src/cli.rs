//! The arguments. Their documentation is the text of the help, so brackets are not links.
#![allow(rustdoc::broken_intra_doc_links)]

use crate::policy::PrecisionArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
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
    /// Compile a function for a target and write its plan.
    Compile(CompileArgs),
    /// Print the contents of a file: functions, and variables as a tree of modules, with sizes.
    Inspect(InspectArgs),
    /// Import an ONNX model: its graph becomes a function, its initializers parameters.
    Import(ImportArgs),
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
    /// Certify the precision of a function: for each output, a bound of its error, a first-order
    /// estimate, and the observed error.
    Precision(CertificateArgs),
    /// Run the filetests of a folder.
    Test(TestArgs),
    /// Report the memory of a function and the cost of using less, or assign offsets to buffers: a
    /// table of live ranges and sizes in, the table with offsets out.
    Memory(MemoryArgs),
    /// List the ops, or explain one.
    Ops(OpsArgs),
    /// List the devices of this machine.
    Devices(DevicesArgs),
}

/// The function, an argument of several commands.
#[derive(Args, Debug)]
pub struct FunctionArgs {
    /// A .graph, .ir or .plan file, and the function in it. The function may be omitted if the file
    /// has only one, or if the command takes all functions by default.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
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

/// Arguments of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The inputs and variables.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Write an output, or a state that the function updates, to a file: .npy, .npz, .safetensors,
    /// .csv. `-` prints it in full, as --input reads it. Outputs with the same .npz or .safetensors
    /// file are written to it together.
    #[arg(long = "output", value_name = "NAME=PATH")]
    pub outputs: Vec<OsString>,
    /// Write all variables after the run to a .safetensors or .npz file.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare an output with a file, or with a SPEC as for --input. Exit status 1 if they differ.
    #[arg(long = "expect", value_name = "NAME=PATH")]
    pub expects: Vec<OsString>,
    /// Relative tolerance of --expect. If both tolerances are 0, the bits must be equal.
    #[arg(long, default_value_t = 0.0, value_parser = tolerance)]
    pub rtol: f64,
    /// Absolute tolerance of --expect.
    #[arg(long, default_value_t = 0.0, value_parser = tolerance)]
    pub atol: f64,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Run RUNS times on the CPU, and print for each kernel its time per run, its share of the
    /// total, and its bytes and operations per second.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..))]
    pub profile: Option<u64>,
    /// Report an index or label out of range as an error, instead of clamping it (`gather`) or
    /// returning NaN (a loss).
    #[arg(long)]
    pub check_indices: bool,
    /// Compute what depends on variables alone once, before the runs, and keep it: filters in the
    /// layout of the kernels, weights of a mixed precision in its dtype. It takes the memory of
    /// these results besides. The bits are the same.
    #[arg(long)]
    pub keep_invariants: bool,
    /// Print every element of the outputs, with all digits. The default shortens tensors of more
    /// than 100 elements.
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
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
    /// Arrays named by the recipe: an .npz or .safetensors file, a .csv table, or a folder of .npy
    /// files.
    #[arg(long, value_name = "DATA")]
    pub data: PathBuf,
    /// Number of steps, counted from the start of the run (also with --resume).
    #[arg(long, conflicts_with = "epochs", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Number of epochs, counted from the start of the run (also with --resume).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,
    /// Folder for checkpoints, log and trained weights.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Continue from the folder's newest checkpoint, or from the previous one if the newest is
    /// damaged.
    #[arg(long)]
    pub resume: bool,
    /// Initial values of variables: a .safetensors or .npz file. Every name must be a variable of
    /// the program, and every variable of the model must be in the file.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Allow --params to have unknown names, which are ignored, and to lack variables, which are
    /// initialized as usual.
    #[arg(long)]
    pub partial: bool,
    /// Allow NaN and infinities in the data.
    #[arg(long)]
    pub allow_non_finite: bool,
    /// Allow indices and labels that are out of range.
    #[arg(long)]
    pub allow_out_of_range: bool,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print events and the final report as JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `evaluate`.
#[derive(Args, Debug)]
pub struct EvaluateArgs {
    /// A .graph file whose recipe has an evaluation. The default function is the recipe's; another
    /// one needs the same inputs and the outputs of the metrics.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Arrays named by the recipe: an .npz or .safetensors file, a .csv table, or a folder of .npy
    /// files.
    #[arg(long, value_name = "DATA")]
    pub data: PathBuf,
    /// Values of the variables: a .safetensors or .npz file, such as the weights of a run or a
    /// checkpoint. They replace those in the file.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Allow NaN and infinities in the data.
    #[arg(long)]
    pub allow_non_finite: bool,
    /// Allow indices and labels that are out of range.
    #[arg(long)]
    pub allow_out_of_range: bool,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print the metrics as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `compile`.
#[derive(Args, Debug)]
pub struct CompileArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Output file.
    #[arg(short, long, value_name = "OUT.plan")]
    pub out: PathBuf,
    /// Target: cpu, or a GPU architecture: sm_80, sm_86, sm_89, sm_90, sm_100, sm_120.
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// The bits of a row do not depend on the number of rows that are computed with it.
    #[arg(long)]
    pub batch_invariant: bool,
    /// Limit on the total memory of the plan: bytes, or 3MiB, 1.5GiB, or `none` for unlimited. With
    /// several limits, the file has a plan for each, and a run uses the fastest that fits. A limit
    /// gets no plan of its own if the plan for a larger limit also fits in it.
    #[arg(
        long = "memory-budget",
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = budget,
    )]
    pub memory_budgets: Vec<Budget>,
}

/// A memory budget; `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Budget(pub Option<u64>);

fn budget(text: &str) -> Result<Budget, String> {
    if text == "none" { Ok(Budget(None)) } else { Ok(Budget(Some(bytes(text)?))) }
}

/// Arguments of `import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// An .onnx file. Values of tensors may lie in files beside it
    #[arg(value_name = "MODEL.onnx")]
    pub file: PathBuf,
    /// Output file.
    #[arg(short, long, value_name = "OUT.graph")]
    pub out: PathBuf,
    /// Value of an input that holds a shape, axes or a count, which becomes part of the graph:
    /// @f.npy, @f.npz[k], "2xi64=3 4".
    #[arg(long = "bind-input", value_name = "NAME=SPEC")]
    pub bound: Vec<OsString>,
    /// Name of the function.
    #[arg(long, value_name = "NAME", default_value = "predict")]
    pub function: String,
    /// How it is trained.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// How an imported model is trained.
#[derive(Args, Debug)]
pub struct TuningArgs {
    /// Write a file that `graphrun train` trains: with a training step, an evaluation and a recipe.
    #[arg(long, requires = "loss")]
    pub train: bool,
    /// With --train: the loss. cross_entropy of logits [batch, classes] and labels below the number
    /// of classes, binary_cross_entropy of logits and targets, or mse, mae, huber of numbers. What
    /// precedes a softmax or sigmoid at the end of the model are its logits.
    #[arg(long, value_name = "LOSS", requires = "train")]
    pub loss: Option<String>,
    /// With --train: adamw, adam, muon, sgd or momentum. The default is adamw.
    #[arg(long, value_name = "NAME", requires = "train")]
    pub optimizer: Option<String>,
    /// With --train: the learning rate. The default is 1e-3.
    #[arg(long, value_name = "RATE", requires = "train")]
    pub learning_rate: Option<f64>,
    /// With --train: examples in a batch. The default is 32.
    #[arg(long, value_name = "N", requires = "train")]
    pub batch: Option<u64>,
    /// With --train: passes over the data. The default is 10.
    #[arg(long, value_name = "N", requires = "train")]
    pub epochs: Option<u64>,
    /// With --train: the seed of the order of examples, and of the first values of --lora. The
    /// default is 1.
    #[arg(long, value_name = "N", requires = "train")]
    pub seed: Option<u64>,
    /// With --train: the output of which the loss is computed. Needed if there are several.
    #[arg(long, value_name = "NAME", requires = "train")]
    pub output: Option<String>,
    /// With --train: the name of the input with the labels, and of their array. The default is
    /// labels.
    #[arg(long, value_name = "NAME", requires = "train")]
    pub labels: Option<String>,
    /// With --train: the name of the array for an input, or for the labels, if it differs from that
    /// of the input.
    #[arg(long = "array", value_name = "INPUT=ARRAY", requires = "train")]
    pub arrays: Vec<OsString>,
    /// With --train: variables that are not trained, by their key paths, such as `conv*`.
    #[arg(long, value_name = "PATTERN", requires = "train")]
    pub freeze: Vec<String>,
    /// With --train: let batch normalisation use the statistics of the batch in training, and
    /// update the running ones, and let dropout drop out.
    #[arg(long, requires = "train")]
    pub training_forms: bool,
    /// With --train: train updates of low rank of the weights that match, and no other variable:
    /// a rank, alpha (by default the rank), and patterns of key paths, such as
    /// `r=8,alpha=16,*.weight`.
    #[arg(long, value_name = "r=RANK,PATTERN", requires = "train")]
    pub lora: Vec<String>,
}

/// Arguments of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The function. Dimension variables that are not bound stay symbolic.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// Output file.
    #[arg(short, long, value_name = "OUT.onnx")]
    pub out: PathBuf,
    /// Values of the variables: a .safetensors or .npz file, such as the weights of a run. They
    /// replace those in the file.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Version of ONNX's op set. From 23 on, attention and RMS normalization are one node each.
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = opset())]
    pub opset: i64,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// The op sets of models.
fn opset() -> clap::builder::RangedI64ValueParser {
    clap::value_parser!(i64).range(wengert::onnx::OPSETS)
}

/// Arguments of `inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A .graph, .ir, .plan or .safetensors file. Of a program, the function; the default is all
    /// functions.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
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
    /// Stage of compilation to print.
    #[arg(long, value_enum, default_value = "graph")]
    pub stage: Stage,
    /// Target: cpu, or a GPU architecture such as sm_80. The default is cpu, or sm_90 with --stage
    /// ptx.
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
    /// With --stage nests: print the cost of each kernel.
    #[arg(long)]
    pub cost: bool,
    /// With --stage plan: print the plan's memory use and its peak.
    #[arg(long)]
    pub memory: bool,
    /// With --stage plan and a GPU's target: print how each product is computed, by cuBLASLt or by
    /// own kernels, and the bytes that kernels beside the products move.
    #[arg(long)]
    pub products: bool,
    /// With --stage plan or ptx: limit on the total memory of the plan.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Also print the recipe of a .graph file.
    #[arg(long)]
    pub recipe: bool,
}

/// Options of the commands that differentiate.
#[derive(Args, Debug)]
pub struct WrtArgs {
    /// The function.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Inputs to differentiate with respect to: names, or prefixes of key paths.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub wrt: Vec<String>,
    /// Output file, .ir or .graph. The default is to print.
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
}

/// Arguments of `grad`.
#[derive(Args, Debug)]
pub struct GradArgs {
    /// The function and its inputs.
    #[command(flatten)]
    pub what: WrtArgs,
    /// Output to differentiate, if there are several scalars.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Also return the value.
    #[arg(long)]
    pub value: bool,
    /// Take the output's cotangent as an input (a VJP). The output need not be a scalar then.
    #[arg(long)]
    pub seed: bool,
    /// Write two functions, and list the residuals. The forward function returns residuals as its
    /// last outputs. The backward function takes the residuals and the output's cotangent.
    #[arg(long, conflicts_with_all = ["value", "seed"])]
    pub split: bool,
}

/// Arguments of `jacobian`.
#[derive(Args, Debug)]
pub struct JacobianArgs {
    /// The function and its inputs.
    #[command(flatten)]
    pub what: WrtArgs,
    /// Output to differentiate, if several outputs are floats.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Also return the value.
    #[arg(long)]
    pub value: bool,
    /// Use forward mode, column by column, for functions with few input elements. The default is
    /// reverse mode, row by row.
    #[arg(long)]
    pub forward: bool,
}

/// Arguments of `hessian` and `hvp`.
#[derive(Args, Debug)]
pub struct HessianArgs {
    /// The function and its inputs.
    #[command(flatten)]
    pub what: WrtArgs,
    /// Output to differentiate, if there are several scalars.
    #[arg(long, value_name = "OUTPUT")]
    pub of: Option<String>,
    /// Also return the value and the gradient.
    #[arg(long)]
    pub value: bool,
}

/// Arguments of `jet`.
#[derive(Args, Debug)]
pub struct JetArgs {
    /// The function and its inputs.
    #[command(flatten)]
    pub what: WrtArgs,
    /// Highest order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub order: u8,
}

/// Arguments of `vmap`.
#[derive(Args, Debug)]
pub struct VmapArgs {
    /// The function.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Batched inputs: names, or prefixes of key paths. Each may name its batch axis; the default
    /// is 0. The examples share all other inputs.
    #[arg(
        long = "in",
        value_name = "NAME[:AXIS]",
        value_delimiter = ',',
        required = true,
        value_parser = axis_of,
    )]
    pub inputs: Vec<(String, usize)>,
    /// Number of examples: a number or a dimension variable. The default is B, or B2 and so on if
    /// the function has a variable B.
    #[arg(long, value_name = "B|N")]
    pub size: Option<String>,
    /// Batch axis of the outputs.
    #[arg(long, value_name = "AXIS", default_value_t = 0)]
    pub out_axis: usize,
    /// Output file, .ir or .graph. The default is to print.
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
}

fn axis_of(text: &str) -> Result<(String, usize), String> {
    let (name, axis) = text.rsplit_once(':').unwrap_or((text, "0"));
    let axis = axis.parse().map_err(|_| format!("`{axis}` is not an axis: write `{name}:0`"))?;
    Ok((name.into(), axis))
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The function. The default is all functions.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The inputs and variables. Inputs without a value are random.
    #[command(flatten)]
    pub values: ValueArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

fn error(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("an error is a number above 0, such as 1e-2".into()),
    }
}

/// Arguments of `precision`.
#[derive(Args, Debug)]
pub struct CertificateArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The inputs and variables. Inputs without a value are random.
    #[command(flatten)]
    pub values: ValueArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Device whose results are compared: cpu, cuda[:N], emulator, interpreter.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// With --precision: find the cheapest set of equations to keep in f32 for an observed error of
    /// at most E, relative to the greatest magnitude of each output. The certificate is that of the
    /// function with these equations in f32.
    #[arg(long, value_name = "E", requires = "precision", value_parser = error)]
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
    /// A .graph or .ir file and the function in it, or a .csv table with one buffer per row. Its
    /// columns are id, lower, upper (the exclusive end of the live range) and size. Optional
    /// columns are alignment, offset (a fixed offset) and alias (the buffer whose bytes it shares).
    #[arg(value_name = "FILE[@FUNC]|PROBLEM.csv")]
    pub problem: OsString,
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
