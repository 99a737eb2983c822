//! Native code for nests: vector loops, assembled when a nest is compiled.
//!
//! The interpreter of [`crate::nest`] runs one kernel for each instruction, and every value
//! passes through a block in L1. For a chain of additions and products, that costs more than the
//! arithmetic. So where the machine has AVX-512, runs of instructions become one function. A
//! [`Program`] is built from scalar instructions on sixteen lanes, and compiled to a loop whose
//! values stay in registers. The stages:
//!
//! - `lower`: scalar instructions become vector instructions; approximated functions are expanded
//!   to their programs.
//! - `function`: several iterations of the loop are interleaved; a masked tail handles any number
//!   of elements.
//! - `allocate`: register allocation, on straight-line code.
//! - `encode`: an assembler for the few instructions used.
//! - `code`: pages that are written, then made executable, never both.
//!
//! Instructions without a rule stay with the interpreter, which needs neither this architecture
//! nor permission to execute generated code. The bits are those of the interpreters: nothing is
//! contracted or reassociated, and a fused multiply-add occurs only where the nest has one. Where
//! the machine's instructions differ for zeros, NaNs and numbers out of range, `lower` corrects
//! them.
//!
//! The environment variable `WENGERT_NESTS` chooses: `native` (if the machine supports it; also
//! the default) or `interpreted`.

mod allocate;
mod code;
mod encode;
mod function;
mod instruction;
mod lower;
#[cfg(test)]
mod tests;

use crate::simd::Simd;
pub(crate) use function::{Function, Program, Register};
use std::sync::OnceLock;
use wengert_core::Diagnostic;

static CHOSEN: OnceLock<bool> = OnceLock::new();

/// Whether nests have native code on a machine with these vector instructions, according to the
/// environment variable `WENGERT_NESTS`.
///
/// Error: the variable has another value.
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
