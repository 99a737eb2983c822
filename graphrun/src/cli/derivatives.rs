//! Arguments of the commands that write derivatives and other transforms of functions.

use super::ModelArgs;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of the commands that differentiate.
#[derive(Args, Debug)]
pub struct WrtArgs {
    /// The function, in a .graph, .ir or .onnx file.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// What a model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
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
    /// The function, in a .graph, .ir or .onnx file.
    #[arg(value_name = "FILE[@FUNC]")]
    pub file: OsString,
    /// What a model leaves open.
    #[command(flatten)]
    pub model: ModelArgs,
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
