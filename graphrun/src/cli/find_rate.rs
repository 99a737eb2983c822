//! The learning-rate finder of `train`.

use clap::Args;

/// Options of the learning-rate finder.
#[derive(Args, Debug)]
pub struct FindRateArgs {
    /// Train for --steps (100) with learning rates that grow exponentially, print the losses, and
    /// suggest the rate at which the loss falls most steeply. Nothing is written.
    #[arg(long, conflicts_with_all = ["out", "resume", "epochs", "tensorboard"])]
    pub find_rate: bool,
    /// With --find-rate: the first and the last rate. The default is 1e-7:10.
    #[arg(long, value_name = "FROM:TO", requires = "find_rate", value_parser = range)]
    pub rate_range: Option<(f64, f64)>,
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let found = text.split_once(':').and_then(|(from, to)| Some((number(from)?, number(to)?)));
    found.ok_or_else(|| format!("`{text}` is no range of rates: write FROM:TO, as in 1e-6:1"))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}
