//! Arguments of `scale`.

use super::FunctionArgs;
use super::run::division;
use crate::policy::PrecisionArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use wengert::ranks::Split;

/// Arguments of `scale`.
#[derive(Args, Debug)]
pub struct ScaleArgs {
    /// The training step. In a file with a recipe it is the recipe's, unless a function is named,
    /// and the recipe's batch size is bound unless --bind says otherwise.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Axes of the ranks: data=64, or data=64,tensor=8. Along `data` they have parts of the
    /// examples; along `tensor`, which are neighbours, they share products.
    #[arg(long, value_name = "AXIS=N")]
    pub mesh: String,
    /// With the axis `tensor`: the variables that these ranks divide, as in `graphrun train`.
    #[arg(long, value_name = "PATTERN=AXIS[/BLOCKS]", value_parser = division)]
    pub tensor_axis: Vec<(String, Split)>,
    /// Parts of the batch, M. The default is one for each rank along `data`.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub microbatches: Option<u64>,
    /// What each rank stores a part of, by stages of ZeRO: 1 states of the optimiser, 2 gradients
    /// too, 3 parameters too.
    #[arg(long, value_name = "STAGE", default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: u8,
    /// Inputs whose first axis runs over the examples. The default are those of the recipe, or all
    /// that are neither variables nor keys.
    #[arg(long, value_name = "INPUT", value_delimiter = ',')]
    pub examples: Vec<String>,
    /// How ranks exchange data: in rings in each node and then between nodes, or each with each, as
    /// the CPU's collectives do.
    #[arg(long, value_enum, default_value = "hierarchical")]
    pub exchange: ExchangeArg,
    /// The machine: a .toml file of figures with their sources, or one of h100-sxm8 and h200-nvl8,
    /// which are built in. docs/scale.md has the keys.
    #[arg(long, value_name = "FILE")]
    pub machine: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The way in which ranks exchange data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExchangeArg {
    /// In rings within each node, then between nodes.
    Hierarchical,
    /// Between all pairs of ranks.
    Direct,
}
