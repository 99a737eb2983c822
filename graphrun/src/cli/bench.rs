//! Arguments of `bench`.

use super::{DeviceArgs, FunctionArgs, ValueArgs, positive};
use crate::policy::PrecisionArgs;
use clap::{Args, Parser};
use std::ffi::OsString;

/// Arguments of `bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The inputs and variables. Inputs and variables without a value are random.
    #[command(flatten)]
    pub values: ValueArgs,
    /// The choices that --compare-with replaces.
    #[command(flatten)]
    pub choices: ChoiceArgs,
    /// Compare with another function, or with the same function of another file, on the same
    /// inputs. Both take turns, and the medians are of ratios within a round.
    #[arg(long, value_name = "FILE[@FUNC]")]
    pub compare: Option<OsString>,
    /// Compare with other options of device and precision, such as `--compare-with "--threads 1"`.
    /// Options that are left out have their defaults.
    #[arg(
        long,
        value_name = "OPTIONS",
        value_parser = choices,
        allow_hyphen_values = true,
    )]
    pub compare_with: Option<Box<Variant>>,
    /// End when the median's 95 % confidence interval is within E of the median, relative to it.
    #[arg(long, value_name = "E", default_value_t = 0.01, value_parser = positive)]
    pub within: f64,
    /// End after so many seconds of runs.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = positive)]
    pub seconds: f64,
    /// Do not measure the machine's peak rates. The measurement takes a quarter of a second and 80
    /// MiB.
    #[arg(long)]
    pub no_roofline: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The choices in which two contenders of `bench` may differ.
#[derive(Args, Clone, Debug)]
pub struct ChoiceArgs {
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Report an index or label out of range as an error.
    #[arg(long)]
    pub check_indices: bool,
    /// Compute what depends on variables alone once, before the runs, and keep it.
    #[arg(long)]
    pub keep_invariants: bool,
}

/// The argument of `--compare-with`.
#[derive(Clone, Debug)]
pub struct Variant {
    /// As it was given.
    pub text: String,
    /// What it says.
    pub choices: ChoiceArgs,
}

/// A command line of choices alone.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Choices {
    #[command(flatten)]
    choices: ChoiceArgs,
}

/// Parses the words of `--compare-with`.
fn choices(text: &str) -> Result<Box<Variant>, String> {
    let parsed = Choices::try_parse_from(text.split_whitespace());
    let variant =
        |parsed: Choices| Box::new(Variant { text: text.trim().into(), choices: parsed.choices });
    parsed.map(variant).map_err(|error| {
        let message = error.to_string();
        let line = message.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    })
}
