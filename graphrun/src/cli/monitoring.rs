//! What `train` and `evaluate` watch: evaluation sets, early stopping, the checkpoints kept.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use wengert::recipe::{FinalWeights, Watched};

/// Evaluation sets, options of `train` and `evaluate`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// Data of an evaluation set. If the recipe has no set of the name, it gets one, which is
    /// evaluated as the recipe's evaluation is.
    #[arg(long = "eval-data", value_name = "NAME=DATA")]
    pub sets: Vec<OsString>,
}

/// Options of `train` that replace those of the recipe. A run is resumed with the same ones.
#[derive(Args, Debug)]
pub struct MonitoringArgs {
    /// The evaluation sets.
    #[command(flatten)]
    pub sets: SetArgs,
    /// Evaluate after every so many epochs.
    #[arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u64).range(1..))]
    pub evaluate_every: Option<u64>,
    /// The number that --patience and --keep-best go by, and whether less or more is better: a
    /// metric of the evaluation, SET/METRIC, or epoch_loss. `loss:min`, `test/accuracy:max`.
    #[arg(long, value_name = "METRIC:min|max", value_parser = watched)]
    pub monitor: Option<Watched>,
    /// End the run once so many evaluations in a row have not improved the number of --monitor.
    #[arg(long, value_name = "EVALUATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: Option<u64>,
    /// With --patience: an improvement is greater than this.
    #[arg(long, value_name = "CHANGE", requires = "patience", value_parser = change)]
    pub min_change: Option<f64>,
    /// Keep the newest checkpoints, so many. The recipe usually says 2.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_last: Option<u64>,
    /// Keep the checkpoints with the best numbers of --monitor, so many.
    #[arg(long, value_name = "N")]
    pub keep_best: Option<u64>,
    /// The weights that the run writes: those after the last step, or those of the best checkpoint.
    #[arg(long, value_name = "CHECKPOINT")]
    pub weights: Option<WeightsArg>,
}

/// The choice of `--weights`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WeightsArg {
    /// After the last step.
    Last,
    /// Of the best checkpoint.
    Best,
}

impl From<WeightsArg> for FinalWeights {
    fn from(arg: WeightsArg) -> Self {
        match arg {
            WeightsArg::Last => FinalWeights::Last,
            WeightsArg::Best => FinalWeights::Best,
        }
    }
}

fn watched(text: &str) -> Result<Watched, String> {
    text.parse().map_err(|error: wengert::Diagnostic| match error.help {
        Some(help) => format!("{}: {help}", error.message),
        None => error.message,
    })
}

fn change(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("a change is a number of at least 0".into()),
    }
}
