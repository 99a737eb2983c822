//! Arguments of the commands that run, train, evaluate and compile.

use super::data::blocks;
use super::{
    DeviceArgs, FindRateArgs, FunctionArgs, MonitoringArgs, ReadingArgs, SetArgs, SourceArgs,
    ValueArgs, bytes,
};
use crate::policy::{FunctionsArgs, PrecisionArgs};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use wengert::data::source::Opening;
use wengert::recipe::Blocks;
use wengert::train::{Allow, Split, TensorParallel};

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

/// The data of a recipe, options of `train` and `evaluate`.
#[derive(Args, Debug)]
pub struct DataArgs {
    /// Arrays named by the recipe: an .npz, .npy, .safetensors or .parquet file, a .csv table, a
    /// folder of .npy files, or of images in folders of classes or with a `labels.csv`.
    #[arg(long, value_name = "DATA")]
    pub data: PathBuf,
    /// Allow NaN and infinities in the data.
    #[arg(long)]
    pub allow_non_finite: bool,
    /// Allow indices and labels that are out of range.
    #[arg(long)]
    pub allow_out_of_range: bool,
    /// How the data are read.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Number of threads that read and transform data which are not in memory. The default is half
    /// of the processors, at most 8. The batches are the same for any number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub data_threads: Option<u16>,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

impl DataArgs {
    /// How the data are opened.
    pub fn opening(&self) -> Opening {
        self.source.opening(&self.reading)
    }

    /// What the data may have.
    pub fn allow(&self) -> Allow {
        Allow { non_finite: self.allow_non_finite, out_of_range: self.allow_out_of_range }
    }
}

/// The processes that share each batch.
#[derive(Args, Debug)]
pub struct RanksArgs {
    /// Train on so many processes of this machine, each of which computes a part of each batch. The
    /// bits do not depend on it. Ranks that `mpirun` or `srun` starts need no such option.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub ranks: Option<u16>,
    /// Divide each batch into so many parts, whose gradients are added in a fixed order; the ranks
    /// share them. It decides the bits. The default is the recipe's number, usually 1.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub microbatches: Option<u64>,
    /// With several ranks, what each stores a part of, by stages of ZeRO: 1 states of the
    /// optimiser, 2 gradients too, 3 parameters too. It changes no bits.
    #[arg(long, value_name = "STAGE", default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: u8,
    /// Groups of so many neighbouring ranks have the same part of each batch, and share products:
    /// tensor parallelism. The number decides the bits, and divides the number of ranks.
    #[arg(long, value_name = "T", requires = "tensor_axis",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub tensor: Option<u16>,
    /// With `--tensor`: the variables that these ranks divide, by a pattern of key paths, and the
    /// axis, as in 'model.*.mlp.0.weight=1'. With 1/3, three matrices that lie side by side in the
    /// axis are divided each. Gradients, states of the optimiser and biases follow. May be given
    /// several times.
    #[arg(long, value_name = "PATTERN=AXIS[/BLOCKS]", requires = "tensor", value_parser = division)]
    pub tensor_axis: Vec<(String, Split)>,
    /// With `--zero` or `--tensor`: rank 0 collects the variables and writes whole checkpoints.
    /// Otherwise each rank writes its parts of a checkpoint, and all have to see the folder of
    /// `--out`. Checkpoints of both kinds go on with any number of ranks.
    #[arg(long)]
    pub whole_checkpoints: bool,
    /// With several ranks: end the run if a rank waits longer than this for another.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub rank_timeout: u64,
}

impl RanksArgs {
    /// The request for tensor parallelism, if there is one.
    ///
    /// Error: a pattern is wrong.
    pub fn tensor(&self) -> wengert::Result<Option<TensorParallel>> {
        self.tensor.map(|ranks| tensor(ranks.into(), &self.tensor_axis)).transpose()
    }
}

/// The request for tensor parallelism on so many ranks.
///
/// Error: a pattern is wrong.
pub fn tensor(ranks: usize, axes: &[(String, Split)]) -> wengert::Result<TensorParallel> {
    let split = |all: TensorParallel, (path, split): &(String, Split)| all.split(path, *split);
    axes.iter().try_fold(TensorParallel::new(ranks), split)
}

pub(super) fn division(text: &str) -> Result<(String, Split), String> {
    let Some((path, split)) = text.rsplit_once('=') else {
        return Err("no axis: write `model.*.mlp.0.weight=1`".into());
    };
    let split = split.parse().map_err(|error: wengert::Diagnostic| match error.help {
        Some(help) => format!("{}: {help}", error.message),
        None => error.message,
    })?;
    Ok((path.into(), split))
}

/// Arguments of `train`.
#[derive(Args, Debug)]
pub struct TrainArgs {
    /// A .graph file with a recipe.
    #[arg(value_name = "FILE")]
    pub file: OsString,
    /// The data.
    #[command(flatten)]
    pub data: DataArgs,
    /// The ranks.
    #[command(flatten)]
    pub ranks: RanksArgs,
    /// Number of steps, counted from the start of the run (also with --resume).
    #[arg(long, conflicts_with = "epochs", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Number of epochs, counted from the start of the run (also with --resume).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,
    /// Examples in a batch, instead of the recipe's number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch_size: Option<u64>,
    /// Leave out the last batch of an epoch if it is smaller than the others.
    #[arg(long)]
    pub drop_last: bool,
    /// Where the recipe shuffles: shuffle blocks of so many consecutive rows, and rows within
    /// windows of so many blocks (8 by default), so that files are read block by block.
    #[arg(long, value_name = "ROWS[xWINDOW]", value_parser = blocks)]
    pub shuffle_blocks: Option<Blocks>,
    /// Folder for checkpoints, log and trained weights. With --zero or --tensor, all ranks have to
    /// see it, unless --whole-checkpoints is given.
    #[arg(long, value_name = "DIR", required_unless_present = "find_rate")]
    pub out: Option<PathBuf>,
    /// The learning-rate finder.
    #[command(flatten)]
    pub rates: FindRateArgs,
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
    /// What the run watches.
    #[command(flatten)]
    pub monitoring: MonitoringArgs,
    /// Write event files for TensorBoard beside the log: `tensorboard --logdir DIR`.
    #[arg(long)]
    pub tensorboard: bool,
    /// With --tensorboard: add the distributions of parameters after every so many steps. The
    /// default is after every epoch.
    #[arg(long, value_name = "STEPS", requires = "tensorboard",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub histograms: Option<u64>,
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
    /// The data.
    #[command(flatten)]
    pub data: DataArgs,
    /// Values of the variables: a .safetensors or .npz file, such as the weights of a run or a
    /// checkpoint. They replace those in the file.
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// The evaluation sets.
    #[command(flatten)]
    pub sets: SetArgs,
    /// Evaluate this set only, or `-` for the evaluation that has no name. The default is all.
    #[arg(long, value_name = "NAME")]
    pub set: Option<String>,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print the metrics as JSON, one object for each set.
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
    /// The elementary functions.
    #[command(flatten)]
    pub functions: FunctionsArgs,
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
