//! Arguments of `report`.

use super::{FunctionArgs, ValueArgs};
use crate::policy::PrecisionArgs;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Target: cpu, or a GPU architecture such as sm_80.
    #[arg(long, default_value = "cpu")]
    pub target: String,
    /// Run the function RUNS times on the CPU, and show the time of each kernel. Inputs without a
    /// value are random.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..))]
    pub profile: Option<u64>,
    /// Show the curves of a training run, by its folder. Several runs lie over each other.
    #[arg(long = "run", value_name = "FOLDER")]
    pub runs: Vec<PathBuf>,
    /// Limit on the number of plans in the frontier of memory budgets, besides the one with the
    /// most memory.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 12,
        value_parser = clap::value_parser!(u64).range(1..=64),
    )]
    pub points: u64,
    /// The inputs and variables, with --profile and for the certificate of precision.
    #[command(flatten)]
    pub values: ValueArgs,
    /// The page.
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    pub out: PathBuf,
}
