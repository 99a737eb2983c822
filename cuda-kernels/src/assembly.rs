//! Compilation of PTX to machine code: the same options for the driver and for `ptxas`.
//!
//! The driver compiles a plan's PTX on the machine with the GPU (`driver::module`). `ptxas`
//! assembles the same PTX in the project's gate, on machines without one, where registers and
//! occupancy are read. These figures hold for the GPU only if both compile alike:
//!
//! - **The same options**: [`OPTIMISATION`], which each of the two receives in its own syntax.
//! - **Whole programs.** Relocatable code calls functions by a convention that reserves
//!   registers. In a step of GPT-2, `ptxas -c` gives the cross-entropy 209 registers a thread
//!   instead of 38, and a norm 96 instead of 80; so fewer warps are resident. The driver's linker
//!   (`cuLinkAddData`) compiles relocatable code too. Neither is used: the driver's table of
//!   functions has no linker.
//! - **The same GPU.** The driver compiles for the GPU of its context, `ptxas` for the
//!   architecture in its arguments.

use crate::architecture::Architecture;

/// The effort, from 0 to 4. All other options have the default that both share: no debug
/// information, no bound on registers, no line numbers.
pub const OPTIMISATION: u8 = 4;

/// The arguments that make `ptxas` compile for an architecture as the driver does on such a GPU.
pub fn ptxas_arguments(architecture: Architecture) -> Vec<String> {
    vec![format!("-arch={}", architecture.name()), format!("-O{OPTIMISATION}")]
}
