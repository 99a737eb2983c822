//! Arguments of `profile`.

use super::FunctionArgs;
use crate::policy::{FunctionsArgs, PrecisionArgs};
use clap::Args;

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// The function.
    #[command(flatten)]
    pub function: FunctionArgs,
    /// The precision.
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// The elementary functions.
    #[command(flatten)]
    pub functions: FunctionsArgs,
    /// The GPU: a100, a100-40gb, a6000, b200, h100, h200, l4, rtx4090, rtx5090. Its figures and
    /// their sources are in the documentation of the crate wengert-machine.
    #[arg(long, value_name = "GPU")]
    pub machine: String,
    /// Device that runs a sample of each kernel's blocks: emulator.
    #[arg(long, default_value = "emulator")]
    pub device: String,
    /// Blocks of each launch that the emulator runs, at least. Whole waves of resident blocks run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub blocks: u64,
    /// Compute products by own kernels too, not by cuBLASLt, whose time is a rough estimate.
    #[arg(long)]
    pub no_library: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
