//! Arguments of `import`, `merge` and `export`.

use super::{FunctionArgs, ReadingArgs};
use crate::policy::PrecisionArgs;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// An .onnx file. Values of tensors may lie in files beside it
    #[arg(value_name = "MODEL.onnx")]
    pub file: PathBuf,
    /// Output file. The default is a new file in this folder, with the name of the model.
    #[arg(short, long, value_name = "OUT.graph")]
    pub out: Option<PathBuf>,
    /// What the model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Number for a symbolic extent of inputs, if an op needs it as a number, or to fix it.
    #[arg(long = "bind", value_name = "NAME=N", value_delimiter = ',')]
    pub binds: Vec<String>,
    /// Name of the function.
    #[arg(long, value_name = "NAME", default_value = "predict")]
    pub function: String,
    /// How it is trained.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// What a model leaves open: options of `import`, and of each command that takes a model's file.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// Value of an input that holds a shape, axes or a count, which becomes part of the graph:
    /// @f.npy, @f.npz[k], "2xi64=3 4".
    #[arg(long = "bind-input", value_name = "NAME=SPEC", help_heading = OF_MODELS)]
    pub bound: Vec<OsString>,
    /// The most results kept of a value whose number of results depends on data, as that of
    /// NonZero. Zeros follow the results, and an output NAME_count has their number.
    #[arg(long = "max", value_name = "NAME=N", help_heading = OF_MODELS)]
    pub max: Vec<String>,
    /// The shapes of the elements of an input that is a sequence: "s=[3],[2,4]". Each element is an
    /// input of the function, s.0 and so on.
    #[arg(long = "sequence", value_name = "NAME=SHAPES", help_heading = OF_MODELS)]
    pub sequences: Vec<String>,
    /// An optional input that is absent.
    #[arg(long = "absent", value_name = "NAME", help_heading = OF_MODELS)]
    pub absent: Vec<String>,
}

const OF_MODELS: &str = "Options of .onnx files";

impl ModelArgs {
    /// The name of an option that is given, if there is one.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("bind-input", !self.bound.is_empty()),
            ("max", !self.max.is_empty()),
            ("sequence", !self.sequences.is_empty()),
            ("absent", !self.absent.is_empty()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// How an imported model is trained.
#[derive(Args, Debug)]
pub struct TuningArgs {
    /// Write a file that `graphrun train` trains: with a training step, an evaluation and a recipe.
    #[arg(long)]
    pub train: bool,
    /// With --train: the loss. cross_entropy of logits [batch, classes] and labels below the number
    /// of classes, binary_cross_entropy of logits and targets, or mse, mae, huber of numbers. What
    /// precedes a softmax or sigmoid at the end of the model are its logits.
    #[arg(long, value_name = "LOSS", requires = "train")]
    pub loss: Option<String>,
    /// With --train: adamw, adam, muon, soap, lion, adafactor, rmsprop, adagrad, sgd or momentum.
    /// The default is adamw.
    #[arg(long, value_name = "NAME", requires = "train")]
    pub optimizer: Option<String>,
    /// With --train: the learning rate. The default is 1e-3.
    #[arg(long, value_name = "RATE", requires = "train")]
    pub learning_rate: Option<f64>,
    /// With --train: let `graphrun train --find-rate` try other learning rates.
    #[arg(long, requires = "train")]
    pub settable_rate: bool,
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

/// Arguments of `merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// A .graph file with updates of low rank, such as `import --train --lora` writes, and a
    /// function in it. The default are the functions that are neither trained nor evaluated.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// Trained values of the variables: a .safetensors or .npz file, such as the weights of a run.
    #[arg(long, value_name = "FILE")]
    pub params: PathBuf,
    /// Output file: .graph for the functions without updates, with the merged weights in the file;
    /// .safetensors or .npz for the merged weights alone.
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// Limits on the data read.
    #[command(flatten)]
    pub reading: ReadingArgs,
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
