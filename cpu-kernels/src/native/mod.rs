//! Native code for nests: vector loops, assembled when a nest is compiled.
//!
//! The interpreter of [`crate::nest`] runs one kernel for each instruction, and every value goes through a block in the first cache. A chain
//! of additions and products spends more time there than on arithmetic. So where the machine has AVX-512, runs of instructions
//! become one function: a [`Program`] is written down in terms of scalar instructions on sixteen lanes, and compiled to a loop whose
//! values stay in registers. The stages:
//!
//! - `lower`: scalar instructions become vector instructions, approximated functions their programs.
//! - `function`: several turns of the loop are interleaved, and a last one works under a mask, so that a loop takes any number of elements.
//! - `allocate`: registers are given out, which is simple, since the code is straight.
//! - `encode`: an assembler of the few instructions that there are.
//! - `memory`: pages that are written, then made executable, never both.
//!
//! What has no rule stays with the interpreter, which needs neither this architecture nor the right to run what it wrote. The bits are
//! those of the interpreters, as ever: nothing is contracted or reassociated, a fused multiply-add is where the nest says so, and what the machine's
//! instructions do otherwise with zeros, NaNs and numbers out of range is mended (`lower`).
//!
//! The environment variable `WENGERT_NESTS` chooses: `native` (where the machine can, as if it were unset) or `interpreted`.

mod allocate;
mod encode;
mod function;
mod instruction;
mod lower;
mod memory;
#[cfg(test)]
mod tests;

use crate::simd::Simd;
pub(crate) use function::{Function, Program, Register};
use std::sync::OnceLock;
use wengert_core::Diagnostic;

static CHOSEN: OnceLock<bool> = OnceLock::new();

/// Whether nests have native code on a machine with these vector instructions, as the environment variable `WENGERT_NESTS` says.
///
/// Error: it says something else.
pub(crate) fn choose(simd: Simd) -> Result<bool, Diagnostic> {
    if let Some(native) = CHOSEN.get() {
        return Ok(*native && simd >= Simd::Avx512);
    }
    let native = match std::env::var("WENGERT_NESTS") {
        Ok(name) => from_name(&name)?,
        Err(_) => true,
    };
    Ok(*CHOSEN.get_or_init(|| native) && simd >= Simd::Avx512)
}

fn from_name(name: &str) -> Result<bool, Diagnostic> {
    match name {
        "native" => Ok(true),
        "interpreted" => Ok(false),
        _ => Err(Diagnostic::new(format!("WENGERT_NESTS is `{name}`"))
            .help("it may be native, interpreted, or unset")),
    }
}
