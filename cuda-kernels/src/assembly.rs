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

use crate::architecture::{Architecture, HOPPER_TARGET};

/// The effort, from 0 to 4. All other options have the default that both share: no debug
/// information, no bound on registers, no line numbers.
pub const OPTIMISATION: u8 = 4;

/// The arguments that make `ptxas` compile a text for an architecture as the driver does on such a
/// GPU.
pub fn ptxas_arguments(text: &str, architecture: Architecture) -> Vec<String> {
    vec![format!("-arch={}", machine(text, architecture)), format!("-O{OPTIMISATION}")]
}

/// The architecture that `ptxas` is asked for: `sm_90a` for a text of this target, which it accepts
/// for no other. The driver knows its GPU, and takes both.
pub fn machine(text: &str, architecture: Architecture) -> String {
    if needs_hopper(text) { HOPPER_TARGET.into() } else { architecture.name() }
}

/// Whether a text runs on `sm_90` alone.
pub fn needs_hopper(text: &str) -> bool {
    let target = text.lines().find_map(|line| line.trim().strip_prefix(".target"));
    target.is_some_and(|target| target.trim() == HOPPER_TARGET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_text_is_asked_for() {
        let of = |text: &str, number: u32| {
            let architecture = Architecture::of_device(number / 10, number % 10).expect("a row");
            ptxas_arguments(text, architecture).join(" ")
        };
        let text = "// sm_90a\n.version 8.0\n.target sm_90\n";
        assert_eq!(of(text, 90), "-arch=sm_90 -O4");
        assert_eq!(of(text, 100), "-arch=sm_100 -O4");
        let alone = text.replace("target sm_90", "target sm_90a");
        assert_eq!(of(&alone, 90), "-arch=sm_90a -O4");
    }
}
