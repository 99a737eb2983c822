//! The project's policy, as code: what STYLE.md and ARCHITECTURE.md say and a compiler does not check.
//!
//! Each rule reads the sources as text and returns the places that break it. `tests/tidy.rs` runs them all over this repository,
//! and over a planted offender for each rule, so that no rule can pass by finding nothing.
#![forbid(unsafe_code)]

pub mod gate;
pub mod memory_list;
pub mod rules;
pub mod sources;
pub mod tier;
pub mod toolkit;
