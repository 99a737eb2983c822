//! How PTX becomes machine code: one table of options for the driver and for `ptxas`.
//!
//! The driver compiles a plan's PTX on the machine with the GPU (`driver::module`). `ptxas`
//! assembles the same PTX in the project's gate, on machines without one, where registers and
//! occupancy are read. These figures hold for the GPU only if both compile alike:
//!
//! - **The same options**: [`SETTINGS`], which each of the two spells in its way.
//! - **Whole programs.** Code that may be linked with other code calls functions by a convention,
//!   in registers that are kept free for them. In a step of GPT-2, `ptxas -c` gives the
//!   cross-entropy 209 registers a thread instead of 38, and a norm 96 instead of 80; so fewer
//!   warps are resident. The driver's linker (`cuLinkAddData`) compiles so too. Neither is used:
//!   the driver's table of functions has no linker.
//! - **The same GPU.** The driver compiles for the GPU of its context, `ptxas` for the architecture
//!   that it is told.

use crate::architecture::Architecture;

/// An option of the compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Effort, from 0 to 4.
    Optimisation(u32),
}

/// The options. What is not named is as both have it by default: no debug information, no bound on
/// registers, no line numbers.
pub const SETTINGS: [Setting; 1] = [Setting::Optimisation(4)];

impl Setting {
    /// The word on `ptxas`' command line.
    fn ptxas(self) -> String {
        match self {
            Setting::Optimisation(level) => format!("-O{level}"),
        }
    }
}

/// The words that make `ptxas` compile for an architecture as the driver does on such a GPU.
pub fn ptxas_arguments(architecture: Architecture) -> Vec<String> {
    let target = format!("-arch={}", architecture.name());
    std::iter::once(target).chain(SETTINGS.map(Setting::ptxas)).collect()
}
