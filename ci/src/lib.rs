//! The project's policy as code: the rules of STYLE.md and ARCHITECTURE.md that a compiler does
//! not check.
//!
//! Each rule reads the sources as text and returns its violations. `tests/tidy.rs` runs them all
//! over this repository, and over a planted offender for each rule, so that no rule passes
//! because it finds nothing.
#![forbid(unsafe_code)]

pub mod environment;
pub mod gate;
pub mod memory_list;
pub mod onnx_suite;
pub mod rules;
pub mod sources;
pub mod tier;
pub mod toolkit;
